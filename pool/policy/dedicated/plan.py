"""A schedule into the future: when each waiting gang is expected to start, and what it waits for (W52).

The plan is the discipline itself, run forward on a virtual clock: `decide` is called for now, for the next expected
end, and so on, with the expected durations as if they held and nothing else were submitted. So it expects what the
scheduler will do, backfill, reservations, users' order and time sharing included, and it needs no second copy of the
rules. The first `depth` jobs are planned in this way; later ones are estimated from the work that is before them and
the rate at which the planned ones get theirs. If nothing is known of a job, the mean of all past runs is used, and the
answer says that it is a guess. A running job is expected to run as long again as it has run if that is more.

How sure an expected start is follows from past errors (`predictions.StartErrors`), not from theory.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from pool.policy.dedicated.decisions import Plan, PlanBar, PlanBasis, PlannedStart
from pool.policy.dedicated.discipline import decide_in_steps, finish
from pool.policy.dedicated.expectations import expected_end
from pool.policy.dedicated.model import (
    DedicatedJob,
    DedicatedRun,
    DedicatedSettings,
    Kind,
    MachineClass,
    MachineState,
    Reservation,
    Share,
    UserQueue,
)
from pool.policy.dedicated.order import NOMINAL_SECONDS, in_order
from pool.policy.dedicated.predictions import StartErrors

#: How many jobs a planned start names that it waits for.
MOST_NAMED = 10
#: Steps of the virtual clock for each planned job, at most: with time sharing a job may be saved several times.
MOST_STEPS = 8


def make_plan(
    queues: Sequence[UserQueue],
    running: Sequence[DedicatedRun],
    machines: Iterable[MachineClass],
    now: float,
    settings: DedicatedSettings,
    reservations: Sequence[Reservation] = (),
    *,
    guess: float | None = None,
    errors: StartErrors | None = None,
) -> Plan:
    """The expected course of things from now on; the first arguments are those of `decide`.

    Args:
        guess: the duration of a job of which nothing is known (`RunPredictor.mean`).
        errors: of past expectations; without them no start has bounds.
    """
    return finish(plan_in_steps(queues, running, machines, now, settings, reservations, guess=guess, errors=errors))


def plan_in_steps(
    queues: Sequence[UserQueue],
    running: Sequence[DedicatedRun],
    machines: Iterable[MachineClass],
    now: float,
    settings: DedicatedSettings,
    reservations: Sequence[Reservation] = (),
    *,
    guess: float | None = None,
    errors: StartErrors | None = None,
) -> Generator[None, None, Plan]:
    """As `make_plan`, in small steps, so that a caller can do other things in between."""
    yield
    made = _Forecast(queues, running, tuple(machines), now, settings, reservations, guess or NOMINAL_SECONDS)
    return (yield from made.plan(errors or StartErrors()))


@dataclass(slots=True)
class _Expected:
    """A waiting job in the forecast."""

    job: DedicatedJob
    basis: PlanBasis
    behind: int
    start: float | None = None
    kinds: dict[Kind, int] = field(default_factory=dict)
    waits_for: tuple[str, ...] = ()


class _Forecast:
    """The discipline on a virtual clock."""

    def __init__(
        self,
        queues: Sequence[UserQueue],
        running: Sequence[DedicatedRun],
        machines: Sequence[MachineClass],
        now: float,
        settings: DedicatedSettings,
        reservations: Sequence[Reservation],
        guess: float,
    ) -> None:
        self.now, self.guess, self.settings = now, guess, replace(settings, lend=False, unused_claim_timeout=math.inf)
        self.given, self.reservations = running, {r.id: r for r in reservations if r.end > now}
        self.accounts = {queue.user: queue for queue in queues}
        ordered = list(in_order(queues, settings, now))
        self.expected = {job.id: self._expect(job, place) for place, job in enumerate(ordered)}
        self.planned = [self.expected[job.id].job for job in islice(ordered, settings.depth)]
        self.beyond = [self.expected[job.id] for job in ordered[settings.depth :]]
        self.free: dict[Kind, dict[str, None]] = {}
        self.machines: dict[Kind, int] = {}
        #: Of machines that are lent: until when; -inf where they may be called back at any time.
        self.until: dict[str, float] = {}
        for machine in machines:
            if machine.state is MachineState.AWAY:
                continue
            self.machines[machine.kind] = self.machines.get(machine.kind, 0) + machine.count
            self.free.setdefault(machine.kind, {}).update(dict.fromkeys(machine.names))
            self._limit(machine.names, machine.until)
        self.running: dict[str, tuple[DedicatedRun, float]] = {}
        for run in running:
            for share in run.shares:
                self.machines[share.kind] = self.machines.get(share.kind, 0) + len(share.machines)
                self._limit(share.machines, run.until)
            self.running[run.job.id] = (run, self._until(run))

    def _limit(self, names: Sequence[str], until: float) -> None:
        if until != math.inf:
            self.until.update(dict.fromkeys(names, until if until > self.now else -math.inf))

    def plan(self, errors: StartErrors) -> Generator[None, None, Plan]:
        bars = [self._running_bar(run) for run in self.given]
        bars += [
            PlanBar(r.id, r.user or r.group, "reserved", _kinds_of(r, self.machines), r.start, r.end, r.machines)
            for r in self.reservations.values()
        ]
        yield from self._run()
        self._estimate_rest()
        starts = tuple(self._planned_start(entry, errors) for entry in self.expected.values())
        for entry in self.expected.values():
            if entry.start is not None and entry.kinds:
                end = entry.start + self._remaining(entry.job)
                bars.append(PlanBar(entry.job.id, entry.job.user, "planned", entry.kinds, entry.start, end))
        bars.sort(key=lambda bar: (bar.start, bar.label))
        return Plan(self.now, self.machines, tuple(bars), starts)

    def _expect(self, job: DedicatedJob, place: int) -> _Expected:
        if job.predicted is not None:
            return _Expected(job, PlanBasis.PREDICTED, place)
        return _Expected(job, PlanBasis.GUESSED if job.duration is None else PlanBasis.SAID, place)

    def _remaining(self, job: DedicatedJob) -> float:
        """The probable rest of a job. A prediction is nearer to the truth than what its user said, which is an
        upper bound: the scheduler goes by that, and the job ends earlier."""
        whole = job.predicted if job.predicted is not None else job.duration
        if whole is None:
            whole = self.guess
        if whole <= job.attained:
            whole = 2 * job.attained
        return max(1.0, whole - job.attained) + (job.restore_seconds if job.attained else 0.0)

    def _until(self, run: DedicatedRun) -> float:
        """When a running gang will probably end. One that runs longer than was probable runs as long again, but not
        longer than its user said, while that is in the future."""
        if run.leaving:
            return expected_end(run, self.now)
        end = run.started + self._remaining(run.job)
        if end <= self.now:
            end = self.now + run.attained(self.now)
            limit = expected_end(run, self.now)
            end = min(end, limit) if run.job.duration is not None else end
        return max(end, self.now + 0.001)

    def _run(self) -> Generator[None, None, None]:
        waiting = {job.id: job for job in self.planned}
        time, ended = self.now, list[str]()
        for _ in range(MOST_STEPS * (len(waiting) + 1)):
            if not waiting:
                return
            decisions = yield from decide_in_steps(
                self._queues(waiting),
                [run for run, _ in self.running.values()],
                self._classes(time),
                time,
                self.settings,
                tuple(self.reservations.values()),
            )
            for name, names in decisions.reserved.items():
                self.reservations[name] = replace(self.reservations[name], machines=names)
            for save in decisions.saves:
                run, _ = self.running[save.job]
                self.running[save.job] = (replace(run, leaving=True), time + max(0.001, run.job.save_seconds))
            for start in decisions.starts:
                self._start(waiting.pop(start.job), start.shares, start.backfilled, time, ended)
            later = [end for _, end in self.running.values()]
            later += [r.end for r in self.reservations.values() if r.end > time]
            if decisions.wake is not None:
                later.append(max(decisions.wake, time + 0.001))
            time = min(later, default=math.inf)
            if time == math.inf:
                return
            ended = self._end(time, waiting)

    def _start(
        self, job: DedicatedJob, shares: tuple[Share, ...], backfilled: bool, time: float, ended: Sequence[str]
    ) -> None:
        for share in shares:
            for name in share.machines:
                del self.free[share.kind][name]
        until = math.inf
        if self.until:
            until = min(self.until.get(name, math.inf) for share in shares for name in share.machines)
        run = DedicatedRun(job, time, shares, backfilled, until=until)
        self.running[job.id] = (run, time + self._remaining(job))
        entry = self.expected.get(job.id)
        if entry is not None and entry.start is None:
            entry.start = time
            entry.waits_for = tuple(ended[-MOST_NAMED:])
            for share in shares:
                entry.kinds[share.kind] = entry.kinds.get(share.kind, 0) + len(share.machines)

    def _end(self, time: float, waiting: dict[str, DedicatedJob]) -> list[str]:
        """Everything that ends by a time, the last first to be named."""
        ended = []
        for name, (run, end) in sorted(self.running.items(), key=lambda item: item[1][1]):
            if end > time:
                break
            del self.running[name]
            for share in run.shares:
                self.free.setdefault(share.kind, {}).update(dict.fromkeys(share.machines))
            if run.leaving:
                done = run.attained(time) - run.job.save_seconds
                waiting[name] = replace(run.job, attained=max(run.job.attained, done), last_ran=time)
            ended.append(name)
        for reservation in [r for r in self.reservations.values() if r.end <= time]:
            ended.append(reservation.id)
            del self.reservations[reservation.id]
        return ended

    def _queues(self, waiting: dict[str, DedicatedJob]) -> list[UserQueue]:
        users: dict[str, list[DedicatedJob]] = {}
        for job in waiting.values():
            users.setdefault(job.user, []).append(job)
        return [
            UserQueue(user, tuple(jobs), *_account(self.accounts.get(user))) for user, jobs in sorted(users.items())
        ]

    def _classes(self, time: float) -> list[MachineClass]:
        """The free machines at a time; those whose loan is over by then are not among them."""
        if not self.until:
            return [
                MachineClass(kind, MachineState.CLAIMED_IDLE, tuple(names))
                for kind, names in self.free.items()
                if names
            ]
        classes: dict[tuple[Kind, float], list[str]] = {}
        for kind, free in self.free.items():
            for name in free:
                until = self.until.get(name, math.inf)
                if not self.now < until <= time:
                    classes.setdefault((kind, until), []).append(name)
        return [
            MachineClass(kind, MachineState.CLAIMED_IDLE, tuple(names), until)
            for (kind, until), names in classes.items()
        ]

    def _estimate_rest(self) -> None:
        """Starts beyond the depth: by the work before them, at the rate of the planned jobs."""
        starts = [entry.start for entry in self.expected.values() if entry.start is not None]
        total = sum(self.machines.values())
        if not self.beyond or not starts or not total:
            return
        last = max(starts)
        work = sum(job.size * self._remaining(job) for job in self.planned)
        rate = min(float(total), work / (last - self.now)) if last > self.now else float(total)
        before = 0.0
        for entry in self.beyond:
            if entry.job.size <= total:
                entry.start = last + before / max(rate, 0.1 * total)
                before += entry.job.size * self._remaining(entry.job)

    def _running_bar(self, run: DedicatedRun) -> PlanBar:
        kinds: dict[Kind, int] = {}
        for share in run.shares:
            kinds[share.kind] = kinds.get(share.kind, 0) + len(share.machines)
        names = tuple(name for share in run.shares for name in share.machines)
        what = "lent" if run.lent else "running"
        return PlanBar(run.job.id, run.job.user, what, kinds, run.started, expected_end(run, self.now), names)

    def _planned_start(self, entry: _Expected, errors: StartErrors) -> PlannedStart:
        job, start = entry.job, entry.start
        earliest = latest = end = None
        if start is not None:
            bounds, wait = errors.bounds(), start - self.now
            if bounds is not None:
                earliest, latest = self.now + wait * min(1.0, bounds[0]), self.now + wait * max(1.0, bounds[1])
            end = None if entry.basis is PlanBasis.GUESSED else start + self._remaining(job)
        words = _words(entry, self.now, earliest, latest)
        return PlannedStart(
            job.id, job.user, job.size, start, end, earliest, latest, entry.waits_for, entry.behind, entry.basis, words
        )


def _account(queue: UserQueue | None) -> tuple[float, float]:
    return (0.0, -math.inf) if queue is None else (queue.used, queue.last_start)


def _kinds_of(reservation: Reservation, machines: dict[Kind, int]) -> dict[Kind, int]:
    kinds: dict[Kind, int] = {}
    for part in reservation.parts:
        kind = next((kind for kind in part.fits if kind in machines), "")
        kinds[kind] = kinds.get(kind, 0) + part.count
    return kinds


def spell(seconds: float) -> str:
    """A duration for people: "40 s", "12 min", "3 h 20 min", "2 d 4 h"."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def _words(entry: _Expected, now: float, earliest: float | None, latest: float | None) -> str:
    job = entry.job
    if entry.start is None:
        return f"job {job.id} has no expected start: see why it is passed over or what it waits for"
    text = f"job {job.id} is expected to start in {spell(entry.start - now)}"
    if entry.start <= now:
        text = f"job {job.id} can start now"
    elif earliest is not None and latest is not None:
        text += f" (in 8 of 10 cases between {spell(earliest - now)} and {spell(latest - now)})"
    if entry.waits_for and entry.start > now:
        text += f", when {_listed(entry.waits_for[:3])} {'ends' if len(entry.waits_for) == 1 else 'end'}"
    if entry.behind:
        text += f"; {entry.behind} job{'s are' if entry.behind > 1 else ' is'} before it in the queue"
    return f"{text}. This rests on {entry.basis.value}."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
