"""Asks a job's schedd what the running job does now; the schedd asks the machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pool.policy.inspection import InspectedPart, Inspection, WrongInspection, with_waits
from pool.policy.inspection.model import MOST_PARTS

if TYPE_CHECKING:
    from pool.client.pool import Pool

#: Seconds for the machines to answer, beside those for which they look.
PATIENCE = 15.0


async def inspect_job(pool: Pool, cluster: int, proc: int, seconds: float) -> Inspection:
    """The present activity of a running job.

    Raises:
        PoolError: there is no such job, it does not run, it is another user's, or nobody answers.
    """
    params: dict[str, Any] = {"id": [cluster, proc], "seconds": seconds}
    answer = await pool.call("schedd.inspect", params, timeout=PATIENCE + seconds)
    parts = answer.get("parts") if isinstance(answer, dict) else None
    if not isinstance(parts, list) or len(parts) > MOST_PARTS:
        raise WrongInspection("the schedd's answer about the job cannot be read")
    return Inspection(f"{cluster}.{proc}", tuple(with_waits(InspectedPart.from_wire(part)) for part in parts))
