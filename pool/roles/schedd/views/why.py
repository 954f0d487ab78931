"""Explains why a job does not run, as far as its schedd knows: its state, its place in line, the last failure.

The negotiator alone knows machines, other users and limits. The client asks it with the *request* of the answer here:
the job's ad as it is matched, without the attributes that only the job may see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from pool.errors import PoolError
from pool.jobs.mpi import FAMILY
from pool.jobs.network import JOB_NETWORK, MODES, PRIVATE, PRIVATE_OUT, chosen
from pool.jobs.privacy import public
from pool.jobs.reasons import Hold, Reason
from pool.jobs.states import JobStatus
from pool.policy.deferral import deferral_of
from pool.policy.gang_networks import GIVEN, GIVEN_WHY
from pool.policy.packed import unpack_over
from pool.policy.queue import ACTIVE, IDLE, QueuedJob, Wire
from pool.policy.start_failures import MOST_FAILED_STARTS, from_wire, waits_until
from pool.policy.why.findings import (
    BesideSchedd,
    ClaimingFinding,
    DedicatedFinding,
    Deferred,
    Ended,
    FailedStarts,
    Finding,
    GangFinding,
    HeldFinding,
    NotItsTurn,
    OutOfReach,
    Queued,
    Rejected,
    Running,
    UnreachableFinding,
    Unsavable,
    to_wire,
)
from pool.policy.why.other_pools import LeftMachine
from pool.roles.schedd.checkpoints.place import CheckpointPlace
from pool.roles.schedd.core.claims import HeldClaim
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.job_ends import FAILURES
from pool.roles.schedd.core.queue_walk import walk_jobs

#: So many slots of a job beside its first are named.
MOST_SLOTS = 8
_PHASES = {JobStatus.SUSPENDED: "suspended", JobStatus.TRANSFERRING_OUTPUT: "sending output"}
_WISHES = {"remove": "removed", "hold": "held", "vacate": "idle again", "move": "moved to another machine"}


class ClaimsUnderWay(Protocol):
    """The slots that are being claimed for an owner."""

    def on_the_way(self, owner: str) -> int:
        """How many."""

    def being_freed(self, owner: str) -> int:
        """How many of them another job has to leave first."""


class MissingParts(Protocol):
    """The jobs on several machines that wait for claims."""

    def why(self, job: QueuedJob) -> GangFinding | None:
        """The parts that an idle job lacks; None for a job of one slot."""


class JobExplanations:
    """The schedd's part of explanations.

    Args:
        checkpoints: say whether a job waits for its checkpoints.
        dedicated: what the dedicated scheduler says of an idle job; None where it is not its.
        most_local: how many jobs may run on the submit machine at once.
    """

    def __init__(
        self,
        context: ScheddContext,
        checkpoints: CheckpointPlace,
        claims: ClaimsUnderWay,
        gatherings: MissingParts,
        most_local: Callable[[], int],
        dedicated: Callable[[QueuedJob], Awaitable[DedicatedFinding | None]],
    ) -> None:
        self._dedicated = dedicated
        self._turns = context.turns
        self._ledger = context.ledger
        self._queue = context.queue
        self._outside = context.outside
        self._name = context.name
        self._checkpoints = checkpoints
        self._claims = claims
        self._gatherings = gatherings
        self._most_local = most_local

    async def why(self, cluster: int, proc: int) -> dict[str, Any]:
        """{findings, request, time}: the request is None unless the job waits for a machine.

        Raises:
            PoolError: there is no such job, nor was there.
        """
        job = self._queue.find(cluster, proc)
        if job is None:
            found = await self._ended(cluster, proc)
            return {"findings": to_wire(found), "request": None, "time": self._outside.wall()}
        findings = await self._explain_job(job)
        request = None
        if job.status == IDLE and not self._queue.is_withheld(job):
            request = {
                "ad": public(job.wire()),
                "submitter": f"{job.cluster.owner}@{self._name}",
                "number": job.group.id if job.group is not None else 0,
                "ahead": next((found.ahead for found in findings if isinstance(found, Queued)), 0),
            }
        return {"findings": to_wire(findings), "request": request, "time": self._outside.wall()}

    async def _ended(self, cluster: int, proc: int) -> list[Finding]:
        async for rows in self._ledger.store.history(jobs=[(cluster, proc)], limit=1):
            ad: Wire = unpack_over(rows[0].ad, rows[0].shared)
            queued = Queued(f"{cluster}.{proc}", str(ad.get("Owner", "")), int(ad.get("JobStatus") or 0))
            return [queued, _end(ad)]
        raise PoolError(f"there is no job {cluster}.{proc}", hint="`poolnode q` and `poolnode history` list jobs")

    async def _explain_job(self, job: QueuedJob) -> list[Finding]:
        ahead, idle = await self._queue_position(job)
        queued = Queued(
            f"{job.cluster.id}.{job.proc}",
            job.cluster.owner,
            int(job.status),
            _number(job.get("EnteredCurrentStatus") or job.get("QDate")),
            _number(job.get("QDate")),
            int(_number(job.get("NumJobStarts"))),
            ahead,
            idle,
            job.group.idle if job.group is not None else 0,
        )
        found: list[Finding] = [queued]
        if job.status == JobStatus.HELD:
            found.append(_held(job))
        elif job.status == JobStatus.COMPLETED:
            found.append(_end(job.wire()))
        elif job.status in ACTIVE:
            found.append(self._running(job))
            if trouble := job.get("CheckpointTrouble"):
                found.append(Unsavable(str(trouble)))
        elif job.status == IDLE and self._checkpoints.waits_for_server(job):
            found.append(OutOfReach(*self._checkpoints.why_waiting()))
        elif job.status == IDLE and (turns := job.cluster.turns) is not None and turns.is_out_of_turn(job.proc):
            found.append(NotItsTurn(turns.bounds.idle, turns.bounds.whole, turns.bounds.delay, turns.paused))
        elif job.status == IDLE and self._queue.keeps_back(job):
            deferral = deferral_of(job)
            if deferral is not None:
                found.append(Deferred(deferral.time, deferral.time - deferral.preparation))
            elif not job.cluster.is_local:
                if (waiting := await self._dedicated(job)) is not None:
                    found.append(waiting)
                found += self._failed_starts(job)
            else:
                found.append(BesideSchedd(self._most_local()))
        elif job.status == IDLE:
            claims, owner = self._claims, job.cluster.owner
            if claims.on_the_way(owner) > ahead:
                found.append(ClaimingFinding(claims.on_the_way(owner), claims.being_freed(owner)))
            if (gang := self._gatherings.why(job)) is not None:
                found.append(gang)
            found += self._failed_starts(job)
            if (reason := job.get("VacateReason")) and (when := _number(job.get("LastVacateTime"))):
                found.append(LeftMachine(str(reason), when))
            if job.group is not None and job.group.rejected is not None:
                found.append(Rejected(*job.group.rejected))
        return found

    def _failed_starts(self, job: QueuedJob) -> list[Finding]:
        failures, now = from_wire(job.stored_note(FAILURES)), self._outside.wall()
        if not failures:
            return []
        until = waits_until(failures, now)
        last = str(job.get("LastRemoteHost") or "")
        return [FailedStarts(len(failures), MOST_FAILED_STARTS, last, max(0.0, until - now) if until else 0.0)]

    async def _queue_position(self, job: QueuedJob) -> tuple[int, int]:
        """How many idle jobs of the owner come before this one, and how many there are."""
        owner = job.cluster.owner
        idle = self._queue.count(owner, IDLE)
        if job.status != IDLE:
            return 0, idle
        mine = (-job.prio, *job.id)
        ahead = 0
        async with self._turns.work(owner, "count the jobs before one") as turn:
            async for other in walk_jobs(self._queue, turn, owner):
                ahead += other.status == IDLE and (-other.prio, *other.id) < mine
        return ahead, idle

    def _running(self, job: QueuedJob) -> Finding:
        claim: HeldClaim | None = job.run
        slot = str(job.get("RemoteHost") or (claim.slot if claim is not None else "a machine"))
        if claim is not None and claim.lost:
            return UnreachableFinding(slot, max(0.0, claim.until - asyncio.get_running_loop().time()))
        wish = job.stored_note("_wish")
        phase = _PHASES.get(job.status, "running")
        others, more = self._other_parts(job, slot)
        since = _number(job.get("LastSuspensionTime" if phase == "suspended" else "JobCurrentStartDate"))
        if wish:
            wished = _WISHES.get(str(wish.get("what")), "idle again")
            return Running(slot, "stopping", since, wished, others=others, more=more)
        if phase == "running" and claim is not None and not (claim.going and claim.job is job):
            phase = "starting"
        because = str(job.get("SuspendReason") or "") if phase == "suspended" else ""
        mpi = phase == "running" and bool(job.get(FAMILY))
        gang = claim.gang if claim is not None else None
        late = tuple(part.slot for part in gang.late_claims[:MOST_SLOTS]) if gang is not None else ()
        network = phase == "running" and claim is not None and _has_carried_network(job, claim)
        return Running(
            slot,
            phase,
            since,
            "",
            because,
            _files(job),
            others,
            more,
            mpi,
            late,
            network,
            str(job.get(GIVEN_WHY) or ""),
        )

    @staticmethod
    def _other_parts(job: QueuedJob, slot: str) -> tuple[tuple[str, ...], int]:
        """The slots of a job on several machines beside this one, by part: a few, and how many more."""
        claim: HeldClaim | None = job.run
        gang = claim.gang if claim is not None else None
        slots = [gang.claims[part].slot for part in sorted(gang.claims)] if gang is not None else []
        slots = [one for one in slots if one != slot]
        shown = len(slots) if len(slots) <= MOST_SLOTS else MOST_SLOTS - 1
        return tuple(slots[:shown]), len(slots) - shown


def _has_carried_network(job: QueuedJob, claim: HeldClaim) -> bool:
    """Whether its machines carry packets of a network of its own: between its parts, or to the outside."""
    asked, machine = str(job.get(JOB_NETWORK) or job.get(GIVEN) or ""), str(claim.ad.value(JOB_NETWORK, ""))
    mode = chosen(asked, job.get("WantJobNetworking") is not False, machine) if machine in MODES else None
    return mode == PRIVATE_OUT or (mode == PRIVATE and claim.gang is not None)


def _files(job: QueuedJob) -> str:
    """How the job reaches its owner's files: `by fuse`, `by notification, as ...`, `copied, as ...`."""
    how = str(job.get("RemoteIOHow") or "")
    return f"by {how}" if how and not how.startswith("copied") else how


def _end(ad: Wire) -> Ended:
    removed = ad.get("JobStatus") == JobStatus.REMOVED
    signalled = ad.get("ExitBySignal") is True
    code = ad.get("ExitSignal" if signalled else "ExitCode")
    return Ended(
        removed,
        _number(ad.get("EnteredCurrentStatus") or ad.get("CompletionDate")),
        code if isinstance(code, int) and not removed else None,
        signalled,
        str(ad.get("RemoveReason") or "") if removed else "",
        apart=ad.get("ShouldTransferFiles") == "YES",
    )


def _held(job: QueuedJob) -> HeldFinding:
    code = int(_number(job.get("HoldReasonCode")))
    kind = next((kind for kind in Hold if kind.value == code), Hold.UNSPECIFIED)
    reason, subcode = str(job.get("HoldReason") or ""), int(_number(job.get("HoldReasonSubCode")))
    return HeldFinding(
        reason,
        code,
        subcode,
        Reason(kind, reason, subcode).hint,
        _number(job.get("EnteredCurrentStatus") or job.get("QDate")),
    )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
