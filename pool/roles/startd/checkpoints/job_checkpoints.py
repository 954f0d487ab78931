"""Checkpoints of one running job: when one is made, and for what reason (C3, C4; EV 2.7, VS figure 3.5).

There are two kinds. A job that ends with its agreed code has written a checkpoint itself (`OwnCheckpoint`). Any other
job is saved by its keeper while it runs: periodically, on demand, and for the last time before it leaves its machine
(`LastCheckpoint`). Where that cannot be done the job runs on, and its user reads the reason (`Examination`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pool.errors import PoolError
from pool.images import Manifest
from pool.policy.checkpoints import CheckpointInterval, CheckpointWish, SaveWish, before_leaving, rhythm_of, wish_of
from pool.policy.starter import EXAMINED, Event, StartAction
from pool.roles.startd.checkpoints.checkpoint_maker import CheckpointMaker
from pool.roles.startd.checkpoints.checkpointed_job import (
    CheckpointContext,
    CheckpointedJob,
    ScheddReports,
    can_be_saved,
)
from pool.roles.startd.checkpoints.costs import Costs
from pool.roles.startd.checkpoints.examination import Examination
from pool.roles.startd.checkpoints.last_checkpoint import LastCheckpoint
from pool.roles.startd.checkpoints.own_checkpoint import OwnCheckpoint
from pool.roles.startd.checkpoints.part_turn import PartTurn
from pool.starter.checkpointing import CheckpointReport
from pool.starter.place import StartRefused
from pool.starter.spec import EndReport

#: Nothing is planned for a job that ends within so many seconds.
SHORT = 0.05


class JobCheckpoints:
    """The checkpoints of one running job.

    Args:
        turn: the job's turn in the last checkpoint of all parts, where it is a part of one on several machines.

    Attributes:
        saved: whether the present end is that of a job whose checkpoint is on the submit side.
        error: in words why the job's own checkpoint could not be kept.
    """

    def __init__(
        self, running: CheckpointedJob, reports: ScheddReports, turn: PartTurn, context: CheckpointContext
    ) -> None:
        self._running = running
        self._reports = reports
        self._context = context
        self._costs = costs = Costs(lambda: running.stood_still)
        self._examination = Examination(running, reports, context, self._due)
        self._maker = maker = CheckpointMaker(running, reports, self._examination, context)
        self._own = OwnCheckpoint(running, reports, maker, costs)
        self._last = LastCheckpoint(running, reports, maker, turn, costs, context)
        self.saved = False
        self.error: str | None = None
        self._made = 0
        #: Periodic checkpoints since then that failed for a temporary reason.
        self._failed = 0
        #: The next periodic checkpoint, or the end of the patience with a job that has to leave.
        self._timer: asyncio.TimerHandle | None = None
        self._leaving: asyncio.Task[Any] | None = None
        #: Plans the first checkpoint and the first look at the job, once it has run for a moment.
        self._began: asyncio.TimerHandle | None = None

    def report(self) -> dict[str, Any]:
        """The part about checkpoints in the report of an end."""
        found: dict[str, Any] = {"checkpointed": True} if self.saved else {}
        if (costs := self._costs.to_wire()) is not None:
            found["costs"] = costs
        return found | ({"checkpoint_error": self.error} if self.error is not None else {})

    @property
    def can_checkpoint(self) -> bool:
        """Whether the job can be saved, as far as is known."""
        return can_be_saved(self._running)

    @property
    def resumable(self) -> bool:
        """Whether it can be saved, and nothing was found the last time that speaks against it."""
        return self.can_checkpoint and not self._examination.refused

    @property
    def last(self) -> float | None:
        """Wall time of the last checkpoint of this start that arrived on the submit side."""
        return self._maker.last

    def clock_was_set(self, jumped: float) -> None:
        """The wall clock was set by so many seconds."""
        if self._maker.last is not None:
            self._maker.last += jumped

    # -- the end of the program --------------------------------------------------------------------------

    async def until_it_ends(self) -> EndReport:
        """Wait for the job's end; one that ends to have its own checkpoint kept is started again."""
        starter = self._running.starter
        assert starter is not None
        try:
            used = end = await starter.wait()
            while await self._goes_on(end):
                end = await starter.wait()
                self.saved = False
                used = merge_reports(used, end)
        finally:
            self._cancel_alarm()
            if self._began is not None:
                self._began.cancel()
            self._examination.cancel()
            self._own.settle("the job has ended")
        return used

    async def _goes_on(self, end: EndReport) -> bool:
        """No process of the job is left: whether it was started again, because it had written a checkpoint."""
        running = self._running
        starter = running.starter
        assert starter is not None
        self._cancel_alarm()
        await self.perform(await starter.handle_event(Event.CHILD_EXIT))
        if self._leaving is not None:
            await self._leaving
        if starter.machine.state not in EXAMINED or not self._own.is_announced_by(end):
            return False
        await starter.handle_event(Event.SAVED_ITSELF)
        self.error = await self._own.store()
        self.saved = self.error is None
        actions = await starter.handle_event(Event.SUCCESS if self.saved else Event.FAILURE)
        if StartAction.SPAWN not in actions:
            return False
        try:
            loop = asyncio.get_running_loop()
            await self.perform(
                await starter.restart(lambda: running.claim.lease_end - loop.time(), running.claim_note())
            )
        except StartRefused as error:
            self.error = str(error)
            return False
        return True

    async def perform(self, actions: list[StartAction]) -> None:
        """Do what the starter's state asks for beside the keeper's work."""
        for action in actions:
            if action is StartAction.SUPERVISE:
                self._costs.program_runs()
                self._began = asyncio.get_running_loop().call_later(SHORT, self._plan_first)
            elif action is StartAction.DUMP_LAST:
                self._running.report_leaving()
                self._leaving = self._context.spawn(self._save_and_leave(), "last checkpoint", alone=True)

    async def finish(self) -> None:
        """The job was found ended: a checkpoint that it left here is sent before its end is reported (VS 5.3)."""
        self.saved = await self._last.send_left() or self.saved

    # -- periodically, and on demand ---------------------------------------------------------------------

    def plan(self, passed: float = 0.0) -> None:
        """Set the time of the next periodic checkpoint.

        Args:
            passed: seconds that have passed already of the time until then.
        """
        settings = self._context.settings()
        if self._running.why is not None:
            return  # the alarm is the end of its patience
        self._cancel_alarm()
        if not can_be_saved(self._running) or self._running.ended or self._running.start.gang:
            return  # that of all parts of a job is its schedd's
        pool = CheckpointInterval(settings.number("CHECKPOINT_FIRST"), settings.number("CHECKPOINT_MOST"))
        interval = rhythm_of(self._running.claim.ad, pool).interval(self._made, self._failed)
        if interval is not None:
            self._timer = asyncio.get_running_loop().call_later(max(interval - passed, 0.0), self._due)

    def _plan_first(self) -> None:
        self.plan(SHORT)
        self._examination.plan_first()

    def _cancel_alarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._context.spawn(self._alarm(), "checkpoint", alone=True)

    async def _alarm(self) -> None:
        running = self._running
        if running.ended or running.starter is None:
            return
        async with self._maker.one:
            if running.why is not None:
                return
            self._made += not self._failed
            actions = await running.starter.handle_event(Event.ALARM)
            if StartAction.DUMP not in actions:
                await self.perform(actions)
                return
            try:
                await self._save_in_background()
            except PoolError as error:
                self._examination.missed += bool(self._examination.refused)
                self._context.log.warning("no checkpoint", extra={"job": running.name, "why": str(error)})
            else:
                self._examination.missed = 0

    async def save_running(self) -> CheckpointReport:
        """Save the job while it runs, and send the checkpoint to the submit side.

        Raises:
            PoolError: there is no checkpoint this time, and the job is as it was.
        """
        running = self._running
        if not self.can_checkpoint:
            why = "it does not want to be, or its machine does not allow it"
            raise PoolError(f"job {running.name} cannot be checkpointed: {why}")
        assert running.starter is not None
        async with self._maker.one:
            if StartAction.DUMP not in await running.starter.handle_event(Event.CHECKPOINT):
                raise PoolError(f"job {running.name} cannot be checkpointed: it starts, or leaves", retry=True)
            return await self._save_in_background()

    async def _save_in_background(self) -> CheckpointReport:
        """Save the job, which is in the state for it, beside its run; or ask it to do that itself."""
        if wish_of(self._running.claim.ad) is CheckpointWish.SELF:
            return await self._own.request()
        running, checkpoint = self._running, self._costs.begin()
        manifest = None
        try:
            report, manifest = await self._maker.dump(stop=False)
            sent = await self._maker.send(manifest)
            if running.ended:
                raise PoolError(f"job {running.name} has ended before its checkpoint was on the submit side")
        except Exception as error:
            self._failed = self._failed + 1 if isinstance(error, PoolError) and error.retry else 0
            await running.handle_event(Event.CKPT_FAILED)
            raise
        finally:
            if running.ended and manifest is not None:
                await self._leave_nothing(manifest)
        self._failed = 0
        await running.handle_event(Event.CKPT_DONE)
        self._costs.stored(checkpoint, sent, report.standstill)
        await self._reports.report_now("saved", self._costs.to_wire() or {})
        return report

    async def _leave_nothing(self, manifest: Manifest) -> None:
        """The job ended while it was saved: nobody asks for that checkpoint here any more."""
        running = self._running
        assert running.starter is not None
        if not self.saved:
            self._context.peers.forget(running.key)
        await running.starter.checkpoints.drop(manifest)

    async def save_part(self, number: str, stood: Callable[[], None]) -> None:
        """Save a part of a job, which is in the state for it, beside its run, for a set of all parts' images.

        Args:
            number: the set's. stood: called when the part has stood still.

        Raises:
            PoolError, OSError: there is no such set this time.
        """
        checkpoint = self._costs.begin()
        async with self._maker.one:
            report, manifest = await self._maker.dump(stop=False, stood=stood)
            sent = await self._maker.send(manifest, number)
        self._costs.stored(checkpoint, sent, report.standstill)
        await self._reports.report_now("saved", self._costs.to_wire() or {})

    # -- leaving -----------------------------------------------------------------------------------------

    async def save_and_leave(self, graceful: bool, saves: SaveWish) -> None:
        """The job has to leave: save it for the last time where that is wanted and possible, else ask or kill it."""
        running, context = self._running, self._context
        ran = context.wall() - (self._maker.last or running.started_at)
        worth = context.settings().number("CHECKPOINT_WORTH") if saves is SaveWish.WORTH else 0.0
        self._cancel_alarm()
        if not graceful:
            await running.handle_event(Event.DIE)
            return
        self._set_leave_deadline()
        allowed = saves is not SaveWish.NEVER and context.wants_checkpoint(running.slot)
        if before_leaving(wish_of(running.claim.ad), allowed, self.can_checkpoint, ran, worth):
            await running.handle_event(Event.CKPT_AND_VACATE)
        else:
            await running.handle_event(Event.VACATE)

    async def leave_with_others(self) -> None:
        """Another part of the job has to leave: save this one for the last time, too, whatever its machine's owner says
        of jobs that leave."""
        self._cancel_alarm()
        self._set_leave_deadline()
        await self._running.handle_event(Event.CKPT_AND_VACATE)

    def _set_leave_deadline(self) -> None:
        """Set the time by which the job has to be gone."""
        # The owner's KILL comes first, where it is as shipped.
        settings = self._context.settings()
        most = settings.number("MAX_VACATE") + 2 * settings.number("EVALUATE_INTERVAL")
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(most, self._patience_is_over)
        self._maker.leaves_by = loop.time() + most / 2  # the rest is for what comes before and after it is sent

    def _patience_is_over(self) -> None:
        self._context.spawn(self._running.handle_event(Event.ALARM), "end of patience", alone=True)

    async def _save_and_leave(self) -> None:
        if await self._last.save_and_send():
            self.saved = True


def merge_reports(before: EndReport, last: EndReport) -> EndReport:
    """The end of a job that ran more than once in one start, with what all of it used."""
    return replace(
        last,
        started=before.started,
        user_cpu=before.user_cpu + last.user_cpu,
        system_cpu=before.system_cpu + last.system_cpu,
        wall=before.wall + last.wall,
        max_rss=max(before.max_rss, last.max_rss),
    )
