"""One job on one claim: its starter, and its reports to the submit side.

An end is reported until the schedd has acknowledged it or the lease is over; only then are the keeper and the
scratch directory forgotten. The acknowledgement may carry the claim's next job, which then starts at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pool.errors import PoolError
from pool.jobs.activation import Activation, FileMode
from pool.jobs.reasons import MEMORY_EXCEEDED, Evict, Reason
from pool.pipes.protocol import StreamLost
from pool.policy.checkpoints import SaveWish
from pool.policy.inspection import InspectedPart
from pool.policy.slots import STILL
from pool.policy.starter import EXAMINED, Event, StartAction, StartState
from pool.roles.base import Spawn
from pool.roles.startd.checkpoints.checkpointed_job import CheckpointContext
from pool.roles.startd.checkpoints.job_checkpoints import JobCheckpoints
from pool.roles.startd.checkpoints.parallel_checkpoint import ParallelCheckpoint
from pool.roles.startd.checkpoints.part_turn import PartTurn
from pool.roles.startd.running import disk_use, output_tail
from pool.roles.startd.running.reports import TROUBLE, JobReports
from pool.roles.startd.running.starters import Starters
from pool.roles.startd.running.usage_reports import UsageReports
from pool.roles.startd.slots import dedicated
from pool.roles.startd.slots.records import JobKey, Slot, SlotClaim
from pool.shadow.shadow import NotThisRun
from pool.starter.accounts import NoJobAccount
from pool.starter.inspecting import inspect_start
from pool.starter.keeper import Keeper
from pool.starter.place import StartRefused
from pool.starter.process_specs import ends_of
from pool.starter.ranks import read_status, singletons_in_words
from pool.starter.spec import EndReport
from pool.starter.starter import BY_ITSELF, Starter
from pool.wire import RemoteError

#: Seconds for which a submit side may refuse a job's outputs for a temporary reason; then the job is held.
OUTPUT_PATIENCE = 120.0
#: A job on several machines whose streams were this node's.
STREAMS_LOST = Reason(Evict.MACHINE_LOST, "the node was restarted, and with it the streams to the job's other machines")
CLAIM_OVER = Reason(Evict.LEASE_ENDED, "its claim is over")


class LeavingImages(Protocol):
    """The images that this machine offers to others (`pool.roles.startd.images.image_peers`)."""

    def forget(self, job: JobKey) -> None: ...

    def begin_last(self, job: JobKey) -> str: ...

    def end_last(self, job: JobKey) -> None: ...


class LogFailure(Protocol):
    """`Role.log_failure`."""

    def __call__(self, what: str, error: BaseException, **fields: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class JobContext:
    """The node's part in running jobs.

    Attributes:
        node, address: this node's.
        turn: waits for a user's turn on the event loop: (user, what for).
        checkpoints: its part in their checkpoints.
        drop: the claim on a slot is over, and nothing of a job is left.
    """

    node: str
    address: str
    wall: Callable[[], float]
    turn: Callable[[str, str], Awaitable[None]]
    starters: Starters
    peers: LeavingImages
    checkpoints: CheckpointContext
    drop: Callable[[Slot], None]
    spawn: Spawn
    log: logging.Logger
    log_failure: LogFailure


class RunningJob:
    """A job from its activation until its end is acknowledged.

    Args:
        acknowledged: called at the end with the schedd's answer to the job's end, None if the lease was over first.
        over: called when the job has ended by itself, and nothing of it is needed for the next one to begin.
    """

    def __init__(
        self,
        context: JobContext,
        slot: Slot,
        claim: SlotClaim,
        start: Activation,
        acknowledged: Acknowledged,
        over: Callable[[RunningJob], None] = lambda job: None,
    ) -> None:
        self._context = context
        self._acknowledged = acknowledged
        self._over = over
        #: The next job of the claim may begin, or has begun, before this one's end is acknowledged.
        self.may_be_overtaken = False
        self.slot = slot
        self.claim = claim
        self.start = start
        self.starter: Starter | None = None
        self.ended = False
        self.forgot = False
        self.was_found = False
        self.why: Reason | None = None
        #: Of what it has used more than it may, in words, and the hold's subcode.
        self.exceeded: tuple[str, int] | None = None
        self._reminded = asyncio.Event()
        self._end_is_known = False
        self.abandoned = False
        #: Set when nothing of the job is left here: the submit side knows its end, or nobody waits for it.
        self.gone = asyncio.Event()
        #: The wish that came before there was a starter.
        self._early: list[Event] = []
        self.started_at = context.wall()
        #: Seconds for which the job stood still, up to its last suspension's end.
        self.suspended = 0.0
        self._suspended_at: float | None = None
        self._why_still = ""
        #: It is a part of a job that has ended elsewhere, and what it has written is wanted.
        self.job_is_over = False
        #: Its processes are gone, and what they wrote for other machines may be on its way yet.
        self.closing = False
        #: One look at its processes at a time, however many ask.
        self._inspecting = asyncio.Lock()
        spawn, log, turn = context.spawn, context.log, PartTurn()
        self._reports = JobReports(slot, claim, start, spawn, log)
        self._usage = UsageReports(self, self._reports, spawn, log)
        self.saving = JobCheckpoints(self, self._reports, turn, context.checkpoints)
        self.sets = ParallelCheckpoint(self, self.saving, turn, spawn, log)

    @property
    def name(self) -> str:
        return self.start.name

    @property
    def key(self) -> JobKey:
        return self.claim.node, self.start.name

    @property
    def pid(self) -> int | None:
        """Of the keeper whose processes run now."""
        keeper = self.starter.keeper if self.starter is not None and not self.ended else None
        return keeper.pid if keeper is not None else None

    @classmethod
    def found(
        cls,
        context: JobContext,
        slot: Slot,
        claim: SlotClaim,
        keeper: Keeper,
        acknowledged: Acknowledged,
        over: Callable[[RunningJob], None] = lambda job: None,
    ) -> RunningJob:
        """A job whose keeper outlived the node. What it was started with comes when the schedd is back."""
        note = keeper.spec.claim
        start = Activation(
            job=(int(note["job"][0]), int(note["job"][1])),
            run=int(note["run"]),
            owner=claim.owner,
            mode=FileMode.SHARED,
            executable="",
            digest=None,
            argv=(),
            env={},
            iwd="/",
        )
        running = cls(context, slot, claim, start, acknowledged, over)
        running.forgot = running.was_found = True
        running.started_at = float(note.get("began") or running.started_at)
        running.starter = context.starters.found(keeper, start, slot, claim)
        return running

    def remember(self, start: Activation | None) -> None:
        """The schedd has said again what this job was started with; None when it does not wait for it any more."""
        self.forgot = False
        if start is not None:
            self.start = start
            if self.starter is not None and start.gang and self.starter.remote_pipes is None:
                # It has no pipes to other parts; those that have end with the node (`adopt`).
                self.starter.rejoin(self._context.starters.pipes_of(start, self.claim, self._stream_broke))
            if self.starter is not None and StartAction.LEARN in self.starter.machine.handle_event(Event.GET_PROC):
                self.starter.set_activation(start)
                self.saving.plan()
        self._reminded.set()

    @staticmethod
    async def discard(keeper: Keeper) -> None:
        """End a job that nobody has a claim for."""
        await keeper.kill()
        await keeper.ended
        await keeper.forget()

    # -- life --------------------------------------------------------------------------------------------

    async def supervise(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what a job needs. Where that fails in a way that nobody has foreseen, this run ends, and no other."""
        try:
            await work
        except Exception as error:
            self._context.log_failure("a job could not be looked after", error, job=self.name)
            await self._fail(error)

    async def _fail(self, error: Exception) -> None:
        self.ended, starter = True, self.starter
        keeper = starter.keeper if starter is not None else None
        try:
            if keeper is not None:
                await keeper.kill()
                await asyncio.shield(keeper.ended)
            await self._forget_streams()
            if not self.abandoned and not self._end_is_known:
                why = f"its machine could not look after it: {error}"
                report: dict[str, Any] = {"cause": "lost", "reason": str(Evict.MACHINE_LOST), "why": why}
                if keeper is None:
                    report = {"cause": "start", "where": "machine", "error": why, "retry": True}
                await self._reports.acknowledged(report)
            if starter is not None:
                await starter.discard()
        finally:
            self._drop_abandoned()

    async def run(self) -> None:
        """Start the job, wait for its end, report it."""
        loop = asyncio.get_running_loop()
        await self._context.turn(self.claim.owner, "start jobs")
        try:
            starter = self.starter = self._context.starters.create(
                self.start, self.slot, self.claim, self._stream_broke
            )
            for event in self._early:
                await starter.handle_event(event)
            actions = await starter.start(lambda: self.claim.lease_end - loop.time(), self.claim_note())
        except (StartRefused, NoJobAccount, *TROUBLE, RemoteError) as error:
            self.ended = True
            await self._forget_streams()
            if self.abandoned:
                self._drop_abandoned()
                return
            if self.why is not None:  # the machine was wanted back; the job has nothing to do with that
                await self._report(self._evicted({"cause": "vacated", "checkpoint": self.start.checkpoint}))
                return
            where = getattr(error, "where", "input" if isinstance(error, RemoteError) else "start")
            if isinstance(error, RemoteError) and error.kind == NotThisRun.__name__:
                where = "machine"  # a schedd that was restarted does not know the start yet; the inputs are all right
            retry = getattr(error, "retry", True)
            report = {"cause": "start", "where": where, "error": str(error), "retry": retry}
            if getattr(error, "unfit", False):
                report["unfit"] = True
            if step := getattr(error, "step", ""):
                report["step"] = step
            await self._report(report | {"checkpoint": self.start.checkpoint})
            return
        self._context.peers.forget(self.key)
        if starter.resumed is not None:
            came = {"received": starter.resumed.received, "nearer": starter.resumed.nearer}
            self._context.log.info("a job goes on from a checkpoint", extra={"job": self.name, **came})
        await self.saving.perform(actions)
        await self.go_on()

    async def adopt(self) -> None:
        """Go on with a job that was found, and that an earlier run of this node may have left suspended."""
        assert self.starter is not None
        if self.starter.keeper is not None and self.starter.keeper.spec.claim.get("gang"):
            self.why = STREAMS_LOST
            await self.starter.keeper.kill()
        await self.saving.perform(await self.starter.handle_event(Event.FOUND))
        await self.go_on()

    async def go_on(self) -> None:
        """Wait for the end of a started job and report it."""
        assert self.starter is not None
        assert self.starter.keeper is not None
        self._usage.begin()
        watching = None
        if self.starter.place.disk is not None:
            watching = self._context.spawn(disk_use.watch(self), "disk", alone=True)
        try:
            end = await self.saving.until_it_ends()
        finally:
            self._usage.end()
            if watching is not None:
                watching.cancel()
        carried = await self._usage.network()
        await self._streams_end(end)
        self.ended = True
        self._context.peers.end_last(self.key)
        if not self.saving.saved:
            self._context.peers.forget(self.key)
        while self.forgot and await self._reports.another_chance(self._reminded):
            pass
        if self.was_found and not self.saving.saved and end.cause not in BY_ITSELF:
            await self.saving.finish()
        error = await self._transfer_outputs(end) if self.starter.machine.state in EXAMINED else None
        if self.abandoned:
            await self.starter.discard()
            self._drop_abandoned()
            return
        report = self._end(end, error) | carried
        self.may_be_overtaken = self._leaves_nothing(end, report)
        if self.may_be_overtaken:
            self._over(self)
        await self._report(report)

    def _leaves_nothing(self, end: EndReport, report: dict[str, Any]) -> bool:
        """Whether the job has ended by itself and only its end is left to be told."""
        if report["cause"] not in ("exit", "signal") or "output_error" in report or self.abandoned:
            return False
        stays = self.why is None and not self.claim.retiring and not self.saving.saved
        return stays and not self.was_found and self._stands_for_itself

    @property
    def _stands_for_itself(self) -> bool:
        """Whether the job works in its owner's files on this machine, alone, with the machine's network."""
        start = self.start
        alone = start.mode is FileMode.SHARED and not start.gang and not start.image
        return alone and self.starter is not None and self.starter.room is None

    def give_way(self, *, clean: bool = True) -> None:
        """The scratch directory is the claim's next job's from now on, which has not begun if it is to be `clean`."""
        if self.starter is not None:
            self.starter.leave_scratch(clean=clean)

    def tell_after(self, event: asyncio.Event) -> None:
        """Report nothing more before this is set."""
        self._reports.after = event

    async def _streams_end(self, end: EndReport) -> None:
        """Wait until all that the processes wrote for other machines has arrived there, or the job has ended."""
        remote_pipes = self.starter.remote_pipes if self.starter is not None else None
        if remote_pipes is None:
            return
        self.closing = True
        if end.cause in BY_ITSELF and self.why is None:
            try:
                await remote_pipes.finish()
            except StreamLost as error:
                self.why = self.why or Reason(Evict.MACHINE_LOST, error.message)
        await remote_pipes.abandon()

    async def _forget_streams(self) -> None:
        if self.starter is not None and self.starter.remote_pipes is not None:
            await self.starter.remote_pipes.abandon()

    def _stream_broke(self, why: str) -> None:
        self._context.spawn(self.stop(False, Reason(Evict.MACHINE_LOST, why)), "stop", alone=True)

    async def _transfer_outputs(self, end: EndReport) -> str | None:
        """Transfer the outputs to the submit side after this end; the reason, in words, where that fails."""
        starter = self.starter
        assert starter is not None
        if not starter.has_outputs(end, self.job_is_over):
            await starter.handle_event(Event.DEFAULT)
            return None
        await starter.handle_event(Event.HAS_OUTPUT)
        error = await self._send_outputs()
        await starter.handle_event(Event.SUCCESS if error is None else Event.FAILURE)
        return error

    async def _send_outputs(self) -> str | None:
        """Send the outputs to the submit side, again after a lost connection; the reason where that is impossible."""
        assert self.starter is not None
        refused: float | None = None
        while not self.abandoned:
            reconnected = self.claim.reconnected
            link = self.claim.link
            if link is not None and not link.closed.done():
                try:
                    await self.starter.send_outputs()
                    return None
                except TROUBLE:
                    refused = None
                except PoolError as error:
                    now = asyncio.get_running_loop().time()
                    refused = now if refused is None else refused
                    if not error.retry or now - refused >= OUTPUT_PATIENCE:
                        return str(error)
            if not await self._reports.another_chance(reconnected):
                return "the submit side could not be reached until the claim's lease had ended"
        return None

    async def stop(
        self, graceful: bool, why: Reason, saves: SaveWish = SaveWish.WORTH, signal: int | None = None
    ) -> None:
        """Have the job end, softly or at once, asked by a signal of its own; its end is reported as an eviction."""
        if self.ended:
            return  # by itself, and its end is on the way
        self.why = self.why or why
        if self.starter is not None and signal is not None:
            self.starter.asked_by = signal
        if self.starter is not None and self.starter.remote_pipes is not None:
            self.starter.remote_pipes.cancel_meeting()
        if self.closing:
            await self._forget_streams()  # its processes have ended; what they wrote is not wanted any more
            return
        await self.saving.save_and_leave(graceful, saves)

    async def end_over(self, why: str, subcode: int) -> None:
        """End a job that has used more than it may; it is held for that."""
        assert self.starter is not None
        assert self.starter.keeper is not None
        self.exceeded = (why, subcode)
        await self.starter.keeper.kill()

    async def abandon(self) -> None:
        """Nobody wants to hear of this job any more: kill it and leave nothing behind."""
        self.abandoned = True
        if self.ended:
            if self.starter is not None:
                await self.starter.discard()
        else:
            await self.stop(False, CLAIM_OVER)

    def _drop_abandoned(self) -> None:
        """An abandoned job is dead."""
        if self in self.claim.overtaken:
            self.claim.overtaken.remove(self)
        elif self.slot.claim is self.claim:
            self._context.drop(self.slot)
        self.gone.set()

    @property
    def stood_still(self) -> float:
        """Seconds for which the job was suspended so far."""
        since = self._suspended_at
        return self.suspended + (asyncio.get_running_loop().time() - since if since is not None else 0.0)

    async def suspend(self, why: str) -> None:
        """Have it stand still, until `resume`."""
        self._why_still = why
        self._suspended_at = asyncio.get_running_loop().time()
        await self.handle_event(Event.SUSPEND)
        self._reports.report("suspended", {"why": why})

    async def resume(self) -> None:
        if self._suspended_at is not None:
            self.suspended += asyncio.get_running_loop().time() - self._suspended_at
            self._suspended_at = None
        await self.handle_event(Event.CONTINUE)
        self._reports.report("continued", {})

    async def handle_event(self, event: Event) -> None:
        """Pass on what is wished of the job, to be answered when there is a starter."""
        if self.starter is None:
            self._early.append(event)
        else:
            await self.saving.perform(await self.starter.handle_event(event))

    def report_condition(self) -> None:
        """Say to a schedd that was away whether the job is suspended, and again that it has begun."""
        if not self.ended and self._usage.has_begun:
            self._reports.report("started", {"started": self.started_at})
        if not self.ended:
            still = self.slot.condition in STILL
            self._reports.report("suspended" if still else "continued", {"why": self._why_still} if still else {})

    def clock_was_set(self, jumped: float) -> None:
        """The wall clock has jumped by so many seconds: what lies behind lies as far behind as before."""
        self.started_at += jumped
        self.saving.clock_was_set(jumped)

    def renew(self, seconds: float) -> None:
        """The lease was renewed; the keeper is told how long it may let the job run."""
        if self.starter is not None and not self.ended:
            self.starter.renew(max(seconds, 0.0))

    async def inspect(self, seconds: float) -> InspectedPart:
        """Report on the job's processes, observed for so many seconds."""
        slot = f"{self.slot.name}@{self._context.node}"
        if self.starter is None:
            return InspectedPart(slot, stage=str(StartState.START))
        still = None
        if self._usage.used_cpu_at is not None:
            still = max(0.0, asyncio.get_running_loop().time() - self._usage.used_cpu_at)
        async with self._inspecting:
            return await inspect_start(self.starter, slot, seconds, still)

    async def last(self, which: str, lines: int) -> int:
        """Where the last lines of what `output` gives begin."""
        path = self._written(which)
        return await output_tail.last(path, self._owner, lines) if path is not None else 0

    async def output(self, which: str, offset: int) -> AsyncIterator[bytes]:
        """The job's standard output or error so far, from an offset."""
        path = self._written(which)
        if path is not None:
            async for chunk in output_tail.since(path, self._owner, offset):
                yield chunk

    @property
    def _owner(self) -> tuple[int, int] | None:
        return self.starter.account.owner if self.starter is not None else None

    def _written(self, which: str) -> Path | None:
        """None for a job that writes them on the submit side: it reads them there, with its owner's rights."""
        if self.starter is None or self.start.mode is not FileMode.TRANSFER:
            return None
        return self.starter.output("err" if which == "err" else "out")

    # -- reports -----------------------------------------------------------------------------------------

    def _end(self, end: EndReport, output_error: str | None) -> dict[str, Any]:
        report = end.report()
        if self.start.mpi:
            report |= self._ranks_end(end)
        elif end.members:
            report["ends"] = ends_of(end)
        if (end.members and not self.start.mpi) or end.cause == "misuse":
            report["said"] = end.error
        if self.starter is not None and (self.starter.received or self.starter.sent):
            report |= {"received": self.starter.received, "sent": self.starter.sent}
        if not self._reports.start_is_reported:
            report["started_event"] = True  # known to the schedd only if it answered to "started"
        exceeded = self.exceeded
        if end.cause == "memory":
            asked = disk_use.asked_for(self.claim.ad, "RequestMemory", 1)
            exceeded = (f"{end.error}{asked}", MEMORY_EXCEEDED)
        if exceeded is not None and self.why is None and end.cause in ("killed", "memory"):
            report |= {"cause": "exceeded", "said": exceeded[0], "subcode": exceeded[1]}
        elif end.cause == "start":
            report |= {"where": "start", "error": end.error, "retry": False}
        elif end.lost:
            report |= {"keeper_lost": True, "why": end.error, "reason": str(Evict.MACHINE_LOST)}
        elif self.why and self.start.gang and end.cause in BY_ITSELF:
            # Its streams were given up: what it wrote may not have come to the other parts.
            report["cause"] = "vacated"
        report |= self.saving.report()
        if still := self.stood_still:
            report["suspended"] = round(still, 3)
        if output_error is not None:
            report["output_error"] = output_error
        if self._stands_for_itself and not self.claim.retiring:
            report["takes_next"] = True
        return self._evicted(report)

    def _ranks_end(self, end: EndReport) -> dict[str, Any]:
        """Of a node of an MPI job: which rank ended the job and how, or that its ranks did not find each other."""
        if self.starter is None or end.cause not in BY_ITSELF:
            return {}
        status = read_status(self.starter.scratch, self.starter.account.owner)
        if status is None:
            return {}
        if status.singletons and end.code == 0:
            return {"singletons": singletons_in_words(self.start, status)}
        failed = end.signal is not None or end.code != 0
        return {"said": status.end, "rank_failed": failed or bool(status.end)}

    def _evicted(self, report: dict[str, Any]) -> dict[str, Any]:
        """A report with why the job had to leave, if it had to."""
        if self.why is not None:
            report |= {"why": self.why.text, "reason": str(self.why.kind)}
        if self.claim.retiring:
            report["released"] = True
        return report

    async def _report(self, report: dict[str, Any]) -> None:
        answer = await self._reports.acknowledged(report)
        self._end_is_known = True
        if self.starter is not None:
            await self.starter.handle_event(Event.SUCCESS)
        if self.claim.running is self:
            self.claim.running = None
            dedicated.is_empty(self.claim)
        self.gone.set()
        self._acknowledged(self, answer)

    async def refuse(self, error: PoolError) -> None:
        """Report that this job was not started because the slot does not take it any more."""
        self.ended = True
        if self.claim.retiring:  # the job has nothing to do with that
            await self._report({"cause": "vacated", "why": str(error), "released": True})
        else:
            await self._report({"cause": "start", "where": "machine", "error": str(error), "retry": True})

    def report_leaving(self) -> None:
        """Its machine is wanted, and its last checkpoint is made now: where it goes on may be seen to meanwhile."""
        address = self._context.address
        if self.claim.retiring and address and not self.start.gang:
            ticket = self._context.peers.begin_last(self.key)
            self._reports.report("leaving", {"nearer": {"address": address, "ticket": ticket}})

    @property
    def _stands_alone(self) -> bool:
        """Whether nothing that this node carries joins the part to the others."""
        remote_pipes = self.starter.remote_pipes if self.starter is not None else None
        return self.start.stands_alone and not (remote_pipes is not None and remote_pipes.has_network)

    def claim_note(self) -> dict[str, Any]:
        claim, slot = self.claim, self.slot
        return {
            **dedicated.note_of(claim),
            "claim": claim.id,
            "owner": claim.owner,
            "submitter": claim.submitter,
            "user": str(claim.ad_wire.get("User", "")),
            "node": claim.node,
            "lease": claim.lease,
            "slot": slot.name,
            "parent": slot.parent.name if slot.parent else None,
            "urgent": slot.kind == "urgent",
            "resources": slot.resources,
            "gpus": list(slot.gpus),
            "job": list(self.start.job),
            "run": self.start.run,
            "began": self.started_at,
            **({"gang": True} if self.start.gang and not self._stands_alone else {}),
        }


#: Does what follows from the acknowledged end of a job.
Acknowledged = Callable[[RunningJob, dict[str, Any] | None], None]
