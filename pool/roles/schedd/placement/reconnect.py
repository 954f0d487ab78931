"""Reconnect a lost startd again: what becomes of its claims, and of the jobs on them, until the lease must have ended.

A connection that breaks says nothing of the job, which runs on. We try to take the claim up again and the startd says
what it knows; only when its lease has ended for sure is the job idle again (start contract, rule 2). A schedd that was
restarted is in the same place with every job that ran when it stopped; and so it is with a startd that renews no lease
over a connection that is there, or says that it has no such claim: asked to take it up again, it answers when nothing
is left of the job.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.jobs.activation import activation
from pool.jobs.events import EventKind
from pool.policy.charges import charge
from pool.policy.queue import QueuedJob
from pool.roles.schedd.core.claims import TROUBLE, HeldClaim, patience
from pool.roles.schedd.core.ledger import JobChange
from pool.roles.schedd.placement.lease_watch import LeaseWatch
from pool.wire import Connection, RemoteError

if TYPE_CHECKING:
    from pool.roles.schedd.placement.placement import Placement

FIRST_RETRY, LONGEST_RETRY = 0.05, 10.0
#: What a startd may answer of a claim.
STATES = ("unknown", "idle", "running", "ending")


class Reconnect:
    """The claims of one schedd whose startds cannot be reached."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._over: dict[Connection, set[HeldClaim]] = {}
        self._leases = LeaseWatch(self.lose, self._lease_ended)

    async def watch_leases(self) -> None:
        """Look after the leases of all claims, until cancelled."""
        await self._leases.run()

    def adopt(self, job: QueuedJob) -> None:
        """After a restart: take up the claim under which a job was running when we stopped."""
        placement = self._placement
        note = job.note("_run")
        if "parts" in note:
            placement.gangs.adopt(job)
            return
        now = asyncio.get_running_loop().time()
        claim = placement.claims.get(note["claim"])
        if claim is None:
            claim = HeldClaim(
                str(note["claim"]),
                str(note["slot"]),
                ClassAd(),
                str(note["startd"]),
                str(note["owner"]),
                charge(job.ad()),
                float(note["lease"]),
                now,
                now + patience(float(note["lease"])),
            )
            placement.claims[claim.id] = claim
        claim.job, claim.run, job.run = job, int(note["run"]), claim
        placement.moving.started(job)
        if (job.note("_wish") or {}).get("what") == "move":
            job.update({"_wish": None})  # the other slot is nobody's any more
        self.lose(claim)

    def watch(self, claim: HeldClaim, link: Connection) -> None:
        """See to the claim when this connection ends."""
        claims = self._over.get(link)
        if claims is None:
            claims = self._over[link] = set()
            link.closed.add_done_callback(lambda _: self._ended(link))
        claims.add(claim)
        claim.link = link
        self._leases.add(claim)

    def forget(self, claim: HeldClaim) -> None:
        """The claim is over."""
        claim.over = True
        if claim.link is not None:
            self._over.get(claim.link, set()).discard(claim)

    def _ended(self, link: Connection) -> None:
        for claim in self._over.pop(link, ()):
            self.lose(claim)

    def lose(self, claim: HeldClaim) -> None:
        """Its startd could not be reached just now, or does not know it: ask until that is settled."""
        placement = self._placement
        if claim.lost or placement.claims.get(claim.id) is not claim:
            return
        claim.lost = True
        placement.spawn(self._reach_again(claim), "reach")

    async def _reach_again(self, claim: HeldClaim) -> None:
        """Try to take the claim up again until its lease has ended for sure."""
        placement = self._placement
        loop = asyncio.get_running_loop()
        retry = FIRST_RETRY
        while placement.claims.get(claim.id) is claim:
            try:
                async with asyncio.timeout(max(0.1, min(10.0, claim.until - loop.time()))):
                    link = await placement.links.to(claim.startd)
                    answer = await link.call(
                        "startd.resume",
                        {
                            "claim": claim.id,
                            "job": list(claim.job.id) if claim.job else None,
                            "run": claim.run,
                        },
                        timeout=10.0,
                    )
                    state, slot = _understood(answer)
            except (*TROUBLE, RemoteError):
                if loop.time() >= claim.until:
                    await self._lease_over(claim)
                    continue
                pause = retry * (0.5 + placement.outside.chance.random())
                await asyncio.sleep(max(0.0, min(pause, claim.until - loop.time())))
                retry = min(retry * 2, LONGEST_RETRY)
                continue
            if claim.over:
                return
            claim.lost = False
            self.watch(claim, link)
            self._remember(claim, slot)
            if answer.get("forgot") and claim.start is not None:
                try:
                    await link.call("startd.remind", placement.order(claim, whole=True), timeout=10.0)
                except (*TROUBLE, RemoteError):
                    continue
            await self._taken_up(claim, state)
            return

    def _remember(self, claim: HeldClaim, slot: ClassAd | None) -> None:
        """Know again, after a restart, what the slot is and what had been sent to it."""
        placement = self._placement
        if slot is None:
            return
        claim.ad = slot
        claim.fits.clear()
        if claim.job is not None and claim.start is None:
            try:
                if claim.gang is not None:
                    claim.start = placement.gangs.start_of(claim)
                    return
                digest = placement.executables.digest_of(claim.job)
                claim.start = activation(claim.job.ad(), claim.ad, claim.run, digest)
            except PoolError as error:
                placement.log.warning("a start cannot be repeated", extra={"job": claim.job.id, "why": str(error)})

    async def _taken_up(self, claim: HeldClaim, state: str) -> None:
        """The startd is there again and says what it knows: unknown, idle, running, ending (it will report)."""
        placement = self._placement
        job = claim.job
        if state == "unknown":
            await self._end(claim, "its machine no longer knows the job")
        elif state in ("running", "ending"):
            claim.going = True
            if job is not None and state == "running":
                await placement.ledger.commit(JobChange(job, None, {}, EventKind.RECONNECTED, {"slot": claim.slot}))
                wish = job.note("_wish")
                if wish:
                    await placement.stop(job, wish, bool(wish.get("graceful", True)))
        elif job is None:
            await placement.use(claim)
        elif claim.writing:
            return  # the start goes out when it is durable
        elif job.note("_wish") or claim.start is None:
            placement.drop(claim)
            await placement.release(claim)
            await placement.requeue(claim, job, "it had not been started", None)
        else:
            await placement.send(claim, claim.start)

    def _lease_ended(self, claim: HeldClaim) -> None:
        self._placement.spawn(self._lease_over(claim), "lease")

    async def _lease_over(self, claim: HeldClaim) -> None:
        await self._end(claim, "its machine was not heard of until the claim's lease had ended", late=True)

    async def _end(self, claim: HeldClaim, why: str, *, late: bool = False) -> None:
        """The claim is over, and a job that it has is not running there any more.

        Args:
            late: it is over only if it has not been renewed meanwhile.
        """
        placement = self._placement
        async with claim.ending:  # an end that was told is counted first
            if claim.over:
                return
            if late and asyncio.get_running_loop().time() < claim.until:
                self._leases.add(claim)
                return
            job = claim.job
            if late:
                said = {"slot": claim.slot, "job": job.id if job is not None else None}
                placement.log.warning("a lease has ended: its machine was not heard of", extra=said)
            placement.drop(claim)
            if job is not None:
                await placement.requeue(claim, job, why, EventKind.RECONNECT_FAILED)


def _understood(answer: Any) -> tuple[str, ClassAd | None]:
    """What a startd knows of a claim: the state of its job there, and the slot.

    Raises:
        RemoteError: it is no answer.
    """
    try:
        state, ad = answer["state"], answer.get("ad")
        if state in STATES:
            return state, None if ad is None else ClassAd.from_wire(ad)
    except (PoolError, AttributeError, KeyError, TypeError, ValueError):
        pass
    raise RemoteError("Malformed", "a startd's answer to startd.resume is not understood", retry=True)
