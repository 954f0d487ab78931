"""A node: roles fail alone, are started again with a limit, and the administrator hears of it (A1)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pool.config import Settings
from pool.node import ROLES, CannotRun, Node
from pool.outside import OutsideWorld

DEADLINE = 3.0


class Told(dict[str, Any]):
    """A mapping that tells when something is put in."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Event()

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


def node(state: Path, roles: tuple[str, ...] = ROLES, **sets: str) -> Node:
    own = {"POLICY": "dedicated", "LISTEN": "", "RUN_AS": "node", "NODE_NAME": "here", "MAIL": "none", **sets}

    def read() -> Settings:
        return Settings.load(None, sets=own, environ={}, files=False)

    made = Node(roles, read(), state, OutsideWorld(), read, personal=True)
    made.running, made.given_up = Told(), Told()
    return made


async def told(watched: object, condition: Callable[[], bool]) -> None:
    assert isinstance(watched, Told)
    await watched.until(condition)


def fail(running: Node, role: str) -> None:
    """Have a background task of the role raise."""

    async def broken() -> None:
        raise RuntimeError("broken on purpose")

    running.running[role].spawn(broken(), "broken")


async def test_a_failed_role_is_started_again_alone(tmp_path: Path) -> None:
    one = node(tmp_path)
    await one.start()
    try:
        before = dict(one.running)
        fail(one, "collector")
        await told(one.running, lambda: one.running.get("collector") not in (None, before["collector"]))
        assert one.running["schedd"] is before["schedd"]
        assert one.running["startd"] is before["startd"]
        # The collector's ads come again by themselves.
        link = await one.links.connect(one.address)
        async with asyncio.timeout(DEADLINE), await link.stream("collector.watch", {"types": ["Machine"]}) as stream:
            while not await stream.receive():
                pass
    finally:
        await one.stop(handover=False)


async def test_a_role_that_is_started_again_has_the_settings_read_last(tmp_path: Path) -> None:
    own = {"POLICY": "dedicated", "LISTEN": "", "MAIL": "none", "CLAIM_LIFE": "100"}

    def read() -> Settings:
        return Settings.load(None, sets=own, environ={}, files=False)

    one = Node(("collector", "schedd"), read(), tmp_path, OutsideWorld(), read, personal=True)
    one.running = Told()
    await one.start()
    try:
        own["CLAIM_LIFE"] = "200"
        assert [change.name for change in one.reload()] == ["CLAIM_LIFE"]
        before = one.running["schedd"]
        fail(one, "schedd")
        await told(one.running, lambda: one.running.get("schedd") not in (None, before))
        assert one.running["schedd"].settings.number("CLAIM_LIFE") == 200
    finally:
        await one.stop(handover=False)


async def test_a_role_that_fails_too_often_is_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = node(tmp_path, RESTARTS_PER_HOUR="1")
    await one.start()
    try:
        first = one.running["negotiator"]
        fail(one, "negotiator")
        await told(one.running, lambda: one.running.get("negotiator") not in (None, first))
        fail(one, "negotiator")
        await told(one.given_up, lambda: "negotiator" in one.given_up)
        assert "broken on purpose" in one.given_up["negotiator"]
        assert {"collector", "schedd", "startd"} <= one.running.keys()
        assert any("given up" in str(getattr(record, "text", "")) for record in caplog.records)
    finally:
        await one.stop(handover=False)


async def test_a_role_that_was_given_up_is_tried_again_later(tmp_path: Path) -> None:
    one = node(tmp_path, RESTARTS_PER_HOUR="0", GIVEN_UP_RETRY="0.05")
    await one.start()
    try:
        first = one.running["negotiator"]
        fail(one, "negotiator")
        await told(one.running, lambda: one.running.get("negotiator") not in (None, first))
        assert not one.given_up
    finally:
        await one.stop(handover=False)


async def test_or_it_ends_the_node(tmp_path: Path) -> None:
    """With a status: `run_node` waits for this."""
    one = node(tmp_path, RESTARTS_PER_HOUR="0", GIVEN_UP_RETRY="0")
    await one.start()
    try:
        fail(one, "negotiator")
        async with asyncio.timeout(DEADLINE):
            await one.failed.wait()
        assert "negotiator" in one.given_up
    finally:
        await one.stop(handover=False)


async def test_a_role_that_cannot_start_says_why(tmp_path: Path) -> None:
    one = node(tmp_path, SLOTS="many")
    with pytest.raises(CannotRun, match="the startd cannot start: SLOTS = many"):
        await one.start()
    await one.stop(handover=False)


async def test_a_state_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotRun, match="cannot use the state directory"):
        await node(tmp_path / "file").start()


def test_the_variables_of_the_users_tools_are_no_settings() -> None:
    """$POOLNODE_ADDRESS names the node that tools talk to; a node started with it kept it as its own address."""
    tools = {"POOLNODE_ADDRESS": "/x/node.sock", "POOLNODE_STATE": "/x", "POOLNODE_TOKEN": "t", "POOLNODE_CONFIG": ""}
    settings = Settings.load(None, sets={}, environ=tools, files=False)
    assert settings.values == {}


#: A node of all roles whose watch over the loop notes the modules that are there when it begins.
IMPORTS = """
import asyncio, sys
from pathlib import Path
from pool import node

class Watch(node.LoopWatch):
    def __init__(self, *given):
        self.before = set(sys.modules)
        Watch.made = self
        super().__init__(*given)

node.LoopWatch = Watch

async def main():
    made = node._personal_node(Path(sys.argv[1]), 1, None)
    await made.start()
    print(*sorted(name for name in set(sys.modules) - Watch.made.before if name.startswith("pool.roles.")))
    print(*sorted(made.running))
    await made.stop(handover=False)

asyncio.run(main())
"""


def test_roles_are_imported_before_the_loop_is_watched(tmp_path: Path, repository: Path) -> None:
    """Their imports take most of a second on a busy machine: nobody waits yet, and none of it is work for anybody."""
    command = [sys.executable, "-c", IMPORTS, str(tmp_path / "state")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=repository, timeout=120)
    assert done.returncode == 0, done.stderr
    later, roles = done.stdout.splitlines()
    assert roles.split() == sorted(ROLES)
    assert later.split() == []


def test_a_node_imports_nothing_that_most_nodes_never_use() -> None:
    """Each of these modules, with those that it imports, is some 0.2 to 1 MB of an idle node's memory."""
    unused = {
        *("csv", "difflib", "statistics", "email.message", "http.client", "pydantic", "tarfile", "urllib.request"),
        *("pool.client", "pool.jobs.dag", "pool.jobs.description.reader", "pool.roles.schedd.workflows.workflow"),
    }
    program = (
        "import sys\n"
        "from pool.node import ROLES, role_named\n"
        "for role in ROLES:\n"
        "    role_named(role)\n"
        "print(*sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    imported = set(done.stdout.split())
    assert "pool.roles.schedd.role" in imported
    assert imported & unused == set()
