"""One cycle of the dedicated scheduler: section 3.3 of Wright 2001, with what its section 6 promises.

`decide` is the one entry. The essay on the discipline is at the head of the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pool.policy.dedicated import time_sharing
from pool.policy.dedicated.decisions import (
    Decisions,
    KeepClaims,
    KeepReason,
    RequestMachines,
    SaveGang,
    SkipGang,
    SkipReason,
    StartGang,
    WaitForMachines,
)
from pool.policy.dedicated.expectations import GRACE, expected_end
from pool.policy.dedicated.flow import Demand
from pool.policy.dedicated.hierarchy import must_leave
from pool.policy.dedicated.holes import fill_holes
from pool.policy.dedicated.model import (
    Backfill,
    DedicatedJob,
    DedicatedRun,
    DedicatedSettings,
    MachineClass,
    QueueOrder,
    Reservation,
    UserQueue,
)
from pool.policy.dedicated.order import in_order
from pool.policy.dedicated.reservations import Reserved
from pool.policy.dedicated.supply import Dealer, MachineNode, Supply, Tier, shares_of
from pool.policy.dedicated.timeline import Counts, PlannedHead, Profile, enough

Result = TypeVar("Result")
#: Of a waiting job the machines of running gangs that it may take, with their ranks: the highest are taken first.
Preemption = Callable[[DedicatedJob], Mapping[str, float]]
#: Machines that a head is going to need, in the order in which they are taken for it before it can start.
EARLY = (Tier.IDLE, Tier.UNCLAIMED, Tier.OCCUPIED)
#: How many jobs that a head waits for are named.
MOST_HOLDERS = 10


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A job that gets machines in this cycle."""

    job: DedicatedJob
    demands: Sequence[Demand[MachineNode]]
    supply: Supply
    backfilled: bool


def decide(
    queues: Sequence[UserQueue],
    running: Sequence[DedicatedRun],
    machines: Iterable[MachineClass],
    now: float,
    settings: DedicatedSettings,
    reservations: Sequence[Reservation] = (),
    preemption: Preemption | None = None,
) -> Decisions:
    """All decisions of one scheduling cycle, from the state of now alone (W21).

    Args:
        queues: the idle dedicated jobs, each user's queue once, each in the order of submission. Users of whom jobs
            only run have a queue too, without jobs: their usage counts when gangs take turns.
        running: the dedicated jobs that hold machines.
        machines: every machine configured for this scheduler that none of `running` holds, grouped
            (`group_machines`), with machines whose ads are older than the collector keeps them left out (W10).
        now: seconds of the clock that all times are of.
        reservations: those that are not over.
        preemption: the administrator's rules by which a waiting job takes machines from running ones.
    """
    return finish(decide_in_steps(queues, running, machines, now, settings, reservations, preemption))


def decide_in_steps(
    queues: Sequence[UserQueue],
    running: Sequence[DedicatedRun],
    machines: Iterable[MachineClass],
    now: float,
    settings: DedicatedSettings,
    reservations: Sequence[Reservation] = (),
    preemption: Preemption | None = None,
) -> Generator[None, None, Decisions]:
    """As `decide`, one job of the queue at a step, so that a caller can do other things in between."""
    yield
    return (yield from _SchedulingCycle(queues, running, machines, now, settings, reservations, preemption).run())


