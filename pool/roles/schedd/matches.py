"""From a request to a claim: what a schedd asks the negotiator for, and claiming the slots it learns of (RL 3.2.2).

A match is a hint: the slot is claimed with the startd, which may refuse. While that is under way the jobs that it is
for are not asked for again. A match with a slot that is taken (D5) is waited for until the job there has left, as long
as the owner has idle jobs enough, and no longer than CLAIM_PATIENCE.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pool.classad import ClassAd
from pool.jobs.privacy import public
from pool.policy.queue import IDLE, RUNNING, SUSPENDED, Job
from pool.roles.schedd.claims import TROUBLE, Claim, patience
from pool.wire import RemoteError

if TYPE_CHECKING:
    from pool.roles.schedd.placement import Placement


#: A startd answers within this many seconds whether a free slot is ours.
CLAIM_SECONDS = 30.0


class Matches:
    """The matches of one schedd, from their requests to their claims."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._queue = placement.queue
        self._asked: dict[str, int] = {}
        self._waits: dict[str, list[asyncio.Task[Any]]] = {}

    def requests(self, owner: str, limit: int) -> list[dict[str, Any]]:
        """What an owner's idle jobs ask for: one entry for each autocluster, in PRIO order."""
        found: list[dict[str, Any]] = []
        left = limit - self._asked.get(owner, 0)
        on_the_way = self._asked.get(owner, 0)
        for group in self._queue.groups(owner):
            count = group.idle
            if on_the_way:
                count, on_the_way = max(0, count - on_the_way), max(0, on_the_way - count)
            count = min(count, left)
            if count <= 0:
                continue
            first = self._queue.first(group)
            if first is None:
                continue
            left -= count
            oldest = first.get("QDate", 0)
            found.append(
                {
                    "number": group.id,
                    "ad": public(first.wire()),
                    "count": count,
                    "oldest": float(oldest) if isinstance(oldest, (int, float)) else 0.0,
                }
            )
        return found + self._placement.moving.requests(owner)

    def holds(self, owner: str) -> int:
        """How many slots an owner has, those on the way included."""
        return self._queue.count(owner, RUNNING, SUSPENDED) + self._asked.get(owner, 0)

    def on_the_way(self, owner: str) -> int:
        """How many slots have been matched to an owner's jobs and are being claimed."""
        return self._asked.get(owner, 0)

    def being_freed(self, owner: str) -> int:
        """How many of those are waited for, because whoever has them has to make room first."""
        return len(self._waits.get(owner, ()))

    def matched(self, match: dict[str, Any], owner: str) -> None:
        """Take up a match: claim the slot in the background, or wait for it where it has to be freed first."""
        if self._placement.moving.matched(match, owner):
            return
        count = int(match["count"])
        self._asked[owner] = self._asked.get(owner, 0) + count
        task = self._placement.spawn(self._claim(match, owner, count), "claim")
        if match.get("preempt"):
            waits = self._waits.setdefault(owner, [])
            waits.append(task)
            task.add_done_callback(waits.remove)

    def trim(self, owner: str) -> None:
        """Wait for no more slots than an owner has idle jobs: nobody shall leave a machine for nothing."""
        waits = self._waits.get(owner)
        if waits:
            for task in waits[self._queue.count(owner, IDLE) :]:
                task.cancel()

    async def _claim(self, match: dict[str, Any], owner: str, count: int) -> None:
        group = self._queue.group(int(match["request"]))
        job = self._queue.first(group) if group else None
        try:
            # Where the jobs went another way meanwhile, the match is not claimed and lapses by itself.
            fresh = await self.obtain(match, owner, job, count) if job is not None else []
        finally:
            self._asked[owner] -= count
        for claim in fresh:
            self._placement.spawn(self._placement.use(claim), "use")

    async def obtain(self, match: dict[str, Any], owner: str, job: Job, count: int) -> list[Claim]:
        """Claim a slot that was matched to a job; the claims that were made, none when it was not to be had."""
        placement = self._placement
        address = str(match["startd"])
        preempts = bool(match.get("preempt"))
        lease = placement.lease_of(job.get("JobLeaseDuration"))
        try:
            link = await placement.links.to(address)
            answer = await link.call(
                "startd.preempt" if preempts else "startd.claim",
                {
                    "slot": match["slot"],
                    "claim": match["claim"],
                    "schedd": placement.name,
                    "submitter": match["submitter"],
                    "owner": owner,
                    "lease": lease,
                    "ad": public(job.wire()),
                    "count": count,
                },
                timeout=placement.patience if preempts else CLAIM_SECONDS,
            )
        except (*TROUBLE, RemoteError) as error:
            placement.log.info("a slot was not to be claimed", extra={"slot": match["slot"], "why": str(error)})
            placement.changed(owner, True)
            return []
        now = asyncio.get_running_loop().time()
        fresh = [
            Claim(
                str(item["claim"]),
                str(item["slot"]),
                ClassAd.from_wire(item["ad"]),
                address,
                owner,
                lease,
                now,
                now + patience(lease),
            )
            for item in answer["claims"]
        ]
        for claim in fresh:
            placement.claims[claim.id] = claim
            placement.reaching.watch(claim, link)
        if answer.get("refused"):
            placement.log.info("a startd refused", extra={"slot": match["slot"], "why": answer["refused"]})
            placement.changed(owner, True)
        return fresh
