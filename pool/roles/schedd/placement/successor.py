"""The next machine for a job that has to leave its own: looked for while its last checkpoint is made (C5).

    the startd: it leaves -> asked for beside the idle jobs -> match -> claim of the other slot -> which learns where
    the checkpoint is made -> its end here is durable -> it starts there

The claim is the job's until then, and no more than a claim: it starts there only when its end here is durable, so that
two copies never run (start contract, rule 2). Where a step fails the job is idle like any that was evicted; where it
does not leave after all, or does not come back to the queue, its owner's other jobs have the claim. Only slots that
nobody has are asked for: nobody leaves for a job that has not left. `rematch` moves jobs to better machines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pool.jobs.privacy import public
from pool.policy.queue import RUNNING, SUSPENDED, QueuedJob
from pool.roles.schedd.core.claim_settings import ClaimSettings
from pool.roles.schedd.core.claims import TROUBLE, HeldClaim
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.parallel.gathering import Obtain
from pool.roles.schedd.placement.rematch import UseClaim
from pool.wire import RemoteError

#: Requests for these jobs are numbered from here downwards; those for others lie above.
FIRST = -(2**40)
#: The job's Rank of the slot it leaves, as its request has it: any other is better.
NOTHING = -1e300


@dataclass(slots=True, eq=False)
class Leave:
    """A job that leaves.

    Attributes:
        old: the claim it is on. nearer: {address, ticket} of the machine that makes its checkpoint.
        number: of the request for it; taken: a match came for it.
        left: set when it has ended on the old one.
    """

    job: QueuedJob
    old: HeldClaim
    nearer: dict[str, str]
    number: int
    taken: bool = False
    left: asyncio.Event = field(default_factory=asyncio.Event)


class Successors:
    """The jobs of one schedd that have to leave their machines.

    Args:
        obtain: claims the slot of a match.
        changed: called when an owner's numbers changed; with True when there is new work that needs a slot.
    """

    def __init__(
        self,
        context: ScheddContext,
        settings: ClaimSettings,
        *,
        obtain: Obtain,
        use: UseClaim,
        changed: Callable[[str, bool], None],
    ) -> None:
        self._context = context
        self._settings = settings
        self._obtain = obtain
        self._use = use
        self._changed = changed
        self._leaves: dict[QueuedJob, Leave] = {}
        self._last = FIRST

    def find_next(self, claim: HeldClaim, nearer: Any) -> None:
        """The job of a claim has to leave its machine, which makes its last checkpoint.

        Args:
            nearer: {address, ticket} of the machine that has its chunks already.
        """
        job = claim.job
        texts = isinstance(nearer, dict) and all(isinstance(nearer.get(key), str) for key in ("address", "ticket"))
        if job is None or claim.gang is not None or job in self._leaves or job.stored_note("_wish") or not texts:
            return
        self._last -= 1
        self._leaves[job] = Leave(job, claim, {key: nearer[key] for key in ("address", "ticket")}, self._last)
        self._changed(job.cluster.owner, True)

    def machine_lost(self, job: QueuedJob) -> None:
        """A job has its machine no more."""
        leave = self._leaves.pop(job, None)
        if leave is not None:
            leave.left.set()

    def count(self, owner: str) -> int:
        """How many of an owner's jobs look for their next machine."""
        return sum(not leave.taken for job, leave in self._leaves.items() if job.cluster.owner == owner)

    def requests(self, owner: str) -> list[dict[str, Any]]:
        """The requests of these jobs."""
        found: list[dict[str, Any]] = []
        for job, leave in self._leaves.items():
            if leave.taken or job.cluster.owner != owner or job.status not in (RUNNING, SUSPENDED):
                continue
            wire = public(job.wire())
            found.append(
                {
                    "number": leave.number,
                    "ad": {**wire, "CurrentRank": NOTHING},
                    "count": 1,
                    "oldest": float(wire.get("QDate") or 0),
                    "moving": True,
                    "runs": [[job.prio, 1]],
                }
            )
        return found

    def matched(self, match: dict[str, Any], owner: str) -> bool:
        """Take up a match of a job that leaves; False where it is none."""
        number = int(match["request"])
        if number >= FIRST:
            return False
        leave = next((leave for leave in self._leaves.values() if leave.number == number), None)
        if leave is not None and not leave.taken:
            leave.taken = True
            self._context.spawn(self._follow(match, owner, leave), "next machine", alone=True)
        return True  # of one that has gone the match is not claimed, and lapses by itself

    async def _follow(self, match: dict[str, Any], owner: str, leave: Leave) -> None:
        job = leave.job
        fresh = await self._obtain(match, owner, job, 1)
        if not fresh and job in self._leaves:
            leave.taken = False  # asked for again with the owner's next numbers
        for new in fresh:
            if not leave.left.is_set():
                await self._prepare(leave, new)
                try:
                    async with asyncio.timeout(self._settings.patience):
                        await leave.left.wait()
                except TimeoutError:
                    pass
            await self._use(new, job)

    async def _prepare(self, leave: Leave, new: HeldClaim) -> None:
        params = {"claim": new.id, "job": f"{leave.job.id[0]}.{leave.job.id[1]}", "nearer": leave.nearer}
        try:
            link = await self._context.links.connect(new.startd)
            await link.call("startd.prepare", params, timeout=10.0)
        except (*TROUBLE, RemoteError) as error:
            self._context.log.info("nothing was prepared", extra={"slot": new.slot, "why": str(error)})
