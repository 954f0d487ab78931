"""Every two features together once: how a job reaches its files, the kind of job, the event that comes over it while it
runs, and the pool. The table is generated (pairs.py); what is refused by name is in it, too.

Each job says the number of its start and 59,819 lines, three quarters of them after the event, which comes while its
pipes are full; and it adds some of them to a file. Each of them has to come home once, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from pool.client import Pool, Result
from pool.starter.native import NativeKeepers
from pool.starter.spec import Abilities
from tests.e2e import support
from tests.e2e.pairs import covering_rows, pairs_of
from tests.e2e.support import HEAD, Node, Nodes, client, processes_with, slots, token, until
from tests.ordinary_user import OrdinaryUser
from tests.starter.support import PYTHON

FACTORS = {
    # The last: remote_io on a machine that sees the files anyhow, so that the job opens them there.
    "files": ("transfer", "shared", "remote_io", "remote_io in place"),
    "kind": ("plain", "pipes", "mapped", "spread"),
    "event": ("checkpoint", "vacate", "kill of the node", "kill of the keeper"),
    "pool": ("own pool", "root's pool"),
}
#: What submit says of two values that do not go together.
REFUSED = {
    frozenset({files, "spread"}): "'remote_io' is not for processes that are spread over several machines"
    for files in ("remote_io", "remote_io in place")
}


class Row(NamedTuple):
    """One case of the table."""

    files: str
    kind: str
    event: str
    pool: str

    def __str__(self) -> str:
        return "-".join(self).replace(" ", "_").replace("'", "")


#: Each pair that goes together once, and each that does not; sorted, so that one pool is there at a time.
WORKING = [Row(*row) for row in covering_rows(FACTORS, REFUSED)]
NOT_WORKING = [
    next(Row(*row) for row in product(*FACTORS.values()) if pair | {pool} <= set(row))
    for pair, pool in product(REFUSED, FACTORS["pool"])
]
TABLE = sorted([*WORKING, *NOT_WORKING], key=lambda row: row.pool)

# -- the job -------------------------------------------------------------------------------------------------

LINES = 59_819
#: Lines after which the last process waits for the test, and with it, by full pipes, the others.
EVENT_AT = LINES // 4
#: stage.py MARK ROLE FROM TO MODE: one process of the job, or all of it, which opens `kept` in that mode. By the mark
#: it is found among others' processes; "-" is standard input or output.
STAGE = f"""
import os, sys, time
role, source, target = sys.argv[2:5]
lines = sys.stdin if source == "-" else open(source) if source != "none" else None
out = sys.stdout if target == "-" else open(target, "w")

def wait():
    out.flush()
    while not os.path.exists(".enough"):
        time.sleep(0.01)

def numbers():
    yield "start " + open("round").read()
    for n in range({LINES}):
        if role != "whole" and n == {LINES} * 3 // 4:
            wait()
        yield f"{{n}}\\n"

kept = open("kept", sys.argv[5]) if role in ("whole", "last") else None
for number, line in enumerate(lines or numbers()):
    print(line, end="", file=out)
    if kept:
        if number % 1000 == 0:
            print(line, end="", file=kept, flush=True)
        if number == {EVENT_AT}:
            out.flush()
            open("there", "w").close()
            wait()
