"""Claims and running jobs: the submit side of the claiming protocol and of the start contract.

    match -> claim -> activate -> (started, suspended, usage ...) -> ended -> next job on the same claim

What keeps two copies of a job from running (DESIGN 5) is here:

- The intended start is durable (`_run` in the job's state) before it is sent.
- A claim is a lease. The *startd* asks for each renewal, and counts it from the moment it asked; we count from the
  moment we answered. Whatever the network does, its lease ends before ours, without comparing any clocks.
- When a startd cannot be reached, its jobs stay RUNNING until our side of the lease has passed. A schedd that was
  restarted does not know when it last answered, so it waits for a whole lease.
- An end is counted once: only for the (claim, run) that the job is in. A report that comes again is acknowledged
  again, with the same successor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pool.classad import ClassAd, symmetric_match
from pool.errors import PoolError
from pool.jobs.activation import Activation, CannotStart, activation
from pool.jobs.events import EventKind
from pool.jobs.reasons import Hold
from pool.jobs.states import Happening, JobStatus
from pool.outside import Outside
from pool.policy.queue import HELD, IDLE, RUNNING, SUSPENDED, Group, Job
from pool.roles.links import Links
from pool.roles.schedd.ends import BEGAN, as_wished, end_steps, hold_step, started, usage_changes
from pool.roles.schedd.ledger import Ledger, Step
from pool.wire import Connection, ConnectionLost, DeadlineExceeded, RemoteError

TROUBLE = (ConnectionLost, DeadlineExceeded, OSError, TimeoutError)
#: Added to our side of a lease, for clocks that do not tick alike: seconds, and a part of the lease.
MARGIN, DRIFT = 2.0, 0.01
FIRST_RETRY, LONGEST_RETRY = 0.05, 10.0


class NotYours(PoolError):
    """A node speaks of a claim that it did not grant."""


class Executables(Protocol):
    """Where clusters' executables are kept (A12)."""

    def digest_of(self, job: Job) -> str | None: ...


@dataclass(slots=True, eq=False)
class Claim:
    """A slot that is ours for a while.

    Attributes:
        id: the secret that the startd made for this claim.
        until: monotonic time at which the startd's lease has ended for sure.
        fits: whether the slot's ad matches a group of jobs, by the group's number.
        job, run, start: what was sent to it last and has not ended.
        template: the start of a job that differs from its cluster in nothing, for the next such one.
        sent: the order before, which the startd has: the next one says only what is different.
    """

    id: str
    slot: str
    ad: ClassAd
    startd: str
    owner: str
    lease: float
    born: float
    until: float
    fits: dict[int, bool] = field(default_factory=dict)
    job: Job | None = None
    run: int = 0
    start: Activation | None = None
    going: bool = False
    idle_timer: asyncio.TimerHandle | None = None
    lost: bool = False
    template: Activation | None = None
    sent: Activation | None = None
    ending: asyncio.Lock = field(default_factory=asyncio.Lock)


