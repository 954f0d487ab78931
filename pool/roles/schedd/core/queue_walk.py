"""Walks through the queue with the event loop free in between, and says which ad of a job others may see."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pool.classad import ClassAd
from pool.jobs.privacy import public
from pool.policy.queue import JobQueue, QueuedJob
from pool.roles.cooperative import WorkTurn


async def walk_jobs(queue: JobQueue, turn: WorkTurn, owner: str | None = None) -> AsyncIterator[QueuedJob]:
    """All jobs in the queue, or a user's; those that come meanwhile may be missing, those that leave be among them."""
    for cluster in list(queue.clusters.values()):
        if turn.is_over:
            await turn.pause()
        if owner and cluster.owner != owner:
            continue
        for job in list(cluster.jobs.values()):
            if turn.is_over:
                await turn.pause()
            yield job


def visible_ad(job: QueuedJob, hidden: bool) -> ClassAd:
    """A job's ad with what the negotiation said of it; without what is its owner's alone where that is hidden."""
    ad = ClassAd.from_wire(public(job.wire())) if hidden else job.ad()
    ad.update(job.negotiation_answer())
    return ad