"""
#: What makes a job of each kind, with the words that start its processes in place.
KINDS = {
    "plain": """
        executable = {python}
        arguments = {whole}
        output = out
    """,
    "pipes": """
        executable = first={python} {first} | middle={python} {middle} | last={python} {last} > out
    """,
    "mapped": """
        executable = first={python} middle={python} last={python}
        pipe = first > fort.10 fort.11 > middle, middle > fort.10 fort.11 > last
        first.arguments = {first}
        middle.arguments = {middle}
        last.arguments = {last}
        last.output = out
    """,
    "spread": """
        executable = first={python} {first} | middle={python} {middle} | last={python} {last} > out
        spread = first middle, last
    """,
}
FILES = {
    "transfer": "should_transfer_files = YES\ntransfer_input_files = stage.py, round",
    "shared": "should_transfer_files = NO",
    "remote_io": 'remote_io = on\nrequirements = Machine == "far"',
    "remote_io in place": 'remote_io = on\nrequirements = Machine == "near"',
}


def description(row: Row, mark: str) -> str:
    """The row's job. It adds to `kept` where the pool sees to it that a start finds nothing of the one before."""
    mode = "a" if row.files == "transfer" or (row.files == "remote_io" and support.ROOT) else "w"
    read, written = ("fort.11", "fort.10") if row.kind == "mapped" else ("-", "-")
    words = {
        "whole": f"stage.py {mark} whole none - {mode}",
        "first": f"stage.py {mark} first none {written} {mode}",
        "middle": f"stage.py {mark} middle {read} {written} {mode}",
        "last": f"stage.py {mark} last {read} - {mode}",
    }
    return f"{KINDS[row.kind].format(python=PYTHON, **words)}\n{FILES[row.files]}\nlog = log\nqueue\n"


# -- the pools -----------------------------------------------------------------------------------------------


class Machines:
    """A head, two machines that share its files, and two that are not said to: `near` sees them all the same, and so
    does `far` but where root runs the tests. And the user of the pool.
    """

    def __init__(self, nodes: Nodes, user: OrdinaryUser | None) -> None:
        self.nodes = nodes
        self.user = user
        self.live: dict[str, Node] = {}
        self._homes = nodes.directory("homes")

    def start(self, name: str, roles: str, **more: Any) -> Node:
        """Start a node of this pool, or one again that was killed."""
        if name in ("near", "far"):
            more["FILESYSTEM_DOMAIN"] = name
        machine, run_as = (self.user.machine, "owner") if self.user else ((), "node")
        if name == "far" and support.ROOT:
            hiding = f'mount -t tmpfs none {self._homes} && exec "$@"'
            machine = ("unshare", "--mount", "sh", "-c", hiding, "machine", *machine)
        node = self.nodes.start(name, roles, machine=machine, RUN_AS=run_as, CHECKPOINT_WORTH="0", **more)
        self.live[name] = node
        return node

    async def begin(self) -> None:
        head = self.start("head", HEAD).ready()
        for name in ("one", "two", "near", "far"):
            self.start(name, "startd", join=await token(head, "startd"))
        for node in self.live.values():
            node.ready()
        async with client(head) as pool:
            await slots(pool, 4)

    @property
    def head(self) -> Node:
        return self.live["head"]

    def home(self, name: str) -> Path:
        """A directory of the user's, with what a job needs."""
        home = self._homes / name
        home.mkdir()
        (home / "stage.py").write_text(STAGE)
        (home / "round").write_text("1\n")
        return self.user.owns(home) if self.user else home

    async def typed(self, *words: str, home: Path) -> tuple[int, str]:
        """Status of a command that the pool's user types, and what it says."""
        words = (*words, "--address", self.head.address)
        if self.user:
            done = await asyncio.to_thread(self.user.poolnode, *words, cwd=home)
        else:
            done = await asyncio.to_thread(support.poolnode, *words, cwd=home)
        return done.returncode, done.stdout + done.stderr

    async def does(self, *words: str, home: Path) -> str:
        status, said = await self.typed(*words, home=home)
        assert status == 0, said
        return said

    def keepers(self) -> list[psutil.Process]:
        """Processes that keep jobs: no live node's own."""
        nodes = {node.process.pid for node in self.live.values()}
        found = []
        for process in support.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "keeper" in process.name() and process.ppid() not in nodes:
                    found.append(process)
        return found


@contextlib.contextmanager
def started(pool: str) -> Iterator[Machines]:
    """A pool; at its end none of its nodes has told of a fault."""
    with support.nodes() as nodes:
        made = Machines(nodes, OrdinaryUser(nodes.place) if pool == "root's pool" else None)
        asyncio.run(made.begin())
        yield made
        for node in nodes.all:
            assert "Traceback" not in node.text, node.text
            assert not any("trace" in line for line in node.log), node.text


