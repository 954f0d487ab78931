"""Checkpoints of one running job: when one is made, what for, and how it gets home (C3, C4; EV 2.7, VS figure 3.5).

Two kinds. A job that ends with its agreed code has written one itself: its files go home, and it is started again. Any
other is saved by its keeper while it runs, periodically, on demand, and for the last time before it leaves its machine;
where that cannot be done the reason is told by name, and the job runs on (C7). What a job has opened is looked at soon
after its start, so that this is known before work is lost, and again until it can be saved; what has changed is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pool.config import Settings
from pool.errors import PoolError
from pool.images import Manifest, SendingShare
from pool.images.priority import run_normal
from pool.images.transfer import Pace
from pool.jobs.activation import Activation, FileMode
from pool.jobs.reasons import Evict, Reason
from pool.policy.checkpoints import LAST_PAUSES, CheckpointWish, Rhythm, Saves, before_leaving, rhythm_of, wish_of
from pool.policy.starter import EXAMINED, Event, StartAction
from pool.roles.base import Spawn
from pool.roles.startd.checkpoints.costs import Costs
from pool.roles.startd.checkpoints.part_turn import PartTurn, refusal
from pool.roles.startd.slots.records import JobKey, Slot, SlotClaim
from pool.starter.checkpointing import CheckpointReport
from pool.starter.place import StartRefused
from pool.starter.spec import EndReport
from pool.starter.starter import Starter
from pool.wire import ConnectionLost, DeadlineExceeded

TROUBLE = (ConnectionLost, DeadlineExceeded, OSError, TimeoutError)
#: Evictions for the machine's owner, who is there: the checkpoint gives way to what that does (D4).
GIVES_WAY = (Evict.OWNER_RETURNED, Evict.VACATED)
#: A job that cannot be saved is looked at again after so many times CHECKPOINT_EXAMINE.
AGAIN = 6


class CheckpointedJob(Protocol):
    """The running job, as its checkpoints see it.

    Attributes:
        key: see `JobKey`.
        starter: None before it has one.
        ended: no process of it is left. abandoned: nobody wants to hear of it any more.
        forgot: it was found, and the schedd has not said yet what it was started with.
        why: the reason for which it has to leave, if it has to.
        began: wall time of its start. stood_still: seconds for which it was suspended so far.
    """

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> JobKey: ...
    @property
    def start(self) -> Activation: ...
    @property
    def claim(self) -> SlotClaim: ...
    @property
    def slot(self) -> Slot: ...
    @property
    def starter(self) -> Starter | None: ...
    @property
    def ended(self) -> bool: ...
    @property
    def abandoned(self) -> bool: ...
    @property
    def forgot(self) -> bool: ...
    @property
    def why(self) -> Reason | None: ...
    @property
    def began(self) -> float: ...
    @property
    def stood_still(self) -> float: ...

    async def happen(self, event: Event) -> None: ...

    def note(self) -> dict[str, Any]:
        """The note that the keeper stores of the claim, by which the job is found again."""

    def tell_leaving(self) -> None:
        """Tell the schedd that the last checkpoint is made now."""


class ScheddReports(Protocol):
    """The way of reports to the job's schedd (`pool.roles.startd.running.reports`)."""

    async def tell_now(self, kind: str, data: dict[str, Any]) -> None: ...

    async def another_chance(self, reconnected: asyncio.Event) -> bool: ...


class ImageRoom(Protocol):
    """The images that this machine offers to others (`pool.roles.startd.images.image_peers`)."""

    def make_room(self) -> None: ...

    def forget(self, job: JobKey) -> None: ...


@dataclass(frozen=True, slots=True)
class CheckpointContext:
    """The node's part in checkpoints.

    Attributes:
        settings: those in force. share: the node's share of the network for checkpoints.
        wants_checkpoint: whether the owner lets the job in a slot be saved before it leaves.
        advertise: the slot's ad has changed.
    """

    settings: Callable[[], Settings]
    wall: Callable[[], float]
    share: SendingShare
    peers: ImageRoom
    wants_checkpoint: Callable[[Slot], bool]
    advertise: Callable[[Slot], None]
    spawn: Spawn
    log: logging.Logger


