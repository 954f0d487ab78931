"""In which order waiting jobs are considered: one queue, or a logical queue for each user (WR 6.1).

With `QueueOrder.USERS` the next job is always the first of the user who has used least, and what is given in this
cycle counts at once: a user with a hundred jobs and one with a single job alternate. The first job of a user waits
longest where others always have less usage. So it *ages*: when it has waited for `patience` since the later of its
submission and its user's last start, it goes before all that have not, the longest wait first. Only first jobs age,
and a start makes its user young again. So the aged jobs before a given one are at most one for each other user, and no
head starves, however many jobs another user submits.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from pool.policy.dedicated.model import DedicatedJob, DedicatedSettings, QueueOrder, UserQueue

#: The charge of a job for the order within one cycle, where nothing is known of its duration.
NOMINAL_SECONDS = 3600.0


def by_priority(jobs: Sequence[DedicatedJob]) -> Sequence[DedicatedJob]:
    """One user's jobs in the user's own order: higher priority first, then as they came."""
    if any(job.priority for job in jobs):
        return sorted(jobs, key=lambda job: -job.priority)
    return jobs


def in_order(queues: Sequence[UserQueue], settings: DedicatedSettings, now: float) -> Iterator[DedicatedJob]:
    """Waiting jobs in the order in which they are considered. Lazy: a head that waits ends the work.

    Args:
        queues: each user once.
    """
    lists = [by_priority(queue.jobs) for queue in queues]
    if settings.order is QueueOrder.FIFO:
        return _by_submission(lists)
    return _by_user(queues, lists, settings.patience, now)


def _by_submission(lists: Sequence[Sequence[DedicatedJob]]) -> Iterator[DedicatedJob]:
    if len(lists) == 1:
        yield from lists[0]
        return
    heap = [(jobs[0].submitted, number, 0) for number, jobs in enumerate(lists) if jobs]
    heapq.heapify(heap)
    while heap:
        _, number, position = heap[0]
        jobs = lists[number]
        yield jobs[position]
        if position + 1 < len(jobs):
            heapq.heapreplace(heap, (jobs[position + 1].submitted, number, position + 1))
        else:
            heapq.heappop(heap)


def _by_user(
    queues: Sequence[UserQueue], lists: Sequence[Sequence[DedicatedJob]], patience: float, now: float
) -> Iterator[DedicatedJob]:
    heap: list[tuple[int, float, str, int, int]] = []
    for number, (queue, jobs) in enumerate(zip(queues, lists, strict=True)):
        if jobs:
            waited = now - max(jobs[0].submitted, queue.last_start)
            key = (0, -waited) if waited >= patience else (1, queue.used)
            heap.append((*key, queue.user, number, 0))
    heapq.heapify(heap)
    used = [queue.used for queue in queues]
    while heap:
        _, _, user, number, position = heap[0]
        jobs = lists[number]
        job = jobs[position]
        yield job
        if position + 1 < len(jobs):
            used[number] += job.size * (job.remaining or NOMINAL_SECONDS)
            heapq.heapreplace(heap, (1, used[number], user, number, position + 1))
        else:
            heapq.heappop(heap)