@pytest.fixture(scope="module")
def pools() -> Iterator[Callable[[str], Machines]]:
    """Gives the pool of that name, which is started when the first row wants it and ends when one wants the other."""
    there: dict[str, Machines] = {}
    with contextlib.ExitStack() as stack:

        def given(pool: str) -> Machines:
            if pool not in there:
                stack.close()
                there.clear()
                there[pool] = stack.enter_context(started(pool))
            return there[pool]

        yield given


@pytest.fixture
def machines(pools: Callable[[str], Machines], row: Row) -> Machines:
    return pools(row.pool)


@pytest.fixture(scope="module")
def able() -> Abilities:
    """What this machine lets keepers do."""

    async def look() -> Abilities:
        with tempfile.TemporaryDirectory() as place:
            keepers = NativeKeepers(Path(place) / "keepers")
            await keepers.open()
            await keepers.close(kill=True)
            return keepers.abilities

    return asyncio.run(look())


# -- the events ----------------------------------------------------------------------------------------------


class Run:
    """A row's job while it runs."""

    def __init__(self, row: Row, machines: Machines, pool: Pool, home: Path, number: int) -> None:
        self.row = row
        self.machines = machines
        self.home = home
        self.cluster = pool.cluster(number, 1)

    def log(self) -> str:
        path = self.home / "log"
        return path.read_text() if path.exists() else ""

    def processes(self) -> list[psutil.Process]:
        return processes_with(self.home.name)

    def places(self) -> list[Path]:
        """Where its processes find the files that they name, as seen from here."""
        if self.row.files != "transfer":
            return [self.home]
        return [Path("/proc", str(process.pid), "cwd") for process in self.processes()]

    def is_there(self) -> bool:
        """Whether it has come to where it waits for the event."""
        return any((place / "there").exists() for place in self.places())

    def let_go(self) -> None:
        for place in self.places():
            with contextlib.suppress(OSError):  # of a process that is over
                (place / ".enough").touch()

    async def says(self, text: str) -> None:
        """Wait for a text in its log, which a node writes beside its work."""
        await until(lambda: text in self.log(), f"{text!r} in the job's log")

    async def starts_again(self) -> None:
        await until(lambda: self.log().count("Job executing on host") == 2, "the job to start again")

    async def types(self, *words: str) -> None:
        await self.machines.does(*words, str(self.cluster.cluster), home=self.home)

    async def happens(self) -> None:
        """The event, and all that it does to the job."""
        # A start from here on says this number.
        (self.home / "round").write_text("2\n")
        if self.row.event == "checkpoint":
            await self.types("checkpoint")
            await self.types("vacate", "--fast")
        elif self.row.event == "vacate":
            await self.types("vacate")
        elif self.row.event == "kill of the node":
            if await self._node_is_killed():
                return
        else:
            keepers = [parent for parent in self.processes()[0].parents() if "keeper" in parent.name()]
            keepers[0].kill()
        await self.starts_again()

    async def _node_is_killed(self) -> bool:
        """Kill it, and start it again as a service manager would. Whether the job runs on."""
        (ad,) = await self.cluster.ads()
        name = str(ad.value("RemoteHost")).partition("@")[2]
        self.machines.live[name].crash()
        again = self.machines.start(name, "startd").ready()
        if self.row.kind == "spread":
            return False
        again.said("a running job was found again", job=f"{self.cluster.cluster}.0")
        return True

    async def ends(self) -> Result:
        """Let it come to its end, wherever it is now."""
        waiting = asyncio.create_task(self.cluster.wait(support.PATIENCE, until_stuck=True))
        while not waiting.done():
            self.let_go()
            await asyncio.wait([waiting], timeout=0.05)
        (result,) = await waiting
        return result