def finish(steps: Generator[None, None, Result]) -> Result:
    """The result of work in steps, all at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Result = end.value
            return found


class _SchedulingCycle:
    """The work of one call of `decide`."""

    def __init__(
        self,
        queues: Sequence[UserQueue],
        running: Sequence[DedicatedRun],
        machines: Iterable[MachineClass],
        now: float,
        settings: DedicatedSettings,
        reservations: Sequence[Reservation],
        preemption: Preemption | None,
    ) -> None:
        self.preemption = preemption
        self.queues, self.running, self.now, self.settings = queues, running, now, settings
        classes = tuple(machines)
        held = frozenset(name for reservation in reservations for name in reservation.machines)
        self.supply = Supply(classes, running, held)
        self.reserved = Reserved(self.supply, classes, running, reservations, settings, now)
        self.used = {queue.user: queue.used for queue in queues}
        self.accepted: list[_Accepted] = []
        self.saves: list[SaveGang] = list(self.reserved.saves)
        self.skips: list[SkipGang] = []
        self.waits: list[WaitForMachines] = []
        self.head: DedicatedJob | None = None
        self.loan_ends: list[float] = []
        self._end_loans()
        self.tiers = [tier for tier in Tier if any(node.tier is tier for node in self.supply.names)]

    def _end_loans(self) -> None:
        """Save gangs on lent machines, so that these are free when the loan is over."""
        leaving = {save.job for save in self.saves}
        lead = self.settings.reclaim_seconds
        for gang in self.running:
            if gang.job.id not in leaving and must_leave(gang, self.now, lead):
                self.saves.append(SaveGang(gang.job.id, "the loan of its machines is over", "the lender"))
            elif gang.job.saveable and self.now < gang.until < math.inf:
                self.loan_ends.append(gang.until - max(lead, gang.job.save_seconds))

    def run(self) -> Generator[None, None, Decisions]:
        jobs = in_order(self.queues, self.settings, self.now)
        yield
        if self.settings.time_sharing:
            yield from self._share_time(jobs)
        else:
            yield from self._in_turn(jobs)
        yield
        return self._act()

    def _share_time(self, jobs: Iterator[DedicatedJob]) -> Generator[None, None, None]:
        waiting: list[DedicatedJob] = []
        for job in jobs:
            yield
            if not self._passed_over(job) and not self._in_reservation(job):
                waiting.append(job)
        elsewhere = frozenset(save.job for save in self.saves)
        result = time_sharing.share_time(
            waiting, self.running, self.used, self.supply, self.settings, self.now, elsewhere
        )
        self.saves += result.saves
        leaving = {save.job for save in result.saves}
        for gang in self.running:
            if gang.job.id in leaving:
                self.supply.make_leaving(gang)
        self.tiers = list(Tier)
        for job in result.winners:
            if self.reserved.allows(job) and not self._allocate(job, backfilled=False):
                self.waits.append(self._wait(job, None, blocks=False))
        self.head = None if result.head is not None and self._preempt(result.head) else result.head
        if self.head is not None and result.head is not None:
            self.waits.append(self._wait(result.head, result.expected))
        self.wake = result.wake

    def _in_turn(self, jobs: Iterator[DedicatedJob]) -> Generator[None, None, None]:
        """Steps 3 a to d."""
        for job in jobs:
            yield
            if self._passed_over(job) or self._in_reservation(job):
                continue
            if not self.reserved.allows(job):
                self.waits.append(self._wait(job, self.reserved.free_again(job), blocks=False))
                continue
            if self._allocate(job, backfilled=False) or self._make_room(job) or self._preempt(job):
                continue
            if not self.settings.strict:
                if self.head is None:
                    self._block(job, None)
                continue
            if self.settings.backfill is Backfill.CONSERVATIVE:
                yield from self._conservative(job, jobs)
            else:
                yield from self._easy(job, jobs)
            return

    def _allocate(self, job: DedicatedJob, *, backfilled: bool) -> bool:
        """Give a job machines of the lowest tiers that hold all of it (a, b)."""
        supply = self.supply
        if job.size > supply.matching.total:
            return False
        for tier in self.tiers:
            demands = supply.demands(job, tier, self.now)
            if supply.matching.offer(demands):
                self.accepted.append(_Accepted(job, demands, supply, backfilled))
                self.reserved.started(job)
                return True
        return False

    def _passed_over(self, job: DedicatedJob) -> bool:
        """(d): whether all that is configured cannot hold the job."""
        if self.supply.could_ever(job, self.now):
            return False
        self.skips.append(_skip(job, self.supply))
        return True

    def _in_reservation(self, job: DedicatedJob) -> bool:
        """A job that names a reservation gets machines of it, and no others; whether it names one."""
        if not job.reservation:
            return False
        supply, why = self.reserved.supply_for(job)
        if supply is None:
            self.skips.append(SkipGang(job.id, SkipReason.NO_RESERVATION, why))
            return True
        for tier in Tier:
            demands = supply.demands(job, tier, self.now)
            if supply.matching.offer(demands):
                self.accepted.append(_Accepted(job, demands, supply, False))
                return True
        missing = tuple((part.count, part.fits) for part in job.parts)
        room = sum(supply.usable.values())
        self.waits.append(WaitForMachines(job.id, missing, supply.matching.total, room, blocks=False))
        return True

    def _make_room(self, job: DedicatedJob) -> bool:
        """Save gangs that were backfilled, if the job can start then: they were started on that condition."""
        fillers = [gang for gang in self.running if gang.backfilled and gang.job.saveable and not gang.leaving]
        if not fillers:
            return False
        saved = {save.job for save in self.saves}
        fillers = [gang for gang in fillers if gang.job.id not in saved and self._was_before(job, gang.job)]
        ends = math.inf if job.remaining is None else self.now + job.remaining
        free = self._free(-math.inf if job.saveable else ends)
        for gang in fillers:
            for share in gang.shares:
                free[share.kind] = free.get(share.kind, 0) + len(share.machines)
        if not enough(free, job.parts):
            return False
        wanted = {kind for part in job.parts for kind in part.fits}
        fillers = [gang for gang in fillers if not wanted.isdisjoint(share.kind for share in gang.shares)]
        for gang in sorted(fillers, key=lambda gang: (-gang.started, gang.job.id)):
            self.saves.append(SaveGang(gang.job.id, f"job {job.id} was before it in the queue and can start", job.id))
            self.supply.make_leaving(gang)
            self.tiers = list(Tier)
            if self._allocate(job, backfilled=False):
                return True
        return False

    def _preempt(self, job: DedicatedJob) -> bool:
        """Have running gangs leave by the administrator's rules, if the job can start then.

        A gang leaves as a whole, so that more machines may come free than the job needs. One that cannot be saved
        starts again from its beginning: the rules say which those are.
        """
        ranks = self.preemption(job) if self.preemption is not None else {}
        if not ranks:
            return False
        saved = {save.job for save in self.saves}
        gangs: list[tuple[float, DedicatedRun]] = []
        for gang in self.running:
            if gang.leaving or gang.lent or gang.job.reservation or gang.job.id in saved:
                continue
            own = [ranks[name] for share in gang.shares for name in share.machines if name in ranks]
            if own:
                gangs.append((max(own), gang))
        gangs.sort(key=lambda entry: (-entry[0], entry[1].job.id))
        free = self._free(-math.inf if job.saveable else self._end(job))
        chosen: list[DedicatedRun] = []
        for _, gang in gangs:
            chosen.append(gang)
            for share in gang.shares:
                free[share.kind] = free.get(share.kind, 0) + len(share.machines)
            if enough(free, job.parts):
                break
        else:
            return False
        for gang in chosen:
            self.saves.append(SaveGang(gang.job.id, f"job {job.id} preempts it by SCHEDD_PREEMPTION_RANK", job.id))
            self.supply.make_leaving(gang)
        self.tiers = list(Tier)
        return self._allocate(job, backfilled=False)

    def _was_before(self, job: DedicatedJob, filler: DedicatedJob) -> bool:
        """Whether a waiting job goes before one that was backfilled. Among users the order of now decides, in which it
        is this job's turn."""
        if self.settings.order is QueueOrder.USERS and job.user != filler.user:
            return True
        if job.user == filler.user and job.priority != filler.priority:
            return job.priority > filler.priority
        return job.submitted <= filler.submitted

    def _free(self, until: float = -math.inf) -> Counts:
        """Machines by kind that no job of this cycle has, and that are this scheduler's until a time."""
        free: Counts = {}
        for node, count in self.supply.matching.left.items():
            if node.until >= until:
                free[node.kind] = free.get(node.kind, 0) + count
        return free

    def _ends(self) -> list[tuple[float, str, Counts]]:
        """When what runs, and what starts in this cycle, will probably end."""
        saved = {save.job for save in self.saves}
        ends = []
        for gang in self.running:
            if gang.leaving or gang.job.id in saved:
                continue
            counts: Counts = {}
            for share in gang.shares:
                counts[share.kind] = counts.get(share.kind, 0) + len(share.machines)
            end = max(expected_end(gang, self.now, GRACE), self.reserved.held_until(gang))
            ends.append((end, gang.job.id, counts))
        for entry in self.accepted:
            if entry.supply is self.supply:
                ends.append((self._end(entry.job), entry.job.id, _counts(entry)))
        return ends

    def _end(self, job: DedicatedJob) -> float:
        return math.inf if job.remaining is None else self.now + job.remaining

    def _block(self, job: DedicatedJob, shadow: PlannedHead | None) -> PlannedHead:
        """(c): the head waits."""
        shadow = shadow or PlannedHead(job, self._free(), self._ends())
        self.head = job
        self.waits.append(self._wait(job, shadow.time, shadow.holders))
        return shadow

    def _wait(
        self, job: DedicatedJob, expected: float | None, holders: Sequence[str] = (), *, blocks: bool = True
    ) -> WaitForMachines:
        free = self._free()
        available = [sum(free.get(kind, 0) for kind in part.fits) for part in job.parts]
        missing = [
            (part.count - there, part.fits)
            for part, there in zip(job.parts, available, strict=True)
            if part.count > there
        ]
        kinds = {kind for part in job.parts for kind in part.fits}
        return WaitForMachines(
            job.id,
            tuple(missing),
            sum(free.get(kind, 0) for kind in kinds),
            sum(self.supply.usable.get(kind, 0) for kind in kinds),
            None if expected is None or expected == math.inf else expected,
            tuple(holders[-MOST_HOLDERS:]),
            blocks,
        )

    def _easy(self, head: DedicatedJob, rest: Iterator[DedicatedJob]) -> Generator[None, None, None]:
        """Backfill that does not delay the head; with `Backfill.NONE` nothing behind it starts."""
        shadow = self._block(head, None)
        failed: set[object] = set()
        for job in rest:
            yield
            if job.reservation:
                # The head does not wait for its machines, however few others there are.
                if not self._passed_over(job):
                    self._in_reservation(job)
                continue
            if self.settings.backfill is Backfill.NONE or not self.supply.matching.total:
                if not self.reserved.has_begun:
                    return
                continue
            shape = (job.parts, job.saveable)
            if shape in failed or job.size > self.supply.matching.total:
                continue
            if self._passed_over(job) or not self.reserved.allows(job):
                continue
            if self._end(job) <= shadow.time < math.inf:
                if not self._allocate(job, backfilled=True):
                    failed.add(shape)
                continue
            if shadow.time < math.inf and self._beside(job, shadow):
                continue
            worth = self.settings.least_gain * (job.save_seconds + job.restore_seconds)
            if job.saveable and shadow.time - self.now >= worth and not self._allocate(job, backfilled=True):
                failed.add(shape)

    def _beside(self, job: DedicatedJob, shadow: PlannedHead) -> bool:
        """Start a job that runs beyond the head's planned start, on machines that are spare then."""
        if not shadow.spare.fits([(part.fits, part.count) for part in job.parts]):
            return False
        if not self._allocate(job, backfilled=False):
            return False
        shadow.spare.offer([(part.fits, part.count) for part in job.parts])
        return True

    def _conservative(self, head: DedicatedJob, rest: Iterator[DedicatedJob]) -> Generator[None, None, None]:
        """A planned start for each job in order; those whose planned start is now, start."""
        free = self._free()
        profile = Profile(self.now, free, self.supply.usable)
        profile.release((end, counts) for end, _, counts in self._ends())
        self.reserved.occupy(profile)
        self._block(head, None)
        count = 0
        job: DedicatedJob | None = head
        while job is not None and count <= self.settings.depth:
            yield
            if job is head or not (self._passed_over(job) or self._in_reservation(job)):
                count += 1
                planned = profile.fit(job.parts, job.remaining if job.remaining is not None else math.inf)
                if planned is not None:
                    start, counts = planned
                    profile.allocate(start, job.remaining if job.remaining is not None else math.inf, counts)
                    if job is not head and not (start <= self.now and self._start_planned(job)):
                        self.waits.append(self._wait(job, start, blocks=False))
                elif job.saveable:
                    self._allocate(job, backfilled=True)
            job = next(rest, None)

    def _start_planned(self, job: DedicatedJob) -> bool:
        return self.reserved.allows(job) and self._allocate(job, backfilled=False)

    wake: float | None = None

    def _act(self) -> Decisions:
        """Step 4: names for what was accepted; then what becomes of the rest of the claims."""
        starts: list[StartGang] = []
        requests: list[RequestMachines] = []
        keeps: list[KeepClaims] = list(self.reserved.keeps)
        requests += self.reserved.requests
        dealers: dict[int, Dealer] = {}
        for entry in self.accepted:
            dealer = dealers.setdefault(id(entry.supply), Dealer(entry.supply))
            dealt = dealer.deal(entry.demands)
            if all(node.tier is Tier.IDLE for _, node, _ in dealt):
                starts.append(StartGang(entry.job.id, shares_of(dealt), entry.backfilled))
                continue
            idle = tuple(name for _, node, names in dealt if node.tier is Tier.IDLE for name in names)
            if idle:
                keeps.append(KeepClaims(idle, entry.job.id, KeepReason.REQUESTED))
            asked = [entry for entry in dealt if entry[1].tier in (Tier.UNCLAIMED, Tier.OCCUPIED)]
            if asked:
                reclaim = tuple(name for _, node, names in asked if node.tier is Tier.OCCUPIED for name in names)
                requests.append(RequestMachines(entry.job.id, shares_of(asked), reclaim))
        dealer = dealers.setdefault(id(self.supply), Dealer(self.supply))
        blocking = next((wait for wait in self.waits if self.head is not None and wait.job == self.head.id), None)
        idle_rest = dealer.rest(Tier.IDLE)
        more, lends, releases = fill_holes(
            idle_rest, self.supply.unused, self.head, blocking, self.settings, self.now, self.reserved.next_start
        )
        keeps += more
        requests += self._early(dealer, blocking)
        keeps += self.reserved.keep_idle(dealers)
        return Decisions(
            tuple(self.saves),
            tuple(starts),
            tuple(requests),
            tuple(keeps),
            tuple(lends),
            tuple(releases),
            tuple(self.waits),
            tuple(self.skips),
            self.reserved.begun,
            self._next_look(blocking),
        )

    def _early(self, dealer: Dealer, wait: WaitForMachines | None) -> list[RequestMachines]:
        """Reclaim lent machines so early that they are there when the head is expected to start."""
        head = self.head
        if head is None or wait is None or wait.expected is None:
            return []
        if wait.expected - self.now > self.settings.reclaim_seconds or not self.settings.lend:
            return []
        left = [(node, list(names)) for tier in EARLY for node, names in dealer.rest(tier)]
        asked = []
        for part, needed in enumerate(head.parts):
            room = needed.count
            for node, names in left:
                given = names[:room] if node.kind in needed.fits else []
                del names[: len(given)]
                room -= len(given)
                if given and node.tier is not Tier.IDLE:
                    asked.append((part, node, tuple(given)))
        if not asked:
            return []
        reclaim = tuple(name for _, node, names in asked if node.tier is Tier.OCCUPIED for name in names)
        return [RequestMachines(head.id, shares_of(asked), reclaim)]

    def _next_look(self, wait: WaitForMachines | None) -> float | None:
        times = [self.reserved.wake, *self.loan_ends]
        if self.wake is not None:
            times.append(self.wake)
        if wait is not None and wait.expected is not None and self.settings.lend:
            times.append(wait.expected - self.settings.reclaim_seconds)
            if wait.expected <= self.now:
                times.append(self.now + GRACE)
        later = [time for time in times if self.now < time < math.inf]
        return min(later, default=None)


