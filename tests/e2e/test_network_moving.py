"""MPI jobs over networks of their own, with TCP between machines, whose parts move: they print what they print
undisturbed, also where something is killed meanwhile (issue 14, 1 and 3).

GANG_MOVES and GANG_TURNS make the runs longer: 20 and 1000 for the goal of 20 moves. GANG_SEED draws other moments.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pool.client.handles import Cluster
from pool.errors import PoolError
from tests.e2e import support
from tests.e2e.support import HEAD, Nodes, client, processes_with, slots, token
from tests.e2e.test_mpi import description, errors, mpi_of, printed
from tests.e2e.test_network_mpi import run
from tests.starter.support import is_named

MOVES = int(os.environ.get("GANG_MOVES", "3"))
TURNS = int(os.environ.get("GANG_TURNS", "250"))
SEED = os.environ.get("GANG_SEED", "")
#: For the run that nothing disturbs: ranks that outnumber the processors of one machine give way to each other.
GIVE_WAY = {
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
}
MACHINES = ("one", "two", "three")
pytestmark = pytest.mark.own_pool("programs are compiled once, into a directory of the tester's")


@pytest.fixture(scope="module")
def machines(whose_pool: object) -> Iterator[Nodes]:
    """A head, and three machines that share its files."""

    async def start(nodes: Nodes) -> None:
        head = nodes.start("head", HEAD).ready()
        for name in MACHINES:
            nodes.start(name, "startd", join=await token(head, "startd"), SLOTS="2", CHECKPOINT_WORTH="0").ready()
        async with client(head) as pool:
            await slots(pool, 3)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(machines: Nodes, request: pytest.FixtureRequest) -> Path:
    return machines.directory(support.directory_name(request))


class Gang:
    """A job of that many ranks, and its event log."""

    def __init__(self, home: Path, parts: int, family: str = "mpich") -> None:
        self.home, self.parts, self.log = home, parts, home / "log"
        self.mpi = mpi_of(family, home, wheel=family == "mpich")
        self.program = self.mpi.compiled("kernels")
        self.chance = random.Random(f"{parts} {SEED}")

    def description(self) -> str:
        more = f"job_network = private\nlog = log\nrequirements = {self.without('none')}"
        return description(self.program, TURNS, 500, count=self.parts, more=more).replace("posix,tcp", "tcp")

    def without(self, machine: str) -> str:
        """Two parts have machines of their own, and four fill two machines: TCP passes between machines."""
        apart = " && TARGET.SlotID == 1" if self.parts == 2 else ""
        return f'TARGET.Machine != "{machine}"{apart}'

    def events(self, number: str) -> int:
        text = self.log.read_text() if self.log.exists() else ""
        return sum(line.startswith(f"{number} (") for line in text.splitlines())

    async def reaches(self, number: str, times: int) -> bool:
        """Wait for that many such events. False: the job has ended before."""
        await support.until(lambda: self.events(number) >= times or self.events("005"), f"event {number}")
        return not self.events("005")

    async def move(self, cluster: Cluster, times: int) -> bool:
        """Move all parts at random moments, each time to machines among which one is left out. False: it ended."""
        for _ in range(times):
            if not await self.reaches("001", self.events("004") + 1):
                return False
            await asyncio.sleep(self.chance.uniform(0, 0.4))
            before = self.events("004")
            with contextlib.suppress(PoolError):  # it may end now
                await cluster.edit(Requirements=self.without(self.chance.choice(MACHINES)))
                await cluster.vacate()
            if not await self.reaches("004", before + 1):
                return False
        return True

    async def ends_as_undisturbed(self, cluster: Cluster) -> None:
        (result,) = await cluster.wait(support.PATIENCE)
        assert result.ok, (result, errors(self.home))
        options, variables = ("--oversubscribe",), {"UCX_TLS": "tcp,self", **GIVE_WAY}
        as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        starter = [self.mpi.starter, *(options if self.mpi.family == "openmpi" else ())]
        command = [*starter, "-n", str(self.parts), str(self.program), str(TURNS), "500"]
        peer = await asyncio.to_thread(run, command, variables | as_root)
        assert printed(self.home) == sorted(peer.splitlines())


@pytest.mark.parametrize(("family", "parts"), [("mpich", 2), ("mpich", 4), ("openmpi", 2)])
async def test_a_gang_moves_with_its_connections(machines: Nodes, home: Path, family: str, parts: int) -> None:
    """Open MPI's ranks talk to the PMIx server of their part over its loopback: that moves, too."""
    gang = Gang(home, parts, family)
    async with client(machines.all[0]) as pool:
        cluster = await pool.submit(gang.description(), iwd=str(home))
        assert await gang.move(cluster, MOVES)
        await gang.ends_as_undisturbed(cluster)
        assert gang.events("003") >= 1  # a set that cannot be made in time leaves the last one: the output is the same
        assert len({line for line in gang.log.read_text().splitlines() if "SlotName" in line}) > parts


@pytest.mark.parametrize(
    ("which", "how"), [("keeper", "checkpoint"), ("relay", "checkpoint"), ("relay", "move"), ("node", "move")]
)
async def test_a_kill_while_a_gang_is_saved(machines: Nodes, home: Path, which: str, how: str) -> None:
    """kill -9 at a random moment of a checkpoint, or of a move: the job goes on from its last whole set."""
    gang = Gang(home, 2)
    async with client(machines.all[0]) as pool:
        cluster = await pool.submit(gang.description(), iwd=str(home))
        assert await gang.move(cluster, 1)
        assert await gang.reaches("001", gang.events("004") + 1)
        acting = asyncio.create_task(act(cluster, how))
        await asyncio.sleep(gang.chance.uniform(0, 0.2))
        await kill(machines, gang, which)
        await acting
        await gang.ends_as_undisturbed(cluster)


async def act(cluster: Cluster, how: str) -> None:
    with contextlib.suppress(PoolError):
        await (cluster.checkpoint() if how == "checkpoint" else cluster.vacate())


async def kill(machines: Nodes, gang: Gang, which: str) -> None:
    """kill -9 of something of the gang's, as soon as it is there."""
    if which == "node":
        at = next(i for i, node in enumerate(machines.all) if node.state.name == "two.state")
        machines.all.pop(at).crash()
        machines.start("two", "startd", join=None, SLOTS="2", CHECKPOINT_WORTH="0", RUN_AS="node").ready()
        return

    def found() -> list[psutil.Process]:
        if which == "relay":
            return processes_with("network/bin/relay")
        ranks = [one for one in processes_with(str(gang.program)) if not is_named(one, "keeper")]
        return [parent for one in ranks[:1] for parent in one.parents() if is_named(parent, "keeper")][:1]

    killed = False
    while not killed:
        await support.until(lambda: bool(found()), f"a {which}")
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            found()[0].kill()
            killed = True