#: What each event leaves in the job's ad (NumJobStarts, NumCkpts), and the start that its output is from.
LEAVES = {
    "checkpoint": (2, 1, 1),
    "vacate": (2, 1, 1),
    "kill of the node": (1, 0, 1),
    "kill of the keeper": (2, 0, 2),
}
#: All parts of a job begin again where one is lost without a checkpoint.
LEAVES_SPREAD = LEAVES | {"kill of the node": (2, 0, 2)}


@pytest.mark.own_pool("its table has both pools")
@pytest.mark.parametrize("row", TABLE, ids=str)
async def test_they_go_together_or_are_refused_by_name(machines: Machines, row: Row, able: Abilities) -> None:
    refusals = [words for pair, words in REFUSED.items() if pair <= set(row)]
    if refusals:
        await is_refused(machines, row, refusals[0])
    else:
        await ends_well(machines, row, able)


async def ends_well(machines: Machines, row: Row, able: Abilities) -> None:
    if row.event in ("checkpoint", "vacate") and not able.checkpoint:
        pytest.skip("this machine allows no checkpoints")
    if row.files.startswith("remote_io") and able.remote != "fuse":
        pytest.skip("this machine has no FUSE")
    home = machines.home(str(row))
    (home / "job.sub").write_text(description(row, home.name))
    async with client(machines.head) as pool:
        said = await machines.does("submit", "job.sub", home=home)
        number = re.search(r"cluster (\d+)", said)
        assert number, said
        run = Run(row, machines, pool, home, int(number[1]))
        await until(run.is_there, "the job to be in its midst")
        if row.files.startswith("remote_io"):
            way = "by fuse" if row.files == "remote_io" and support.ROOT else "directly"
            await run.says(f"{home} {way}")
        await run.happens()
        result = await run.ends()
        (ad,) = await run.cluster.ads()
    assert result.ok, (result, run.log())
    starts, checkpoints, start = (LEAVES_SPREAD if row.kind == "spread" else LEAVES)[row.event]
    lines = [f"start {start}\n", *(f"{n}\n" for n in range(LINES))]
    assert (home / "out").read_text() == "".join(lines)
    assert (home / "kept").read_text() == "".join(lines[::1000])
    assert (ad.value("NumJobStarts"), ad.value("NumCkpts", 0) or 0) == (starts, checkpoints), run.log()
    if row.event == "vacate":
        await run.says("Job was evicted.\n\t(1) Job was checkpointed.")
    await until(lambda: not run.processes(), "no process of the job to be left")
    await until(lambda: not machines.keepers(), "no keeper to be left")


async def is_refused(machines: Machines, row: Row, words: str) -> None:
    home = machines.home(f"refused-{row}")
    (home / "job.sub").write_text(description(row, home.name))
    status, said = await machines.typed("submit", "job.sub", home=home)
    assert status != 0
    assert words in said
    assert "Traceback" not in said


def test_each_pair_is_in_the_table() -> None:
    for one, other in combinations(FACTORS.values(), 2):
        for pair in map(frozenset, product(one, other)):
            assert any(pair <= set(row) for row in WORKING) == (pair not in REFUSED), pair
            assert any(pair <= set(row) for row in TABLE), pair
    assert len(WORKING) <= 20
    assert all(any(pair <= set(row) for pair in REFUSED) for row in NOT_WORKING)


def test_rows_are_few_and_none_holds_what_is_refused() -> None:
    factors = {"first": "ab", "second": "cd", "third": "ef"}
    assert covering_rows(factors)[:2] == [("a", "c", "e"), ("b", "d", "f")]
    assert len(covering_rows(factors)) <= 6
    rows = covering_rows(factors, [frozenset("ad")])
    held = set().union(*map(pairs_of, rows))
    assert held == {frozenset(pair) for pair in ("ac", "ae", "af", "bc", "bd", "be", "bf", "ce", "cf", "de", "df")}
