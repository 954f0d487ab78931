"""Asks the machines that run a job what it does now (`poolnode inspect`)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pool.errors import PoolError
from pool.policy.inspection import InspectedPart
from pool.policy.queue import ACTIVE, QueuedJob
from pool.roles.schedd.core.claims import TROUBLE, HeldClaim
from pool.starter.inspecting import inspect_start
from pool.wire import RemoteError

if TYPE_CHECKING:
    from pool.roles.schedd.placement.placement import Placement

#: A machine answers within so many seconds, beside those for which it looks at the job.
PATIENCE = 10.0


async def inspect_job(placement: Placement, job: QueuedJob, seconds: float) -> list[dict[str, Any]]:
    """The parts of a running job, in wire form: one for each machine that it runs on.

    Args:
        seconds: for which its processes are looked at.

    Raises:
        PoolError: it does not run.
    """
    name = f"{job.id[0]}.{job.id[1]}"
    if job.status not in ACTIVE:
        raise PoolError(
            f"{name} does not run", hint=f"`poolnode why {name}` says why, `poolnode history` what has ended"
        )
    local = placement.local.starter_of(job) if placement.local is not None else None
    if local is not None:
        where, starter = local
        return [(await inspect_start(starter, where, seconds)).to_wire()]
    parts = await asyncio.gather(*(_part(placement, claim, seconds) for claim in placement.gangs.claims_of(job)))
    return [part.to_wire() for part in parts]


async def _part(placement: Placement, claim: HeldClaim, seconds: float) -> InspectedPart:
    asked = {"claim": claim.id, "run": claim.run, "seconds": seconds}
    try:
        answer = await placement.ask(claim, "startd.inspect", asked, PATIENCE + seconds)
        part = InspectedPart.from_wire(answer.get("part") if isinstance(answer, dict) else None)
    except TROUBLE as error:
        return InspectedPart(claim.slot, trouble=f"its machine does not answer: {error}")
    except (RemoteError, PoolError) as error:
        return InspectedPart(claim.slot, trouble=f"its machine refuses: {error.message}")
    return replace(part, slot=claim.slot)
