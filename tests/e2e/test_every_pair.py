"""Every two features together once: how a job reaches its files, the kind of job, the event that comes over it while it
runs, how its output reaches the submit side, whether the administrator changes its ad, and the pool. The table is
generated (pairs.py); what is refused by name is in it, too.

Each job says the number of its start and 59,819 lines, three quarters of them after the event, which comes while its
pipes are full; and it adds some of them to a file. Each of them has to reach the submit side once, in order.
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
from tests.e2e.support import HEAD, Node, Nodes, Took, asked, client, processes_with, slots, token, until
from tests.ordinary_user import OrdinaryUser
from tests.starter.support import PYTHON

FACTORS = {
    # The last: remote_io on a machine that sees the files anyhow, so that the job opens them there.
    "files": ("transfer", "shared", "remote_io", "remote_io in place", "spooled"),
    "kind": ("plain", "pipes", "mapped", "spread"),
    "event": (
        "checkpoint",
        "vacate",
        "kill of the node",
        "kill of the keeper",
        "inspect",
        "remove while it is saved",
        "remove while it moves",
    ),
    "output": ("at the end", "streamed"),
    "ad": ("as submitted", "transformed"),
    "pool": ("own pool", "root's pool"),
}
#: The message of submit about two values that do not go together.
REFUSED = {
    frozenset({files, "spread"}): "'remote_io' is not for processes that are spread over several machines"
    for files in ("remote_io", "remote_io in place")
}


class Row(NamedTuple):
    """One case of the table."""

    files: str
    kind: str
    event: str
    output: str
    ad: str
    pool: str

    @property
    def carried(self) -> bool:
        """Whether its files are copied to its machine, anew for each start."""
        return self.files in ("transfer", "spooled")

    @property
    def removed(self) -> bool:
        return self.event.startswith("remove")

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
#: The commands that make a job of each kind, with the words that start its processes in place.
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
    "spooled": "transfer_input_files = stage.py, round",
    "shared": "should_transfer_files = NO",
    "remote_io": 'remote_io = on\nrequirements = Machine == "far"',
    "remote_io in place": 'remote_io = on\nrequirements = Machine == "near"',
}


def description(row: Row, mark: str) -> str:
    """The row's job. It adds to `kept` where the pool sees to it that a start finds nothing of the one before."""
    mode = "a" if row.carried or (row.files == "remote_io" and support.ROOT) else "w"
    read, written = ("fort.11", "fort.10") if row.kind == "mapped" else ("-", "-")
    words = {
        "whole": f"stage.py {mark} whole none - {mode}",
        "first": f"stage.py {mark} first none {written} {mode}",
        "middle": f"stage.py {mark} middle {read} {written} {mode}",
        "last": f"stage.py {mark} last {read} - {mode}",
    }
    lines = [KINDS[row.kind].format(python=PYTHON, **words), FILES[row.files], "log = log"]
    if row.output == "streamed":
        lines.append("stream_output = true")
    if row.ad == "transformed":
        lines.append('+Project = "to be changed"')
    return "\n".join([*lines, "queue", ""])


#: The changes of the pools' administrator to the ads of such jobs.
TRANSFORM = """
JOB_TRANSFORM_NAMES = Project
JOB_TRANSFORM_Project @=end
    REQUIREMENTS Project == "to be changed"
    SET Project "changed"
@end
"""


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
        config = self.nodes.place / "head.conf"
        config.write_text(TRANSFORM)
        head = self.start("head", HEAD, config=config).ready()
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

    def images(self) -> list[Path]:
        """Checkpoints that are kept for a job at the submit machine; others offer theirs for ten minutes."""
        files = [path for path in (self.nodes.state("head") / "spool" / "checkpoints").rglob("*") if path.is_file()]
        return [path for path in files if path.parent.name != "spare"]

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
    """A pool; at its end none of its nodes has logged a fault."""
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
    """The abilities of keepers on this machine."""

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
        self.pool = pool
        self.cluster = pool.cluster(number, 1)

    def log(self) -> str:
        path = self.home / "log"
        return path.read_text() if path.exists() else ""

    async def is_now(self) -> str:
        """How the job is, for the report of a failure."""
        ads = await self.cluster.ads()
        return "\n".join([self.log(), *map(str, ads), *(str(process.cmdline()) for process in self.processes())])

    def processes(self) -> list[psutil.Process]:
        return processes_with(self.home.name)

    def places(self) -> list[Path]:
        """Where its processes find the files that they name, as seen from here."""
        if not self.row.carried:
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
        if self.row.files != "spooled":
            await until(lambda: self.log().count("Job executing on host") == 2, "the job to start again")
            return

        async def is_second() -> bool:
            (ad,) = await self.cluster.ads()
            return (ad.value("NumJobStarts"), ad.value("JobStatus")) == (2, 2)

        await asked(is_second, "the job to start again")

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
        elif self.row.event == "inspect":
            said = await self.machines.does("inspect", str(self.cluster.ids[0][0]), home=self.home)
            assert all(f" {process.pid} " in said for process in self.processes()), said
            return
        elif self.row.removed:
            # One connection keeps the order, and to save the job takes longer than to be asked for it.
            begun = asyncio.create_task(self._begins_to_leave())
            await asyncio.sleep(0)
            assert (await self.cluster.remove()).done == 1
            await begun
            return
        else:
            keepers = [parent for parent in self.processes()[0].parents() if "keeper" in parent.name()]
            keepers[0].kill()
        await self.starts_again()

    async def _begins_to_leave(self) -> None:
        if self.row.event == "remove while it is saved":
            await self.cluster.checkpoint()  # which is refused once the job has left
        else:
            await self.cluster.vacate()

    async def is_gone(self) -> None:
        """Nothing of it is left anywhere: no process, no keeper, no claim, no checkpoint."""
        await until(lambda: not self.processes(), "no process of the job to be left")
        await until(lambda: not self.machines.keepers(), "no keeper to be left")
        await until(lambda: not self.machines.images(), "no checkpoint to be left")

        async def are_free() -> bool:
            return {str(ad.value("State")) for ad in await self.pool.machines()} == {"Unclaimed"}

        if self.row.removed:
            await asked(are_free, "all slots to be free")

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


