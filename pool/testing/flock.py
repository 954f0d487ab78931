"""Several pools that do not exist, joined by their worlds: the real roles of all of them in one process.

    async with SimFlock(["physics", "chem"], seed=1) as flock:
        await flock.add_pool("physics", machines=0)
        await flock.add_pool("chem", machines=2)
        flock.agree(lender="chem", borrower="physics")
        await flock.pool("physics").submit("physics-head")
        await flock.run_until(lambda: flock.queued() == 0)

Each pool is a `SimPool` with a clock of its own, whose head node has all roles but the startd. The network is one, so
that links between pools can be cut, slowed down or silenced like any other; the witness is one, so that a job that runs
in two pools at a time is seen. A pool's certificate for another is a real one of a real authority: the other world
knows the caller by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pool.jobs.states import JobStatus
from pool.outside import OutsideWorld
from pool.roles.base import Role
from pool.starter.spec import KeeperSpec
from pool.testing.keepers import Behaviour, Witness
from pool.testing.network import MemoryNetwork
from pool.testing.pool import NO_ROLES, SimPool
from pool.wire import certificates
from pool.wire.authority import Authority
from pool.wire.credentials import Credentials, pending_key
from pool.wire.identity import PEER_POOL

HEAD_ROLES = "collector,negotiator,schedd,world"


class SimFlock:
    """Pools with worlds, on one network.

    Args:
        names: of the pools.
        seed: everything that happens follows from it.
        settings: for every node of every pool.
        directory: where schedds keep their queues, so that heads can be restarted; None keeps them in memory.
        roles: classes of roles in the place of those that nodes have (`pool.testing.classic_world`).
    """

    def __init__(
        self,
        names: Sequence[str],
        seed: int = 0,
        *,
        settings: dict[str, str] | None = None,
        directory: Path | None = None,
        roles: Mapping[str, type[Role]] = NO_ROLES,
    ) -> None:
        self.network = MemoryNetwork(random.Random(seed))
        self.witness = Witness()
        self.pools: dict[str, SimPool] = {}
        self._stack = contextlib.AsyncExitStack()
        for number, name in enumerate(names):
            self.pools[name] = SimPool(
                seed * 1000 + number,
                collector=head(name),
                settings={"POOL_NAME": name, "FILESYSTEM_DOMAIN": name, **(settings or {})},
                directory=directory,
                stateful=True,
                network=self.network,
                witness=self.witness,
                pool=name,
                roles=roles,
            )

    async def __aenter__(self) -> Self:
        self._scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="poolnode-flock-")))
        self._authority = Authority.open(self._scratch / "authority", "flock", OutsideWorld())
        for pool in self.pools.values():
            await self._stack.enter_async_context(pool)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def pool(self, name: str) -> SimPool:
        """One of the pools."""
        return self.pools[name]

    async def add_pool(
        self,
        name: str,
        machines: int,
        *,
        behave: Callable[[KeeperSpec], Behaviour] = lambda spec: Behaviour(),
        settings: dict[str, str] | None = None,
        cpus: int = 1,
    ) -> None:
        """Start a pool's head and its machines, POOL-m0 and so on, of so many processors. Call `agree` before it."""
        pool = self.pools[name]
        await pool.add(head(name), HEAD_ROLES, settings=settings)
        for number in range(machines):
            await pool.add(f"{name}-m{number}", "startd", behave=behave, settings=settings, cpus=cpus)

    def agree(self, *, lender: str, borrower: str) -> None:
        """Keep the lender's certificate at the borrower, as `poolnode flock accept` does. The head is not up yet."""
        place = self.pools[borrower].state(head(borrower)) / "flock" / lender
        place.mkdir(parents=True)
        key = pending_key(place)
        roles = (PEER_POOL,)
        certificate = self._authority.issue_node(certificates.new_request(key, borrower), borrower, roles, replace=True)
        Credentials.save(place, certificate, self._authority.certificate, borrower, roles, f"mem://{head(lender)}")

    def agree_all(self) -> None:
        """Let each pool lend to each other one."""
        for lender in self.pools:
            for borrower in self.pools:
                if lender != borrower:
                    self.agree(lender=lender, borrower=borrower)

    async def submit(self, name: str, *, count: int = 1, owner: str = "alice", ad: dict[str, Any] | None = None) -> int:
        """Queue jobs at a pool's head; returns the cluster's number."""
        return await self.pools[name].submit(
            head(name), count=count, owner=owner, ad={"FileSystemDomain": name, **(ad or {})}
        )

    def queued(self, name: str | None = None) -> int:
        """How many jobs are in a pool's queue, or in all of them; a head that is down counts as one job."""
        return sum(
            pool.queued(head(one)) if "schedd" in pool.nodes[head(one)].running else 1
            for one, pool in self.pools.items()
            if name in (None, one)
        )

    def running(self, name: str) -> int:
        """How many jobs run, in this pool or another, by the word of a pool's schedd."""
        queue = self.pools[name].role(head(name), "schedd").queue
        return sum(job.status is JobStatus.RUNNING for job in queue.jobs())

    def machines_shown(self, name: str) -> list[str]:
        """The slots in a pool's collector, those of other pools included."""
        registry = self.pools[name].role(head(name), "collector")._registry
        return sorted(slot for kind, slot in registry.entries if kind == "Machine")

    def runs_by_machine(self) -> dict[str, int]:
        """How many jobs have been started on each machine."""
        found: dict[str, int] = {}
        for _, machine, _ in self.witness.starts:
            found[machine] = found.get(machine, 0) + 1
        return found

    async def run_until(self, condition: Callable[[], bool], within: float = 86400.0, step: float = 0.05) -> None:
        """Let virtual time pass until the condition holds.

        Raises:
            TimeoutError: it does not within so many (virtual) seconds.
        """
        await next(iter(self.pools.values())).run_until(condition, within, step)

    def now(self) -> float:
        """Seconds since the simulation began, by no pool's clock."""
        return asyncio.get_running_loop().time()

    async def settle(self, seconds: float) -> None:
        """Let so much virtual time pass."""
        await asyncio.sleep(seconds)

    def assert_sound(self) -> None:
        """Assert that no role failed and no job ever ran twice at a time, in one pool or in two."""
        for pool in self.pools.values():
            pool.assert_sound()


def head(pool: str) -> str:
    """The name of a pool's node with all roles but the startd."""
    return f"{pool}-head"
