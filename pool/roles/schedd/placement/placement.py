"""Claims and running jobs: the submit side of the claiming protocol and of the start contract.

    match -> claim -> activate -> (started, suspended, usage ...) -> ended -> next job on the same claim

How a match becomes a claim is in `matches`, what happens while a startd cannot be reached in `reconnect`. What keeps
two copies of a job from running (docs/architecture.md, "The start contract") is in these three:

- The intended start is durable (`_run` in the job's state) before it is sent.
- A claim is a lease. The *startd* asks for each renewal, and counts it from the moment it asked; we count from the
  moment we answered. Whatever the network does, its lease ends before ours, without comparing any clocks.
- When a startd cannot be reached, its jobs stay RUNNING until our side of the lease has passed, and no longer,
  whatever becomes of the connection (`lease_watch`). A schedd that was restarted does not know when it last answered,
  so it waits for a whole lease.
- An end is counted once: only for the (claim, run) that the job is in. A report that comes again is acknowledged
  again, with the same successor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from pool.classad import symmetric_match
from pool.errors import PoolError
from pool.images import ImageStore
from pool.jobs import costs
from pool.jobs.activation import Activation, CannotStart, activation, mode_for, signal_number
from pool.jobs.events import EventKind
from pool.jobs.machine_attributes import of_machine
from pool.jobs.reasons import Evict, Hold, Reason
from pool.jobs.states import Happening
from pool.jobs.substitution import CannotFill, fill, needs_filling
from pool.metering import Meter
from pool.outside import OutsideWorld
from pool.policy.checkpoints import CheckpointWish, Saves, wish_of
from pool.policy.gangs import costs_of
from pool.policy.queue import ACTIVE, HELD, IDLE, RUNNING, SUSPENDED, JobGroup, QueuedJob
from pool.roles.claim_errors import says_no_such_claim
from pool.roles.cooperative import WorkTurns
from pool.roles.links import Links
from pool.roles.schedd.checkpoints.images import Images
from pool.roles.schedd.core.claims import TROUBLE, HeldClaim, lease_for, patience
from pool.roles.schedd.core.job_ends import BEGAN, After, as_wished, end_steps, hold_step, started, usage_changes
from pool.roles.schedd.core.ledger import JobChange, Ledger
from pool.roles.schedd.core.submit_side_costs import SubmitSideCosts
from pool.roles.schedd.files.remote_io import RemoteFiles, copied
from pool.roles.schedd.parallel.gangs import Gangs
from pool.roles.schedd.parallel.gathering import is_gang
from pool.roles.schedd.placement.matches import Matches
from pool.roles.schedd.placement.reconnect import Reconnect
from pool.roles.schedd.placement.rematch import Rematch
from pool.roles.schedd.placement.successor import Successors
from pool.wire import RemoteError

if TYPE_CHECKING:
    from pool.roles.schedd.placement.deferral import Deferrals
    from pool.roles.schedd.submit.local_universe import LocalJobs

#: A checkpoint on demand is waited for so long, seconds.
CHECKPOINT_SECONDS = 3600.0
#: A startd answers within so many seconds that it has begun to stop a job; the wish is kept, and told again.
STOP_SECONDS = 10.0
#: Reasons why a job cannot be saved that are kept with it.
MOST_LINES = 20
#: Ends of a program by itself: what it has done at home is done.
BY_ITSELF = ("exit", "signal")


class NotYours(PoolError):
    """A node speaks of a claim that it did not grant."""


class ExecutableDigests(Protocol):
    """Where clusters' executables are kept (A12)."""

    def digest_of(self, job: QueuedJob) -> str | None: ...


