"""Time sharing by saving: running gangs give way to gangs that have had less time (WR 6.10).

Nobody knows how long a gang will run, but how long it has run is known, and most gangs that have run for a short time
end soon. So gangs are sorted into levels by the time that they have attained (least attained service, as in Kleinrock
1975, and as operating systems sort processes): level 0 below `first_quantum`, each further level `level_factor` times
longer. A gang of a lower level takes machines from gangs of higher levels; these are saved and go on later from
where they were. Nothing is lost by it but the time of the save and the restore, and a gang is not saved before it has
run for `least_gain` times that. Within a level the first to come goes first, and a running gang stays.

Two matchings decide. The first places all gangs, waiting and running, in order, on all machines: its winners are the
gangs that should run. The second is the same with the gangs pinned that may not be saved yet: the winners that fit
there start, and the running gangs that are in the way are saved. A winner that does not fit there keeps its share of
the first matching, so that no later gang takes what it waits for.

A gang that has not run for `patience` goes before all others, and then runs until it leaves its level, or for a
hundredth of `patience` if that is less. So an endless stream of short gangs starves nobody, and short gangs wait for
such a turn no longer than that. Longer turns cost the short gangs much: turns of a tenth of a day make the mean bounded
slowdown on Lublin-256 twenty times as large.
With logical queues for users, the turn goes to the user with the least usage, and levels order each user's own gangs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pool.policy.dedicated.decisions import SaveGang
from pool.policy.dedicated.flow import ClassMatching, Demand
from pool.policy.dedicated.model import DedicatedJob, DedicatedRun, DedicatedSettings, Kind, QueueOrder
from pool.policy.dedicated.supply import Supply

#: The longest turn of a gang that has not run for `patience`, as a share of that.
AGED_TURN = 0.01


@dataclass(slots=True)
class SharedTime:
    """The gangs that run now.

    Attributes:
        winners: waiting jobs that get machines now, in order; some after the saves.
        saves: running gangs that leave for them.
        head: the first job that should run and cannot yet, because a gang may not be saved before `expected`.
        wake: when levels change.
    """

    winners: list[DedicatedJob] = field(default_factory=list)
    saves: list[SaveGang] = field(default_factory=list)
    head: DedicatedJob | None = None
    expected: float | None = None
    wake: float | None = None


@dataclass(frozen=True, slots=True)
class _Candidate:
    key: tuple[int, int, float, str]
    job: DedicatedJob
    gang: DedicatedRun | None
    demands: Sequence[Demand[Kind]]
    saveable_at: float


def level_of(attained: float, settings: DedicatedSettings) -> int:
    """The level of a gang that has run for so many seconds."""
    level, limit = 0, settings.first_quantum
    while attained >= limit and level < 64:
        level += 1
        limit *= settings.level_factor
    return level


def level_ends(level: int, settings: DedicatedSettings) -> float:
    """The attained seconds at which a gang leaves a level."""
    return settings.first_quantum * settings.level_factor**level


def share_time(
    waiting: Sequence[DedicatedJob],
    running: Sequence[DedicatedRun],
    used: Mapping[str, float],
    supply: Supply,
    settings: DedicatedSettings,
    now: float,
    leaving: frozenset[str] = frozenset(),
) -> SharedTime:
    """Choose the gangs that run.

    Args:
        waiting: idle jobs that could run on what is configured.
        used: what each user is charged with (`UserQueue.used`).
        supply: the machines of this cycle; nothing is taken from it.
        leaving: running gangs that are to be saved already for another reason.
    """
    gangs = [gang for gang in running if not gang.leaving and gang.job.id not in leaving]
    movable = [gang for gang in gangs if gang.job.saveable and not gang.job.reservation]
    counts: dict[Kind, int] = {}
    for node, count in supply.matching.left.items():
        counts[node.kind] = counts.get(node.kind, 0) + count
    for gang in movable:
        for share in gang.shares:
            counts[share.kind] = counts.get(share.kind, 0) + len(share.machines)
    candidates = [_waiting(job, settings, now) for job in waiting] + [_running(gang, settings, now) for gang in movable]
    should, could = ClassMatching(counts), ClassMatching(counts)
    for candidate in candidates:
        if candidate.gang is not None and candidate.saveable_at > now:
            could.offer(candidate.demands)
    result = SharedTime()
    losers: list[_Candidate] = []
    stay: set[str] = set()
    for candidate in _in_turn(candidates, used, settings):
        pinned = candidate.gang is not None and candidate.saveable_at > now
        if not should.total or not should.offer(candidate.demands):
            if candidate.gang is not None and not pinned:
                losers.append(candidate)
            continue
        if pinned:
            continue
        if could.offer(candidate.demands):
            if candidate.gang is None:
                result.winners.append(candidate.job)
            else:
                stay.add(candidate.job.id)
        elif candidate.gang is not None:
            losers.append(candidate)
        elif result.head is None:
            result.head = candidate.job
    _choose_saves(result, losers, counts, movable, stay)
    _set_wake(result, waiting, candidates, settings, now)
    return result


def _choose_saves(
    result: SharedTime,
    losers: Sequence[_Candidate],
    counts: Mapping[Kind, int],
    movable: Sequence[DedicatedRun],
    stay: set[str],
) -> None:
    """Save the last of the losers first, and no more of them than the winners need."""
    free = dict(counts)
    for gang in movable:
        for share in gang.shares:
            free[share.kind] -= len(share.machines)
    matching = ClassMatching(free)
    left = list(losers)
    for job in result.winners:
        while not matching.offer(demands_of(job)):
            wanted = {kind for part in job.parts for kind in part.fits}
            place = next(
                (i for i in range(len(left) - 1, -1, -1) if any(kind in wanted for (kind,), _ in left[i].demands)), None
            )
            if place is None:
                break
            loser = left.pop(place)
            for (kind,), count in loser.demands:
                matching.add(kind, count)
            result.saves.append(SaveGang(loser.job.id, f"job {job.id} has had less time", job.id))


def _set_wake(
    result: SharedTime,
    waiting: Sequence[DedicatedJob],
    candidates: Sequence[_Candidate],
    settings: DedicatedSettings,
    now: float,
) -> None:
    if len(waiting) == len(result.winners):
        return
    saved = {save.job for save in result.saves}
    times = []
    for candidate in candidates:
        gang = candidate.gang
        if gang is None or candidate.job.id in saved:
            continue
        if candidate.saveable_at > now:
            times.append(candidate.saveable_at)
            continue
        attained = gang.attained(now)
        times.append(now + max(1.0, level_ends(level_of(attained, settings), settings) - attained))
    result.wake = min(times, default=None)
    if result.head is not None:
        result.expected = min((c.saveable_at for c in candidates if c.saveable_at > now and c.gang), default=None)


def demands_of(job: DedicatedJob) -> list[Demand[Kind]]:
    """The demands of a job on machines, by kind."""
    return [(part.fits, part.count) for part in job.parts]


def _aged(job: DedicatedJob, at: float, settings: DedicatedSettings) -> bool:
    return at - (job.submitted if job.last_ran is None else job.last_ran) >= settings.patience


def _waiting(job: DedicatedJob, settings: DedicatedSettings, now: float) -> _Candidate:
    level = -1 if _aged(job, now, settings) else level_of(job.attained, settings)
    return _Candidate((level, 1, job.submitted, job.id), job, None, demands_of(job), math.inf)


def _running(gang: DedicatedRun, settings: DedicatedSettings, now: float) -> _Candidate:
    job = gang.job
    counts: dict[Kind, int] = {}
    for share in gang.shares:
        counts[share.kind] = counts.get(share.kind, 0) + len(share.machines)
    demands: list[Demand[Kind]] = [((kind,), count) for kind, count in counts.items()]
    least = settings.least_gain * (job.save_seconds + job.restore_seconds)
    run = max(least, settings.first_quantum if job.attained else 0.0)
    if _aged(job, gang.started, settings):
        rest = level_ends(level_of(job.attained, settings), settings) - job.attained
        run = max(run, job.restore_seconds + min(rest, AGED_TURN * settings.patience))
    level = level_of(gang.attained(now), settings)
    return _Candidate((level, 0, job.submitted, job.id), job, gang, demands, gang.started + run)


def _in_turn(
    candidates: Sequence[_Candidate], used: Mapping[str, float], settings: DedicatedSettings
) -> Sequence[_Candidate]:
    if settings.order is QueueOrder.FIFO or len({candidate.job.user for candidate in candidates}) <= 1:
        return sorted(candidates, key=lambda candidate: candidate.key)
    aged = sorted((c for c in candidates if c.key[0] < 0), key=lambda candidate: candidate.key)
    users: dict[str, list[_Candidate]] = {}
    for candidate in sorted(
        (c for c in candidates if c.key[0] >= 0), key=lambda candidate: candidate.key, reverse=True
    ):
        users.setdefault(candidate.job.user, []).append(candidate)
    heap = [(used.get(user, 0.0), user) for user in users]
    heapq.heapify(heap)
    ordered = list(aged)
    while heap:
        usage, user = heap[0]
        candidate = users[user].pop()
        ordered.append(candidate)
        if users[user]:
            heapq.heapreplace(heap, (usage + candidate.job.size * settings.first_quantum, user))
        else:
            heapq.heappop(heap)
    return ordered
