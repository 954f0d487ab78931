"""Gathers claims for jobs that run on several machines at once, until each part has one.

Claims are held without a job until the gang is whole; `pool.policy.gangs` decides how long, and which jobs it may have
leave. `pool.roles.schedd.parallel.gangs` starts the gang then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sized
from itertools import islice
from typing import Any, Protocol

from pool.classad import ClassAd
from pool.jobs.gangs import APART, PARTS, is_parallel, name_of, parts_of
from pool.jobs.privacy import public
from pool.policy.gangs import Gathering
from pool.policy.nodes import ranges
from pool.policy.packed import pack
from pool.policy.queue import IDLE, QueuedJob, Wire
from pool.policy.slot_names import machine_of_slot
from pool.policy.why.findings import GangFinding
from pool.roles.schedd.checkpoints.images import StoredCheckpoints
from pool.roles.schedd.core.claim_settings import ClaimSettings
from pool.roles.schedd.core.claims import HeldClaim
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.job_ends import require_both, without_machine

#: Requests of gangs have numbers below this one, those of jobs that move or leave above it.
NUMBERS = -(1 << 44)
#: Seconds for which a slot is noted that another job would have to leave: less than a startd keeps the match.
OFFER = 20.0

#: Starts a gang that is whole: its job, its gathering, and the claim of each part.
Begin = Callable[[QueuedJob, Gathering, Mapping[int, HeldClaim]], Awaitable[None]]


class Obtain(Protocol):
    """Claims a slot that was matched to a job; see `pool.roles.schedd.placement.claiming.Claiming.obtain`."""

    async def __call__(
        self, match: dict[str, Any], owner: str, job: QueuedJob, count: int, wanted: Wire | None = None
    ) -> list[HeldClaim]: ...


def is_gang(ad: ClassAd) -> bool:
    """Whether the ad's job needs several claims."""
    return ad.get(PARTS) is not None


