"""Three real pools that lend to each other: a head and a machine each, with network namespaces, disks and agreements.

Packets pass within a pool and between the heads, and nowhere else, as behind firewalls: whatever two pools say to each
other passes both worlds. All of it lives in a mount and a process namespace (`inside`), which end with this process.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from pool.client import Pool
from tests.chaos.flock_jobs import FlockJob
from tests.chaos.network import Network, Trouble
from tests.chaos.place import PLACE, compiled_reporter, mounted
from tests.chaos.real_cluster import SETTINGS
from tests.chaos.real_machines import Disk, Machine
from tests.e2e import support
from tests.e2e.flocks import HEAD

#: The pools, and the part of all jobs that comes from each: so the machines of two have guests.
POOLS = {"physics": 0.6, "chem": 0.3, "bio": 0.1}
SLOTS = 4
#: The users' files. Nothing else lies below it: a job with remote files sees all of it as it is where it is submitted.
HOMES = PLACE.parent / "homes"
#: Seconds for one question of a user's.
PATIENCE = 30.0


class FlockPools:
    """The pools, the network between them, and the reports of jobs.

    Args:
        seed: of the network's chance.
        directory: where logs are kept, on a disk that stays.
    """

    def __init__(self, seed: int, directory: Path) -> None:
        self.directory = directory
        self.reports = mounted()
        HOMES.mkdir()
        self.homes = {pool: Disk(HOMES / pool, 512) for pool in POOLS}
        settings = SETTINGS | {"SLOTS": str(SLOTS), "CHECKPOINT_FIRST": "1", "CHECKPOINT_WORTH": "0"}
        self.heads, self.machines = {}, {}
        for number, pool in enumerate(POOLS, start=1):
            self.heads[pool] = Machine(
                pool, number, PLACE, directory, settings, roles=tuple(HEAD.split(",")), megabytes=512
            )
            self.machines[pool] = Machine(
                f"{pool}-m", number + len(POOLS), PLACE, directory, settings, roles=("startd",), megabytes=256
            )
        self.nodes = [*self.heads.values(), *self.machines.values()]
        self.network = Network([node.port for node in self.nodes], seed)
        self.program = compiled_reporter(HOMES)

    @contextlib.asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        """All nodes, joined and agreed, from the moment at which each pool knows all machines."""
        apart = [
            (one.name, other.name)
            for one in self.nodes
            for other in self.nodes
            if _pool(one) != _pool(other) and not {one.name, other.name} <= set(POOLS)
        ]
        with self.network.trouble(apart, Trouble(silent=True)):
            for head in self.heads.values():
                head.start()
            for pool, head in self.heads.items():
                await head.ready()
                async with self.user(pool) as link:
                    asked = {"roles": ["startd"], "lifetime": 3600, "uses": 1}
                    self.machines[pool].start((await link.call("node.token", asked))["token"])
            for lender in POOLS:
                for borrower in POOLS:
                    if lender != borrower:
                        await self._agree(lender, borrower)
            for node in self.nodes:
                await node.ready()
            for pool in POOLS:
                async with self.user(pool) as link:
                    await support.slots(link, len(POOLS))
            for node in self.nodes:
                node.supervise()
            yield

    async def _agree(self, lender: str, borrower: str) -> None:
        async with self.user(lender) as link:
            made = await link.call("node.token", {"roles": ["flock"], "node": borrower, "lifetime": 600, "uses": 1})
        async with self.user(borrower) as link:
            await link.call("world.accept", {"pool": lender, "token": made["token"]})

    @contextlib.asynccontextmanager
    async def user(self, pool: str) -> AsyncIterator[Pool]:
        """A user of a pool; what hangs is an error after a while."""
        async with await Pool.connect(self.heads[pool].address, timeout=PATIENCE) as link:
            yield link

    async def submit(self, job: FlockJob, link: Pool) -> None:
        """Queue a job."""
        cluster = await link.submit(job.description(self.program, self.reports.path), iwd=str(job.home))
        job.name = (job.pool, int(cluster.ids[0][0]), 0)


def _pool(node: Machine) -> str:
    return node.name.removesuffix("-m")
