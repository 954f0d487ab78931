"""Shared by the tests of the dedicated scheduler: pools with machines of its own, parallel jobs, and looks at both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.schedd.parallel.test_gangs import gang
from tests.roles.support import QUICK

SETTINGS = {**QUICK, "GANG_PATIENCE": "30", "EVALUATE_INTERVAL": "5", "UNUSED_CLAIM_TIMEOUT": "100"}
OURS = "DedicatedScheduler@head"


def parallel(size: int, **more: Any) -> dict[str, Any]:
    """The ad of a dedicated job of so many parts, each on any slot."""
    return gang(size, apart=False, WantDedicated=True, **more)


def serial(**more: Any) -> dict[str, Any]:
    """The ad of a dedicated job of one machine."""
    return {"WantDedicated": True, **more}


class DedicatedStory:
    """A head and so many dedicated machines m0, m1, ... of one slot."""

    def __init__(self, pool: SimPool, seconds: dict[str, float]) -> None:
        self.pool = pool
        self.seconds = seconds

    async def machines(self, number: int, first: int = 0, **settings: str) -> None:
        for index in range(first, first + number):
            await self.pool.add(
                f"m{index}",
                "startd",
                behave=lambda spec: Behaviour(self.seconds.get(self.name_of(spec), self.seconds["*"]), saving=0.5),
                settings={"DEDICATED_SCHEDULER": "head", **settings},
            )

    @staticmethod
    def name_of(spec: Any) -> str:
        cluster, proc = spec.claim["job"]
        return f"{cluster}.{proc}"

    @property
    def schedd(self) -> Any:
        return self.pool.role("head", "schedd")

    @property
    def scheduler(self) -> Any:
        return self.schedd.dedicated

    @property
    def held(self) -> dict[str, Any]:
        """The scheduler's claims by their slots."""
        found: dict[str, Any] = self.scheduler.held()
        return found

    def running(self) -> set[str]:
        """Jobs that run, without the numbers of their parts."""
        return {".".join(name.split(".")[:2]) for name in self.pool.witness.running}

    def started(self, job: str) -> list[float]:
        """When parts of a job started."""
        return [when for name, _, when in self.pool.witness.starts if name == job or name.startswith(f"{job}.")]

    async def runs(self, job: str, within: float = 60.0) -> None:
        await self.pool.run_until(lambda: job in self.running(), within)

    async def done(self, jobs: int, within: float = 3000.0) -> list[dict[str, Any]]:
        await self.pool.run_until(lambda: self.pool.queued("head") == 0, within)
        ads = await self.pool.ended("head")
        assert len(ads) == jobs
        self.pool.assert_sound()
        return ads

    async def claim_all(self, machines: int) -> None:
        """Have the scheduler claim its machines: a first job uses all of them for a second."""
        cluster = await self.pool.submit("head", ad=parallel(machines, Args="first"))
        self.seconds[f"{cluster}.0"] = 1.0
        await self.pool.run_until(lambda: not self.pool.queued("head") and len(self.held) == machines, 60.0)


def play(
    story: Callable[[DedicatedStory], Coroutine[Any, Any, None]],
    *,
    machines: int = 2,
    seconds: float = 20.0,
    directory: Path | None = None,
    stateful: bool = False,
    seed: int = 1,
    **settings: str,
) -> None:
    """Let a story happen in a simulated pool."""

    async def work() -> None:
        async with SimPool(seed, settings={**SETTINGS, **settings}, directory=directory, stateful=stateful) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            at = DedicatedStory(pool, {"*": seconds})
            await at.machines(machines)
            await story(at)

    run_virtual(work())


async def pause(seconds: float) -> None:
    """Let virtual time pass."""
    await asyncio.sleep(seconds)