#: The traces of each event in the job's ad (NumJobStarts, NumCkpts), and the start that its output is from.
LEAVES = {
    "checkpoint": (2, 1, 1),
    "vacate": (2, 1, 1),
    "kill of the node": (1, 0, 1),
    "kill of the keeper": (2, 0, 2),
    "inspect": (1, 0, 1),
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
    if (row.event in ("checkpoint", "vacate") or row.removed) and not able.checkpoint:
        pytest.skip("this machine allows no checkpoints")
    if row.files.startswith("remote_io") and able.remote != "fuse":
        pytest.skip("this machine has no FUSE")
    home = machines.home(str(row))
    (home / "job.sub").write_text(description(row, home.name))
    async with client(machines.head) as pool:
        spool = ["--spool"] if row.files == "spooled" else []
        said = await machines.does("submit", "job.sub", *spool, home=home)
        number = re.search(r"cluster (\d+)", said)
        assert number, said
        run = Run(row, machines, pool, home, int(number[1]))
        await until(run.is_there, "the job to be in its midst")
        if row.files.startswith("remote_io"):
            way = "by fuse" if row.files == "remote_io" and support.ROOT else "directly"
            await run.says(f"{home} {way}")
        try:
            await run.happens()
            result = await run.ends()
        except (TimeoutError, Took) as error:
            error.add_note(await run.is_now())
            raise
        (ad,) = await run.cluster.ads()
        assert ad.value("Project", "none") == ("changed" if row.ad == "transformed" else "none")
        if row.removed:
            assert result.state == "removed", (result, run.log())
            await run.is_gone()
            return
        assert result.ok, (result, run.log())
        if row.files == "spooled":
            await run.types("fetch")
        await run.is_gone()
    starts, checkpoints, start = (LEAVES_SPREAD if row.kind == "spread" else LEAVES)[row.event]
    # The inputs of a spooled job are what they were at its submit.
    lines = [f"start {1 if row.files == 'spooled' else start}\n", *(f"{n}\n" for n in range(LINES))]
    assert (home / "out").read_text() == "".join(lines)
    assert (home / "kept").read_text() == "".join(lines[::1000])
    assert (ad.value("NumJobStarts"), ad.value("NumCkpts", 0) or 0) == (starts, checkpoints), run.log()
    if row.event == "vacate":
        await run.says("Job was evicted.\n\t(1) Job was checkpointed.")


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
    assert len(WORKING) <= 40
    assert all(any(pair <= set(row) for pair in REFUSED) for row in NOT_WORKING)


def test_rows_are_few_and_none_holds_what_is_refused() -> None:
    factors = {"first": "ab", "second": "cd", "third": "ef"}
    assert covering_rows(factors)[:2] == [("a", "c", "e"), ("b", "d", "f")]
    assert len(covering_rows(factors)) <= 6
    rows = covering_rows(factors, [frozenset("ad")])
    held = set().union(*map(pairs_of, rows))
    assert held == {frozenset(pair) for pair in ("ac", "ae", "af", "bc", "bd", "be", "bf", "ce", "cf", "de", "df")}
