"""Claims and running jobs: the submit side of the claiming protocol and of the start contract.

    match -> claim -> activate -> (started, suspended, usage ...) -> ended -> next job on the same claim

`Placement` joins the parts of this room: `matches` and `claiming` make claims, `starts` chooses a claim's next job,
`run_reports` takes the reports about running jobs, `claim_reports` those about claims, `running_jobs` stops and saves
jobs, `reconnect` looks for startds that cannot be reached. No part holds the placement; each is given the calls that it
needs. These rules keep two copies of a job from running
(docs/architecture.md, "The start contract"):

- The intended start is durable (`_run` in the job's state) before it is sent.
- A claim is a lease. The *startd* asks for each renewal, and counts it from the moment it asked; the schedd counts from
  the moment it answered. Whatever the network does, the startd's lease ends first, without comparing any clocks.
- When a startd cannot be reached, its jobs stay RUNNING until the schedd's side of the lease has passed, and no longer,
  whatever becomes of the connection (`lease_watch`). A schedd that was restarted does not know when it last answered,
  so it waits for a whole lease.
- An end is counted once: only for the (claim, run) that the job is in. A report that comes again is acknowledged
  again, with the same successor.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, Protocol

from pool.jobs import costs
from pool.jobs.activation import Activation
from pool.jobs.events import EventKind
from pool.jobs.states import Happening
from pool.policy.queue import IDLE, QueuedJob
from pool.roles.claim_errors import may_be_done, says_no_such_claim
from pool.roles.schedd.checkpoints.images import StoredCheckpoints
from pool.roles.schedd.core.claim_settings import ClaimSettings
from pool.roles.schedd.core.claims import TROUBLE, ClaimTable, HeldClaim, patience
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.ended_jobs import EndedJobs
from pool.roles.schedd.core.job_ends import BEGAN, NOT_BEGUN, After, add_network, as_wished, end_steps, not_begun_step
from pool.roles.schedd.core.ledger import JobChange
from pool.roles.schedd.core.submit_side_costs import SubmitSideCosts
from pool.roles.schedd.parallel.gangs import Gangs
from pool.roles.schedd.placement.claim_reports import ClaimReports
from pool.roles.schedd.placement.claim_watch import ClaimWatch
from pool.roles.schedd.placement.claiming import Claiming
from pool.roles.schedd.placement.idle_claims import IdleClaims
from pool.roles.schedd.placement.matches import Matches
from pool.roles.schedd.placement.reconnect import Reconnect
from pool.roles.schedd.placement.rematch import Rematch
from pool.roles.schedd.placement.run_reports import OwnersFiles, RunReports
from pool.roles.schedd.placement.running_jobs import LocalStops, RunningJobs
from pool.roles.schedd.placement.starts import ExecutableDigests, Starts
from pool.roles.schedd.placement.successor import Successors
from pool.shadow.files import FilesOf
from pool.wire import RemoteError

#: Ends of a program by itself: its changes to its owner's files stay.
BY_ITSELF = ("exit", "signal")


class RunFiles(OwnersFiles, Protocol):
    """The files that jobs work on from another machine, at the end of a run; see `files/remote_io.py`."""

    async def drop_journal(self, job: QueuedJob, run: int) -> None:
        """The job has ended by itself: the record that could undo its changes goes."""

    def run_ended(self, job: QueuedJob, run: int, *, over: bool) -> None:
        """A run has ended, or with `over` the job itself."""


class LocalStarts(LocalStops, Protocol):
    """The jobs that run on the submit machine."""

    def start_soon(self) -> None:
        """Start those that can be started, soon."""


class Placement:
    """All claims of one schedd.

    Args:
        local: the jobs that run beside the schedd.
        remote: the files of jobs that work on them from another machine.
        files: the files of a job's owner.
        changed: called when the owner's idle or running numbers changed.
        delay: seconds until the program of a job that is started now may begin.
        refused: called with a job that cannot be checkpointed and the reason, or with "" where it can again.
    """

    def __init__(
        self,
        context: ScheddContext,
        settings: ClaimSettings,
        *,
        executables: ExecutableDigests,
        images: StoredCheckpoints,
        costs: SubmitSideCosts,
        ended: EndedJobs,
        local: LocalStarts,
        remote: RunFiles,
        files: FilesOf,
        changed: Callable[[str, bool], None],
        delay: Callable[[QueuedJob], float],
        refused: Callable[[QueuedJob, str], None],
    ) -> None:
        self.images = images
        self._context = context
        self._settings = settings
        self._ledger = context.ledger
        self._costs = costs
        self._ended = ended
        self._local = local
        self._remote = remote
        self._changed = changed
        self._watch = ClaimWatch(context.claims, self._lease_ended)
        self.claiming = claiming = Claiming(context, settings, watch=self._watch.begin, changed=self.changed)
        obtain = claiming.obtain
        self.successors = Successors(context, settings, obtain=obtain, use=self.use, changed=self.changed)
        self.gangs = Gangs(
            context,
            settings,
            images,
            costs,
            ended,
            obtain=obtain,
            changed=self.changed,
            send=self.send,
            files=files,
            digest_of=executables.digest_of,
        )
        self.running = RunningJobs(context, self.gangs, local)
        stop = self.running.stop
        self.rematch = Rematch(context, settings, obtain=obtain, use=self.use, stop=stop)
        others = (self.gangs.gathering, self.successors, self.rematch)
        self.matches = Matches(context, others=others, obtain=obtain, beyond=self.gangs.extra_slots, use=self.use)
        self.starts = Starts(
            context,
            settings,
            executables,
            images,
            heard=lambda: self.matches.heard,
            delay=delay,
            started=self.rematch.started,
        )
        self._idle = IdleClaims(context, settings, is_spent=self.starts.is_spent, use=self.use)
        self.reports = RunReports(context, images, self.gangs, self.successors, remote, stop=stop, refused=refused)
        self.claim_reports = ClaimReports(context)
        self.reconnect = Reconnect(
            context,
            self._watch,
            self.starts,
            self.gangs,
            started=self.rematch.started,
            use=self.use,
            send=self.send,
            stop=stop,
            requeue=self.requeue,
            take_back=self.take_back,
        )

    def negotiator_heard(self) -> bool:
        """Whether there is a negotiator, as far as is known."""
        return asyncio.get_running_loop().time() - self.matches.heard < self._settings.unheard

    @property
    def claims(self) -> ClaimTable:
        """The claims, by their ids."""
        return self._context.claims

    async def watch_leases(self) -> None:
        """Look after the leases of all claims, until cancelled."""
        await self._watch.run()

    def changed(self, owner: str, more: bool) -> None:
        """An owner's numbers changed; `more` when there is new work that a slot must be found for."""
        self.matches.trim(owner)
        self.gangs.gathering.trim(owner)
        self._changed(owner, more)

    def movers(self, owner: str) -> int:
        """How many of an owner's running jobs look for another machine."""
        return self.rematch.count(owner) + self.successors.count(owner)

    # -- starting ----------------------------------------------------------------------------------------

    def offer(self, owner: str) -> None:
        """Jobs have come or gone: use idle claims for them at once."""
        self._local.start_soon()
        self.matches.trim(owner)
        self.gangs.gathering.trim(owner)
        self._idle.use_for(owner)

    async def use(self, claim: HeldClaim, first: QueuedJob | None = None) -> None:
        """Start the next fitting job on a claim, or keep the claim idle for a moment, then give it back.

        Args:
            first: the job that the claim was made for, if it comes before all others.
        """
        await self._context.turns.moment(claim.owner, "start jobs")
        if claim.job is not None or claim.gathers is not None or claim.id not in self.claims:
            return
        if claim.dedicated:
            self.claims.empty(claim)
            return
        steps: list[JobChange] = []
        start = self.starts.choose(claim, steps, first)
        if steps:
            await self._commit_start(claim, steps)
        if start is None:
            self._idle.retain(claim)
            return
        await self._context.turns.moment(claim.owner, "start jobs")
        if claim.start is start:  # else the claim was lost while the start was being made durable
            await self.send(claim, start)

    async def start_on(self, claim: HeldClaim, job: QueuedJob) -> bool:
        """Start an idle job on a claim of the dedicated scheduler's; False if it does not run there then."""
        await self._context.turns.moment(job.cluster.owner, "start jobs")
        if claim.job is not None or claim.lost or claim.id not in self.claims or job.status != IDLE:
            return False
        steps: list[JobChange] = []
        start = self.starts.mark(claim, job, steps)
        await self._commit_start(claim, steps)
        if start is not None and claim.start is start:
            await self.send(claim, start)
        return claim.job is job

    async def _commit_start(self, claim: HeldClaim, steps: list[JobChange]) -> None:
        """Commit steps of which one may be a claim's next start, which is not to be sent before."""
        claim.writing = True
        try:
            await self._ledger.commit(*steps)
        finally:
            claim.writing = False

    async def send(self, claim: HeldClaim, start: Activation) -> None:
        """Send a durable start. Without a clear answer the claim is lost, and `reconnect` finds out about it."""
        await self._costs.measured(claim.id, self._send(claim, start))

    async def _send(self, claim: HeldClaim, start: Activation) -> None:
        job = claim.job
        assert job is not None
        self.changed(job.cluster.owner, False)
        try:
            link = await self._context.links.connect(claim.startd)
            await link.call("startd.activate", self.starts.order(claim, whole=True), timeout=60.0)
        except RemoteError as error:
            if may_be_done(error):
                self.claims.mark_unreachable(claim)
                return
            await self._not_started(claim, job, start.run, str(error))
            if not says_no_such_claim(error) and claim.id not in self.claims:
                await self._context.calls.release(claim)
        except TROUBLE:
            self.claims.mark_unreachable(claim)
        else:
            claim.going = True
            if self.gangs.is_broken(claim):
                await self.gangs.stop_part(claim)

    async def _not_started(self, claim: HeldClaim, job: QueuedJob, run: int, why: str) -> None:
        """The startd said no: the job is idle again, and the claim is of no more use, to nobody."""
        if claim.job is not job or claim.run != run:
            return
        lent = claim.dedicated and not claim.runs_own(job)
        if not lent:
            self.claims.drop(claim)
        self._context.log.info("a start was refused", extra={"job": job.id, "slot": claim.slot, "why": why})
        await self.requeue(claim, job, f"the machine refused to start it: {why}", None)
        if lent:
            self.claims.empty(claim)

    # -- the end of a run ---------------------------------------------------------------------------------

    async def ended(self, claim_id: str, job_id: tuple[int, int], run: int, report: dict[str, Any]) -> dict[str, Any]:
        """A job has ended, and its outputs are in place. The answer is durable, and may carry the next job.

        Raises:
            StoreClosed: the schedd has stopped before the end was durable; that it was told before is no answer then.
        """
        claim = self.claims.get(claim_id)
        answer: dict[str, Any] = {"next": None, "keep": False}
        if claim is not None:
            async with claim.ending:
                answer = await self._record_end(claim, job_id, run, report)
        self._context.ledger.store.check_open()
        return answer

    async def _record_end(
        self, claim: HeldClaim, job_id: tuple[int, int], run: int, report: dict[str, Any]
    ) -> dict[str, Any]:
        handed = claim.handed_on
        if handed is not None and handed.is_run(job_id, run):
            if report.get("cause") == NOT_BEGUN:
                await self.take_back(claim)
                return {"next": None, "keep": claim.id in self.claims}
            await self._end_was_lost(claim)
        job = claim.job
        if job is None or claim.run != run or job.id != job_id:
            return self._reported_before(claim)
        if claim.gang is not None:
            await self.gangs.ended(claim, report)
            return {"next": None, "keep": claim.id in self.claims}
        if (job.stored_note("_wish") or {}).get("checkpoint"):
            report["kept"] = await self.images.retain_last(job, claim)
        if report.get("cause") in BY_ITSELF:
            await self._remote.drop_journal(job, run)
            if claim.job is not job or claim.run != run:  # given up meanwhile
                return self._reported_before(claim)
        if report.get("checkpointed"):
            report["generation"] = self.images.latest(job)
        turn_began = self._context.outside.thread_cpu()
        vacated = (job.stored_note("_wish") or {}).get("what") == "vacate"
        steps = self._end_steps(claim, job, report)
        released = claim.job is None and claim.id not in self.claims
        claim.left_by = job if vacated else None
        if report.get("cause") in BY_ITSELF:
            self.images.begin_anew(job, steps)
        start = None if released or claim.dedicated or claim.job is not None else self.starts.choose(claim, steps)
        claim.took = _seconds_run(report)
        if job.get("KeepClaimIdle") is not None:
            claim.keep = seconds if isinstance(seconds := job.ad().value("KeepClaimIdle"), (int, float)) else 0.0
        more = self.starts.hand_on(claim, steps)
        self._costs.charge(job, steps, self._context.outside.thread_cpu() - turn_began)
        await self._commit_start(claim, steps)
        self._ended.end_recorded(job)
        self._remote.run_ended(job, run, over=job.status.final or report.get("cause") in BY_ITSELF)
        idle_again = any(step.status == IDLE for step in steps)
        self.changed(job.cluster.owner, idle_again and start is None)
        if claim.dedicated:
            if not released:
                self.claims.empty(claim)
            return {"next": None, "keep": not released}
        if start is not None or claim.job is not None:
            claim.going = True
            answer = {"next": self.starts.order(claim) if start is not None else None, "keep": True}
            return answer | await self._handed_on(claim, more)
        if idle_again:
            self._context.spawn(self.use(claim), "use")
        elif not released:
            self._idle.retain(claim)
        return {"next": None, "keep": not released}

    def _reported_before(self, claim: HeldClaim) -> dict[str, Any]:
        """The end of an earlier job is reported again: its answer was lost, and so was the successor in it."""
        order = self.starts.order(claim, whole=True) if claim.job else None
        answer = {"next": order, "keep": claim.id in self.claims}
        handed = self.starts.handed_order(claim, whole=True)
        return answer if handed is None else answer | {"handed_on": handed}

    async def _handed_on(self, claim: HeldClaim, start: Activation | None) -> dict[str, Any]:
        """The order for a job that is handed on now, if it is still wanted when its start is durable."""
        handed = claim.handed_on
        if start is None or handed is None or handed.start is not start:
            return {}
        if handed.job.stored_note("_wish"):
            await self.take_back(claim)
            return {}
        return {"handed_on": self.starts.handed_order(claim)}

    async def take_back(self, claim: HeldClaim) -> None:
        """The job that was handed on to a claim does not begin there: it is idle again, or as its user wished."""
        handed, claim.handed_on = claim.handed_on, None
        if handed is None:
            return
        claim.sent = None  # the next order cannot build on one that may never have come
        self._leaves(handed.job)
        await self._ledger.commit(not_begun_step(handed.job, {}))
        self.changed(handed.job.cluster.owner, True)

    async def _end_was_lost(self, claim: HeldClaim) -> None:
        """The job that was handed on has ended; the end of the one before, which comes first, is lost."""
        handed = claim.handed_on
        if claim.job is not None:
            await self.requeue(claim, claim.job, "its machine lost its end", None)
        if claim.handed_on is handed:
            claim.promote()

    def _end_steps(self, claim: HeldClaim, job: QueuedJob, report: dict[str, Any]) -> list[JobChange]:
        self._detach_job(claim, job)
        if claim.handed_on is not None:
            claim.promote()  # where no more jobs are taken there, its startd gives it back next
        elif report.get("cause") == "start" or report.get("released"):
            self.claims.drop(claim)
        network, claim.network = claim.take_network(report), None
        if report.get("cause") == NOT_BEGUN:
            return [not_begun_step(job, report)]
        after = After(lambda tries: self.images.newest(job, tries=tries), self._context.name, network)
        return end_steps(job, claim.slot, report, self._context.outside.wall(), after)

    def _detach_job(self, claim: HeldClaim, job: QueuedJob) -> None:
        """The job is on this claim no more."""
        claim.job, claim.start, claim.going = None, None, False
        self._leaves(job)

    def _leaves(self, job: QueuedJob) -> None:
        """A job is on no claim any more."""
        job.run = None
        self.rematch.machine_lost(job)
        self.successors.machine_lost(job)

    # -- runs without an end -----------------------------------------------------------------------------

    async def requeue(self, claim: HeldClaim, job: QueuedJob, why: str, event: EventKind | None) -> None:
        """The job is not running any more, without having ended: idle again, or as its user wished meanwhile."""
        if claim.gang is not None:
            await self.gangs.part_lost(claim, why)
            return
        self._detach_job(claim, job)
        self._remote.run_ended(job, claim.run, over=False)
        changes: dict[str, Any] = {"_run": None, "RemoteHost": None, "LastRemoteHost": claim.slot}
        changes |= self._ran_unseen(claim, job)
        add_network(job, changes, claim.network)
        claim.network = None
        wish = job.stored_note("_wish")
        if wish:
            await self._ledger.commit(as_wished(job, wish, {**changes, "_wish": None}, {}))
        else:
            kind = event or EventKind.SHADOW_EXCEPTION
            await self._ledger.commit(JobChange(job, Happening.LOST, changes, kind, {"why": why, "slot": claim.slot}))
        self.changed(job.cluster.owner, True)

    def _ran_unseen(self, claim: HeldClaim, job: QueuedJob) -> dict[str, Any]:
        """The accounts of a run whose end was not reported: it counts until its machine was heard of last."""
        began = job.get(BEGAN)
        if not isinstance(began, (int, float)):
            return {}
        silent = asyncio.get_running_loop().time() - (claim.until - patience(claim.lease))
        wall = max(0.0, self._context.outside.wall() - silent - began)
        committed = costs.committed(claim.run, job.stored_note(costs.COSTS))
        return costs.ran(job.get, wall, 0.0, committed) | {costs.COSTS: None}

    def _lease_ended(self, claim: HeldClaim) -> None:
        self._context.spawn(self.reconnect.lease_over(claim), "lease")

    def release_all(self) -> list[tuple[str, str]]:
        """The (startd, claim) pairs of idle claims, forgotten here: to be given back at a clean stop."""
        idle = [claim for claim in self.claims.values() if claim.job is None]
        for claim in idle:
            self.claims.drop(claim)
        return [(claim.startd, claim.id) for claim in idle]


def _seconds_run(report: dict[str, Any]) -> float:
    """Seconds that a job ran, by its end; inf where none is handed on after it."""
    wall = report.get("wall")
    if report.get("takes_next") is not True or report.get("cause") not in BY_ITSELF:
        return math.inf
    return float(wall) if isinstance(wall, (int, float)) else math.inf
