"""Asks the machines that run a job what it does now (`poolnode inspect`)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from pool.errors import PoolError
from pool.policy.inspection import InspectedPart
from pool.policy.queue import ACTIVE, QueuedJob
from pool.roles.schedd.core.claims import TROUBLE, HeldClaim
from pool.roles.schedd.core.startd_calls import StartdCalls
from pool.starter.inspecting import inspect_start
from pool.starter.starter import Starter
from pool.wire import RemoteError

#: A machine answers within so many seconds, beside those for which it looks at the job.
PATIENCE = 10.0


class LocalStarters(Protocol):
    """The jobs that run on the submit machine."""

    def starter_of(self, job: QueuedJob) -> tuple[str, Starter] | None:
        """Where a job runs that runs here, and its starter; None for another."""


class JobInspection:
    """Asks about one schedd's running jobs.

    Args:
        claims_of: the claims that a running job has, of all its parts.
    """

    def __init__(
        self, calls: StartdCalls, claims_of: Callable[[QueuedJob], list[HeldClaim]], local: LocalStarters
    ) -> None:
        self._calls = calls
        self._claims_of = claims_of
        self._local = local

    async def inspect(self, job: QueuedJob, seconds: float) -> list[dict[str, Any]]:
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
        local = self._local.starter_of(job)
        if local is not None:
            where, starter = local
            return [(await inspect_start(starter, where, seconds)).to_wire()]
        parts = await asyncio.gather(*(self._part(claim, seconds) for claim in self._claims_of(job)))
        return [part.to_wire() for part in parts]

    async def _part(self, claim: HeldClaim, seconds: float) -> InspectedPart:
        asked = {"claim": claim.id, "run": claim.run, "seconds": seconds}
        try:
            answer = await self._calls.call_startd(claim, "startd.inspect", asked, PATIENCE + seconds)
            part = InspectedPart.from_wire(answer.get("part") if isinstance(answer, dict) else None)
        except TROUBLE as error:
            return InspectedPart(claim.slot, trouble=f"its machine does not answer: {error}")
        except (RemoteError, PoolError) as error:
            return InspectedPart(claim.slot, trouble=f"its machine refuses: {error.message}")
        lent = claim.lent_until if claim.lent_until != math.inf else None
        return replace(part, slot=claim.slot, lent_until=lent)
