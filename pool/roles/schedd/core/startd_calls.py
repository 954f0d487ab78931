"""Calls of the startd that a claim is with."""

from __future__ import annotations

from typing import Any

from pool.roles.claim_errors import may_be_done, says_no_such_claim
from pool.roles.links import Links
from pool.roles.schedd.core.claims import TROUBLE, ClaimTable, HeldClaim
from pool.wire import RemoteError


class StartdCalls:
    """Calls about claims. A claim whose startd does not answer is reported to the table of claims as lost."""

    def __init__(self, links: Links, claims: ClaimTable) -> None:
        self._links = links
        self._claims = claims

    async def call_startd(self, claim: HeldClaim, method: str, params: dict[str, Any], timeout: float) -> Any:
        """Call a claim's startd.

        Raises:
            RemoteError, and the errors of TROUBLE: as the call does. If the startd is not reached or has no such claim,
                the claim is lost from then on: `pool.roles.schedd.placement.reconnect` finds out about its job.
        """
        try:
            link = await self._links.connect(claim.startd)
            return await link.call(method, params, timeout=timeout)
        except RemoteError as error:
            if says_no_such_claim(error) or may_be_done(error):
                self._claims.mark_unreachable(claim)
            raise
        except TROUBLE:
            self._claims.mark_unreachable(claim)
            raise

    async def release(self, claim: HeldClaim, lent_for: float | None = None) -> None:
        """Give a claim back. If its startd is not reached, its lease ends by itself.

        Args:
            lent_for: see `pool.roles.startd.claims.loans`.
        """
        try:
            link = await self._links.connect(claim.startd)
            await link.call("startd.release", {"claims": [claim.id], "lent_for": lent_for}, timeout=10.0)
        except (*TROUBLE, RemoteError):
            return