class Placement:
    """All claims of one schedd.

    Args:
        life: seconds after which a claim is given back at the next end of a job.
        lease: seconds a claim lives without being renewed, where its jobs do not say; `longest_lease` where they do.
        linger: seconds an idle claim is kept for the owner's next job.
        patience: seconds for which a slot is waited for that another job has to leave.
        hold: seconds for which a job that needs several claims keeps those it has until there are all.
        unheard: seconds after which a negotiator that says nothing counts as gone.
        turns: who does long work next: many jobs may start at once.
        spawn: runs a coroutine in the background of the role.
        changed: called when the owner's idle or running numbers changed.
        refused: called with a job that cannot be checkpointed and why not, or with "" where it can again.
        finished: called with the job's last ad once its end is durable.
        aside: counts what the process does for none of the jobs.
    """

    def __init__(
        self,
        ledger: Ledger,
        links: Links,
        outside: OutsideWorld,
        log: logging.Logger,
        *,
        name: str,
        executables: ExecutableDigests,
        checkpoints: ImageStore | None,
        spawn: Callable[..., Any],
        changed: Callable[[str, bool], None],
        finished: Callable[[dict[str, Any]], None],
        life: float,
        lease: float,
        longest_lease: float,
        linger: float,
        patience: float,
        hold: float,
        unheard: float,
        turns: WorkTurns,
        refused: Callable[[QueuedJob, str], None] = lambda job, why: None,
        aside: Meter,
    ) -> None:
        self.ledger = ledger
        self.queue = ledger.queue
        self.claims: dict[str, HeldClaim] = {}
        self.longest_lease = longest_lease
        self.unheard = unheard
        self.turns = turns
        self.life, self.lease, self.linger, self.patience = life, lease, linger, patience
        self.links = links
        self.outside = outside
        self.log = log
        self.name = name
        self.executables = executables
        self.submit_side_costs = SubmitSideCosts(self.claims, outside, aside)
        ledger.works_for = self.submit_side_costs.step
        self.images = Images(checkpoints, ledger, self.claims, outside, log, name)
        self.spawn = spawn
        self._changed = changed
        self._refused = refused
        self._finished = finished
        self._idle: dict[str, list[HeldClaim]] = {}
        self.matches = Matches(self)
        self.reaching = Reconnect(self)
        self.moving = Rematch(self)
        self.gangs = Gangs(self, hold)
        self.leaving = Successors(self)
        #: The jobs that run beside the schedd, and those that wait for a moment of their own.
        self.local: LocalJobs | None = None
        self.deferrals: Deferrals | None = None
        #: Who answers jobs that reach their owner's files from elsewhere.
        self.remote: RemoteFiles | None = None

    def changed(self, owner: str, more: bool) -> None:
        """An owner's numbers changed; `more` when there is new work that a slot must be found for."""
        self.matches.trim(owner)
        self.gangs.gathering.trim(owner)
        self._changed(owner, more)

    # -- starting ----------------------------------------------------------------------------------------

    def offer(self, owner: str) -> None:
        """Jobs have come or gone: use idle claims for them at once."""
        if self.local is not None:
            self.local.look()
        self.matches.trim(owner)
        self.gangs.gathering.trim(owner)
        waiting = self._idle.get(owner)
        while waiting and self.queue.count(owner, IDLE):
            claim = waiting.pop()
            if claim.idle_timer is not None:
                claim.idle_timer.cancel()
                claim.idle_timer = None
            if claim.id in self.claims and claim.job is None:
                self.spawn(self.use(claim), "use")

    async def use(self, claim: HeldClaim, first: QueuedJob | None = None) -> None:
        """Start the next fitting job on a claim, or keep the claim idle for a moment, then give it back.

        Args:
            first: the job that the claim was made for, if it comes before all others.
        """
        await self.turns.moment(claim.owner, "start jobs")
        if claim.job is not None or claim.gathers is not None or claim.id not in self.claims:
            return
        steps: list[JobChange] = []
        start = self._choose(claim, steps, first)
        if steps:
            await self._commit_start(claim, steps)
        if start is None:
            self._keep_idle(claim)
            return
        await self.turns.moment(claim.owner, "start jobs")
        if claim.start is start:  # else the claim was lost while the start was being made durable
            await self.send(claim, start)

    async def _commit_start(self, claim: HeldClaim, steps: list[JobChange]) -> None:
        """Commit steps of which one may be a claim's next start, which is not to be sent before."""
        claim.writing = True
        try:
            await self.ledger.commit(*steps)
        finally:
            claim.writing = False

    def _choose(self, claim: HeldClaim, steps: list[JobChange], first: QueuedJob | None = None) -> Activation | None:
        """The next job for a claim, marked as running there; holds what can never start. Adds to `steps`."""
        if claim.lost or self._is_spent(claim):
            return None
        if first is not None and (first.status != IDLE or first is claim.left_by or self.queue.is_kept_back(first)):
            first = None
        if first is not None and (start := self._mark(claim, first, steps)) is not None:
            return start
        for group in self.queue.groups(claim.owner):
            if not self._fits(claim, group):
                continue
            while (job := self.queue.first(group)) is not None and job is not claim.left_by:
                if (start := self._mark(claim, job, steps)) is not None:
                    return start
        return None

    def _is_spent(self, claim: HeldClaim) -> bool:
        """Whether no other job follows on a claim. Without a negotiator nobody could grant another for it."""
        now = asyncio.get_running_loop().time()
        granted_anew = now - self.matches.heard < self.unheard
        return claim.spent or (now - claim.born > self.life and granted_anew)

    def _mark(self, claim: HeldClaim, job: QueuedJob, steps: list[JobChange]) -> Activation | None:
        """Mark an idle job as running on a claim; hold it, if it can never start. Adds to `steps`."""
        start: Activation | None = None
        try:
            start = self._start_of(claim, job, int(job.get("NumJobStarts", 0)) + 1)
            step = self._start_step(claim, job, start)
        except (CannotStart, CannotFill) as error:
            step = hold_step(job, f"cannot start: {error}", Hold.START_FAILED)
        except Exception as error:  # the others' starts go on
            self.log.exception("a start could not be worked out", extra={"job": job.id})
            step = hold_step(job, f"cannot start: {type(error).__name__}: {error}", Hold.START_FAILED)
        told = copied(job, claim, start) if start is not None else None
        for each in (step, told):
            if each is not None:
                self.ledger.note(each)
                steps.append(each)
        return start

    def _start_of(self, claim: HeldClaim, job: QueuedJob, run: int) -> Activation:
        """What a job is started with; worked out once for the jobs of a cluster that do not differ."""
        digest = self.executables.digest_of(job)
        checkpoint = self.images.newest(job, lambda: mode_for(job.ad(), claim.ad))
        known = claim.template
        alike = known is not None and checkpoint is None and not job.delta and known.job[0] == job.cluster.id
        if known is not None and alike and (known.digest == digest or not known.carries_executable):
            return known.for_job(job.id, run)
        ad = job.ad()
        if needs_filling(ad):
            ad = fill(ad, claim.ad, self.outside.wall())
        start = activation(ad, claim.ad, run, digest, checkpoint)
        if checkpoint is not None:
            start = replace(start, checkpoint_from=self.images.nearer(job, checkpoint))
        if self.deferrals is not None and (delay := self.deferrals.delay(job)):
            start = replace(start, not_before=delay)
        own = job.delta or checkpoint is not None or start.not_before or start.manifest
        claim.template = None if own else start
        return start

    def _fits(self, claim: HeldClaim, group: JobGroup) -> bool:
        known = claim.fits.get(group.id)
        if known is None:
            granted = group.charge == claim.charge and self.lease_of(group.ad.value("JobLeaseDuration")) == claim.lease
            known = granted and not is_gang(group.ad) and symmetric_match(group.ad, claim.ad, self.outside.wall())
            claim.fits[group.id] = known
        return known

    def lease_of(self, asked: Any) -> float:
        """The lease of a claim for a job with this JobLeaseDuration, seconds."""
        return lease_for(asked, self.lease, self.longest_lease)

    def _start_step(self, claim: HeldClaim, job: QueuedJob, start: Activation) -> JobChange:
        claim.job, claim.run, claim.start, claim.going = job, start.run, start, False
        claim.idle_until = None
        job.run = claim
        self.moving.started(job)
        now = int(self.outside.wall())
        changes: dict[str, Any] = {
            "NumJobStarts": start.run,
            "JobCurrentStartDate": now,
            "RemoteHost": claim.slot,
            "_run": {
                "claim": claim.id,
                "slot": claim.slot,
                "startd": claim.startd,
                "owner": claim.owner,
                "lease": claim.lease,
                "run": start.run,
            },
        }
        if job.get("JobStartDate") is None:
            changes["JobStartDate"] = now
        if job.get("JobMachineAttrs") is not None:
            changes |= of_machine(job.get, claim.ad.value)
        changes |= costs.goes_on(job.get, job.note(costs.HELD), start.checkpoint)
        changes |= costs.restarts(job.get, start.checkpoint)
        return JobChange(job, Happening.START, changes | self.not_begun(job))

    @staticmethod
    def not_begun(job: QueuedJob) -> dict[str, Any]:
        """What takes an earlier run's beginning from a job."""
        return {} if job.get(BEGAN) is None else {BEGAN: None}

    async def send(self, claim: HeldClaim, start: Activation) -> None:
        """Send a durable start; whatever is not a clear answer is left to `_reach_again`."""
        await self.submit_side_costs.measured(claim.id, self._send(claim, start))

    async def _send(self, claim: HeldClaim, start: Activation) -> None:
        job = claim.job
        assert job is not None
        self.changed(claim.owner, False)
        try:
            link = await self.links.to(claim.startd)
            await link.call("startd.activate", self.order(claim, whole=True), timeout=60.0)
        except RemoteError as error:
            await self._not_started(claim, job, start.run, str(error))
            if not says_no_such_claim(error):
                await self.release(claim)
        except TROUBLE:
            self.reaching.lose(claim)
        else:
            claim.going = True
            if self.gangs.is_broken(claim):
                await self.gangs.stop_part(claim)

    def order(self, claim: HeldClaim, *, whole: bool = False) -> dict[str, Any]:
        """What is sent to start the claim's present job: everything, or what differs from the order before."""
        job, start = claim.job, claim.start
        assert job is not None
        assert start is not None
        before = None if whole else claim.sent
        same_cluster = before is not None and before.job[0] == job.cluster.id
        claim.sent = start
        return {
            "claim": claim.id,
            "base": list(before.mark) if before is not None else None,
            "start": start.to_wire(before),
            "shared": None if same_cluster else job.cluster.wire,
            "own": job.own() if claim.gang is None else claim.gang.own(claim.part),
        }

    async def _not_started(self, claim: HeldClaim, job: QueuedJob, run: int, why: str) -> None:
        """The startd said no: the job is idle again, and the claim is of no more use, to nobody."""
        if claim.job is not job or claim.run != run:
            return
        self.drop(claim)
        self.log.info("a start was refused", extra={"job": job.id, "slot": claim.slot, "why": why})
        await self.requeue(claim, job, f"the machine refused to start it: {why}", None)

    # -- what the startd says ----------------------------------------------------------------------------

    def check_node(self, claim: str, node: str) -> None:
        """Refuse a node that speaks of a claim on another's slot, however it came by the claim's id.

        Raises:
            NotYours: it is another node's.
        """
        known = self.claims.get(claim)
        if known is not None and known.slot.rpartition("@")[2] != node:
            raise NotYours(f"the claim is on {known.slot}, not on a slot of {node}")

    def renew(self, claims: list[str], node: str) -> list[str]:
        """The startd asks for more time for its leases; answers those that are not ours any more."""
        now = asyncio.get_running_loop().time()
        gone: list[str] = []
        for number in claims:
            claim = self.claims.get(number)
            if claim is None or claim.slot.rpartition("@")[2] != node:
                gone.append(number)
            else:
                claim.until = now + patience(claim.lease)
        return gone

    async def told(self, claim_id: str, run: int, kind: str, data: dict[str, Any]) -> None:
        """Something happened to a running job: started, suspended, continued, usage."""
        claim = self.claims.get(claim_id)
        if claim is None or claim.job is None or claim.run != run:
            return
        job = claim.job
        claim.going = True
        changes = usage_changes(data)
        if kind == "started" and claim.gang is not None and claim.gang.parallel:
            await self.gangs.begun(claim)
            return
        if kind == "started":
            if job.get(BEGAN) is not None:
                return  # told again by a startd that was restarted
            changes[BEGAN] = int(data.get("started") or self.outside.wall())
            step = JobChange(job, None, changes, EventKind.EXECUTE, {"slot": claim.slot, **started(data)})
        elif kind == "suspended" and job.status == RUNNING:
            changes["TotalSuspensions"] = int(job.get("TotalSuspensions", 0)) + 1
            changes["LastSuspensionTime"] = int(self.outside.wall())
            changes["SuspendReason"] = why = str(data.get("why") or "")
            step = JobChange(job, Happening.SUSPEND, changes, EventKind.SUSPENDED, {"slot": claim.slot, "why": why})
        elif kind == "continued" and job.status == SUSPENDED:
            step = JobChange(job, Happening.CONTINUE, changes, EventKind.UNSUSPENDED, {"slot": claim.slot})
        elif kind == "checkpointed":
            if self.remote is not None:
                await self.remote.settle(job, run)
            await self.images.note(job, {})
            return
        elif kind == "saved":
            if claim.gang is not None:
                claim.gang.costs[claim.part] = data
                data = costs_of(claim.gang.costs.values())
            changes |= costs.told(job.get, run, job.note(costs.COSTS), data)
            work = float(job.get("CommittedTime") or 0.0) + costs.committed(run, changes[costs.COSTS])
            changes |= costs.reached(job.note(costs.HELD), self.images.latest(job), work)
            step = JobChange(job, None, changes)
        elif kind == "leaving":
            self.leaving.begins(claim, data.get("nearer"))
            self.gangs.sets.leaves(claim, data.get("last"))
            return
        elif kind == "unresumable":
            lines = self.gangs.trouble(claim, [str(line) for line in data.get("why", ())])
            await self._unresumable(job, lines[:MOST_LINES])
            return
        elif kind == "usage" and changes:
            step = JobChange(job, None, changes, EventKind.IMAGE_SIZE, data)
        else:
            return
        await self.ledger.commit(step)

    async def _unresumable(self, job: QueuedJob, why: list[str]) -> None:
        """The job cannot be saved: said by name, before work is lost; one that requires it is held (C7).

        Args:
            why: a line each; none where it can be saved again.
        """
        text = "; ".join(why)
        self._refused(job, text)
        if not why:
            if job.get("CheckpointTrouble") is not None:
                notice = {"text": "This job can be checkpointed now"}
                await self.ledger.commit(JobChange(job, None, {"CheckpointTrouble": None}, EventKind.NOTICE, notice))
            return
        if job.get("CheckpointTrouble") == text:
            return
        if wish_of(job.ad()) is CheckpointWish.REQUIRED:
            reason = f"it cannot be checkpointed: {text}"
            await self.stop(job, {"what": "hold", "why": reason, "code": int(Hold.CHECKPOINT_FAILED)}, False)
        else:
            notice = {"text": f"This job cannot be checkpointed: {text}"}
            await self.ledger.commit(JobChange(job, None, {"CheckpointTrouble": text}, EventKind.NOTICE, notice))

    async def checkpoint(self, job: QueuedJob) -> str | None:
        """Have a running job saved now; in words why it was not."""
        claim: HeldClaim | None = job.run
        if claim is None:
            return "it is not running"
        if claim.gang is not None:
            try:
                await self.gangs.sets.make(claim.gang)
            except PoolError as error:
                return error.message
            return None
        asked = {"claim": claim.id, "run": claim.run}
        try:
            await self.ask(claim, "startd.checkpoint", asked, CHECKPOINT_SECONDS)
        except RemoteError as error:
            return error.message
        except TROUBLE as error:
            return f"its machine did not answer: {error}"
        return None

    async def ended(self, claim_id: str, job_id: tuple[int, int], run: int, report: dict[str, Any]) -> dict[str, Any]:
        """A job has ended, and its outputs are in place. The answer is durable, and may carry the next job."""
        claim = self.claims.get(claim_id)
        if claim is None:
            return {"next": None, "keep": False}
        async with claim.ending:
            return await self._ended(claim, job_id, run, report)

    async def _ended(
        self, claim: HeldClaim, job_id: tuple[int, int], run: int, report: dict[str, Any]
    ) -> dict[str, Any]:
        job = claim.job
        if job is None or claim.run != run or job.id != job_id:
            return self._told_before(claim)
        if claim.gang is not None:
            await self.gangs.ended(claim, report)
            return {"next": None, "keep": False}
        if (job.note("_wish") or {}).get("checkpoint"):
            report["kept"] = await self.images.keep(job, claim)
        if self.remote is not None and report.get("cause") in BY_ITSELF:
            await self.remote.over(job, run)
            if claim.job is not job or claim.run != run:  # given up meanwhile
                return self._told_before(claim)
        if report.get("checkpointed"):
            report["generation"] = self.images.latest(job)
        turn_began = self.outside.thread_cpu()
        vacated = (job.note("_wish") or {}).get("what") == "vacate"
        steps = self._end_steps(claim, job, report)
        released = claim.job is None and claim.id not in self.claims
        claim.left_by = job if vacated else None
        start = None if released else self._choose(claim, steps)
        if job.get("KeepClaimIdle") is not None:
            claim.keep = seconds if isinstance(seconds := job.ad().value("KeepClaimIdle"), (int, float)) else 0.0
        self.charge_home(job, steps, self.outside.thread_cpu() - turn_began)
        await self._commit_start(claim, steps)
        self.is_over(job)
        if self.remote is not None:
            self.remote.left(job, run, over=job.status.final or report.get("cause") in BY_ITSELF)
        idle_again = any(step.status == IDLE for step in steps)
        self.changed(claim.owner, idle_again and start is None)
        if start is not None:
            claim.going = True
            return {"next": self.order(claim), "keep": True}
        if idle_again:
            self.spawn(self.use(claim), "use")
        elif not released:
            self._keep_idle(claim)
        return {"next": None, "keep": not released}

    def charge_home(self, job: QueuedJob, steps: list[JobChange], now: float = 0.0) -> None:
        """Write into the end of a run what it has cost at home (EV 2.8); `now`: seconds of the present turn."""
        spent = self.submit_side_costs.take(job, now)
        steps[0].changes["LocalUserCpu"] = round(float(job.get("LocalUserCpu", 0) or 0) + spent, 6)
        for step in steps:
            if step.job is job and step.event is not EventKind.EXECUTE:
                step.data["local_user_cpu"] = round(spent, 6)

    def _told_before(self, claim: HeldClaim) -> dict[str, Any]:
        """The end of an earlier job was told again: its answer was lost, and so was the successor in it."""
        return {"next": self.order(claim, whole=True) if claim.job else None, "keep": claim.id in self.claims}

    def is_over(self, job: QueuedJob) -> None:
        """The end of a run is durable: its user is told, and what is not needed any more is forgotten."""
        if (job.status.final or job.status is HELD) and job.get("JobNotification"):
            self._finished(job.wire())
        if job.status.final:
            self.submit_side_costs.forget(job)
        if job.status.final and job.get("NumCkpts"):
            self.spawn(self.images.forget(job), "forget", alone=True)

    def revoked(self, claim_id: str, reason: Reason) -> None:
        """The startd has ended a claim. One whose lease it was is asked for what became of its job; where a job is on
        the way to one that had none, that start hears so for itself."""
        claim = self.claims.get(claim_id)
        if claim is None:
            return
        if claim.job is None:
            self.log.info("a claim was revoked", extra={"slot": claim.slot, "why": reason.text})
            self.drop(claim)
        elif reason.kind is Evict.LEASE_ENDED:
            self.reaching.lose(claim)

    def _end_steps(self, claim: HeldClaim, job: QueuedJob, report: dict[str, Any]) -> list[JobChange]:
        claim.job, claim.start, claim.going = None, None, False
        job.run = None
        self.moving.left(job)
        self.leaving.left(job)
        if report.get("cause") == "start" or report.get("released"):
            self.drop(claim)
        after = After(lambda tries: self.images.newest(job, tries=tries), self.name)
        return end_steps(job, claim.slot, report, self.outside.wall(), after)

    # -- stopping ----------------------------------------------------------------------------------------

    async def stop(self, job: QueuedJob, wish: dict[str, Any], graceful: bool) -> None:
        """Have a running job stopped; what becomes of it then is the wish, kept durably with the job. Not one that has
        ended meanwhile."""
        if job.status not in ACTIVE:
            return
        await self.ledger.commit(JobChange(job, None, {"_wish": wish}))
        if self.local is not None and await self.local.stop(job, graceful, signal_of(job, wish)):
            return
        await asyncio.gather(*(self._deactivate(job, claim, wish, graceful) for claim in self.gangs.claims_of(job)))

    async def _deactivate(self, job: QueuedJob, claim: HeldClaim, wish: dict[str, Any], graceful: bool) -> None:
        asked = {"claim": claim.id, "run": claim.run, "graceful": graceful, "save": _saves(wish)}
        asked["signal"] = signal_of(job, wish)
        try:
            await self.ask(claim, "startd.deactivate", asked, STOP_SECONDS)
        except (*TROUBLE, RemoteError) as error:
            self.log.warning("a job was not to be stopped", extra={"job": job.id, "why": str(error)})

    async def ask(self, claim: HeldClaim, method: str, params: dict[str, Any], timeout: float) -> Any:
        """Call a claim's startd. Where it is not reached, or has no such claim, what became of the job is found out.

        Raises:
            RemoteError, and what TROUBLE has: as the call.
        """
        try:
            link = await self.links.to(claim.startd)
            return await link.call(method, params, timeout=timeout)
        except RemoteError as error:
            if says_no_such_claim(error):
                self.reaching.lose(claim)
            raise
        except TROUBLE:
            self.reaching.lose(claim)
            raise

    async def requeue(self, claim: HeldClaim, job: QueuedJob, why: str, event: EventKind | None) -> None:
        """The job is not running any more, without having ended: idle again, or as its user wished meanwhile."""
        if claim.gang is not None:
            await self.gangs.gone(claim, why)
            return
        claim.job, claim.start, claim.going = None, None, False
        job.run = None
        self.moving.left(job)
        self.leaving.left(job)
        if self.remote is not None:
            self.remote.left(job, claim.run, over=False)
        changes: dict[str, Any] = {"_run": None, "RemoteHost": None, "LastRemoteHost": claim.slot}
        changes |= self._ran_unseen(claim, job)
        wish = job.note("_wish")
        if wish:
            await self.ledger.commit(as_wished(job, wish, {**changes, "_wish": None}, {}))
        else:
            kind = event or EventKind.SHADOW_EXCEPTION
            await self.ledger.commit(JobChange(job, Happening.LOST, changes, kind, {"why": why, "slot": claim.slot}))
        self.changed(claim.owner, True)

    def _ran_unseen(self, claim: HeldClaim, job: QueuedJob) -> dict[str, Any]:
        """What is to be counted for a run whose end nobody told: until its machine was heard of last."""
        began = job.get(BEGAN)
        if not isinstance(began, (int, float)):
            return {}
        silent = asyncio.get_running_loop().time() - (claim.until - patience(claim.lease))
        wall = max(0.0, self.outside.wall() - silent - began)
        at_home = costs.committed(claim.run, job.note(costs.COSTS))
        return costs.ran(job.get, wall, 0.0, at_home) | {costs.COSTS: None}

    # -- claims ------------------------------------------------------------------------------------------

    def release_all(self) -> list[tuple[str, str]]:
        """The (startd, claim) pairs of idle claims, forgotten here: to be given back at a clean stop."""
        idle = [claim for claim in self.claims.values() if claim.job is None]
        for claim in idle:
            self.drop(claim)
        return [(claim.startd, claim.id) for claim in idle]

    def _keep_idle(self, claim: HeldClaim) -> None:
        if claim.id not in self.claims or claim.job is not None:
            return
        loop = asyncio.get_running_loop()
        spent = claim.lost or self._is_spent(claim)
        self._idle.setdefault(claim.owner, []).append(claim)
        if claim.idle_until is None:
            keep = claim.keep if claim.left_by is None else 0.0
            claim.idle_until = loop.time() + max(self.linger, keep)
        claim.idle_timer = loop.call_at(0.0 if spent else claim.idle_until, self._give_back, claim)

    def _give_back(self, claim: HeldClaim) -> None:
        if claim.job is not None or claim.id not in self.claims:
            return
        waiting = self._idle.get(claim.owner)
        if waiting and claim in waiting:
            waiting.remove(claim)
        left_by, claim.left_by = claim.left_by, None
        if left_by is not None and left_by.status == IDLE and not self._is_spent(claim):
            self.spawn(self.use(claim), "use")  # no other machine was free for it meanwhile
            return
        self.drop(claim)
        self.spawn(self.release(claim), "release", alone=True)

    async def release(self, claim: HeldClaim) -> None:
        try:
            link = await self.links.to(claim.startd)
            await link.call("startd.release", {"claims": [claim.id]}, timeout=10.0)
        except (*TROUBLE, RemoteError):
            # Its lease ends by itself.
            return

    def drop(self, claim: HeldClaim) -> None:
        self.claims.pop(claim.id, None)
        self.reaching.forget(claim)
        if claim.gathers is not None:
            self.gangs.gathering.lost(claim)
        waiting = self._idle.get(claim.owner)
        if waiting and claim in waiting:
            waiting.remove(claim)
        if claim.idle_timer is not None:
            claim.idle_timer.cancel()
            claim.idle_timer = None


def signal_of(job: QueuedJob, wish: dict[str, Any]) -> int | None:
    """What asks a job to end that its user removes or holds, where it says so."""
    name = {"remove": "RemoveKillSig", "hold": "HoldKillSig"}.get(wish["what"])
    value = job.get(name) if name is not None else None
    return signal_number(value) if isinstance(value, (str, int)) and value else None


def _saves(wish: dict[str, Any]) -> str:
    """Whether a last checkpoint is made of a job that its user stops: see `Saves`."""
    return Saves.NEVER if wish["what"] == "remove" and not wish.get("checkpoint") else Saves.ALWAYS