def _counts(entry: _Accepted) -> Counts:
    """An accepted job's machines by kind; which kinds they are of can still change, so that this is an estimate."""
    counts: Counts = {}
    for choices, count in entry.demands:
        flow = entry.supply.matching.flow(choices)
        total = sum(flow.values())
        left = count
        for node, amount in flow.items():
            given = min(left, max(1, math.ceil(count * amount / total))) if total else 0
            kind = node.kind
            if given:
                counts[kind] = counts.get(kind, 0) + given
                left -= given
    return counts


def _skip(job: DedicatedJob, supply: Supply) -> SkipGang:
    if supply.could_if_lent_for_longer(job):
        words = (
            "it cannot be saved, and some of the machines that it needs are lent by other dedicated schedulers, "
            "for less time than it runs or until these call them back"
        )
        return SkipGang(job.id, SkipReason.LENT, words)
    for part in job.parts:
        there = sum(supply.usable.get(kind, 0) for kind in part.fits)
        away = sum(supply.away.get(kind, 0) for kind in part.fits)
        name = f"its part {part.name!r}" if part.name else "it"
        if there < part.count:
            if supply.could_if_all_were_there(job):
                words = f"machines are away: {there + away} are configured that fit {name}, {away} of them are away"
                return SkipGang(job.id, SkipReason.AWAY, f"{words}, and it needs {part.count}")
            if not there + away:
                return SkipGang(job.id, SkipReason.NO_KIND, f"no configured machine fits {name}; it needs {part.count}")
            words = f"too big: {there + away} configured machines fit {name}, and it needs {part.count}"
            return SkipGang(job.id, SkipReason.TOO_BIG, words)
    if supply.could_if_all_were_there(job):
        return SkipGang(job.id, SkipReason.AWAY, f"machines are away: its {job.size} parts cannot all have one now")
    words = f"too big: its parts need {job.size} machines, and no choice of the configured ones gives each part its own"
    return SkipGang(job.id, SkipReason.TOO_BIG, words)
