"""Reconnects a lost startd, and settles its claims and the jobs on them when the lease must have ended.

A connection that breaks says nothing of the job, which runs on. We try to take the claim up again and the startd says
what it knows; only when its lease has ended for sure is the job idle again (start contract, rule 2). A schedd that was
restarted is in the same place with every job that ran when it stopped; and so it is with a startd that renews no lease
over a connection that is there, or says that it has no such claim: asked to take it up again, it answers when nothing
is left of the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.jobs.activation import Activation
from pool.jobs.events import EventKind
from pool.policy.charges import charge
from pool.policy.queue import QueuedJob
from pool.roles.schedd.core.claims import TROUBLE, HandedOn, HeldClaim, patience
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.ledger import JobChange
from pool.roles.schedd.parallel.gangs import Gangs
from pool.roles.schedd.placement.claim_watch import ClaimWatch
from pool.roles.schedd.placement.starts import Starts
from pool.wire import RemoteError

FIRST_RETRY, LONGEST_RETRY = 0.05, 10.0
#: The states of a claim that a startd answers with.
STATES = ("unknown", "idle", "running", "ending")


class Reconnect:
    """The claims of one schedd whose startds cannot be reached.

    Args:
        watch: watches over claims that are not lost.
        starts: knows the present start of a claim.
        gangs: take up the parts of jobs on several machines.
        started: called with each job that is taken up.
        use: starts the next job on a claim. send: sends a durable start once more.
        stop: has a running job stopped.
        requeue: the job of a claim is not running any more, without having ended.
        take_back: the job that was handed on to a claim does not begin there.
    """

    def __init__(
        self,
        context: ScheddContext,
        watch: ClaimWatch,
        starts: Starts,
        gangs: Gangs,
        *,
        started: Callable[[QueuedJob], None],
        use: Callable[[HeldClaim], Awaitable[None]],
        send: Callable[[HeldClaim, Activation], Awaitable[None]],
        stop: Callable[[QueuedJob, dict[str, Any], bool], Coroutine[Any, Any, None]],
        requeue: Callable[[HeldClaim, QueuedJob, str, EventKind | None], Awaitable[None]],
        take_back: Callable[[HeldClaim], Awaitable[None]],
    ) -> None:
        self._context = context
        self._watch = watch
        self._starts = starts
        self._gangs = gangs
        self._started = started
        self._use = use
        self._send = send
        self._stop = stop
        self._requeue = requeue
        self._take_back = take_back
        context.claims.when_lost(self.mark_unreachable)

    def adopt(self, job: QueuedJob) -> None:
        """After a restart: take up the claim under which a job was running when the schedd stopped."""
        claims, note = self._context.claims, job.stored_note("_run")
        if "parts" in note:
            self._gangs.adopt(job)
            return
        now = asyncio.get_running_loop().time()
        claim = claims.get(note["claim"])
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
            claims.add(claim)
        job.run = claim
        turn, run = int(note.get("turn") or 0), int(note["run"])
        if claim.job is None:
            claim.job, claim.run, claim.turn = job, run, turn
        elif turn > claim.turn:
            claim.handed_on, claim.turn = HandedOn(job, run), turn
        else:
            claim.handed_on = HandedOn(claim.job, claim.run)
            claim.job, claim.run = job, run
        self._started(job)
        if (job.stored_note("_wish") or {}).get("what") == "move":
            job.update({"_wish": None})  # the other slot is nobody's any more
        self.mark_unreachable(claim)

    def mark_unreachable(self, claim: HeldClaim) -> None:
        """Its startd could not be reached just now, or does not know it: ask until that is settled."""
        if claim.lost or self._context.claims.get(claim.id) is not claim:
            return
        claim.lost = True
        self._context.spawn(self._reach_again(claim), "reach")

    async def _reach_again(self, claim: HeldClaim) -> None:
        """Try to take the claim up again until its lease has ended for sure."""
        context = self._context
        loop = asyncio.get_running_loop()
        retry = FIRST_RETRY
        handed: HandedOn | None
        while context.claims.get(claim.id) is claim:
            try:
                async with asyncio.timeout(max(0.1, min(10.0, claim.until - loop.time()))):
                    link = await context.links.connect(claim.startd)
                    handed = claim.handed_on
                    asked = {
                        "claim": claim.id,
                        "job": list(claim.job.id) if claim.job else None,
                        "run": claim.run,
                        "lease": claim.lease,  # a world on the way may have been restarted
                        "set": claim.gang.set.number if claim.gang and claim.gang.set else "",
                    }
                    if handed is not None:
                        asked["handed_on"] = [*handed.job.id, handed.run]
                    answer = await link.call("startd.resume", asked, timeout=10.0)
                    state, slot = _understood(answer)
            except (*TROUBLE, RemoteError):
                if loop.time() >= claim.until:
                    await self.lease_over(claim)
                    continue
                pause = retry * (0.5 + context.outside.chance.random())
                await asyncio.sleep(max(0.0, min(pause, claim.until - loop.time())))
                retry = min(retry * 2, LONGEST_RETRY)
                continue
            if claim.over:
                return
            claim.lost = False
            self._watch.begin(claim, link)
            self._remember(claim, slot)
            await self._settle_handed(claim, handed, answer.get("has_handed_on") is True and state != "unknown")
            if answer.get("forgot") and claim.start is not None:
                try:
                    await link.call("startd.restore_order", self._starts.order(claim, whole=True), timeout=10.0)
                except (*TROUBLE, RemoteError):
                    continue
            await self._taken_up(claim, state)
            return

    async def _settle_handed(self, claim: HeldClaim, handed: HandedOn | None, there: bool) -> None:
        """The startd has the job that was handed on, or will never begin it."""
        if handed is None:
            return
        if claim.handed_on is not handed:
            if not there and claim.job is handed.job and claim.run == handed.run and claim.start is not None:
                await self._send(claim, claim.start)  # the end of the one before was counted meanwhile: it is its turn
            return
        if not there:
            await self._take_back(claim)
        elif wish := handed.job.stored_note("_wish"):
            self._context.spawn(self._stop(handed.job, wish, bool(wish.get("graceful", True))), "stop", alone=True)

    def _remember(self, claim: HeldClaim, slot: ClassAd | None) -> None:
        """Know again, after a restart, what the slot is and what had been sent to it."""
        if slot is None:
            return
        claim.ad = slot
        claim.learn_loan(self._context.outside.wall())
        claim.fits.clear()
        if claim.job is not None and claim.start is None:
            try:
                if claim.gang is not None:
                    claim.start = self._gangs.start_of(claim)
                    return
                claim.start = self._starts.restore_start(claim, claim.job, claim.run)
                if claim.handed_on is not None and claim.handed_on.start is None:
                    handed = claim.handed_on
                    handed.start = self._starts.restore_start(claim, handed.job, handed.run)
            except PoolError as error:
                self._context.log.warning("a start cannot be repeated", extra={"job": claim.job.id, "why": str(error)})

    async def _taken_up(self, claim: HeldClaim, state: str) -> None:
        """The startd is there again and says what it knows: unknown, idle, running, ending (it will report)."""
        job = claim.job
        if state == "unknown":
            await self._end(claim, "its machine no longer knows the job")
        elif state in ("running", "ending"):
            claim.going = True
            if job is not None and state == "running":
                await self._context.ledger.commit(JobChange(job, None, {}, EventKind.RECONNECTED, {"slot": claim.slot}))
                wish = job.stored_note("_wish")
                if wish:
                    await self._stop(job, wish, bool(wish.get("graceful", True)))
        elif job is None:
            await self._use(claim)
        elif claim.writing:
            return  # the start goes out when it is durable
        elif job.stored_note("_wish") or claim.start is None:
            self._context.claims.drop(claim)
            await self._context.calls.release(claim)
            await self._requeue(claim, job, "it had not been started", None)
        else:
            await self._send(claim, claim.start)

    async def lease_over(self, claim: HeldClaim) -> None:
        """The lease of a claim has ended: it is over, unless it was renewed at the last moment."""
        await self._end(claim, "its machine was not heard of until the claim's lease had ended", late=True)

    async def _end(self, claim: HeldClaim, why: str, *, late: bool = False) -> None:
        """The claim is over, and a job that it has is not running there any more.

        Args:
            late: it is over only if it has not been renewed meanwhile.
        """
        async with claim.ending:  # an end that was told is counted first
            if claim.over:
                return
            if late and asyncio.get_running_loop().time() < claim.until:
                self._watch.renewed(claim)
                return
            job = claim.job
            if late:
                said = {"slot": claim.slot, "job": job.id if job is not None else None}
                self._context.log.warning("a lease has ended: its machine was not heard of", extra=said)
            self._context.claims.drop(claim)
            await self._take_back(claim)
            if job is not None:
                await self._requeue(claim, job, why, EventKind.RECONNECT_FAILED)


def _understood(answer: Any) -> tuple[str, ClassAd | None]:
    """The answer of a startd about a claim: the state of its job there, and the slot.

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
