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
from pool.policy.charges import Charge, charge
from pool.policy.queue import RUNNING, SUSPENDED, JobGroup, QueuedJob, Wire
from pool.roles.schedd.core.claims import TROUBLE, HeldClaim, patience
from pool.roles.schedd.parallel.gathering import is_gang
from pool.wire import RemoteError

if TYPE_CHECKING:
    from pool.roles.schedd.placement.placement import Placement


#: A startd answers within this many seconds whether a free slot is ours.
CLAIM_SECONDS = 30.0


class Matches:
    """The matches of one schedd, from their requests to their claims."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._queue = placement.queue
        #: When a negotiator spoke last, by the loop's time.
        self.heard = asyncio.get_running_loop().time()
        self._asked: dict[str, dict[Charge, int]] = {}
        self._waits: dict[str, list[tuple[Charge, asyncio.Task[Any]]]] = {}

    def requests(self, owner: str, limit: int) -> list[dict[str, Any]]:
        """What an owner's idle jobs ask for: one entry for each autocluster, in PRIO order."""
        self.heard = asyncio.get_running_loop().time()
        found: list[dict[str, Any]] = []
        left = limit - self.on_the_way(owner)
        on_the_way = dict(self._asked.get(owner, {}))
        for group in self._queue.groups(owner):
            count = 0 if is_gang(group.ad) else group.idle
            coming = on_the_way.get(group.charge, 0)
            if coming:
                count, on_the_way[group.charge] = max(0, count - coming), max(0, coming - count)
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
                    "runs": group.runs(min(coming, group.idle), count),
                }
            )
        placement = self._placement
        for others in (placement.gangs.gathering, placement.leaving, placement.moving):
            found += others.requests(owner)
        return found

    def holds(self, owner: str) -> int:
        """How many slots an owner has, those on the way included."""
        running = self._queue.count(owner, RUNNING, SUSPENDED)
        return running + self.on_the_way(owner) + self._placement.gangs.beyond(owner)

    def on_the_way(self, owner: str) -> int:
        """How many slots have been matched to an owner's jobs and are being claimed."""
        return sum(self._asked.get(owner, {}).values())

    def being_freed(self, owner: str) -> int:
        """How many of those are waited for, because whoever has them has to make room first."""
        return len(self._waits.get(owner, ()))

    def matched(self, match: dict[str, Any], owner: str) -> None:
        """Take up a match: claim the slot in the background, or wait for it where it has to be freed first."""
        placement = self._placement
        if any(one.matched(match, owner) for one in (placement.gangs.gathering, placement.leaving, placement.moving)):
            return
        group = self._queue.group(int(match["request"]))
        if group is None:
            return  # the jobs went another way meanwhile: the match is not claimed, and lapses by itself
        count = int(match["count"])
        asked = self._asked.setdefault(owner, {})
        asked[group.charge] = asked.get(group.charge, 0) + count
        task = self._placement.spawn(self._claim(match, owner, group, count), "claim", alone=True)
        if match.get("preempt"):
            waits = self._waits.setdefault(owner, [])
            waits.append((group.charge, task))
            task.add_done_callback(lambda _: waits.remove((group.charge, task)))

    def trim(self, owner: str) -> None:
        """Wait for no more slots than an owner has idle jobs for: nobody shall leave a machine for nothing."""
        waits = self._waits.get(owner)
        if not waits:
            return
        for kind in dict.fromkeys(kind for kind, _ in waits):
            tasks = [task for other, task in waits if other == kind]
            for task in tasks[self._queue.waiting(owner, kind) :]:
                task.cancel()

    async def _claim(self, match: dict[str, Any], owner: str, group: JobGroup, count: int) -> None:
        try:
            await self._placement.turns.moment(owner, "claim slots")
            job = self._queue.first(group)
            fresh = await self.obtain(match, owner, job, count) if job is not None else []
        finally:
            asked = self._asked[owner]
            asked[group.charge] -= count
            if not asked[group.charge]:
                del asked[group.charge]
        # A slot that somebody had to leave is for the job that it was taken for; the others have not been compared.
        first = self._queue.first(group) if match.get("preempt") else None
        for claim in fresh:
            self._placement.spawn(self._placement.use(claim, first), "use")

    async def obtain(
        self, match: dict[str, Any], owner: str, job: QueuedJob, count: int, wanted: Wire | None = None
    ) -> list[HeldClaim]:
        """Claim a slot that was matched to a job; the claims that were made, none when it was not to be had.

        Args:
            wanted: what was asked for, where that is not the job's own ad.
        """
        placement = self._placement
        address = str(match["startd"])
        preempts = bool(match.get("preempt"))
        lease = placement.lease_of(job.get("JobLeaseDuration"))
        granted = charge(job.ad())
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
                    "ad": public(wanted if wanted is not None else job.wire()),
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
            HeldClaim(
                str(item["claim"]),
                str(item["slot"]),
                ClassAd.from_wire(item["ad"]),
                address,
                owner,
                granted,
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
