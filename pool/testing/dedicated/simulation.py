"""A pool of dedicated machines in virtual time, with the real decisions.

The simulation acts on `Decisions` as a role does: it starts gangs on idle claims, claims machines (which takes the
time of a negotiation, or of a reclaim where an opportunistic job has to leave), lends and releases claims, and saves
gangs. An endless supply of opportunistic jobs takes every machine that nobody claims.
"""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from pool.policy.dedicated import (
    Decisions,
    DedicatedJob,
    DedicatedRun,
    DedicatedSettings,
    MachineClass,
    MachineState,
    PartClass,
    Reservation,
    Share,
    UserQueue,
    decide,
)
from pool.policy.dedicated.predictions import RunPredictor
from pool.testing.dedicated.metrics import FinishedJob, Metrics, jain, user_slowdowns
from pool.testing.dedicated.workload import TraceJob

KIND = "machine"


class Durations(StrEnum):
    """The scheduler's knowledge of a job's duration."""

    NONE = "none"
    PERFECT = "perfect"
    SAID = "said"
    """The trace's estimate."""
    PREDICTED = "predicted"
    """By the user's earlier runs (`RunPredictor`), or the estimate where that is less."""


@dataclass(frozen=True, slots=True)
class SimulatedCosts:
    """The costs in time, in seconds.

    Attributes:
        negotiate: from a request for a machine that nobody uses to its claim.
        reclaim: from a request to the claim of a machine whose opportunistic job has to be saved first.
        resume: what an opportunistic job needs on a new machine before it computes.
        refill: until an opportunistic job is on a machine that was given back.
        save, restore: of a gang. Its machines are held meanwhile and nothing is computed.
    """

    negotiate: float = 0.0
    reclaim: float = 0.0
    resume: float = 0.0
    refill: float = 0.0
    save: float = 0.0
    restore: float = 0.0


@dataclass(slots=True)
class _Gang:
    job: TraceJob
    waiting: DedicatedJob
    attained: float = 0.0
    first_start: float = -1.0
    run: DedicatedRun | None = None
    number: int = 0
    saves: int = 0
    could_start: float | None = None
    reclaimed: float = 0.0


@dataclass(slots=True)
class _Machine:
    state: MachineState = MachineState.UNCLAIMED
    coming: bool = False
    number: int = 0
    since: float = 0.0


#: Called after each cycle: time, decisions, the waiting queues, the running gangs, the idle machines.
Observer = Callable[["Simulation", float, Decisions], None]