class Gatherings:
    """The gangs of one schedd that are not whole yet.

    Args:
        images: the checkpoints that gangs continue from.
        obtain: claims the slots that were matched to parts.
        changed: called when an owner's numbers changed; with True when there is new work that needs a slot.
        begin: called for each that is whole; calls `forget_job` for one that does begin.
    """

    def __init__(
        self,
        context: ScheddContext,
        settings: ClaimSettings,
        images: StoredCheckpoints,
        *,
        obtain: Obtain,
        changed: Callable[[str, bool], None],
        begin: Begin,
    ) -> None:
        self._context = context
        self._settings = settings
        self._images = images
        self._obtain = obtain
        self._changed = changed
        self._begin = begin
        context.claims.when_dropped(self.lost)
        self._known: dict[QueuedJob, Gathering] = {}
        self._held: dict[QueuedJob, dict[int, HeldClaim]] = {}
        self._asked: dict[int, tuple[QueuedJob, list[int]]] = {}
        self._last = NUMBERS
        self._offers: dict[QueuedJob, dict[int, Wire]] = {}
        self._waits: dict[QueuedJob, set[asyncio.Task[Any]]] = {}

    def requests(self, owner: str) -> list[dict[str, Any]]:
        """The requests for the parts that the owner's first gang lacks. While one gang has claims, no other asks."""
        queue, now = self._context.queue, asyncio.get_running_loop().time()
        self._asked = {number: asked for number, asked in self._asked.items() if asked[0].cluster.owner != owner}
        holder = next(iter((*self._held, *self._waits)), None)
        found: list[dict[str, Any]] = []
        for group in queue.groups(owner):
            job = queue.first(group) if is_gang(group.ad) else None
            if job is None or (holder is not None and job is not holder):
                continue
            for parts in self.progress_of(job).wanted_parts(now):
                self._last -= 1
                self._asked[self._last] = (job, parts)
                found.append(
                    {
                        "number": self._last,
                        "ad": public(self.wanted_ad(job, parts[0])),
                        "count": len(parts),
                        "oldest": float(job.get("QDate") or 0),
                        "runs": [[job.prio, len(parts)]],
                    }
                )
            if found:
                break
        return found

    def progress_of(self, job: QueuedJob) -> Gathering:
        """How far an idle job is."""
        known = self._known.get(job)
        if known is None:
            kinds = [pack(part.own) for part in parts_of(job.ad())]
            over = frozenset(self._images.ends_in(job, self._images.newest(job)))
            known = self._known[job] = Gathering(kinds, apart=job.get(APART) is True, over=over)
        return known

    def wanted_ad(self, job: QueuedJob, part: int) -> Wire:
        whole, own, gathering = job.wire(), parts_of(job.ad())[part].own, self.progress_of(job)
        wire = {**whole, **own}
        if "Requirements" in own:  # the job's have grown where machines could not go on from its checkpoint
            wire["Requirements"] = require_both(own["Requirements"], whole.get("Requirements"))
        for machine in sorted(gathering.machines) if gathering.apart else ():
            wire["Requirements"] = without_machine(wire.get("Requirements"), machine)
        return wire

    def matched(self, match: dict[str, Any], owner: str) -> bool:
        """Take up a match of a gang's part; False where it is none.

        Nobody leaves a machine for a gang that may not come about: a match that asks for it is noted until all parts
        have one or a claim, and lapses otherwise.
        """
        number = int(match["request"])
        if number > NUMBERS:
            return False
        job, parts = self._asked.pop(number, (None, []))
        if job is None or job.status != IDLE:
            return True
        gathering = self.progress_of(job)
        if match.get("preempt"):
            offered = str(match.get("freed") or match["slot"])  # several parts may have room on one divided machine
            part = gathering.offer(parts, offered) if match["preempt"] != "urgent" else None
            taken = [part] if part is not None else []
        else:
            taken = list(islice(gathering.free_of(parts), int(match["count"])))
            gathering.coming.update(taken)
        if taken:
            first = parts[: len(taken)] == taken
            self._asked[number] = (job, parts[len(taken) :] if first else [part for part in parts if part not in taken])
            if match.get("preempt"):
                self._offers.setdefault(job, {})[taken[0]] = match
                asyncio.get_running_loop().call_later(OFFER, self._lapse, job, taken[0], match)
                self._go_on(job)
            else:
                self._context.spawn(self._claim(match, owner, job, taken), "claim", alone=True)
        return True

    def _go_on(self, job: QueuedJob) -> None:
        """Ask for what is missing; nothing is, but for those who have to leave: have them leave, all at once."""
        gathering, owner = self.progress_of(job), job.cluster.owner
        if not gathering.covered or gathering.coming:
            self._changed(owner, True)
            return
        offers = self._offers.pop(job, {})
        gathering.offered.clear()
        if self._others_gather(job):
            return
        for part, match in offers.items():
            gathering.coming.add(part)
            wait = self._context.spawn(self._claim(match, owner, job, [part]), "claim", alone=True)
            self._waits.setdefault(job, set()).add(wait)

    def _others_gather(self, job: QueuedJob) -> bool:
        """Whether another gang has claims, or has had others leave for it."""
        return any(one is not job for one in (*self._held, *self._waits))

    def _waited(self, job: QueuedJob) -> None:
        """The job that was to leave a slot for this task has left, or does not leave."""
        waits = self._waits.get(job)
        if waits is not None:
            waits -= {task for task in waits if task is asyncio.current_task()}
            if not waits:
                del self._waits[job]

    def _lapse(self, job: QueuedJob, part: int, match: Wire) -> None:
        """A slot was noted for so long that it is not to be had any more by that match."""
        offers = self._offers.get(job, {})
        if offers.get(part) is match:
            del offers[part]
            if (gathering := self._known.get(job)) is not None:
                gathering.offered.pop(part, None)
            if not offers:
                del self._offers[job]

    def rejected(self, number: int, reason: str, when: float) -> None:
        """A cycle found nothing for a part."""
        job, _ = self._asked.get(number, (None, []))
        if job is not None and job.group is not None:
            job.group.rejected = (reason, when)

    async def _claim(self, match: dict[str, Any], owner: str, job: QueuedJob, parts: list[int]) -> None:
        gathering = self.progress_of(job)
        wire = self.wanted_ad(job, parts[0])
        try:
            claims = await self._obtain(match, owner, job, len(parts), wire)
        finally:
            gathering.coming.difference_update(parts)
            self._waited(job)
        now = asyncio.get_running_loop().time()
        wanted = _gathers(job) and not self._others_gather(job)
        for claim in claims:
            part = gathering.assign_part(parts, machine_of_slot(claim.slot), now) if wanted else None
            if part is None:
                self.release_claim(claim)
                continue
            claim.gathers = job
            held = self._held.setdefault(job, {})
            held[part] = claim
            if len(held) == 1:
                asyncio.get_running_loop().call_later(self._settings.gather_patience, self._check, job)
        if gathering.is_complete and _gathers(job):
            await self._begin(job, gathering, self._held[job])
        else:
            self.trim(owner)
            self._go_on(job)
            if match.get("preempt"):
                self._check(job)

    def trim(self, owner: str) -> None:
        """Give back what is held for jobs that gather no more."""
        for job in [*self._held, *self._offers, *self._waits]:
            if job.cluster.owner == owner and not _gathers(job):
                self._release(job)
                self._known.pop(job, None)
        for job in [job for job in self._known if job.status != IDLE]:
            del self._known[job]

    def lost(self, claim: HeldClaim) -> None:
        """A claim that was held is gone."""
        job = claim.gathers
        held = self._held.get(job) if job is not None else None
        if job is None or held is None:
            return
        claim.gathers = None
        for part in [part for part, other in held.items() if other is claim]:
            del held[part]
            self.progress_of(job).remove_part(part)
        if not held:
            del self._held[job]
        self._changed(claim.owner, True)

    def _check(self, job: QueuedJob) -> None:
        """Some time after a first claim: a job that is not whole after its patience gives up for a while. It waits
        longer while a machine is being vacated for it: else other jobs would have left for nothing."""
        gathering, loop = self._known.get(job), asyncio.get_running_loop()
        hold = self._settings.gather_patience
        if job in self._waits:
            hold = max(hold, self._settings.patience)
        due = gathering.gives_up_at(hold) if gathering is not None else None
        if gathering is None or due is None:
            return
        if loop.time() < due:
            loop.call_at(due, self._check, job)
            return
        owner = job.cluster.owner
        self._release(job)
        gathering.release_all(loop.time(), self._context.outside.chance.random())
        missing = len(gathering.kinds)
        self._context.log.info("a gang did not get whole", extra={"job": job.id, "parts": missing})
        loop.call_at(gathering.not_before, self._changed, owner, True)
        self._changed(owner, True)  # another's turn

    def _release(self, job: QueuedJob) -> None:
        self._offers.pop(job, None)
        for wait in self._waits.pop(job, ()):
            wait.cancel()
        for claim in self._held.pop(job, {}).values():
            self.release_claim(claim)

    def release_claim(self, claim: HeldClaim) -> None:
        """A claim that no gang has a use for."""
        claim.gathers = None
        if claim.dedicated:
            self._context.claims.empty(claim)
        else:
            self._context.return_claim(claim)

    def forget_job(self, job: QueuedJob) -> None:
        """It begins, or will not: its claims are not held for it any more."""
        self._held.pop(job, None)
        self._known.pop(job, None)

    def slots(self, owner: str) -> int:
        """How many slots an owner's gangs hold, or have others leave."""
        each: list[tuple[QueuedJob, Sized]] = [*self._held.items(), *self._offers.items(), *self._waits.items()]
        return sum(len(some) for job, some in each if job.cluster.owner == owner)

    def why(self, job: QueuedJob) -> GangFinding | None:
        """The parts that an idle job lacks; None for a job that needs a single slot."""
        parts = parts_of(job.ad())
        if not parts:
            return None
        gathering = self._known.get(job)
        held = gathering.held if gathering is not None else {}
        wait = gathering.not_before - asyncio.get_running_loop().time() if gathering is not None else 0.0
        lacking = [number for number in range(len(parts)) if number not in held]
        numbered = is_parallel(job.ad()) and lacking
        names = [f"node {ranges(lacking)}"] if numbered else [name_of(parts[number], number) for number in lacking]
        return GangFinding(len(parts), len(held), tuple(names), max(0.0, wait))


def _gathers(job: QueuedJob) -> bool:
    """Whether a job is idle, and not left to the dedicated scheduler or kept back otherwise."""
    return job.status == IDLE and job.group is not None