class JobCheckpoints:
    """The checkpoints of one running job.

    Args:
        turn: the job's turn in the last checkpoint of all parts, where it is a part of one on several machines.

    Attributes:
        saved: whether the present end is that of a job whose checkpoint is at home.
        error: in words why the job's own checkpoint could not be kept.
    """

    def __init__(
        self, running: CheckpointedJob, reports: ScheddReports, turn: PartTurn, context: CheckpointContext
    ) -> None:
        self._running = running
        self._reports = reports
        self._turn = turn
        self._context = context
        self.saved = False
        self.error: str | None = None
        self._one = asyncio.Lock()
        self._made = 0
        #: Since then, for what passes by itself.
        self._failed = 0
        self._costs = Costs(lambda: running.stood_still)
        #: Wall time of the last checkpoint of this start that came home.
        self.last: float | None = None
        #: The reasons against a checkpoint that were found last; None before the first look.
        self._refused: tuple[str, ...] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._examination: asyncio.TimerHandle | None = None
        #: How many periodic checkpoints were refused since the last that was made.
        self._missed = 0
        self._leaving: asyncio.Task[Any] | None = None
        #: When a checkpoint of a job that leaves has to be home, by the loop's time.
        self._leaves_by: float | None = None
        #: Done when the checkpoint that the job was asked to write is at home.
        self._own_kept: asyncio.Future[None] | None = None

    def report(self) -> dict[str, Any]:
        """The part about checkpoints in the report of an end."""
        found: dict[str, Any] = {"checkpointed": True} if self.saved else {}
        if (costs := self._costs.to_wire()) is not None:
            found["costs"] = costs
        return found | ({"checkpoint_error": self.error} if self.error is not None else {})

    # -- a job that saves itself -------------------------------------------------------------------------

    async def until_it_ends(self) -> EndReport:
        """Wait for the job's end; one that ends to have its own checkpoint kept is started again."""
        running = self._running
        starter = running.starter
        assert starter is not None
        try:
            used = end = await starter.wait()
            while await self._goes_on(end):
                end = await starter.wait()
                self.saved = False
                used = together(used, end)
        finally:
            self._cancel_alarm()
            if self._examination is not None:
                self._examination.cancel()
            self._own_is_kept("the job has ended")
        return used

    def _own_is_kept(self, error: str | None) -> None:
        """The checkpoint that the job was asked to write is at home, or will not be."""
        waits, self._own_kept = self._own_kept, None
        if waits is None or waits.done():
            return
        if error is None:
            waits.set_result(None)
        else:
            waits.set_exception(PoolError(f"job {self._running.name} was not checkpointed: {error}"))
            waits.exception()  # heard of, whether anybody waits or not

    async def _goes_on(self, end: EndReport) -> bool:
        """No process of the job is left: whether it was started again, because it had written a checkpoint."""
        running = self._running
        starter = running.starter
        assert starter is not None
        self._cancel_alarm()
        await self.do(await starter.happen(Event.CHILD_EXIT))
        if self._leaving is not None:
            await self._leaving
        if starter.machine.state not in EXAMINED or not self._has_saved_itself(end):
            return False
        await starter.happen(Event.SAVED_ITSELF)
        self.error = await self._keep_own()
        self.saved = self.error is None
        self._own_is_kept(self.error)
        actions = await starter.happen(Event.SUCCESS if self.saved else Event.FAILURE)
        if StartAction.SPAWN not in actions:
            return False
        try:
            loop = asyncio.get_running_loop()
            await self.do(await starter.again(lambda: running.claim.until - loop.time(), running.note()))
        except StartRefused as error:
            self.error = str(error)
            return False
        return True

    async def do(self, actions: list[StartAction]) -> None:
        """Do what the starter's state asks for beside the keeper's work."""
        for action in actions:
            if action is StartAction.SUPERVISE:
                self._costs.program_runs()
                self.plan()
                self._plan_examination()
            elif action is StartAction.DUMP_LAST:
                self._running.tell_leaving()
                self._leaving = self._context.spawn(self._save_and_leave(), "last checkpoint", alone=True)

    def _has_saved_itself(self, end: EndReport) -> bool:
        """Whether the job has ended, by itself or on its way out, with the code that says it wrote a checkpoint."""
        code = self._running.start.checkpoint_code
        return code is not None and end.code == code and end.cause in ("exit", "vacated") and not self._running.forgot

    async def _keep_own(self) -> str | None:
        """Have the checkpoint that the job has written kept at home; in words what makes it impossible."""
        running = self._running
        starter = running.starter
        assert starter is not None
        checkpoint = self._costs.begin()
        if running.start.mode is not FileMode.TRANSFER:
            self._costs.is_home(checkpoint, 0, 0.0)
            # It lies where its owner's files do; there is nothing to carry.
            await self._reports.tell_now("checkpointed", {})
            return None
        while not running.abandoned:
            reconnected = running.claim.reconnected
            link = running.claim.link
            if link is not None and not link.closed.done():
                try:
                    sent = await starter.checkpoints.send_own(self._context.wall())
                    self._costs.is_home(checkpoint, sent)
                    return None
                except TROUBLE:
                    pass
                except PoolError as error:
                    if not error.retry:
                        return str(error)
            if not await self._reports.another_chance(reconnected):
                return "the submit side could not be reached until the claim's lease had ended"
        return None

    # -- a job that is saved -----------------------------------------------------------------------------

    @property
    def _wish(self) -> CheckpointWish:
        return wish_of(self._running.claim.ad)

    @property
    def can(self) -> bool:
        """Whether the job can be saved, as far as is known."""
        running = self._running
        if running.forgot:
            return False
        if self._wish is CheckpointWish.SELF:
            return running.start.checkpoint_signal is not None
        wanted = self._wish in (CheckpointWish.AUTO, CheckpointWish.REQUIRED)
        return wanted and running.starter is not None and running.starter.checkpoints.can_dump

    @property
    def resumable(self) -> bool:
        """Whether it can be saved, and nothing was found the last time that speaks against it."""
        return self.can and not self._refused

    def plan(self) -> None:
        """Set the time of the next periodic checkpoint."""
        settings = self._context.settings()
        if self._running.why is not None:
            return  # the alarm is the end of its patience
        self._cancel_alarm()
        if not self.can or self._running.ended or self._running.start.gang:
            return  # that of all parts of a job is its schedd's
        pool = Rhythm(settings.number("CHECKPOINT_FIRST"), settings.number("CHECKPOINT_MOST"))
        interval = rhythm_of(self._running.claim.ad, pool).interval(self._made, self._failed)
        if interval is not None:
            self._timer = asyncio.get_running_loop().call_later(interval, self._due)

    def _plan_examination(self) -> None:
        if self._examination is None and self.can:
            self._look_in(self._context.settings().number("CHECKPOINT_EXAMINE"))

    def _look_in(self, seconds: float) -> None:
        spawn = self._context.spawn
        if self._examination is not None:
            self._examination.cancel()
        if not self._running.ended:
            self._examination = asyncio.get_running_loop().call_later(
                seconds, lambda: spawn(self._examine(), "examine", alone=True)
            )

    def _look_again(self) -> None:
        """Later, and less and less often where looking tells nothing of what its checkpoint is refused for."""
        settings = self._context.settings()
        soon = settings.number("CHECKPOINT_EXAMINE") * AGAIN
        self._look_in(min(soon * 2.0 ** min(self._missed, 20), max(soon, settings.number("CHECKPOINT_MOST"))))

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
        async with self._one:
            if running.why is not None:
                return
            self._made += not self._failed
            actions = await running.starter.happen(Event.ALARM)
            if StartAction.DUMP not in actions:
                await self.do(actions)
                return
            try:
                await self._beside()
            except PoolError as error:
                self._missed += bool(self._refused)
                self._context.log.warning("no checkpoint", extra={"job": running.name, "why": str(error)})
            else:
                self._missed = 0

    async def make(self) -> CheckpointReport:
        """Save the job while it runs, and carry that home.

        Raises:
            PoolError: there is no checkpoint this time, and the job is as it was.
        """
        running = self._running
        if not self.can:
            why = "it does not want to be, or its machine does not allow it"
            raise PoolError(f"job {running.name} cannot be checkpointed: {why}")
        assert running.starter is not None
        async with self._one:
            if StartAction.DUMP not in await running.starter.happen(Event.CHECKPOINT):
                raise PoolError(f"job {running.name} cannot be checkpointed: it starts, or leaves", retry=True)
            return await self._beside()

    async def _beside(self) -> CheckpointReport:
        """Save the job, which is in the state for it, beside its run; or ask it to do that itself."""
        if self._wish is CheckpointWish.SELF:
            return await self._ask_to_save()
        running, checkpoint = self._running, self._costs.begin()
        manifest = None
        try:
            report, manifest = await self._dump(stop=False)
            sent = await self._carry(manifest)
            if running.ended:
                raise PoolError(f"job {running.name} has ended before its checkpoint was at home")
        except Exception as error:
            self._failed = self._failed + 1 if isinstance(error, PoolError) and error.retry else 0
            await running.happen(Event.CKPT_FAILED)
            raise
        finally:
            if running.ended and manifest is not None:
                await self._leave_nothing(manifest)
        self._failed = 0
        await running.happen(Event.CKPT_DONE)
        self._costs.is_home(checkpoint, sent, report.standstill)
        await self._reports.tell_now("saved", self._costs.to_wire() or {})
        return report

    async def _leave_nothing(self, manifest: Manifest) -> None:
        """The job ended while it was saved: nobody asks for that checkpoint here any more."""
        running = self._running
        assert running.starter is not None
        if not self.saved:
            self._context.peers.forget(running.key)
        await running.starter.checkpoints.drop(manifest)

    async def _ask_to_save(self) -> CheckpointReport:
        """Send the job the signal at which it writes a checkpoint; where it ends with that, wait until it is kept."""
        running = self._running
        starter = running.starter
        assert starter is not None
        assert starter.keeper is not None
        assert running.start.checkpoint_signal is not None
        loop = asyncio.get_running_loop()
        began, self._own_kept = loop.time(), loop.create_future()
        await starter.keeper.signal(running.start.checkpoint_signal)
        await running.happen(Event.CKPT_DONE)
        if running.start.checkpoint_code is not None:
            await self._own_kept
        return CheckpointReport(0, loop.time() - began, 0.0)

    async def save_part(self, number: str, stood: Callable[[], None]) -> None:
        """Save a part of a job, which is in the state for it, beside its run, for a set of all parts' images.

        Args:
            number: the set's. stood: called when the part has stood still.

        Raises:
            PoolError, OSError: there is no such set this time.
        """
        checkpoint = self._costs.begin()
        async with self._one:
            report, manifest = await self._dump(stop=False, stood=stood)
            sent = await self._carry(manifest, number)
        self._costs.is_home(checkpoint, sent, report.standstill)
        await self._reports.tell_now("saved", self._costs.to_wire() or {})

    async def _dump(
        self, *, stop: bool, stood: Callable[[], None] = lambda: None, number: str | None = None
    ) -> tuple[CheckpointReport, Manifest]:
        running = self._running
        starter = running.starter
        assert starter is not None
        self._context.peers.make_room()
        wall = self._context.wall()
        report, manifest = await starter.checkpoints.dump(wall, stop=stop, pace=self._pace, stood=stood, number=number)
        await self._found(report.refused)
        if manifest is None:
            raise PoolError(f"job {running.name} cannot be checkpointed: {'; '.join(report.refused)}")
        return report, manifest

    async def _carry(self, manifest: Manifest, number: str | None = None) -> int:
        """Have a checkpoint carried home; the bytes that travelled."""
        running = self._running
        starter = running.starter
        assert starter is not None
        once_more = self._leaves_by is not None
        while True:
            reconnected = running.claim.reconnected
            link = running.claim.link
            if link is not None and not link.closed.done():
                try:
                    sent = await starter.checkpoints.send(manifest, self._pace(manifest.size), number)
                    self.last = self._context.wall()
                    return sent
                except TROUBLE:
                    pass
                except PoolError as error:
                    if not (once_more and error.retry):
                        raise
                    once_more = False  # home's checkpoint server has gone, and home knows that now
                    continue
            if not await self._reports.another_chance(reconnected):
                raise PoolError("the submit side could not be reached", retry=True)

    async def finish(self) -> None:
        """The job was found ended: a checkpoint that it left here goes home before its end does (VS 5.3)."""
        running = self._running
        assert running.starter is not None
        manifest = await running.starter.checkpoints.unsent()
        if manifest is None:
            return
        if running.start.gang:  # of one part, and there is no set any more that it was for
            await running.starter.checkpoints.drop(manifest)
            return
        try:
            await self._carry(manifest)
            self.saved = True
        except (PoolError, OSError) as error:
            self._context.log.warning("no last checkpoint", extra={"job": running.name, "why": str(error)})

    def _pace(self, size: int) -> Pace:
        """The node's share of the network for this checkpoint; more of it when the job has to leave soon."""
        share, loop = self._context.share, asyncio.get_running_loop()

        async def take(piece: int) -> None:
            left = self._leaves_by - loop.time() if self._leaves_by is not None else None
            await share.take(piece, size / max(left, 1.0) if left is not None else 0.0)

        return take

    async def _examine(self) -> None:
        """Look at what the job has opened: soon after its start, and again until nothing of it speaks against a
        checkpoint; one that was missed for it is made then."""
        running = self._running
        keeper = running.starter.keeper if running.starter is not None else None
        if keeper is None or running.ended or running.why is not None or not self.can:
            return
        try:
            await self._found(await keeper.examine())
        except PoolError as error:
            self._context.log.info("a job could not be examined", extra={"job": running.name, "why": str(error)})
        if self._missed and not self._refused:
            self._due()

    async def _found(self, refused: tuple[str, ...]) -> None:
        """Report the reasons against a checkpoint now, if they have changed since the last report."""
        # The schedd knows what an earlier start came to.
        known = self._refused is not None or self._running.claim.ad_wire.get("CheckpointTrouble") is None
        told = refused == (self._refused or ()) and known
        self._refused = refused
        if not told:
            await self._reports.tell_now("unresumable", {"why": list(refused)})
            self._context.advertise(self._running.slot)
        if refused:
            self._look_again()

    # -- leaving -----------------------------------------------------------------------------------------

    async def leave(self, graceful: bool, saves: Saves) -> None:
        """The job has to leave: save it for the last time where that is wanted and possible, else ask or kill it."""
        running, context = self._running, self._context
        ran = context.wall() - (self.last or running.began)
        worth = context.settings().number("CHECKPOINT_WORTH") if saves is Saves.WORTH else 0.0
        self._cancel_alarm()
        if not graceful:
            await running.happen(Event.DIE)
            return
        self._hurry()
        allowed = saves is not Saves.NEVER and context.wants_checkpoint(running.slot)
        if before_leaving(self._wish, allowed, self.can, ran, worth):
            await running.happen(Event.CKPT_AND_VACATE)
        else:
            await running.happen(Event.VACATE)

    async def leave_with_others(self) -> None:
        """Another part of the job has to leave: save this one for the last time, too, whatever its machine's owner says
        of jobs that leave."""
        self._cancel_alarm()
        self._hurry()
        await self._running.happen(Event.CKPT_AND_VACATE)

    def _hurry(self) -> None:
        """Set the time by which the job has to be gone."""
        # The owner's KILL comes first, where it is as shipped.
        settings = self._context.settings()
        most = settings.number("MAX_VACATE") + 2 * settings.number("EVALUATE_INTERVAL")
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(most, self._patience_is_over)
        self._leaves_by = loop.time() + most / 2  # the rest is for what comes before and after it is sent

    def _patience_is_over(self) -> None:
        self._context.spawn(self._running.happen(Event.ALARM), "end of patience", alone=True)

    async def _dump_last(self, number: str | None) -> tuple[CheckpointReport, Manifest]:
        """Make the last checkpoint before the job leaves its machine.

        All work since the previous checkpoint depends on it, so one that fails for a temporary reason is tried again
        while there is time. The last checkpoint of a part of a parallel job belongs to the job's set.
        """
        running, loop = self._running, asyncio.get_running_loop()
        keeper = running.starter.keeper if running.starter is not None else None
        assert keeper is not None
        for pause in LAST_PAUSES:
            try:
                return await self._dump(stop=True, stood=self._turn.has_stood, number=number)
            except PoolError as error:
                late = self._leaves_by is not None and loop.time() + pause >= self._leaves_by
                if not error.retry or running.start.gang or late:
                    raise
                self._context.log.info("last checkpoint again", extra={"job": running.name, "why": str(error)})
                await asyncio.wait([keeper.ended], timeout=pause)
                if keeper.ended.done():
                    raise
        return await self._dump(stop=True, stood=self._turn.has_stood, number=number)

    async def _wait_for_turn(self, starter: Starter) -> str:
        """The number of the last set of all parts' images, when this part is to stand still for it.

        Raises:
            PoolError: there is none, or the part has ended.
        """
        running = self._running
        assert starter.keeper is not None
        assert running.why is not None
        last = {"why": running.why.text, "reason": str(running.why.kind)}
        number = await self._turn.wait(starter.keeper.ended, lambda: self._reports.tell_now("leaving", {"last": last}))
        if number is None:
            raise refusal(running.name, "it has ended")
        return number

    async def _save_and_leave(self) -> None:
        running = self._running
        starter = running.starter
        assert starter is not None
        hurry, number = running.why is not None and running.why.kind not in GIVES_WAY, None
        try:
            if running.start.gang:
                number = await self._wait_for_turn(starter)
            checkpoint = self._costs.begin()
            async with self._one:
                with run_normal(when=hurry):
                    report, manifest = await self._dump_last(number)
        except (PoolError, OSError) as error:
            self._context.log.warning("no last checkpoint", extra={"job": running.name, "why": str(error)})
            self._turn.has_failed(refusal(running.name, str(error)))
            await starter.happen(Event.CKPT_FAILED)
            return
        await starter.happen(Event.CKPT_DONE)
        try:
            sent = await self._carry(manifest, number)
            self.saved = True
            self._costs.is_home(checkpoint, sent, report.standstill)
        except (PoolError, OSError) as error:
            self._context.log.warning("no last checkpoint", extra={"job": running.name, "why": str(error)})
        await starter.happen(Event.SUCCESS if self.saved else Event.FAILURE)


def together(before: EndReport, last: EndReport) -> EndReport:
    """The end of a job that ran more than once in one start, with what all of it used."""
    return replace(
        last,
        started=before.started,
        user_cpu=before.user_cpu + last.user_cpu,
        system_cpu=before.system_cpu + last.system_cpu,
        wall=before.wall + last.wall,
        max_rss=max(before.max_rss, last.max_rss),
    )
