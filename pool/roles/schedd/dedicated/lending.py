"""Holes: claimed machines that the head of the queue waits with, lent to opportunistic jobs of this queue (WR 4.1).

A lent machine stays the dedicated scheduler's claim, so that it comes back without a negotiation. The job in it runs
under the machine owner's policy for ordinary jobs, counts to its user, and is saved when the machine is wanted. What
that takes is measured, and decides which holes are worth lending (WR 6.2). A hole for which this queue has no job is
released after a moment, to the rest of the pool.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Protocol

from pool.classad import symmetric_match
from pool.policy.checkpoints import SaveWish
from pool.policy.job_groups import JobGroup
from pool.policy.queue import QueuedJob
from pool.roles.schedd.core.claims import TROUBLE, HeldClaim
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.dedicated.machines import Lent
from pool.wire import RemoteError

#: Seconds for which a hole waits for a job of this queue before it is released.
PATIENCE = 10.0
#: Reclaims that are remembered; the time that is reckoned with is that which so many of them do not exceed.
REMEMBERED, SURE = 50, 0.9
#: Seconds that a reclaim is reckoned with before one was measured.
FIRST_GUESS = 5.0
#: Seconds for which a job that was refused by a machine is not tried there again.
REFUSED = 30.0
#: A startd answers within so many seconds that it has begun to stop a job.
STOP_SECONDS = 10.0


class StartJob(Protocol):
    """Starts an idle job on a claim; whether it was possible."""

    async def __call__(self, claim: HeldClaim, job: QueuedJob) -> bool: ...


class Lending:
    """The machines that one dedicated scheduler lends.

    Args:
        start: starts a job on a claim.
        fits_lease: whether a job may run on a claim with that lease.

    Attributes:
        lent: the claims that have a job which is not the scheduler's own.
        reclaims: how many there were.
    """

    def __init__(
        self, context: ScheddContext, start: StartJob, fits_lease: Callable[[HeldClaim, QueuedJob], bool]
    ) -> None:
        self._context = context
        self._start = start
        self._fits_lease = fits_lease
        self._asked: dict[HeldClaim, float] = {}
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._holes: dict[HeldClaim, float] = {}
        self._refused: dict[tuple[str, int], float] = {}
        self._turn = 0
        self.lent: dict[HeldClaim, Lent] = {}
        self.reclaims = 0

    @property
    def seconds(self) -> float:
        """How long it takes to get a machine back, by what was measured."""
        if not self._seconds:
            return FIRST_GUESS
        return sorted(self._seconds)[min(int(SURE * len(self._seconds)), len(self._seconds) - 1)]

    def lend(self, claims: Iterable[HeldClaim]) -> list[HeldClaim]:
        """Give these claims to jobs of the queue, each as soon as may be; returns those that have waited long enough
        for one."""
        now, unused = asyncio.get_running_loop().time(), []
        holes = list(claims)
        self._holes = {claim: self._holes.get(claim, now) for claim in holes}
        self._refused = {key: until for key, until in self._refused.items() if until > now}
        taken: set[QueuedJob] = set()
        for claim in holes:
            job = self._job_for(claim, taken)
            if job is not None:
                taken.add(job)
                self.lent[claim] = Lent(False)
                self._context.spawn(self._begin(claim, job), "lend", alone=True)
            elif now >= self._holes[claim] + PATIENCE:
                unused.append(claim)
        return unused

    def next_look(self) -> float | None:
        """When a hole will have waited long enough, by the loop's time; None for never."""
        return min((since + PATIENCE for claim, since in self._holes.items() if claim not in self.lent), default=None)

    def _job_for(self, claim: HeldClaim, taken: set[QueuedJob]) -> QueuedJob | None:
        """The job that a hole is lent to: users in turn, each user's jobs in their order."""
        queue = self._context.queue
        owners = queue.owners()
        for place in range(len(owners)):
            owner = owners[(self._turn + place) % len(owners)]
            for group in queue.groups(owner):
                if not self._may_have(claim, group):
                    continue
                for job in self._first_jobs(group, taken):
                    if self._fits_lease(claim, job):
                        self._turn += place + 1
                        return job
        return None

    def _first_jobs(self, group: JobGroup, taken: set[QueuedJob]) -> Iterator[QueuedJob]:
        for number in islice(group.order, len(taken) + 1):
            job = self._context.queue.find(*number)
            if job is not None and job not in taken:
                yield job

    def _may_have(self, claim: HeldClaim, group: JobGroup) -> bool:
        """Whether a group's jobs may run in a hole: alone, and outside of limits that only the negotiator counts."""
        if group.charge.limits or group.ad.get("GangParts") is not None:
            return False
        if self._refused.get((claim.id, group.id), 0.0) > asyncio.get_running_loop().time():
            return False
        known = claim.fits.get(group.id)
        if known is None:
            known = claim.fits[group.id] = symmetric_match(group.ad, claim.ad, self._context.outside.wall())
        return known

    async def _begin(self, claim: HeldClaim, job: QueuedJob) -> None:
        group = job.group
        if not await self._start(claim, job):
            if group is not None:
                self._refused[claim.id, group.id] = asyncio.get_running_loop().time() + REFUSED
            self.returned(claim)

    def adopt(self, claims: Iterable[HeldClaim]) -> None:
        """Claims that have a job of others since before the schedd was restarted."""
        for claim in claims:
            self.lent.setdefault(claim, Lent(False))

    def reclaim(self, claims: Iterable[HeldClaim]) -> None:
        """Have the jobs in these claims saved and leave."""
        for claim in claims:
            lent = self.lent.get(claim)
            if lent is None or lent.reclaimed or claim.job is None:
                continue
            self.lent[claim] = Lent(True)
            self._asked[claim] = asyncio.get_running_loop().time()
            self._context.spawn(self._reclaim(claim, claim.job, claim.run), "reclaim", alone=True)

    async def _reclaim(self, claim: HeldClaim, job: QueuedJob, run: int) -> None:
        context = self._context
        context.log.info("a lent machine is reclaimed", extra={"slot": claim.slot, "job": job.id})
        asked = {"claim": claim.id, "run": run, "graceful": True, "save": SaveWish.ALWAYS.value, "signal": None}
        try:
            await context.calls.call_startd(claim, "startd.deactivate", asked, STOP_SECONDS)
        except (*TROUBLE, RemoteError) as error:
            context.log.warning("a lent machine did not answer", extra={"slot": claim.slot, "why": str(error)})
            if claim.job is job and claim.run == run and claim in self.lent:
                self.lent[claim] = Lent(False)  # asked again in a later cycle

    def returned(self, claim: HeldClaim) -> None:
        """A claim has no job any more, or is gone."""
        lent = self.lent.pop(claim, None)
        asked = self._asked.pop(claim, None)
        self._holes.pop(claim, None)
        if lent is not None and lent.reclaimed and asked is not None:
            self.record_reclaim(asyncio.get_running_loop().time() - asked)

    def record_reclaim(self, seconds: float) -> None:
        """It took so long to get a machine back."""
        self._seconds.append(seconds)
        self.reclaims += 1

    def of(self, claims: Mapping[str, HeldClaim]) -> Mapping[HeldClaim, Lent]:
        """The lent ones of these claims."""
        return {claim: lent for claim in claims.values() if (lent := self.lent.get(claim)) is not None}
