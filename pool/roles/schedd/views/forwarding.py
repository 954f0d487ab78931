"""Joins a user's connection with a port of the user's running job (`poolnode forward`), or a shell in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pool.errors import PoolError
from pool.network.forwarding import pass_on
from pool.policy.queue import ACTIVE, QueuedJob
from pool.roles.links import Links
from pool.roles.schedd.core.claims import HeldClaim
from pool.wire import Stream


class JobForwarding:
    """Joins connections with the ports of one schedd's running jobs.

    Args:
        claims_of: the claims that a running job has, of all its parts.
    """

    def __init__(self, links: Links, claims_of: Callable[[QueuedJob], list[HeldClaim]]) -> None:
        self._links = links
        self._claims_of = claims_of

    async def forward(self, job: QueuedJob, node: int, port: int, stream: Stream) -> None:
        """Carry one connection.

        Args:
            node: the part of a job of several.

        Raises:
            PoolError: the job does not run, has no such part, or nothing listens on the port.
        """
        await self._join(job, node, "startd.forward", {"port": port}, stream)

    async def shell(self, job: QueuedJob, node: int, wish: dict[str, Any], stream: Stream) -> None:
        """Carry a shell in the job.

        Raises:
            PoolError: the job does not run, has no such part, or no shell can be opened in it.
        """
        await self._join(job, node, "startd.shell", {"shell": wish}, stream)

    async def _join(self, job: QueuedJob, node: int, method: str, params: dict[str, Any], stream: Stream) -> None:
        name = f"{job.id[0]}.{job.id[1]}"
        claims = self._claims_of(job) if job.status in ACTIVE else []
        if not claims:
            raise PoolError(f"{name} does not run on a machine", hint=f"`poolnode why {name}` says why")
        claim = next((claim for claim in claims if claim.part == node or (claim.gang is None and not node)), None)
        if claim is None:
            raise PoolError(f"{name} has no part {node} that runs", hint=f"`poolnode q {name}` lists its machines")
        link = await self._links.connect(claim.startd)
        async with await link.stream(method, {"claim": claim.id, "run": claim.run, **params}) as remote:
            await pass_on(stream, remote)