class Placement:
    """All claims of one schedd.

    Args:
        life: seconds after which a claim is given back at the next end of a job.
        lease: seconds a claim lives without being renewed.
        linger: seconds an idle claim is kept for the owner's next job.
        spawn: runs a coroutine in the background of the role.
        changed: called when the owner's idle or running numbers changed.
        finished: called with the job's last ad once its end is durable.
    """

    def __init__(
        self,
        ledger: Ledger,
        links: Links,
        outside: Outside,
        log: logging.Logger,
        *,
        name: str,
        executables: Executables,
        spawn: Callable[..., Any],
        changed: Callable[[str, bool], None],
        finished: Callable[[dict[str, Any]], None],
        life: float,
        lease: float,
        linger: float,
    ) -> None:
        self.ledger = ledger
        self.queue = ledger.queue
        self.claims: dict[str, Claim] = {}
        self.life, self.lease, self.linger = life, lease, linger
        self._links = links
        self._outside = outside
        self._log = log
        self._name = name
        self._executables = executables
        self._spawn = spawn
        self._changed = changed
        self._finished = finished
        self._idle: dict[str, list[Claim]] = {}
        self._asked: dict[str, int] = {}

    # -- negotiation -------------------------------------------------------------------------------------

    def requests(self, owner: str, limit: int) -> list[dict[str, Any]]:
        """What an owner's idle jobs ask for: one entry for each autocluster, in PRIO order."""
        found: list[dict[str, Any]] = []
        left = limit - self._asked.get(owner, 0)
        on_the_way = self._asked.get(owner, 0)
        for group in self.queue.groups(owner):
            count = group.idle
            if on_the_way:
                count, on_the_way = max(0, count - on_the_way), max(0, on_the_way - count)
            count = min(count, left)
            if count <= 0:
                continue
            first = self.queue.first(group)
            if first is None:
                continue
            left -= count
            oldest = first.get("QDate", 0)
            found.append(
                {
                    "number": group.id,
                    "ad": first.wire(),
                    "count": count,
                    "oldest": float(oldest) if isinstance(oldest, (int, float)) else 0.0,
                }
            )
        return found

    def holds(self, owner: str) -> int:
        """How many slots an owner has, those on the way included."""
        return self.queue.count(owner, RUNNING, SUSPENDED) + self._asked.get(owner, 0)

    def matched(self, match: dict[str, Any], owner: str) -> None:
        """Take up a match: claim the slot in the background."""
        count = int(match["count"])
        self._asked[owner] = self._asked.get(owner, 0) + count
        self._spawn(self._claim(match, owner, count), "claim")

    async def _claim(self, match: dict[str, Any], owner: str, count: int) -> None:
        address = str(match["startd"])
        group = self.queue.group(int(match["request"]))
        job = self.queue.first(group) if group else None
        loop = asyncio.get_running_loop()
        try:
            if job is None:
                # The jobs went another way meanwhile; unclaimed, the match lapses by itself.
                return
            link = await self._links.to(address)
            answer = await link.call(
                "startd.claim",
                {
                    "slot": match["slot"],
                    "claim": match["claim"],
                    "schedd": self._name,
                    "submitter": match["submitter"],
                    "owner": owner,
                    "lease": self.lease,
                    "ad": job.wire(),
                    "count": count,
                },
                timeout=30.0,
            )
        except (*TROUBLE, RemoteError) as error:
            self._log.info("a slot was not to be claimed", extra={"slot": match["slot"], "why": str(error)})
            self._changed(owner, True)
            return
        finally:
            self._asked[owner] -= count
        now = loop.time()
        fresh = [
            Claim(
                str(item["claim"]),
                str(item["slot"]),
                ClassAd.from_wire(item["ad"]),
                address,
                owner,
                self.lease,
                now,
                now + self._patience(self.lease),
            )
            for item in answer["claims"]
        ]
        for claim in fresh:
            self.claims[claim.id] = claim
            self._watch_link(claim, link)
        for claim in fresh:
            self._spawn(self._use(claim), "use")
        if answer.get("refused"):
            self._log.info("a startd refused", extra={"slot": match["slot"], "why": answer["refused"]})
            self._changed(owner, True)

    # -- starting ----------------------------------------------------------------------------------------

    def offer(self, owner: str) -> None:
        """Jobs have come: use idle claims for them at once."""
        waiting = self._idle.get(owner)
        while waiting and self.queue.count(owner, IDLE):
            claim = waiting.pop()
            if claim.idle_timer is not None:
                claim.idle_timer.cancel()
                claim.idle_timer = None
            if claim.id in self.claims and claim.job is None:
                self._spawn(self._use(claim), "use")

    async def _use(self, claim: Claim) -> None:
        """Start the next fitting job on a claim, or keep the claim idle for a moment, then give it back."""
        if claim.job is not None or claim.id not in self.claims:
            return
        steps: list[Step] = []
        start = self._choose(claim, steps)
        if steps:
            await self.ledger.commit(*steps)
        if start is None:
            self._keep_idle(claim)
            return
        await self._send(claim, start)

    def _choose(self, claim: Claim, steps: list[Step]) -> Activation | None:
        """The next job for a claim, marked as running there; holds what can never start. Adds to `steps`."""
        loop = asyncio.get_running_loop()
        if claim.lost or loop.time() - claim.born > self.life:
            return None
        for group in self.queue.groups(claim.owner):
            if not self._fits(claim, group):
                continue
            while (job := self.queue.first(group)) is not None:
                run = int(job.get("NumJobStarts", 0)) + 1
                try:
                    start = self._start_of(claim, job, run)
                except CannotStart as error:
                    step = hold_step(job, f"cannot start: {error}", Hold.START_FAILED)
                    self.ledger.note(step)
                    steps.append(step)
                    continue
                step = self._start_step(claim, job, start)
                self.ledger.note(step)
                steps.append(step)
                return start
        return None

    def _start_of(self, claim: Claim, job: Job, run: int) -> Activation:
        """What a job is started with; worked out once for the jobs of a cluster that do not differ."""
        digest = self._executables.digest_of(job)
        known = claim.template
        alike = known is not None and not job.delta and known.job[0] == job.cluster.id
        if known is not None and alike and (known.digest == digest or not known.carries_executable):
            return known.for_job(job.id, run)
        start = activation(job.ad(), claim.ad, run, digest)
        claim.template = None if job.delta else start
        return start

    def _fits(self, claim: Claim, group: Group) -> bool:
        known = claim.fits.get(group.id)
        if known is None:
            known = claim.fits[group.id] = symmetric_match(group.ad, claim.ad, self._outside.wall())
        return known

    def _start_step(self, claim: Claim, job: Job, start: Activation) -> Step:
        claim.job, claim.run, claim.start, claim.going = job, start.run, start, False
        job.run = claim
        now = int(self._outside.wall())
        changes: dict[str, Any] = {
            "NumJobStarts": start.run,
            "JobCurrentStartDate": now,
            "RemoteHost": claim.slot,
            "_run": {
                "claim": claim.id,
                "slot": claim.slot,
                "startd": claim.startd,
                "owner": claim.owner,
                "lease": claim.lease,
                "run": start.run,
            },
        }
        if job.get("JobStartDate") is None:
            changes["JobStartDate"] = now
        if job.get(BEGAN) is not None:
            changes[BEGAN] = None
        return Step(job, Happening.START, changes)

    async def _send(self, claim: Claim, start: Activation) -> None:
        """Send a durable start; whatever is not a clear answer is left to `_reach_again`."""
        job = claim.job
        assert job is not None
        self._changed(claim.owner, False)
        try:
            link = await self._links.to(claim.startd)
            await link.call("startd.activate", self.order(claim, whole=True), timeout=60.0)
        except RemoteError as error:
            await self._not_started(claim, job, start.run, str(error))
        except TROUBLE:
            self._lose(claim)
        else:
            claim.going = True

    def order(self, claim: Claim, *, whole: bool = False) -> dict[str, Any]:
        """What is sent to start the claim's present job: everything, or what differs from the order before."""
        job, start = claim.job, claim.start
        assert job is not None
        assert start is not None
        before = None if whole else claim.sent
        same_cluster = before is not None and before.job[0] == job.cluster.id
        claim.sent = start
        return {
            "claim": claim.id,
            "base": list(before.mark) if before is not None else None,
            "start": start.to_wire(before),
            "shared": None if same_cluster else job.cluster.wire,
            "own": job.own(),
        }

    async def _not_started(self, claim: Claim, job: Job, run: int, why: str) -> None:
        """The startd said no: the job is idle again, and the claim is of no more use."""
        if claim.job is not job or claim.run != run:
            return
        self._drop(claim)
        self._log.info("a start was refused", extra={"job": job.id, "slot": claim.slot, "why": why})
        await self.requeue(claim, job, f"the machine refused to start it: {why}", None)

    # -- what the startd says ----------------------------------------------------------------------------

    def check_node(self, claim: str, node: str) -> None:
        """Refuse a node that speaks of a claim on another's slot, however it came by the claim's id.

        Raises:
            NotYours: it is another node's.
        """
        known = self.claims.get(claim)
        if known is not None and known.slot.rpartition("@")[2] != node:
            raise NotYours(f"the claim is on {known.slot}, not on a slot of {node}")

    def renew(self, claims: list[str], node: str) -> list[str]:
        """The startd asks for more time for its leases; answers those that are not ours any more."""
        now = asyncio.get_running_loop().time()
        gone: list[str] = []
        for number in claims:
            claim = self.claims.get(number)
            if claim is None or claim.slot.rpartition("@")[2] != node:
                gone.append(number)
            else:
                claim.until = now + self._patience(claim.lease)
        return gone

    async def told(self, claim_id: str, run: int, kind: str, data: dict[str, Any]) -> None:
        """Something happened to a running job: started, suspended, continued, usage."""
        claim = self.claims.get(claim_id)
        if claim is None or claim.job is None or claim.run != run:
            return
        job = claim.job
        claim.going = True
        changes = usage_changes(data)
        if kind == "started":
            if job.get(BEGAN) is not None:
                return  # told again by a startd that was restarted
            changes[BEGAN] = int(data.get("started") or self._outside.wall())
            step = Step(job, None, changes, EventKind.EXECUTE, {"slot": claim.slot, **started(data)})
        elif kind == "suspended" and job.status == RUNNING:
            changes["TotalSuspensions"] = int(job.get("TotalSuspensions", 0)) + 1
            changes["LastSuspensionTime"] = int(self._outside.wall())
            step = Step(job, Happening.SUSPEND, changes, EventKind.SUSPENDED, {"slot": claim.slot})
        elif kind == "continued" and job.status == SUSPENDED:
            step = Step(job, Happening.CONTINUE, changes, EventKind.UNSUSPENDED, {"slot": claim.slot})
        elif kind == "usage" and changes:
            step = Step(job, None, changes, EventKind.IMAGE_SIZE, data)
        else:
            return
        await self.ledger.commit(step)

    async def ended(self, claim_id: str, job_id: tuple[int, int], run: int, report: dict[str, Any]) -> dict[str, Any]:
        """A job has ended, and its outputs are in place. The answer is durable, and may carry the next job."""
        claim = self.claims.get(claim_id)
        if claim is None:
            return {"next": None, "keep": False}
        async with claim.ending:
            return await self._ended(claim, job_id, run, report)

    async def _ended(self, claim: Claim, job_id: tuple[int, int], run: int, report: dict[str, Any]) -> dict[str, Any]:
        job = claim.job
        if job is None or claim.run != run or job.id != job_id:
            # Told before, and the answer was lost: so was the successor in it.
            return {"next": self.order(claim, whole=True) if job else None, "keep": claim.id in self.claims}
        cpu = self._outside.cpu()
        steps = self._end_steps(claim, job, report)
        released = claim.job is None and claim.id not in self.claims
        start = None if released else self._choose(claim, steps)
        spent = self._outside.cpu() - cpu
        steps[0].changes["LocalUserCpu"] = round(float(job.get("LocalUserCpu", 0) or 0) + spent, 6)
        await self.ledger.commit(*steps)
        if JobStatus(job.status).final or job.status == HELD:
            self._finished(job.wire())
        self._changed(claim.owner, False)
        if start is not None:
            claim.going = True
            return {"next": self.order(claim), "keep": True}
        if any(step.status == IDLE for step in steps):
            self._spawn(self._use(claim), "use")
        elif not released:
            self._keep_idle(claim)
        return {"next": None, "keep": not released}

    def _end_steps(self, claim: Claim, job: Job, report: dict[str, Any]) -> list[Step]:
        claim.job, claim.start, claim.going = None, None, False
        job.run = None
        if report.get("cause") == "start" or report.get("released"):
            self._drop(claim)
        return end_steps(job, claim.slot, report, self._outside.wall())

    # -- stopping ----------------------------------------------------------------------------------------

    async def stop(self, job: Job, wish: dict[str, Any], graceful: bool) -> None:
        """Have a running job stopped; what becomes of it then is the wish, kept durably with the job."""
        await self.ledger.commit(Step(job, None, {"_wish": wish}))
        claim: Claim | None = job.run
        if claim is None:
            return
        try:
            link = await self._links.to(claim.startd)
            await link.call(
                "startd.deactivate", {"claim": claim.id, "run": claim.run, "graceful": graceful}, timeout=30.0
            )
        except RemoteError as error:
            self._log.warning("a job was not to be stopped", extra={"job": job.id, "why": str(error)})
        except TROUBLE:
            self._lose(claim)

    async def requeue(self, claim: Claim, job: Job, why: str, event: EventKind | None) -> None:
        """The job is not running any more, without having ended: idle again, or as its user wished meanwhile."""
        job.run = None
        changes: dict[str, Any] = {"_run": None, "RemoteHost": None, "LastRemoteHost": claim.slot}
        wish = (job.state or {}).get("_wish")
        if wish:
            await self.ledger.commit(as_wished(job, wish, {**changes, "_wish": None}, {}))
        else:
            kind = event or EventKind.SHADOW_EXCEPTION
            await self.ledger.commit(Step(job, Happening.LOST, changes, kind, {"why": why, "slot": claim.slot}))
        self._changed(claim.owner, True)

    # -- claims ------------------------------------------------------------------------------------------

    def adopt(self, job: Job) -> None:
        """After a restart: take up the claim under which a job was running when we stopped."""
        note = (job.state or {})["_run"]
        now = asyncio.get_running_loop().time()
        claim = self.claims.get(note["claim"])
        if claim is None:
            claim = Claim(
                str(note["claim"]),
                str(note["slot"]),
                ClassAd(),
                str(note["startd"]),
                str(note["owner"]),
                float(note["lease"]),
                now,
                now + self._patience(float(note["lease"])),
            )
            self.claims[claim.id] = claim
        claim.job, claim.run, job.run = job, int(note["run"]), claim
        self._lose(claim)

    def release_all(self) -> list[tuple[str, str]]:
        """The (startd, claim) pairs of idle claims, forgotten here: to be given back at a clean stop."""
        idle = [claim for claim in self.claims.values() if claim.job is None]
        for claim in idle:
            self._drop(claim)
        return [(claim.startd, claim.id) for claim in idle]

    def _patience(self, lease: float) -> float:
        return lease * (1 + DRIFT) + MARGIN

    def _keep_idle(self, claim: Claim) -> None:
        if claim.id not in self.claims or claim.job is not None:
            return
        loop = asyncio.get_running_loop()
        spent = claim.lost or loop.time() - claim.born > self.life
        self._idle.setdefault(claim.owner, []).append(claim)
        claim.idle_timer = loop.call_later(0.0 if spent else self.linger, self._give_back, claim)

    def _give_back(self, claim: Claim) -> None:
        if claim.job is not None or claim.id not in self.claims:
            return
        waiting = self._idle.get(claim.owner)
        if waiting and claim in waiting:
            waiting.remove(claim)
        self._drop(claim)
        self._spawn(self._release(claim), "release")

    async def _release(self, claim: Claim) -> None:
        try:
            link = await self._links.to(claim.startd)
            await link.call("startd.release", {"claims": [claim.id]}, timeout=10.0)
        except (*TROUBLE, RemoteError):
            # Its lease ends by itself.
            return

    def _drop(self, claim: Claim) -> None:
        self.claims.pop(claim.id, None)
        waiting = self._idle.get(claim.owner)
        if waiting and claim in waiting:
            waiting.remove(claim)
        if claim.idle_timer is not None:
            claim.idle_timer.cancel()
            claim.idle_timer = None

    # -- when a startd cannot be reached -----------------------------------------------------------------

    def _watch_link(self, claim: Claim, link: Connection) -> None:
        link.closed.add_done_callback(lambda _: self._lose(claim))

    def _lose(self, claim: Claim) -> None:
        if claim.lost or self.claims.get(claim.id) is not claim:
            return
        claim.lost = True
        self._spawn(self._reach_again(claim), "reach")

    async def _reach_again(self, claim: Claim) -> None:
        """Try to take the claim up again until its lease has ended for sure."""
        loop = asyncio.get_running_loop()
        retry = FIRST_RETRY
        while self.claims.get(claim.id) is claim:
            try:
                async with asyncio.timeout(max(0.1, min(10.0, claim.until - loop.time()))):
                    link = await self._links.to(claim.startd)
                    answer = await link.call(
                        "startd.resume",
                        {
                            "claim": claim.id,
                            "job": list(claim.job.id) if claim.job else None,
                            "run": claim.run,
                        },
                        timeout=10.0,
                    )
            except (*TROUBLE, RemoteError):
                if loop.time() >= claim.until:
                    await self._lease_over(claim)
                    return
                pause = retry * (0.5 + self._outside.chance.random())
                await asyncio.sleep(max(0.0, min(pause, claim.until - loop.time())))
                retry = min(retry * 2, LONGEST_RETRY)
                continue
            claim.lost = False
            self._watch_link(claim, link)
            self._remember(claim, answer.get("ad"))
            if answer.get("forgot") and claim.start is not None:
                try:
                    await link.call("startd.remind", self.order(claim, whole=True), timeout=10.0)
                except (*TROUBLE, RemoteError):
                    continue
            await self._taken_up(claim, str(answer["state"]))
            return

    def _remember(self, claim: Claim, slot: dict[str, Any] | None) -> None:
        """Know again, after a restart, what the slot is and what had been sent to it."""
        if slot is None:
            return
        claim.ad = ClassAd.from_wire(slot)
        claim.fits.clear()
        if claim.job is not None and claim.start is None:
            try:
                claim.start = activation(claim.job.ad(), claim.ad, claim.run, self._executables.digest_of(claim.job))
            except PoolError as error:
                self._log.warning("a start cannot be repeated", extra={"job": claim.job.id, "why": str(error)})

    async def _taken_up(self, claim: Claim, state: str) -> None:
        """The startd is there again and says what it knows: unknown, idle, running, ending (it will report)."""
        job = claim.job
        if state == "unknown":
            self._drop(claim)
            if job is not None:
                await self.requeue(claim, job, "its machine no longer knows the job", EventKind.RECONNECT_FAILED)
        elif state in ("running", "ending"):
            claim.going = True
            if job is not None and state == "running":
                await self.ledger.commit(Step(job, None, {}, EventKind.RECONNECTED, {"slot": claim.slot}))
                wish = (job.state or {}).get("_wish")
                if wish:
                    await self.stop(job, wish, bool(wish.get("graceful", True)))
        elif job is None:
            await self._use(claim)
        elif (job.state or {}).get("_wish") or claim.start is None:
            self._drop(claim)
            await self._release(claim)
            await self.requeue(claim, job, "it had not been started", None)
        else:
            await self._send(claim, claim.start)

    async def _lease_over(self, claim: Claim) -> None:
        job = claim.job
        self._drop(claim)
        if job is not None:
            why = "its machine could not be reached until the claim's lease had ended"
            await self.requeue(claim, job, why, EventKind.RECONNECT_FAILED)