class Simulation:
    """One run of a workload.

    Args:
        jobs: by submission.
        machines: how many, all alike.
        settings: of the dedicated scheduler; its two measured times are taken from `costs`.
        durations: what it knows.
        saveable: whether gangs can be saved.
        opportunistic: whether there are opportunistic jobs for machines that nobody claims.
        observer: sees each cycle.
    """

    def __init__(
        self,
        jobs: Sequence[TraceJob],
        machines: int,
        settings: DedicatedSettings,
        *,
        costs: SimulatedCosts | None = None,
        durations: Durations = Durations.NONE,
        saveable: bool = False,
        opportunistic: bool = False,
        reservations: Sequence[Reservation] = (),
        observer: Observer | None = None,
    ) -> None:
        self.costs = costs or SimulatedCosts()
        self.settings = replace(settings, reclaim_seconds=self.costs.reclaim, negotiation_seconds=self.costs.negotiate)
        self.durations, self.saveable, self.opportunistic = durations, saveable, opportunistic
        self.observer = observer
        self.now = 0.0
        self.predictor = RunPredictor()
        self.reservations = {reservation.id: reservation for reservation in reservations}
        occupied = MachineState.OCCUPIED if opportunistic else MachineState.UNCLAIMED
        self.machines = {f"m{number}": _Machine(occupied) for number in range(machines)}
        self._by_state: dict[tuple[MachineState, bool], dict[str, None]] = {}
        for name, machine in self.machines.items():
            self._by_state.setdefault((machine.state, False), {})[name] = None
        self.gangs: dict[str, _Gang] = {}
        self.queues: dict[str, dict[str, DedicatedJob]] = {}
        self.used: dict[str, float] = {}
        self.last_start: dict[str, float] = {}
        self.running: dict[str, DedicatedRun] = {}
        self.finished: list[FinishedJob] = []
        self._jobs = jobs
        self._events: list[tuple[float, int, int, str, int]] = []
        self._count = 0
        self._overhead = self._occupied = self._resumes = self._lost_capacity = 0.0
        self._saves = self._reclaims = 0
        self._wanted = 0
        self._wake_at = -1.0
        for job in jobs:
            self._schedule(job.submitted, _SUBMIT, str(job.number), 0)
        self._trace = {str(job.number): job for job in jobs}

    def run(self) -> Metrics:
        """Until all jobs have ended."""
        while len(self.finished) < len(self._jobs):
            at = self._events[0][0]
            self._advance(at)
            while self._events and self._events[0][0] <= at:
                _, kind, _, name, number = heapq.heappop(self._events)
                self._handle_event(kind, name, number)
            if not self._events or self._events[0][0] > at:
                self._cycle()
        return self.metrics()

    def queue_state(self) -> list[UserQueue]:
        """The idle jobs, as `decide` takes them."""
        return [
            UserQueue(user, tuple(jobs.values()), self.used.get(user, 0.0), self.last_start.get(user, -1e18))
            for user, jobs in self.queues.items()
            if jobs
        ]

    def machine_state(self) -> list[MachineClass]:
        """The machines that no gang holds; those that are on their way are the first of the unclaimed."""
        found = []
        for state, coming in _STATES:
            names = self._by_state.get((state, coming))
            if names:
                unused = state is MachineState.CLAIMED_IDLE and self.settings.unused_claim_timeout == 0
                found.append(MachineClass(KIND, state, tuple(names), unused=unused))
        return found

    def metrics(self) -> Metrics:
        """The figures of the jobs that have ended."""
        done = self.finished
        span = max(job.ended for job in done)
        area = len(self.machines) * span
        work = sum(job.runtime * job.size for job in done)
        waits = [job.wait for job in done]
        return Metrics(
            jobs=len(done),
            wait=statistics.fmean(waits),
            median_wait=statistics.median(waits),
            slowdown=statistics.fmean(job.slowdown for job in done),
            utilisation=work / area,
            loss=self._lost_capacity / area,
            busy=(work + self._overhead + self._occupied) / area,
            goodput=(self._occupied - self._resumes) / area,
            overhead=self._overhead / area,
            lost=0.0 if not self._computed_twice() else self._computed_twice(),
            saves=self._saves,
            reclaims=self._reclaims,
            hours=span / 3600.0,
            head_delay=max(job.reclaimed for job in done),
            fairness=jain(list(user_slowdowns(done).values())),
        )

    def _computed_twice(self) -> float:
        """Machine-seconds of computing beyond what the jobs needed: work that was done and lost."""
        return self._computed - sum(job.runtime * job.size for job in self.finished)

    _computed = 0.0

    def _schedule(self, at: float, kind: int, name: str, number: int) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, kind, self._count, name, number))

    def _advance(self, to: float) -> None:
        free = sum(len(names) for (state, _), names in self._by_state.items() if state is not MachineState.OCCUPIED)
        free += len(self._by_state.get((MachineState.OCCUPIED, False), ()))
        self._lost_capacity += (to - self.now) * min(free, self._wanted)
        self._occupied += (to - self.now) * (
            len(self._by_state.get((MachineState.OCCUPIED, False), ()))
            + len(self._by_state.get((MachineState.OCCUPIED, True), ()))
        )
        self.now = to

    def _handle_event(self, kind: int, name: str, number: int) -> None:
        if kind == _SUBMIT:
            self._submit(self._trace[name])
        elif kind == _END:
            if self.gangs[name].number == number and self.gangs[name].run is not None:
                self._end(self.gangs[name])
        elif kind == _SAVED:
            self._saved(self.gangs[name])
        elif kind == _CLAIMED:
            if self.machines[name].number == number:
                self._set(name, MachineState.CLAIMED_IDLE)
        elif kind == _REFILL and self.machines[name].number == number:
            self._set(name, MachineState.OCCUPIED)
            self._resumes += self.costs.resume

    def _set(self, name: str, state: MachineState, *, coming: bool = False) -> None:
        machine = self.machines[name]
        self._by_state.get((machine.state, machine.coming), {}).pop(name, None)
        machine.state, machine.coming = state, coming
        machine.number += 1
        machine.since = self.now
        self._by_state.setdefault((state, coming), {})[name] = None

    def _submit(self, job: TraceJob) -> None:
        duration = {Durations.PERFECT: job.runtime, Durations.SAID: job.estimate}.get(self.durations)
        predicted = None
        if self.durations in (Durations.PREDICTED, Durations.SAID):
            predicted = self.predictor.predict(job.user, job.estimate, job.size)
        name = str(job.number)
        waiting = DedicatedJob(
            name,
            job.user,
            (PartClass(job.size, (KIND,)),),
            job.submitted,
            duration=duration,
            predicted=predicted,
            saveable=self.saveable,
            save_seconds=self.costs.save,
            restore_seconds=self.costs.restore,
        )
        self.gangs[name] = _Gang(job, waiting)
        self._queue(waiting)

    def _queue(self, waiting: DedicatedJob) -> None:
        self.queues.setdefault(waiting.user, {})[waiting.id] = waiting
        self._wanted += waiting.size

    def _cycle(self) -> None:
        for reservation in [r for r in self.reservations.values() if r.end <= self.now]:
            del self.reservations[reservation.id]
        decisions = decide(
            self.queue_state(),
            tuple(self.running.values()),
            self.machine_state(),
            self.now,
            self.settings,
            tuple(self.reservations.values()),
        )
        if self.observer is not None:
            self.observer(self, self.now, decisions)
        for name, machines in decisions.reserved.items():
            self.reservations[name] = replace(self.reservations[name], machines=machines)
        for save in decisions.saves:
            self._save(self.gangs[save.job])
        for start in decisions.starts:
            self._start(self.gangs[start.job], start.shares, start.backfilled)
        waits = {wait.job for wait in decisions.waits}
        for request in decisions.requests:
            gang = self.gangs.get(request.job)
            if gang is not None and request.job not in waits and gang.could_start is None:
                gang.could_start = self.now
            for share in request.shares:
                for name in share.machines:
                    self._claim(name)
        for lend in decisions.lends:
            self._release(lend.machines)
        for release in decisions.releases:
            self._release(release.machines)
        if decisions.wake is not None and decisions.wake != self._wake_at:
            self._wake_at = decisions.wake
            self._schedule(max(self.now, decisions.wake), _WAKE, "", 0)

    def _claim(self, name: str) -> None:
        machine = self.machines[name]
        if machine.coming:
            return
        if machine.state is MachineState.OCCUPIED:
            self._reclaims += 1
            self._set(name, MachineState.UNCLAIMED, coming=True)
            delay = self.costs.reclaim
        else:
            self._set(name, MachineState.UNCLAIMED, coming=True)
            delay = self.costs.negotiate
        self._schedule(self.now + delay, _CLAIMED, name, machine.number)

    def _release(self, names: Sequence[str]) -> None:
        for name in names:
            self._set(name, MachineState.UNCLAIMED)
            if self.opportunistic:
                self._schedule(self.now + self.costs.refill, _REFILL, name, self.machines[name].number)

    def _start(self, gang: _Gang, shares: tuple[Share, ...], backfilled: bool) -> None:
        waiting = self.queues[gang.job.user].pop(gang.waiting.id)
        self._wanted -= waiting.size
        for share in shares:
            for name in share.machines:
                machine = self.machines[name]
                assert machine.state is MachineState.CLAIMED_IDLE, f"{name} is {machine.state}"
                del self._by_state[MachineState.CLAIMED_IDLE, machine.coming][name]
        if gang.first_start < 0:
            gang.first_start = self.now
        if gang.could_start is not None:
            gang.reclaimed = max(gang.reclaimed, self.now - gang.could_start)
            gang.could_start = None
        gang.run = self.running[waiting.id] = DedicatedRun(waiting, self.now, shares, backfilled)
        gang.number += 1
        self.last_start[waiting.user] = self.now
        restore = self.costs.restore if gang.attained else 0.0
        self._schedule(self.now + restore + gang.job.runtime - gang.attained, _END, waiting.id, gang.number)

    def _free_machines(self, gang: _Gang) -> None:
        run = self.running.pop(gang.waiting.id)
        gang.run = None
        gang.number += 1
        self.used[run.job.user] = self.used.get(run.job.user, 0.0) + run.job.size * (self.now - run.started)
        for share in run.shares:
            for name in share.machines:
                self._set(name, MachineState.CLAIMED_IDLE)

    def _end(self, gang: _Gang) -> None:
        assert gang.run is not None
        restore = self.costs.restore if gang.attained else 0.0
        self._computed += (self.now - gang.run.started - restore) * gang.job.size
        self._overhead += restore * gang.job.size
        self._free_machines(gang)
        job = gang.job
        self.predictor.record_run(job.user, job.runtime, job.size)
        self.finished.append(
            FinishedJob(
                job.number,
                job.user,
                job.submitted,
                gang.first_start,
                self.now,
                job.runtime,
                job.size,
                gang.saves,
                gang.reclaimed,
            )
        )

    def _save(self, gang: _Gang) -> None:
        assert gang.run is not None
        restore = self.costs.restore if gang.attained else 0.0
        done = max(0.0, self.now - gang.run.started - restore)
        self._computed += done * gang.job.size
        self._overhead += (self.now - gang.run.started - done + self.costs.save) * gang.job.size
        gang.attained += done
        gang.saves += 1
        gang.number += 1
        self._saves += 1
        gang.run = self.running[gang.waiting.id] = replace(gang.run, leaving=True)
        self._schedule(self.now + self.costs.save, _SAVED, gang.waiting.id, gang.number)

    def _saved(self, gang: _Gang) -> None:
        self._free_machines(gang)
        gang.waiting = replace(gang.waiting, attained=gang.attained, last_ran=self.now)
        self._queue(gang.waiting)


_SUBMIT, _END, _SAVED, _CLAIMED, _REFILL, _WAKE = 3, 0, 1, 2, 4, 5
_STATES = (
    (MachineState.CLAIMED_IDLE, False),
    (MachineState.UNCLAIMED, True),
    (MachineState.UNCLAIMED, False),
    (MachineState.OCCUPIED, False),
)
