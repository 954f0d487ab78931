"""kill -9 of something of a job on two machines while an image of it is on its way between nodes: the job goes on from
its last whole set, and nothing that its parts say to each other is lost or doubled (issue 14, 3).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import psutil
import pytest

from pool.errors import PoolError
from tests.e2e import support
from tests.e2e.support import HEAD, Node, Nodes, client, processes_with, slots, token
from tests.starter.support import PYTHON, is_named

MEMORY = 48  # MB of each part, which nothing compresses
RATE = "40"  # MB/s: an image is on its way for a second
#: Each exchange adds to a sum at both ends, over everything that was said before. The first part says when to end.
EXCHANGE = """
import hashlib, os, socket, sys, time
part, home = int(sys.argv[1]), sys.argv[2]
memory = os.urandom(int(sys.argv[3]) << 20)
before = hashlib.sha256(memory).digest()
if part == 0:
    link = socket.create_server(("", 5000)).accept()[0]
else:
    while True:
        try: link = socket.create_connection(("rank0", 5000)); break
        except OSError: pass
said = hashlib.sha256()
for turn in range(1_000_000):
    mine = b"%d of %d " % (turn, part) * 500
    last = part == 0 and turn % 20 == 0 and os.path.exists(home + "/end")
    link.sendall(b"%7d%d" % (len(mine), last) + mine)
    head = link.recv(8, socket.MSG_WAITALL)
    got = link.recv(int(head[:7]), socket.MSG_WAITALL)
    assert got == b"%d of %d " % (turn, 1 - part) * 500, (turn, got[:20])
    said.update(min(mine, got) + max(mine, got))
    time.sleep(0.001)
    if turn % 20 == 0: print(turn, said.hexdigest(), flush=True)
    if turn % 20 == 0 and os.path.exists(f"{home}/refresh.{part}"):
        memory = os.urandom(len(memory))
        before = hashlib.sha256(memory).digest()
        os.unlink(f"{home}/refresh.{part}")
    if last or head[7:] == b"1": break
assert hashlib.sha256(memory).digest() == before
"""


@pytest.fixture(scope="module")
def machines(whose_pool: object) -> Iterator[Nodes]:
    """A head, and two machines with a place more than the job needs."""

    async def start(nodes: Nodes) -> None:
        head = start_head(nodes)
        for name in ("one", "two", "three"):
            start_machine(nodes, name, await token(head, "startd"))
        async with client(head) as pool:
            await slots(pool, 3)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(machines: Nodes, request: pytest.FixtureRequest) -> Path:
    return machines.directory(support.directory_name(request))


def start_head(nodes: Nodes) -> Node:
    return nodes.start("head", HEAD, CHECKPOINT_BANDWIDTH=RATE).ready()


def start_machine(nodes: Nodes, name: str, join: str | None = None) -> None:
    nodes.start(name, "startd", join=join, SLOTS="1", CHECKPOINT_WORTH="0", CHECKPOINT_BANDWIDTH=RATE).ready()


class Talk:
    """The job, from its first set on."""

    def __init__(self, machines: Nodes, home: Path) -> None:
        self.machines, self.home = machines, home
        self._ids: Sequence[Sequence[int]] = ()

    async def begins(self) -> None:
        """It runs, has a whole set, and then other memory than that."""
        (self.home / "exchange.py").write_text(EXCHANGE)
        text = f"""
        universe = parallel
        executable = {PYTHON}
        arguments = {self.home}/exchange.py $(Node) {self.home} {MEMORY}
        transfer_executable = false
        output = out.$(Node)
        error = err.$(Node)
        log = log
        machine_count = 2
        job_network = private
        +ParallelShutdownPolicy = "WAIT_FOR_ALL"
        queue
        """
        async with client(self.head) as pool:
            cluster = await pool.submit(text, iwd=str(self.home))
            self._ids = cluster.ids
            await self.goes_on()
            assert (await cluster.checkpoint()).done == 1
        for part in range(2):
            (self.home / f"refresh.{part}").touch()
        await support.until(lambda: not list(self.home.glob("refresh.*")), "both parts to have other memory")
        await self.goes_on()

    @property
    def head(self) -> Node:
        return named(self.machines, "head")

    def said(self) -> list[list[str]]:
        """The lines of each part's output."""
        outs = [self.home / f"out.{part}" for part in range(2)]
        return [out.read_text().splitlines() if out.exists() else [] for out in outs]

    def events(self, number: str) -> int:
        """How many events of a kind its log has."""
        log = self.home / "log"
        return sum(line.startswith(f"{number} (") for line in log.read_text().splitlines()) if log.exists() else 0

    async def goes_on(self) -> None:
        """Both parts say more than they have said."""
        before = [len(lines) for lines in self.said()]
        await support.until(
            lambda: all(len(lines) > count + 1 for lines, count in zip(self.said(), before, strict=True)), "more lines"
        )

    async def acts(self, how: str) -> None:
        """A checkpoint, or a move; it may fail, as it is disturbed."""
        async with client(self.head) as pool:
            with contextlib.suppress(PoolError):
                await pool.act(how, ids=self._ids)

    async def ends_as_it_should(self) -> None:
        await self.goes_on()
        (self.home / "end").touch()
        await support.until(lambda: self.events("005"), "the end")
        said, wrong = self.said(), [(self.home / f"err.{part}").read_text() for part in range(2)]
        assert wrong == ["", ""]
        assert said == [expected(len(said[0]))] * 2
        assert "normal termination (return value 0)" in (self.home / "log").read_text().lower()


