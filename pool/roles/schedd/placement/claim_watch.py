"""Watches over claims: by the connection to their startd, and by the time of their leases.

A claim whose connection ends, or whose renewals are missing, is lost: `reconnect` looks for it. A claim whose lease has
ended is over.
"""

from __future__ import annotations

from collections.abc import Callable

from pool.roles.schedd.core.claims import ClaimTable, HeldClaim
from pool.roles.schedd.placement.lease_watch import LeaseWatch
from pool.wire import Connection


class ClaimWatch:
    """The watch over one schedd's claims.

    Args:
        claims: notified of each claim that is lost.
        ended: called with a claim whose lease has ended.
    """

    def __init__(self, claims: ClaimTable, ended: Callable[[HeldClaim], None]) -> None:
        self._claims = claims
        self._over: dict[Connection, set[HeldClaim]] = {}
        self._leases = LeaseWatch(claims.mark_unreachable, ended)
        claims.when_dropped(self._forget)

    async def run(self) -> None:
        """Look after the leases of all claims, until cancelled."""
        await self._leases.run()

    def begin(self, claim: HeldClaim, link: Connection) -> None:
        """Watch a claim, which is reached over this connection."""
        claims = self._over.get(link)
        if claims is None:
            claims = self._over[link] = set()
            link.closed.add_done_callback(lambda _: self._closed(link))
        claims.add(claim)
        claim.link = link
        self._leases.add(claim)

    def renewed(self, claim: HeldClaim) -> None:
        """A lease that seemed to have ended was renewed at the last moment: watch it on."""
        self._leases.add(claim)

    def _forget(self, claim: HeldClaim) -> None:
        claim.over = True
        if claim.link is not None:
            self._over.get(claim.link, set()).discard(claim)

    def _closed(self, link: Connection) -> None:
        for claim in self._over.pop(link, ()):
            self._claims.mark_unreachable(claim)
