"""Users' questions about other pools: why a job does not run there, what is there, and whose jobs run where."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.outside import OutsideWorld
from pool.policy.flock.agreements import FlockAgreement
from pool.policy.flock.explain import explain_pool, values
from pool.policy.flock.gangs import why_it_stays
from pool.policy.flock.shown import WANTS_FLOCK
from pool.policy.why.findings import Finding, to_wire
from pool.policy.why.other_pools import OtherPool
from pool.roles.links import Links
from pool.roles.world.borrowing import MachineBorrower
from pool.roles.world.lending import MachineLender
from pool.roles.world.peers import LenderLink
from pool.roles.world.private_borrowing import PrivateBorrower
from pool.roles.world.relay import NoWay, join_streams
from pool.wire import Call, Right, Service, Stream, method, streaming
from pool.wire.parameter_checks import TEXTS, optional

Wire = dict[str, Any]
#: Attributes of a job that is asked about.
MOST_ATTRIBUTES = 5000
#: A question about the machines of a pool, as a collector takes it.
QUESTION = {"constraint": str | None, "attributes": optional(TEXTS), "limit": int | None}
#: The line about all other pools for a job on several machines: its parts meet, and have one schedd's claims.
OTHERS = "other pools"
#: Attributes of machines that no other pool is told.
_SECRET = ("StartdAddress", "MyAddress")


class FlockExplaining(Service):
    """Served under the world's name.

    Args:
        lenders: the connections to pools that lend to us.
        agreement: what a pool may do.
        collector: the address of ours.
    """

    def __init__(
        self,
        borrowing: MachineBorrower,
        lending: MachineLender,
        private: PrivateBorrower,
        links: Links,
        outside: OutsideWorld,
        *,
        lenders: Callable[[], Mapping[str, LenderLink]],
        agreement: Callable[[str], FlockAgreement],
        collector: str,
    ) -> None:
        self._borrowing = borrowing
        self._lending = lending
        self._private = private
        self._links = links
        self._outside = outside
        self._lenders = lenders
        self._agreement = agreement
        self._collector = collector
        self._one = asyncio.Lock()

    @method(Right.READ, takes={"request": dict})
    async def why(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Other pools for a job that waits: {request: {ad, submitter, number}} -> {findings}"""
        request = params["request"]
        wire, submitter = request.get("ad"), str(request.get("submitter", ""))
        if not isinstance(wire, dict) or len(wire) > MOST_ATTRIBUTES:
            raise PoolError("cannot explain: this is no job ad")
        if wire.get(WANTS_FLOCK) is False:
            return {"findings": []}
        if stays := why_it_stays(wire):
            return {"findings": to_wire([OtherPool(OTHERS, trouble=stays)] if self._lenders() else [])}
        ad, owner, found = ClassAd.from_wire(wire), submitter.rpartition("@")[0], list[Finding]()
        async with self._one:
            for pool, link in sorted(self._lenders().items()):
                await asyncio.sleep(0)
                if link.trouble:
                    found.append(OtherPool(pool, trouble=link.trouble))
                    continue
                said = self._borrowing.refusals.get((pool, owner), "")
                found.append(explain_pool(pool, self._borrowing.ads_of(pool), ad, self._outside.wall(), said))
        found += self._private.why(owner, submitter.rpartition("@")[2], request.get("number"))
        return {"findings": to_wire(found)}

    def values(self, pool: str, round_trip: float) -> list[Wire]:
        """The server values of a pool's idle machines, each term by itself."""
        return values(self._borrowing.ads_of(pool), round_trip)

    def users(self, pool: str) -> Wire:
        """The users with jobs across the border: {guests: its users here, users_there: ours}, and slots."""
        guests: dict[str, int] = {}
        for ad in self._lending.machines.values():
            owner = str(ad.get("RemoteOwner", ""))
            if owner.endswith(f"@{pool}"):
                guests[owner] = guests.get(owner, 0) + 1
        return {"guests": guests, "users_there": self._borrowing.users_of(pool)}

    # -- the machines of another pool --------------------------------------------------------------------

    @streaming(Right.READ, takes={"pool": str, **QUESTION})
    async def machines_of(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """The machines of another pool, if it lets us know: {pool, constraint, attributes, limit}, as a collector
        answers."""
        link = self._lenders().get(params["pool"])
        if link is None:
            known = ", ".join(sorted(self._lenders())) or "none"
            raise NoWay(f"no pool {params['pool'][:100]} lends to this one; those that do: {known}")
        asked = {name: params.get(name) for name in QUESTION}
        await join_streams(stream, await link.stream("world.listing", asked))

    @streaming(Right.FLOCK, takes=QUESTION)
    async def listing(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Our machines, for a pool that the agreement lets know of them: {constraint, attributes, limit}"""
        pool = call.identity.node
        if not self._agreement(pool).shows_status:
            raise NoWay(
                f"the agreement with {pool} does not give it our status",
                hint=f"our administrator can: status = true below [{pool}] in FLOCK_FILE",
            )
        link = await self._links.connect(self._collector)
        async with await link.stream("collector.query", {**params, "type": "Machine"}) as found:
            async for batch in found:
                await stream.send([_without_secrets(ad) for ad in batch])

    @method(Right.FLOCK)
    async def ping(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Answers at once: the other pool measures how far away it is."""
        return {}


def _without_secrets(ad: Wire) -> Wire:
    return {name: value for name, value in ad.items() if name not in _SECRET}
