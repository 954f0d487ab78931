"""Two real pools that have agreed on nothing, and a user with an account in both (EV 4.1); then they do agree."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import support
from tests.e2e.flocks import BOTH, HEAD, lines_of
from tests.e2e.support import Node, Nodes, administrator, asked, client, poolnode, program, slots
from tests.ordinary_user import as_root


@pytest.fixture(scope="module")
def pair(whose_pool: object) -> Iterator[Nodes]:
    """physics, the user's home, which has no machine; and chem, which has one."""

    async def start(nodes: Nodes) -> None:
        nodes.start("physics", HEAD).ready()
        chem = nodes.start("chem", BOTH, SLOTS="1", FILESYSTEM_DOMAIN="chem").ready()
        async with client(chem) as pool:
            await slots(pool, 1)

    with support.running(start) as nodes:
        yield nodes


async def token_of(chem: Node, user: str, directory: Path, **more: Any) -> Path:
    """A user's token for chem, in a file of his."""
    async with administrator(chem) as pool:
        made = await pool.call("node.token", {"roles": ["user"], "user": user, "lifetime": 600, "uses": 1, **more})
    path = directory / "token"
    path.write_text(made["token"])
    return path


async def private(node: Node) -> list[dict[str, Any]]:
    async with client(node) as pool:
        found: list[dict[str, Any]] = (await pool.call("world.status"))["private"]
        return found


async def test_a_job_runs_once_where_a_machine_is_and_its_files_are_at_home(pair: Nodes) -> None:
    """Joined with a token, submitted, watched in both pools, back with its output; then the user quits."""
    physics, chem = pair.all
    home, user = pair.directory("private"), pwd.getpwuid(os.geteuid()).pw_name
    (home / "in").write_text("from home\n")
    script = program(home, "cat in; echo made > result; id -un; sleep 1.5")
    (home / "job.sub").write_text(
        f"executable = {script}\ntransfer_input_files = in\nshould_transfer_files = YES\n"
        "output = out\nlog = log\nqueue\n"
    )

    def tool(*words: str) -> Any:
        return poolnode(*words, "-A", physics.address, cwd=home)

    refused = tool("submit", "--also", "chem", "job.sub")
    assert "have not joined a pool chem" in refused.stderr, refused.stderr
    assert refused.stderr.count("\n") <= 2
    token = await token_of(chem, user, home, administer=True)
    refused = tool("flock", "join", "chem", str(token))
    assert "administrator's token" in refused.stderr, refused.stderr
    token = await token_of(chem, user, home)
    joined = tool("flock", "join", "chem", str(token))
    assert f"may run at chem, too, as {user}" in joined.stdout, joined.stderr
    submitted = tool("submit", "--also", "chem", "-q", "job.sub")
    assert submitted.returncode == 0, submitted.stderr
    async with client(physics) as pool:
        cluster = pool.cluster(int(submitted.stdout))

        async def runs() -> bool:
            return any(one["running"] for one in await private(chem))

        await asked(runs, "the job at chem")
        (there,) = await private(chem)
        assert (there["user"], there["pool"], there["side"]) == (user, "physics", "here")
        assert [(one["pool"], one["side"], one["trouble"]) for one in await private(physics)] == [("chem", "there", "")]
        (ad,) = await cluster.ads()
        assert "@chem~" in str(ad.value("RemoteHost"))
        async with client(chem) as other:
            assert await other.find([(1,)]) == [], "it is in one queue, at home"
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert result.ok, result
    assert lines_of(home / "out")[:2] == ["from", "home"]
    assert (home / "result").read_text() == "made\n"
    left = tool("flock", "quit", "chem")
    assert "run at chem no more" in left.stdout, left.stderr
    assert await private(physics) == []

    async def forgotten() -> bool:
        return await private(chem) == []

    await asked(forgotten, "chem to have heard of it")
    assert "jobs here run at" not in tool("flock").stdout
    with as_root():
        assert "private-flock.json" in {path.name for path in physics.state.iterdir()}