def expected(count: int) -> list[str]:
    """The first lines of each part's output."""
    lines: list[str] = []
    said, turn = hashlib.sha256(), 0
    while len(lines) < count:
        for part in range(2):
            said.update(b"%d of %d " % (turn, part) * 500)
        if turn % 20 == 0:
            lines.append(f"{turn} {said.hexdigest()}")
        turn += 1
    return lines


def named(nodes: Nodes, name: str) -> Node:
    return next(node for node in nodes.all if node.state.name == f"{name}.state")


def size(node: Node) -> int:
    """Bytes of all its files; some may go meanwhile."""
    total = 0
    for path in node.state.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size
    return total


async def growing(nodes: Sequence[Node]) -> Node:
    """The node to which a third of an image has come since this was called."""
    before = [size(node) for node in nodes]

    def found() -> Node | None:
        more = [node for node, had in zip(nodes, before, strict=True) if size(node) > had + (MEMORY << 20) // 3]
        return more[0] if more else None

    node: Node = await support.until(found, "a part of an image")
    return node


@pytest.mark.parametrize(
    ("which", "how"),
    [("keeper", "checkpoint"), ("relay", "checkpoint"), ("node", "checkpoint"), ("head", "vacate")],
)
async def test_a_kill_while_an_image_leaves(machines: Nodes, home: Path, which: str, how: str) -> None:
    talk = Talk(machines, home)
    await talk.begins()
    arriving = asyncio.create_task(growing([talk.head]))
    acting = asyncio.create_task(talk.acts(how))
    await arriving
    await kill(machines, which)
    await acting
    await talk.ends_as_it_should()


@pytest.mark.parametrize("which", ["node", "head"])
async def test_a_kill_while_an_image_comes_back(machines: Nodes, home: Path, which: str) -> None:
    talk = Talk(machines, home)
    await talk.begins()
    evicted = talk.events("004")
    await talk.acts("vacate")
    await support.until(lambda: talk.events("004") > evicted, "the job to leave")
    to = await growing([named(machines, name) for name in ("one", "two", "three")])
    await kill(machines, which, to)
    await talk.ends_as_it_should()


async def kill(machines: Nodes, which: str, node: Node | None = None) -> None:
    """kill -9 of one of them; a node is started again, as a service manager would."""
    if which in ("node", "head"):
        name = "head" if which == "head" else node.state.stem if node is not None else "one"
        machines.all.remove(gone := named(machines, name))
        gone.crash()
        start_head(machines) if which == "head" else start_machine(machines, name)
        return
    (found, *_) = await support.until(partial(processes_of, which), f"a {which}")
    found.kill()


def processes_of(which: str) -> list[psutil.Process]:
    if which == "relay":
        return processes_with("network/bin/relay")
    parts = [one for one in processes_with("exchange.py") if not is_named(one, "keeper")]
    return [parent for one in parts for parent in one.parents() if is_named(parent, "keeper")][:1]
