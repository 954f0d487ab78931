"""Reports of startds about claims: renewed leases and ended claims, each from the node of the claim only."""

from __future__ import annotations

import asyncio

from pool.errors import PoolError
from pool.jobs.reasons import Evict, Reason
from pool.roles.schedd.core.claims import patience
from pool.roles.schedd.core.context import ScheddContext


class NotYours(PoolError):
    """A node speaks of a claim that it did not grant."""


class ClaimReports:
    """The reports of startds about the claims of one schedd."""

    def __init__(self, context: ScheddContext) -> None:
        self._claims = context.claims
        self._log = context.log

    def check_node(self, claim: str, node: str) -> None:
        """Refuse a node that speaks of a claim on another's slot, however it came by the claim's id.

        Raises:
            NotYours: it is another node's.
        """
        known = self._claims.get(claim)
        if known is not None and known.slot.rpartition("@")[2] != node:
            raise NotYours(f"the claim is on {known.slot}, not on a slot of {node}")

    def unreachable(self, claim_id: str) -> None:
        """The startd of a claim cannot be reached just now."""
        claim = self._claims.get(claim_id)
        if claim is not None:
            self._claims.mark_unreachable(claim)

    def renew(self, claims: list[str], node: str) -> list[str]:
        """The startd asks for more time for its leases; answers those that are not ours any more."""
        now = asyncio.get_running_loop().time()
        gone: list[str] = []
        for number in claims:
            claim = self._claims.get(number)
            if claim is None or claim.slot.rpartition("@")[2] != node:
                gone.append(number)
            else:
                claim.until = now + patience(claim.lease)
        return gone

    def revoked(self, claim_id: str, reason: Reason) -> None:
        """The startd has ended a claim. If its lease was over, the startd is asked about the job. If a start is on its
        way to a claim without a job, that start is answered with an error."""
        claim = self._claims.get(claim_id)
        if claim is None:
            return
        if claim.job is None:
            self._log.info("a claim was revoked", extra={"slot": claim.slot, "why": reason.text})
            self._claims.drop(claim)
        elif reason.kind is Evict.LEASE_ENDED:
            self._claims.mark_unreachable(claim)
