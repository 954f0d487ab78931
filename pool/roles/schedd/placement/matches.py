"""From a request to a claim: the requests for the negotiator, and the matches that it answers with (RL 3.2.2).

While a slot is being claimed (`claiming`), the jobs that it is for are not asked for again. A slot that another job has
to leave (D5) is waited for as long as the owner has enough idle jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from pool.jobs.privacy import public
from pool.policy.charges import Charge
from pool.policy.job_groups import JobGroup
from pool.policy.queue import RUNNING, SUSPENDED, QueuedJob
from pool.roles.schedd.core.claims import HeldClaim
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.parallel.gathering import Obtain, is_gang


class OtherRequests(Protocol):
    """Requests for slots beside those of idle jobs: the parts of gangs, jobs that move, jobs that leave."""

    def requests(self, owner: str) -> list[dict[str, Any]]:
        """The requests of an owner's jobs of this kind."""

    def matched(self, match: dict[str, Any], owner: str) -> bool:
        """Take up a match; False where it answers no request of this kind."""


class Matches:
    """The matches of one schedd, from their requests to their claims.

    Args:
        others: make requests of their own, and are asked first whether a match is theirs.
        obtain: claims the slot of a match.
        beyond: the slots that an owner's gangs have or hold beyond one for each running job.
        use: starts a job on a new claim, this one before all others.
    """

    def __init__(
        self,
        context: ScheddContext,
        *,
        others: Sequence[OtherRequests],
        obtain: Obtain,
        beyond: Callable[[str], int],
        use: Callable[[HeldClaim, QueuedJob | None], Coroutine[Any, Any, None]],
    ) -> None:
        self._context = context
        self._queue = context.queue
        self._others = others
        self._obtain = obtain
        self._beyond = beyond
        self._use = use
        #: When a negotiator spoke last, by the loop's time.
        self.heard = asyncio.get_running_loop().time()
        self._asked: dict[str, dict[Charge, int]] = {}
        self._waits: dict[str, list[tuple[Charge, asyncio.Task[Any]]]] = {}

    def requests(self, owner: str, limit: int) -> list[dict[str, Any]]:
        """The requests of an owner's idle jobs: one entry for each autocluster, in PRIO order."""
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
        for other in self._others:
            found += other.requests(owner)
        return found

    def holds(self, owner: str) -> int:
        """How many slots an owner has, those on the way included."""
        waiting = sum(claim.handed_on is not None for claim in self._context.claims.values() if claim.owner == owner)
        running = self._queue.count(owner, RUNNING, SUSPENDED) - waiting
        return running + self.on_the_way(owner) + self._beyond(owner)

    def on_the_way(self, owner: str) -> int:
        """How many slots have been matched to an owner's jobs and are being claimed."""
        return sum(self._asked.get(owner, {}).values())

    def being_freed(self, owner: str) -> int:
        """How many of those are waited for, because another job has to leave them first."""
        return len(self._waits.get(owner, ()))

    def matched(self, match: dict[str, Any], owner: str) -> None:
        """Take up a match: claim the slot in the background, or wait for it where it has to be freed first."""
        if any(other.matched(match, owner) for other in self._others):
            return
        group = self._queue.group(int(match["request"]))
        if group is None:
            return  # the jobs went another way meanwhile: the match is not claimed, and lapses by itself
        count = int(match["count"])
        asked = self._asked.setdefault(owner, {})
        asked[group.charge] = asked.get(group.charge, 0) + count
        task = self._context.spawn(self._claim(match, owner, group, count), "claim", alone=True)
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
            await self._context.turns.moment(owner, "claim slots")
            job = self._queue.first(group)
            fresh = await self._obtain(match, owner, job, count) if job is not None else []
        finally:
            asked = self._asked[owner]
            asked[group.charge] -= count
            if not asked[group.charge]:
                del asked[group.charge]
        # A slot that somebody had to leave is for the job that it was taken for; the others have not been compared.
        first = self._queue.first(group) if match.get("preempt") else None
        for claim in fresh:
            self._context.spawn(self._use(claim, first), "use")
