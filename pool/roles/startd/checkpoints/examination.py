"""Looks at the files and processes of a running job for reasons against a checkpoint, before work is lost (C7).

The first look comes soon after the start; more follow until nothing speaks against a checkpoint. The schedd hears of
each change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pool.errors import PoolError
from pool.roles.startd.checkpoints.checkpointed_job import (
    CheckpointContext,
    CheckpointedJob,
    ScheddReports,
    can_be_saved,
)

#: A job that cannot be saved is looked at again after so many times CHECKPOINT_EXAMINE.
AGAIN = 6


class Examination:
    """The looks at one running job.

    Args:
        save: makes the checkpoint that was missed.

    Attributes:
        refused: the reasons against a checkpoint that were found last; None before the first look.
        missed: how many periodic checkpoints were refused since the last that was made.
    """

    def __init__(
        self,
        running: CheckpointedJob,
        reports: ScheddReports,
        context: CheckpointContext,
        save: Callable[[], None],
    ) -> None:
        self._running = running
        self._reports = reports
        self._context = context
        self._save = save
        self._timer: asyncio.TimerHandle | None = None
        self.refused: tuple[str, ...] | None = None
        self.missed = 0

    def plan_first(self) -> None:
        """The program runs: set the time of the first look."""
        if self._timer is None and can_be_saved(self._running):
            self._examine_in(self._context.settings().number("CHECKPOINT_EXAMINE"))

    def cancel(self) -> None:
        """The job has ended."""
        if self._timer is not None:
            self._timer.cancel()

    async def report(self, refused: tuple[str, ...]) -> None:
        """Report the reasons against a checkpoint now, if they have changed since the last report."""
        # The schedd knows what an earlier start came to.
        known = self.refused is not None or self._running.claim.ad_wire.get("CheckpointTrouble") is None
        reported = refused == (self.refused or ()) and known
        self.refused = refused
        if not reported:
            await self._reports.report_now("unresumable", {"why": list(refused)})
            self._context.advertise(self._running.slot)
        if refused:
            self._examine_again()

    def _examine_in(self, seconds: float) -> None:
        spawn = self._context.spawn
        self.cancel()
        if not self._running.ended:
            self._timer = asyncio.get_running_loop().call_later(
                seconds, lambda: spawn(self._examine(), "examine", alone=True)
            )

    def _examine_again(self) -> None:
        """Look later, and less and less often where looks do not find what a checkpoint is refused for."""
        settings = self._context.settings()
        soon = settings.number("CHECKPOINT_EXAMINE") * AGAIN
        self._examine_in(min(soon * 2.0 ** min(self.missed, 20), max(soon, settings.number("CHECKPOINT_MOST"))))

    async def _examine(self) -> None:
        """Look at what the job has opened; where nothing speaks against a checkpoint any more, make a missed one."""
        running = self._running
        keeper = running.starter.keeper if running.starter is not None else None
        if keeper is None or running.ended or running.why is not None or not can_be_saved(running):
            return
        try:
            await self.report(await keeper.examine())
        except PoolError as error:
            self._context.log.info("a job could not be examined", extra={"job": running.name, "why": str(error)})
        if self.missed and not self.refused:
            self._save()
