"""Walks through the queue with the event loop free in between, and says which ad of a job others may see."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from pool.classad import ClassAd
from pool.jobs.privacy import public
from pool.policy.queue import JobQueue, QueuedJob
from pool.roles.cooperative import WorkTurn


async def walk_jobs(queue: JobQueue, turn: WorkTurn, owner: str | None = None) -> AsyncIterator[QueuedJob]:
    """All jobs in the queue, or a user's; those that come meanwhile may be missing, those that leave be among them."""
    for job in jobs_of(queue, owner):
        if turn.is_over:
            await turn.pause()
        if job is not None:
            yield job


def jobs_of(queue: JobQueue, owner: str | None = None) -> Iterator[QueuedJob | None]:
    """All jobs in the queue, or a user's, for a caller who pauses between two; None for a cluster that is passed over.

    The queue may change meanwhile: see `walk_jobs`. Clusters that come after the first step are passed over.
    """
    newest = queue.newest
    for cluster in queue.clusters.values():
        if cluster.id > newest or (owner and cluster.owner != owner):
            yield None
        else:
            yield from cluster.jobs.values()


def jobs_named(
    queue: JobQueue, ids: Sequence[Sequence[int]], missing: list[Sequence[int]]
) -> Iterator[QueuedJob | None]:
    """The jobs of clusters [c] and the jobs [c, p] that a user names, each once, for a caller who pauses between two.

    Args:
        missing: where names go that no job has; None is yielded for them.
    """
    whole: set[int] = set()
    single: dict[int, set[int]] = {}
    for name in ids:
        number = int(name[0])
        cluster, met = queue.clusters.get(number), single.get(number, ())
        if number in whole:
            yield None
        elif len(name) == 1:
            whole.add(number)
            jobs = cluster.jobs.values() if cluster is not None else iter(())
            if cluster is None or not cluster.jobs:
                missing.append(name)
                yield None
            for job in jobs:
                yield job if job.proc not in met else None
        else:
            one = cluster.jobs.get(int(name[1])) if cluster is not None else None
            if one is None:
                missing.append(name)
                yield None
            elif one.proc not in met:
                single.setdefault(number, set()).add(one.proc)
                yield one


def visible_ad(job: QueuedJob, hidden: bool) -> ClassAd:
    """A job's ad with what the negotiation said of it; without what is its owner's alone where that is hidden."""
    ad = ClassAd.from_wire(public(job.wire())) if hidden else job.ad()
    ad.update(job.negotiation_answer())
    return ad
