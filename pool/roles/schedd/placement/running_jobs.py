"""Running jobs on demand: stopped for their users, or saved now."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from pool.errors import PoolError
from pool.jobs.activation import signal_number
from pool.policy.checkpoints import SaveWish
from pool.policy.queue import ACTIVE, QueuedJob
from pool.roles.schedd.core.claims import TROUBLE, HeldClaim
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.ledger import JobChange
from pool.roles.schedd.parallel.gangs import Gangs
from pool.wire import RemoteError

#: A checkpoint on demand is waited for so long, seconds.
CHECKPOINT_SECONDS = 3600.0
#: A startd answers within so many seconds that it has begun to stop a job; the wish is kept, and sent again.
STOP_SECONDS = 10.0


class LocalStops(Protocol):
    """The jobs that run on the submit machine."""

    async def stop(self, job: QueuedJob, graceful: bool, signal: int | None = None) -> bool:
        """Have a job end that runs here; False for one that does not."""


class RunningJobs:
    """The running jobs of one schedd, as their users change them.

    Args:
        gangs: know the claims of jobs on several machines.
        local: the jobs that run beside the schedd.
    """

    def __init__(self, context: ScheddContext, gangs: Gangs, local: LocalStops) -> None:
        self._context = context
        self._gangs = gangs
        self._local = local

    async def checkpoint(self, job: QueuedJob) -> str | None:
        """Have a running job saved now; in words why it was not."""
        claim: HeldClaim | None = job.run
        if claim is None:
            return "it is not running"
        if claim.job is not job:
            return "it has not begun"
        if claim.gang is not None:
            try:
                await self._gangs.sets.save_parts(claim.gang)
            except PoolError as error:
                return error.message
            return None
        asked = {"claim": claim.id, "run": claim.run}
        try:
            await self._context.calls.call_startd(claim, "startd.checkpoint", asked, CHECKPOINT_SECONDS)
        except RemoteError as error:
            return error.message
        except TROUBLE as error:
            return f"its machine did not answer: {error}"
        return None

    async def stop(self, job: QueuedJob, wish: dict[str, Any], graceful: bool) -> None:
        """Have a running job stopped. The wish says what follows then, and is kept durably with the job. A job that has
        ended meanwhile is left alone."""
        if job.status not in ACTIVE:
            return
        await self._context.ledger.commit(JobChange(job, None, {"_wish": wish}))
        if await self._local.stop(job, graceful, signal_of(job, wish)):
            return
        claims = self._gangs.claims_of(job)
        if not claims and job.run is not None:
            claims = [job.run]  # it was handed on
        await asyncio.gather(*(self._deactivate(job, claim, wish, graceful) for claim in claims))

    async def _deactivate(self, job: QueuedJob, claim: HeldClaim, wish: dict[str, Any], graceful: bool) -> None:
        handed = claim.handed_on
        run = handed.run if handed is not None and handed.job is job else claim.run
        asked = {"claim": claim.id, "job": list(job.id), "run": run, "graceful": graceful, "save": _saves(wish)}
        asked["signal"] = signal_of(job, wish)
        try:
            await self._context.calls.call_startd(claim, "startd.deactivate", asked, STOP_SECONDS)
        except (*TROUBLE, RemoteError) as error:
            self._context.log.warning("a job was not to be stopped", extra={"job": job.id, "why": str(error)})


def signal_of(job: QueuedJob, wish: dict[str, Any]) -> int | None:
    """The signal that asks a job to end when its user removes or holds it, where the job names one."""
    name = {"remove": "RemoveKillSig", "hold": "HoldKillSig"}.get(wish["what"])
    value = job.get(name) if name is not None else None
    return signal_number(value) if isinstance(value, (str, int)) and value else None


def _saves(wish: dict[str, Any]) -> str:
    """Whether a last checkpoint is made of a job that its user stops: see `SaveWish`."""
    return SaveWish.NEVER if wish["what"] == "remove" and not wish.get("checkpoint") else SaveWish.ALWAYS
