"""A claim's job and its prepared checkpoint, as the rooms below and beside `running` know them: their calls only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from pool.images import Assembly
from pool.jobs.activation import Activation
from pool.jobs.reasons import Reason
from pool.policy.checkpoints import SaveWish
from pool.policy.inspection import InspectedPart
from pool.starter.checkpointing import CheckpointReport
from pool.starter.starter import Starter


class PresentJobCheckpoints(Protocol):
    """The checkpoints of one running job (`pool.roles.startd.checkpoints.job_checkpoints`).

    Attributes:
        last: wall time of the last one; None before.
    """

    @property
    def last(self) -> float | None: ...

    @property
    def resumable(self) -> bool: ...

    async def save_running(self) -> CheckpointReport: ...


class PresentJobSets(Protocol):
    """A part's share in the checkpoint of a parallel job (`pool.roles.startd.checkpoints.parallel_checkpoint`)."""

    async def step(self, step: str, number: str, why: Reason) -> None: ...

    def reconnected(self, number: str) -> None: ...


class PresentJob(Protocol):
    """The job of a claim, from its activation until its end is acknowledged (`pool.roles.startd.running.running_job`).

    Attributes:
        started_at: wall time; suspended: seconds for which it stood still, up to its last suspension's end.
        ended: its processes are gone; gone: so is everything that it had here.
        may_be_overtaken: it has ended, and the claim's next job need not wait until that is acknowledged.
        forgot: it outlived the node, and the schedd has not yet said again what it was started with.
        job_is_over: it is a part of a job that has ended elsewhere, and its output is wanted.
    """

    start: Activation
    starter: Starter | None
    started_at: float
    suspended: float
    ended: bool
    may_be_overtaken: bool
    forgot: bool
    job_is_over: bool
    gone: asyncio.Event

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> tuple[str, str]: ...

    @property
    def pid(self) -> int | None: ...

    @property
    def saving(self) -> PresentJobCheckpoints: ...

    @property
    def sets(self) -> PresentJobSets: ...

    def remember(self, start: Activation | None) -> None: ...

    async def stop(
        self, graceful: bool, why: Reason, saves: SaveWish = SaveWish.WORTH, signal: int | None = None
    ) -> None: ...

    async def abandon(self) -> None: ...

    async def suspend(self, why: str) -> None: ...

    async def resume(self) -> None: ...

    def report_condition(self) -> None: ...

    def give_way(self, *, clean: bool = True) -> None: ...

    def tell_after(self, event: asyncio.Event) -> None: ...

    def clock_was_set(self, jumped: float) -> None: ...

    def renew(self, seconds: float) -> None: ...

    async def inspect(self, seconds: float) -> InspectedPart: ...

    async def last(self, which: str, lines: int) -> int: ...

    def output(self, which: str, offset: int) -> AsyncIterator[bytes]: ...


class PreparedCheckpoint(Protocol):
    """The checkpoint of the job that comes next (`pool.roles.startd.images.image_prefetch`)."""

    @property
    def job(self) -> str: ...

    async def run(self) -> None: ...

    async def drop(self) -> None: ...

    async def wait_complete(self) -> Assembly | None: ...
