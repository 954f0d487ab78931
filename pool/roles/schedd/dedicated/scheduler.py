"""When the dedicated scheduler decides, what it decides about, and acting on it (WR 3).

A cycle begins a moment after something has changed: a job came, a claim was given or lost, a job ended, a machine's ad
is another. It computes everything anew (`pool.policy.dedicated.decide`) and acts. Without dedicated jobs, claims and
reservations nothing is asked of anybody (WR 3.1). The central manager is needed for claims that are not held yet, and
for nothing else (WR 5).
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pool.classad import ClassAd
from pool.decimals import whole_number
from pool.errors import PoolError
from pool.jobs.gangs import DEDICATED, wants_dedicated
from pool.policy.dedicated import (
    Decisions,
    DedicatedJob,
    DedicatedMachine,
    DedicatedRun,
    DedicatedSettings,
    MachineState,
    Plan,
    QueueOrder,
    RequestMachines,
    RunPredictor,
    Share,
    StartErrors,
    StartGang,
    UserQueue,
    decide_in_steps,
    group_machines,
    is_worth,
    lent_away,
    plan_in_steps,
    read_runs,
)
from pool.policy.dedicated.discipline import Preemption
from pool.policy.dedicated.model import Kind
from pool.policy.dedicated.oversized_jobs import OversizedJobs
from pool.policy.managed import HIERARCHY, SCHEDULER, is_upper, managers_of, submitter_of
from pool.policy.queue import ACTIVE, IDLE, QueuedJob
from pool.policy.why.findings import DedicatedFinding
from pool.roles.advertise import Advertiser
from pool.roles.cooperative import WorkTurn, in_slices
from pool.roles.schedd.core.claims import HeldClaim
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.dedicated.accounts import UserAccounts
from pool.roles.schedd.dedicated.calls import SchedulerCalls
from pool.roles.schedd.dedicated.gangs import DedicatedQueue, Wanted, is_gang, name_of
from pool.roles.schedd.dedicated.lending import Lending
from pool.roles.schedd.dedicated.machines import ManagedMachines, is_held
from pool.roles.schedd.dedicated.requests import DedicatedRequests, MachineRequest
from pool.roles.schedd.dedicated.reservations import KeptReservation, Reservations

#: Seconds that a cycle waits for what else changes.
SETTLE = 0.02
#: The longest pause between two cycles when there is something to do, seconds.
LONGEST_PAUSE = 5.0
#: Seconds for which a question waits for the collector.
HEARING = 5.0
#: The queue's note of how long users' jobs ran, and seconds between two writes of it.
RUNS, WRITE_EVERY = "dedicated-runs", 60.0
#: Seconds between two plans that are made to learn how good plans are, and jobs with which none is made for that.
PLAN_EVERY, MANY_JOBS = 30.0, 300
#: A plan serves others who ask for so many times as long as it took to make it.
PLAN_LASTS = 5.0
#: Seconds after which the decisions are looked at again though nothing has changed.
LOOK_AGAIN = 30.0


@dataclass(frozen=True, slots=True)
class CycleState:
    """The subjects of one cycle's decisions.

    Attributes:
        running: the dedicated jobs that run, and loans to lower schedulers that cannot be called back yet.
    """

    now: float
    queues: tuple[UserQueue, ...]
    running: tuple[DedicatedRun, ...]
    machines: tuple[DedicatedMachine, ...]
    wanted: Mapping[str, list[Wanted]]
    fits: Mapping[str, tuple[Kind, ...]]


@dataclass(frozen=True, slots=True)
class _MadePlan:
    """A plan that was made a short time ago: of which state, when (the loop's time), and how many seconds it took."""

    state: CycleState
    plan: Plan
    made: float
    cost: float


class DedicatedScheduler:
    """The dedicated scheduler of one schedd.

    Args:
        settings: as they are now; reclaim time and such are filled in here.
        address: of the schedd; collector: of the pool's collector.
        lifetime: seconds for which the collector keeps ads.

    Attributes:
        decisions, state: of the last cycle, for those who ask why.
    """

    def __init__(
        self,
        context: ScheddContext,
        settings: Callable[[], DedicatedSettings],
        advertiser: Advertiser,
        calls: SchedulerCalls,
        reservations: Reservations,
        *,
        address: str,
        collector: str,
        lifetime: Callable[[], float],
    ) -> None:
        self.submitter = submitter_of(context.name)
        self.reservations = reservations
        reservations.listen(self.wake)
        self.decisions = Decisions()
        self.state = CycleState(0.0, (), (), (), {}, {})
        self.cycles = 0
        self._context = context
        self._settings = settings
        self._calls = calls
        self.machines = ManagedMachines(
            self.submitter, context.links, collector, context.outside, context.log, self.wake, lifetime
        )
        self.lending = Lending(context, calls.start_job, calls.fits_lease)
        self.requests = DedicatedRequests(
            context, self.submitter, address, advertiser, calls.obtain, self.wake, self.lending.record_reclaim
        )
        self._predictor = RunPredictor()
        self.queue = DedicatedQueue(
            self.submitter,
            calls.gatherings,
            self.machines.index,
            lambda user, said, size: self._predictor.predict(user, said, size),
        )
        self._due = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None
        self._idle_since: dict[HeldClaim, float] = {}
        self._starting: dict[QueuedJob, tuple[HeldClaim, ...]] = {}
        self._backfilled: set[str] = set()
        self._saving: set[QueuedJob] = set()
        self._last_starts: dict[str, float] = {}
        self.accounts = UserAccounts(
            context.links, collector, calls.account_of, self._order_matters, self.wake, context.log
        )
        self._errors = StartErrors()
        self._ran: dict[str, DedicatedRun] = {}
        self._written = 0.0
        self._expected: dict[str, tuple[float, float]] = {}
        self._planned = 0.0
        self._takes_all = True
        self._too_large: frozenset[str] = frozenset()
        self._larger = OversizedJobs()
        self._curious = 0
        self._looking = asyncio.Lock()
        self._plan: _MadePlan | None = None
        context.claims.when_dropped(self._dropped)
        context.claims.when_emptied(self.returned)

    # -- which jobs --------------------------------------------------------------------------------------

    def takes(self, job: QueuedJob) -> bool:
        """Whether an idle job is this scheduler's: it asked for that, or is parallel and there are dedicated machines.

        Where no machine names this scheduler, parallel jobs gather machines as they come (docs/parallel.md).
        """
        if not job.cluster.dedicated and not (job.delta and DEDICATED in job.delta):
            return False
        ad = job.ad()
        if not wants_dedicated(ad):
            return False
        return ad.value(DEDICATED, None) is True or self._takes_all

    def keeps(self, job: QueuedJob) -> bool:
        """Whether an idle job is left to this scheduler alone. One that is larger than all dedicated machines gathers
        others as they come, those of other pools too (WR 6.4), unless it says `dedicated = true`.
        """
        return self.takes(job) and name_of(job) not in self._too_large

    def _order_matters(self) -> bool:
        """Whether there are dedicated jobs of several users, in an order that goes by use."""
        settings = self._settings()
        owners = {cluster.owner for cluster in self._context.queue.dedicated.values()}
        return len(owners) > 1 and (settings.time_sharing or settings.order is QueueOrder.USERS)

    def wake(self) -> None:
        """Something has changed that may matter."""
        self._due.set()

    def has_work(self) -> bool:
        """Whether there is anything to decide about."""
        queue = self._context.queue
        if self._curious or queue.dedicated or self.reservations:
            return True
        return any(map(is_held, self._context.claims.values()))

    # -- claims ------------------------------------------------------------------------------------------

    def returned(self, claim: HeldClaim) -> None:
        """A claim of the scheduler's has no job any more: it is for the next one."""
        claim.spent = False
        claim.left_by = None
        self.lending.returned(claim)
        self._idle_since[claim] = self._context.outside.wall()
        self.wake()

    def _dropped(self, claim: HeldClaim) -> None:
        if is_held(claim):
            self.lending.returned(claim)
            self._idle_since.pop(claim, None)
            self.wake()

    def held(self) -> dict[str, HeldClaim]:
        """The scheduler's claims by their slots."""
        return {claim.slot: claim for claim in self._context.claims.values() if is_held(claim)}

    # -- cycles ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Decide whenever something has changed, until cancelled."""
        loop = asyncio.get_running_loop()
        cost = 0.0
        while True:
            await self._due.wait()
            await asyncio.sleep(max(SETTLE, min(cost, LONGEST_PAUSE)))
            self._due.clear()
            began = loop.time()
            try:
                await self.decide_now()
            except PoolError as error:
                self._context.log.error("a dedicated cycle failed", extra={"error": str(error)})
            cost = loop.time() - began

    async def decide_now(self) -> None:
        """One cycle: look, decide, act, in slices. Changes in between count in the next cycle."""
        async with self._context.turns.work("", "schedule dedicated jobs") as turn:
            await self._cycle(turn)

    async def _cycle(self, turn: WorkTurn) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if not self.has_work():
            self.machines.set_wanted(False)
            self.requests.farewell()
            return
        self.machines.set_wanted(True)
        self._take_all_or_explicit()
        self.cycles += 1
        claims = self.held()
        self.state = await self._look_alone(turn, claims)
        settings = replace(self._settings(), reclaim_seconds=self.lending.seconds)
        state = self.state
        classes = group_machines(state.machines, state.now, settings.unused_claim_timeout)
        reservations = self.reservations.current(state.now, state.fits)
        await turn.pause()
        rules = self._preemption()
        steps = decide_in_steps(state.queues, state.running, classes, state.now, settings, reservations, rules)
        self.decisions = await in_slices(turn, steps)
        await turn.pause()
        self._let_go()
        self._act(self.decisions, claims)
        await self._compare(state, turn)

    def _let_go(self) -> None:
        """Have those jobs gather machines that are larger than all that is configured; and no others any more."""
        skips = self.decisions.skips if self.machines.known else ()
        sure = map(self._find, self._larger.after_cycle(skips, self._context.outside.wall()))
        large = frozenset(
            name_of(job) for job in sure if job is not None and job.ad().value(DEDICATED, None) is not True
        )
        if large != self._too_large:
            self._too_large = large
            self._calls.regroup()

    def _preemption(self) -> Preemption | None:
        """The administrator's rules, for the decisions of one cycle."""
        rules = self._calls.preemption()
        if rules is None:
            return None
        running = [claim for claim in self.held().values() if claim not in self.lending.lent and self.is_own(claim)]

        def candidates(job: DedicatedJob) -> Mapping[str, float]:
            queued = self._find(job.id)
            if queued is None:
                return {}
            ad = ClassAd.from_wire({SCHEDULER: self.submitter}, parent=queued.ad())
            return rules.candidates(ad, running, self.state.now, self.machines.index.ads.get)

        return candidates

    async def _compare(self, state: CycleState, turn: WorkTurn) -> None:
        """Compare expected starts with what came about, so that answers can say how sure they are."""
        for start in self.decisions.starts:
            if (expected := self._expected.pop(start.job, None)) is not None:
                asked, wait = expected
                self._errors.record_wait(wait, state.now - asked)
        waiting = sum(len(queue.jobs) for queue in state.queues)
        if not waiting or waiting > MANY_JOBS or state.now < self._planned + PLAN_EVERY:
            return
        self._planned = state.now
        idle = {job.id for queue in state.queues for job in queue.jobs}
        self._expected = {name: known for name, known in self._expected.items() if name in idle}
        plan = await in_slices(turn, self.plan(state))
        for planned in plan.starts:
            if planned.start is not None:
                self._expected.setdefault(planned.job, (state.now, planned.start - state.now))

    def _take_all_or_explicit(self) -> None:
        """Whether parallel jobs that do not say so are dedicated: there are machines for that, as far as is known."""
        any_held = any(map(is_held, self._context.claims.values()))
        takes_all = not self.machines.known or len(self.machines.index) > 0 or any_held
        if takes_all is not self._takes_all:
            self._takes_all = takes_all
            self._calls.regroup()

    async def _look_alone(
        self, turn: WorkTurn, claims: Mapping[str, HeldClaim], more: tuple[KeptReservation, ...] = ()
    ) -> CycleState:
        """Look in slices. One looks at a time: what is remembered of requests is everybody's."""
        turn.end()
        async with self._looking:
            await turn.begin()
            return await in_slices(turn, self._cycle_state_steps(claims, more))

    def _cycle_state_steps(
        self, claims: Mapping[str, HeldClaim], more: tuple[KeptReservation, ...] = ()
    ) -> Generator[None, None, CycleState]:
        """Where everything stands, in steps."""
        now = self._context.outside.wall()
        machines, queue = self.machines, self.queue
        machines.take_in_claims(claims.values())
        yield
        queue.begin_cycle(now)
        jobs: list[QueuedJob] = []
        for job in self._jobs():
            yield
            if job.status == IDLE and self._may_start(job):
                jobs.append(job)
        running = self._running(claims)
        wanted: dict[str, list[Wanted]] = {}
        for job in jobs:
            yield
            try:
                wanted[name_of(job)] = queue.wanted(job)
            except PoolError as error:
                self._context.log.warning("a job cannot be placed", extra={"job": job.id, "why": error.message})
        everything = list({id(one): one for parts in wanted.values() for one in parts}.values())
        yield
        everything += [self.queue.plain(key, ad, count) for key, ad, count in self.reservations.requests(more)]
        idle = {claim: self._idle_since.setdefault(claim, now) for claim in claims.values() if claim.job is None}
        starting = {claim for own in self._starting.values() for claim in own}
        theirs = {claim: lent for claim, lent in self._lent(claims).items() if claim not in starting}
        standing = yield from machines.standing(
            {slot: claim for slot, claim in claims.items() if claim not in starting},
            theirs,
            idle,
            self.requests.coming,
            queue.ad_of(everything[0].request) if everything else None,
            now,
            self.lending.seconds,
        )
        yield
        known = {machine.name for machine in standing.machines}
        busy = [
            DedicatedMachine(name, "", MachineState.AWAY)
            for name in {claim.slot for run in running.values() for claim in run} - known
        ]
        kinds_known, fits = yield from queue.kinds(everything, [*standing.machines, *busy], now)
        kind_of = {machine.name: machine.kind for machine in kinds_known}
        away = [(one.slot, kind_of.get(one.slot, ""), one.borrower, one.until) for one in standing.lent.values()]
        fitting = {machine.name: machine for machine in kinds_known}
        placed = tuple(
            fitting.get(machine.name, machine) for machine in standing.machines if machine.name not in standing.lent
        )
        yield
        queues: dict[str, list[DedicatedJob]] = {}
        for job in jobs:
            yield
            if name_of(job) in wanted:
                queues.setdefault(job.cluster.owner, []).append(queue.job_of(job, wanted[name_of(job)], fits))
        found: list[DedicatedRun] = []
        for job, own in running.items():
            yield
            found.append(self._run_of(job, own, kind_of))
        runs = tuple(found)
        self.accounts.count(runs, now)
        self._record_ended(runs, now)
        for run in runs:
            queues.setdefault(run.job.user, [])  # its user's usage counts when machines are shared over time
        users = tuple(
            UserQueue(user, tuple(own), self.accounts.used(user), self._last_starts.get(user, float("-inf")))
            for user, own in queues.items()
        )
        return CycleState(now, users, (*runs, *lent_away(away, now)), placed, wanted, fits)

    def _jobs(self) -> Iterable[QueuedJob]:
        for cluster in self._context.queue.dedicated.values():
            yield from cluster.jobs.values()

    def _may_start(self, job: QueuedJob) -> bool:
        return job not in self._starting and self.takes(job) and not self._calls.kept_back(job)

    def _running(self, claims: Mapping[str, HeldClaim]) -> dict[QueuedJob, list[HeldClaim]]:
        """The dedicated jobs that hold claims of the scheduler's."""
        found: dict[QueuedJob, list[HeldClaim]] = {}
        for claim in claims.values():
            if claim.job is not None and claim not in self.lending.lent and self.is_own(claim):
                found.setdefault(claim.job, []).append(claim)
        for job in self._saving - found.keys():
            self._saving.discard(job)
        return found

    @staticmethod
    def is_own(claim: HeldClaim) -> bool:
        """Whether the job on a claim is a dedicated one."""
        job = claim.job
        return job is not None and (claim.gang is not None or wants_dedicated(job.ad()))

    def _lent(self, claims: Mapping[str, HeldClaim]) -> Mapping[HeldClaim, Any]:
        strangers = [one for one in claims.values() if one.job is not None and not self.is_own(one)]
        self.lending.adopt(strangers)
        return self.lending.of(claims)

    def _run_of(self, job: QueuedJob, own: list[HeldClaim], kind_of: Mapping[str, Kind]) -> DedicatedRun:
        by_kind: dict[Kind, list[str]] = {}
        for claim in own:
            by_kind.setdefault(kind_of.get(claim.slot, ""), []).append(claim.slot)
        shares = tuple(Share(0, kind, tuple(names)) for kind, names in by_kind.items())
        view = self.queue.running_job(job, len(own))
        began = job.get("JobCurrentStartDate")
        return DedicatedRun(
            job=view,
            started=float(began) if isinstance(began, (int, float)) else self._context.outside.wall(),
            shares=shares,
            backfilled=view.id in self._backfilled,
            leaving=job in self._saving or job.stored_note("_wish") is not None or job.status not in ACTIVE,
            until=min((self.machines.until(claim, self.queue.now) for claim in own), default=math.inf),
        )

    def restore(self, meta: Mapping[str, bytes]) -> None:
        """Take in what an earlier run of the schedd has written down."""
        self.reservations.restore(meta)
        if kept := meta.get(RUNS):
            try:
                self._predictor = RunPredictor(read_runs(json.loads(kept)))
            except ValueError as error:
                self._context.log.warning("earlier runs are forgotten", extra={"error": str(error)})

    def _record_ended(self, runs: Iterable[DedicatedRun], now: float) -> None:
        """Learn how long the jobs ran that have left the queue since the last look."""
        before, self._ran = self._ran, {run.job.id: run for run in runs}
        ended = [run for name, run in before.items() if name not in self._ran and self._find(name) is None]
        for run in ended:
            self._predictor.record_run(run.job.user, run.attained(now), run.job.size)
        if ended and now >= self._written + WRITE_EVERY:
            self._written = now
            kept = json.dumps(self._predictor.as_dict()).encode()
            self._context.spawn(self._calls.keep(RUNS, kept), "runs", alone=True)

    # -- questions ---------------------------------------------------------------------------------------

    async def state_now(self) -> CycleState:
        """Where everything stands now, with the machines asked for if nobody has yet."""
        return await self._cycle_state(())

    async def look_with(self, asked: KeptReservation) -> CycleState:
        """As `state_now`, with which machines a reservation could have."""
        return await self._cycle_state((asked,))

    async def planned(self, state: CycleState, user: str) -> Plan:
        """The expected course of things from a state on, if nothing else comes (WR 6.3). Of one cycle's state it is
        made once, and a dear one serves for a while, however many ask.

        Args:
            user: whose turn the work counts to.
        """
        known, loop = self._plan, asyncio.get_running_loop()
        if known is not None and (known.state is state or loop.time() < known.made + PLAN_LASTS * known.cost):
            return known.plan
        async with self._context.turns.work(user, "plan dedicated jobs") as turn:
            began = loop.time()
            made = await in_slices(turn, self.plan(state))
            self._plan = _MadePlan(state, made, loop.time(), loop.time() - began)
        return made

    def plan(self, state: CycleState) -> Generator[None, None, Plan]:
        """The same, in steps."""
        settings = replace(self._settings(), reclaim_seconds=self.lending.seconds)
        classes = group_machines(state.machines, state.now, settings.unused_claim_timeout)
        reservations = self.reservations.current(state.now, state.fits)
        return plan_in_steps(
            state.queues,
            state.running,
            classes,
            state.now,
            settings,
            reservations,
            guess=self._predictor.mean,
            errors=self._errors,
        )

    async def why(self, job: QueuedJob) -> DedicatedFinding | None:
        """Why an idle job of this scheduler's waits, and when it is expected to start."""
        if not self.takes(job):
            return None
        name = name_of(job)
        if not self.machines.known and not self.held():
            return DedicatedFinding(self.submitter, "the collector has not said yet which machines are dedicated")
        if name not in self.state.wanted:
            return DedicatedFinding(self.submitter)
        if (skip := next((one for one in self.decisions.skips if one.job == name), None)) is not None:
            return DedicatedFinding(self.submitter, f"{skip.words} (machines of {self.submitter})")
        asked = next((one for one in self.decisions.requests if one.job == name), None)
        why = ""
        if asked is not None:
            number = sum(len(share.machines) for share in asked.shares)
            leave = f", and {len(asked.reclaim)} of them have to be left by other jobs" if asked.reclaim else ""
            why = f"{number} machines are being claimed for it{leave}"
        plan = await self.planned(self.state, job.cluster.owner)
        found = next((one for one in plan.starts if one.job == name), None)
        if found is None:
            return DedicatedFinding(self.submitter, why)
        return DedicatedFinding(
            self.submitter, why, found.words, found.start, found.earliest, found.latest, found.waits_for
        )

    async def _cycle_state(self, more: tuple[KeptReservation, ...]) -> CycleState:
        self._curious += 1
        self.machines.set_wanted(True)
        try:
            async with asyncio.timeout(HEARING):
                await self.machines.wait()
        except TimeoutError as error:
            raise PoolError(
                "the collector does not say which machines are dedicated", hint="try again soon", retry=True
            ) from error
        finally:
            self._curious -= 1
            self.wake()
        async with self._context.turns.work("", "look at dedicated machines") as turn:
            return await self._look_alone(turn, self.held(), more)

    # -- acting ------------------------------------------------------------------------------------------

    def _act(self, decisions: Decisions, claims: Mapping[str, HeldClaim]) -> None:
        context = self._context
        for save in decisions.saves:
            job = self._find(save.job)
            if job is not None and job not in self._saving:
                self._saving.add(job)
                context.spawn(self._calls.save(job, save.because), "save", alone=True)
        for start in decisions.starts:
            self._start(start, claims)
        asked: list[MachineRequest] = []
        for request in decisions.requests:
            asked += self._asked_for(request, claims)
        self.requests.set_requests(asked)
        until: dict[HeldClaim, float] = {}
        for lend in decisions.lends:
            until |= dict.fromkeys(self._idle(lend.machines, claims), lend.until)
        unused = self.lending.lend(until)
        if not self._calls.negotiator_heard():
            unused = []  # nobody else could have them, and nobody could give them back
        for release in decisions.releases:
            given = self._idle(release.machines, claims)
            until |= dict.fromkeys(given, release.until)
            unused += given
        unused += [claim for claim in self._idle(claims, claims) if self._loan_ends(claim)]
        for claim in dict.fromkeys(unused):
            context.log.info("a machine is released", extra={"slot": claim.slot})
            context.return_claim(claim, self._lent_for(claim, until.get(claim, math.inf)))
        self.reservations.begin(decisions.reserved)
        self._look_again(decisions.wake)

    def _loan_ends(self, claim: HeldClaim) -> bool:
        """Whether an idle claim is on a machine that another scheduler lends for no more time worth mentioning."""
        return claim.lent_until != math.inf and not is_worth(claim.lent_until, self.state.now, self.lending.seconds)

    def _lent_for(self, claim: HeldClaim, until: float) -> float | None:
        """For how long a machine is promised to the schedulers below this one; None for not at all."""
        seconds = until - self.state.now
        managers = managers_of({HIERARCHY: claim.ad.value(HIERARCHY, None)})
        promises = 0 < seconds < math.inf and is_worth(until, self.state.now, self.lending.seconds)
        return seconds if promises and is_upper(self.submitter, managers) else None

    def _idle(self, names: Iterable[str], claims: Mapping[str, HeldClaim]) -> list[HeldClaim]:
        found = (claims.get(name) for name in names)
        return [claim for claim in found if claim is not None and self._is_free(claim)]

    def _is_free(self, claim: HeldClaim) -> bool:
        """Whether a claim is still held and idle: a cycle is done in slices, and things change meanwhile."""
        return claim.job is None and not claim.lost and self._context.claims.get(claim.id) is claim

    def _asked_for(self, request: RequestMachines, claims: Mapping[str, HeldClaim]) -> list[MachineRequest]:
        job = self._find(request.job)
        found: list[MachineRequest] = []
        for share in request.shares:
            self.lending.reclaim(claims[name] for name in share.machines if name in claims)
            names = tuple(name for name in share.machines if name not in claims)
            if not names:
                continue
            if job is not None:
                wanted = self.state.wanted[request.job][share.part]
                found.append(MachineRequest(job, names, {**wanted.ad, "ProcId": job.proc}))
            elif (ad := self.reservations.ad_of(request.job)) is not None:
                found.append(MachineRequest(None, names, ad))
        return found

    def _start(self, start: StartGang, claims: Mapping[str, HeldClaim]) -> None:
        job, wanted = self._find(start.job), self.state.wanted.get(start.job)
        if job is None or wanted is None or job.status != IDLE:
            return
        given: dict[int, HeldClaim] = {}
        for share in start.shares:
            numbers = [number for number in wanted[share.part].numbers if number not in given]
            for number, name in zip(numbers, share.machines, strict=False):
                claim = claims.get(name)
                if claim is None or not self._is_free(claim):
                    return  # it has changed meanwhile, and another cycle is due
                given[number] = claim
        if len(given) != sum(len(one.numbers) for one in wanted):
            return
        for claim in given.values():
            self._idle_since.pop(claim, None)
        self._starting[job] = tuple(given.values())
        if start.backfilled:
            self._backfilled.add(start.job)
        else:
            self._backfilled.discard(start.job)
        self._last_starts[job.cluster.owner] = self.state.now
        self._context.spawn(self._begin(job, given), "start a dedicated job", alone=True)

    async def _begin(self, job: QueuedJob, given: Mapping[int, HeldClaim]) -> None:
        try:
            if is_gang(job):
                await self._calls.begin_gang(job, self._calls.gatherings.progress_of(job), given)
            else:
                ((_, claim),) = given.items()
                await self._calls.start_job(claim, job)
        finally:
            self._starting.pop(job, None)
            self.wake()

    def _find(self, name: str) -> QueuedJob | None:
        cluster, _, proc = name.partition(".")
        numbers = whole_number(cluster), whole_number(proc)
        if numbers[0] is None or numbers[1] is None:
            return None
        return self._context.queue.find(numbers[0], numbers[1])

    def _look_again(self, wake: float | None) -> None:
        loop, now = asyncio.get_running_loop(), self._context.outside.wall()
        waits = [LOOK_AGAIN]
        waits += self._larger.waits(now)
        if wake is not None:
            waits.append(max(wake - now, SETTLE))
        if (look := self.lending.next_look()) is not None:
            waits.append(max(look - loop.time(), SETTLE))
        unused = self._settings().unused_claim_timeout
        waits += [end - now + SETTLE for since in self._idle_since.values() if (end := since + unused) > now]
        self._later = loop.call_later(min(waits), self.wake)
