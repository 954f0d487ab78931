"""A pool as root runs it, over loopback and a unix socket: real keepers, certificates, and the files of two users.

The nodes are of this process, which runs in a mount namespace of its own, where /etc/passwd has two users more:
alice-of-tests, whose jobs and files are not to be touched, and mallory-of-tests, who attacks. The strangers have no
certificate, the guest a user's token, the startd and the schedd are whoever has broken into the nodes `run` and `sub`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import shlex
import socket
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

from pool.client import Pool
from pool.config import Settings
from pool.errors import PoolError
from pool.jobs.events import EventKind
from pool.node import Node
from pool.outside import OutsideWorld
from pool.wire import CannotListen, Connection, Dispatcher
from pool.wire.credentials import Credentials
from pool.wire.endpoint import WireConnection
from pool.wire.identity import ANONYMOUS
from pool.wire.join import _Unproven, user_credentials
from pool.wire.network import RealNetwork
from tests.hostile.attack import Attack
from tests.hostile.drawing import Drawing
from tests.hostile.recording import Record
from tests.hostile.simulated import KEPT, SECRET, Defects

ALICE, MALLORY = ("alice-of-tests", 61235), ("mallory-of-tests", 61236)
ROLES = {"head": "collector,negotiator,schedd,startd", "run": "startd", "sub": "schedd"}
SETTINGS = {
    **{"LISTEN": "127.0.0.1:0", "POLICY": "dedicated", "MAIL": "none", "RUN_AS": "owner", "SLOTS": "2"},
    **{"UID_DOMAIN": "tests", "FILESYSTEM_DOMAIN": "tests", "CLAIM_LEASE": "30", "NEGOTIATION_INTERVAL": "5"},
}
PATIENCE = 60.0


class ByUser:
    """The network as the user of another number has it: a unix socket knows by whom it was connected."""

    def __init__(self, uid: int) -> None:
        self._uid = uid

    async def connect(self, address: str, dispatcher: Dispatcher | None = None) -> Connection:
        """Connect."""
        connection = WireConnection(
            opener=True, dispatcher=dispatcher, identify=lambda *_: ANONYMOUS, hello={}, address=address
        )
        end = socket.socket(socket.AF_UNIX)
        os.seteuid(self._uid)
        try:
            end.connect(address.removeprefix("unix://"))
        finally:
            os.seteuid(0)
        end.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: connection, sock=end)
        await connection.opened
        return connection

    async def listen(self, address: str, dispatcher: Dispatcher) -> Any:
        raise CannotListen("who attacks serves nobody")


class RealPool:
    """The target of the attack; see `tests.hostile.attack.Target`."""

    callers: tuple[str, ...] = ("stranger", "user", "guest", "startd", "schedd")
    silence = 0.05
    together = 24

    def __init__(self, place: Path, nodes: dict[str, Node], defects: Defects, guest: RealNetwork) -> None:
        self.place = place
        self.nodes = nodes
        self.defects = defects
        self._guest = guest
        self._stranger = RealNetwork(credentials=_Unproven())
        self._kept = _files(place)
        self._job: dict[str, Any] = {}
        self._first = self.held()

    def dispatchers(self) -> Mapping[str, Dispatcher]:
        return {name: node.dispatcher for name, node in self.nodes.items()}

    async def link(self, caller: str, node: str) -> Connection:
        here = self.nodes[node]
        if caller == "user":
            return await ByUser(MALLORY[1]).connect(f"unix://{here.state}/node.sock")
        if caller == "guest":
            return await self._guest.connect(self.nodes["head"].address)
        if caller == "stranger":
            return await self._stranger.connect(here.address)
        name = {"startd": "run", "schedd": "sub"}[caller]
        credentials = Credentials.load(self.nodes[name].state / "trust")
        return await RealNetwork(credentials=credentials).connect(here.address)

    async def ready(self, caller: str) -> dict[str, Any]:
        if caller in ("startd", "schedd"):
            now = self.held()
            if now is not None and self._first is not None:
                return {self._first[0]: now[0], str(list(self._first[1])): list(now[1])}
        return {}

    def held(self) -> tuple[str, tuple[int, int]] | None:
        """The claim and the job that `sub` has on `run`."""
        schedd: Any = self.nodes["sub"].running["schedd"]
        for claim in schedd.placement.claims.values():
            if claim.job is not None and claim.start is not None and not claim.over and not claim.lost:
                return claim.id, claim.job.id
        return None

    async def tidy(self) -> None:
        for name, job in (("head", None), ("sub", self.held())):
            mine = f"ClusterId == {job[1][0]}" if job is not None else f'Owner == "{ALICE[0]}"'
            link = await ByUser(0).connect(f"unix://{self.nodes[name].state}/node.sock")
            await link.call("schedd.act", {"action": "remove", "constraint": f"!({mine})"})
            await link.close()

    def secrets(self) -> set[str]:
        startd: Any = self.nodes["head"].running["startd"]
        found = {SECRET}
        for slot in startd.slots.values():
            if slot.claim is not None and slot.claim.owner == ALICE[0]:
                found.add(slot.claim.id)
        return found | set(startd.peers._tickets.values())

    def state(self) -> dict[str, Any]:
        schedd: Any = self.nodes["head"].running["schedd"]
        startd: Any = self.nodes["head"].running["startd"]
        found: dict[str, Any] = {f"file {path}": what for path, what in _files(self.place).items()}
        for job in schedd.queue.jobs():
            if job.cluster.owner == ALICE[0]:
                wire = job.wire()
                found[f"job {job.id}"] = {name: wire.get(name) for name in KEPT}
        for name, slot in startd.slots.items():
            if slot.claim is not None and slot.claim.owner == ALICE[0]:
                found[f"slot {name}"] = (slot.claim.id, slot.claim.node)
        found["drained"] = startd.draining.state.on
        return found

    def broken(self) -> list[str]:
        wrong = list(self.defects.seen)
        for name, node in self.nodes.items():
            wrong += [f"the role {role} of {name} went down" for role in sorted(set(node.roles) - set(node.running))]
        return wrong

    async def serves(self) -> list[str]:
        """Whether every node still answers."""
        wrong = []
        for name, node in self.nodes.items():
            try:
                async with asyncio.timeout(20):
                    link = await ByUser(0).connect(f"unix://{node.state}/node.sock")
                    await link.call("node.ping", {})
                    await link.close()
            except (PoolError, OSError, TimeoutError) as error:
                wrong.append(f"{name} does not serve any more: {error!r}")
        return wrong


def _files(place: Path) -> dict[str, tuple[Any, ...]]:
    """The files where nothing may be changed, and their owners."""
    found: dict[str, tuple[Any, ...]] = {}
    for root in (place / "alice", place / "private", *place.glob("*.state/trust")):
        for path in (root, *root.rglob("*")):
            if path.name == "nodes.json":  # who joined comes again with the same key: it notes when
                continue
            status = path.lstat()
            told = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else ""
            size = status.st_size if told else 0
            found[str(path)] = (status.st_mode, status.st_uid, status.st_gid, size, told)
    return found


def lay_out(place: Path) -> None:
    """The files of both users; paths of hostile calls lead to them."""
    place.chmod(0o755)
    for name, user, mode in (("alice", ALICE, 0o700), ("home", MALLORY, 0o755), ("private", ("root", 0), 0o700)):
        (place / name).mkdir()
        (place / name).chmod(mode)
        (place / name / "secret").write_text(SECRET if name != "home" else "mallory's own")
        for path in (place / name, place / name / "secret"):
            os.chown(path, user[1], user[1])
    (place / "home" / "link").symlink_to(place / "private")
    (place / "home" / "alice").symlink_to(place / "alice" / "secret")
    os.mkfifo(place / "fifo")


@contextlib.asynccontextmanager
async def started(place: Path, record: Record, defects: Defects) -> AsyncIterator[RealPool]:
    """The nodes, with jobs of everybody."""
    nodes: dict[str, Node] = {}
    try:
        with record.listening():
            await _start(place, nodes, "head", None)
            for name in ("run", "sub"):
                made = nodes["head"].enrolment
                params = {"roles": [ROLES[name]], "lifetime": 600, "uses": 1}
                await _start(place, nodes, name, made.token(nodes["head"].address, params, "root")["token"])
            params = {"roles": ["user"], "user": MALLORY[0], "lifetime": 36000}
            token = nodes["head"].enrolment.token(nodes["head"].address, params, "root")["token"]
            _, credentials = await user_credentials(token)
            await _fill(place, nodes)
        yield RealPool(place, nodes, defects, RealNetwork(credentials=credentials))
    finally:
        for node in reversed(nodes.values()):
            await node.stop(handover=False)


async def _start(place: Path, nodes: dict[str, Node], name: str, join: str | None) -> None:
    sets = {**SETTINGS, "NODE_NAME": name, "CHECKPOINT_DIR": str(place / f"{name}.images")}

    def read() -> Settings:
        return Settings.load(None, sets=sets, environ={}, files=False)

    node = Node(ROLES[name].split(","), read(), place / f"{name}.state", OutsideWorld(), read, personal=False)
    await node.start(join)
    nodes[name] = node


async def _fill(place: Path, nodes: dict[str, Node]) -> None:
    """Jobs, and the questions of their owners."""
    sleeps = {"executable": "/bin/sleep", "arguments": "100000", "environment": "TOKEN=mallory"}
    carries = {
        **{"executable": "/bin/sh", "arguments": "-c 'cat secret; echo x > made; sleep $0' 0"},
        **{"transfer_input_files": "secret", "should_transfer_files": "YES", "output": "out"},
    }
    at = {"head": 'TARGET.Machine == "head"', "run": 'TARGET.Machine == "run"'}
    for user, node, where, home in ((ALICE, "head", "head", "alice"), (MALLORY, "sub", "run", "home")):
        address = f"unix://{nodes[node].state}/node.sock"
        async with await Pool.connect(address, network=ByUser(user[1])) as pool:
            iwd = str(place / home)
            short = await pool.submit(carries | {"requirements": at[where]}, iwd=iwd)
            await short.wait(PATIENCE)
            remote = {"remote_io": "on", "executable": "/bin/cp", "arguments": "secret copied"}
            await (await pool.submit(remote | {"requirements": at[where]}, iwd=iwd)).wait(PATIENCE, until_stuck=True)
            if user is ALICE:
                sleeps["environment"] = f"TOKEN={SECRET}"
            long = await pool.submit(sleeps | {"requirements": at[where]}, iwd=iwd)
            await pool.submit(sleeps | {"requirements": "false"}, iwd=iwd)
            sleeps["environment"] = "TOKEN=mallory"
            async for event in long.events():
                if event.kind == EventKind.EXECUTE:
                    break
            calls: list[tuple[str, dict[str, Any]]] = [
                ("schedd.act", {"action": "checkpoint", "ids": [[long.cluster, 0]]}),
                ("schedd.act", {"action": "prio", "ids": [[long.cluster, 0]], "value": 1}),
                ("schedd.act", {"action": "edit", "ids": [[long.cluster, 0]], "value": {"Note": "x"}}),
                ("schedd.why", {"id": [long.cluster, 0]}),
                ("schedd.reserve", {}),
                ("schedd.checkpoints", {}),
            ]
            streams: list[tuple[str, dict[str, Any]]] = [
                ("schedd.history", {"limit": 3}),
                ("schedd.tail", {"id": [long.cluster, 0], "file": "Out", "lines": 3}),
                ("schedd.watch", {"cluster": long.cluster, "after": 0}),
            ]
            for name, params in calls:
                with contextlib.suppress(PoolError):
                    await pool.call(name, params)
            for name, params in streams:
                with contextlib.suppress(PoolError, TimeoutError):
                    async with asyncio.timeout(1):
                        await pool.gather(name, params)


async def attack(seed: int, calls: int, only: str = "") -> Attack:
    """Call each method so often by each caller."""
    record, defects = Record(SECRET), Defects()
    with tempfile.TemporaryDirectory(prefix="hostile-") as name, defects.listening():
        place = Path(name)
        lay_out(place)
        async with started(place, record, defects) as target:
            run = Attack(target, Drawing(random.Random(seed), record, place))
            await run.run(calls, only)
            run.wrong += await target.serves()
            return run


@contextlib.contextmanager
def two_users() -> Iterator[tuple[str, ...]]:
    """A command's beginning: it runs where both users have accounts."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        covers = []
        for file, line in (("passwd", "{0}:x:{1}:{1}::/nonexistent:/bin/sh"), ("group", "{0}:x:{1}:")):
            cover = Path(name, file)
            more = [line.format(*user) for user in (ALICE, MALLORY)]
            cover.write_text("\n".join([Path("/etc", file).read_text().rstrip("\n"), *more]) + "\n")
            covers.append(f"mount --bind {shlex.quote(str(cover))} /etc/{file}")
        yield ("unshare", "--mount", "sh", "-c", " && ".join([*covers, 'exec "$@"']), "machine", sys.executable)
