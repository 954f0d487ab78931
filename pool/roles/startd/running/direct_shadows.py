"""Direct connections to the schedds of other pools' jobs: for the bytes between a starter and its shadow.

Files, remote files and checkpoints of a job are streams to its schedd. They go by the worlds, or on a connection of the
claim's own where both pools let their machines connect (`pool.network.direct_link`). Calls stay with the worlds, which
count by them what is lent. The connection ends with the claim, or when the agreement does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from pool.errors import PoolError
from pool.network.direct_link import PATIENCE, dial, is_open, speak
from pool.network.stream_link import SEED, LinkKeys
from pool.policy.flock.shown import GUEST_OF
from pool.roles.base import Spawn
from pool.roles.startd.slots.records import SlotClaim
from pool.wire import Connection, Dispatcher, Network, Stream, WireConnection
from pool.wire.errors import ConnectionLost

#: Seconds that a stream waits for a connection that is being made; then it goes by the worlds.
WAIT = 0.5
#: Seconds for which a pool is not tried again whose schedd was not reached.
DIRECT_AGAIN = 60.0
#: Seconds between two looks whether a claim is over.
CHECK = 5.0
#: Pools of which it is remembered that their schedds were not reached.
MOST_POOLS = 1000
TROUBLE = (PoolError, OSError, EOFError, TimeoutError)


class DirectShadows:
    """The direct connections of one startd to schedds of other pools.

    Args:
        claims: by id, what is claimed here.
        network: connects to nodes of other pools.
        secret: draws that many random bytes as text.
    """

    def __init__(
        self,
        claims: Mapping[str, object],
        network: Callable[[], Network],
        secret: Callable[[int], str],
        spawn: Spawn,
        log: logging.Logger,
    ) -> None:
        self._claims = claims
        self._network = network
        self._secret = secret
        self._spawn = spawn
        self._log = log
        self._links: dict[str, WireConnection] = {}
        self._opening: dict[str, asyncio.Task[None]] = {}
        #: By pool, when its schedd was not reached.
        self._failed: dict[str, float] = {}

    async def stream(self, claim: SlotClaim, verb: str, params: dict[str, Any]) -> Stream:
        """A stream to the shadow of a claim's job, directly where that is possible at once.

        Raises:
            ConnectionLost: neither way leads there just now.
        """
        link = await self._link(claim)
        if link is not None:
            try:
                return await link.stream(f"schedd.{verb}", params)
            except ConnectionLost:  # it has just ended
                pass
        return await claim.schedd.stream(f"schedd.{verb}", params)

    def is_direct(self, claim: SlotClaim) -> bool:
        """Whether a claim has a direct connection."""
        return is_open(self._links.get(claim.id))

    def end(self, claim: SlotClaim) -> None:
        """End a claim's direct connection at once, also one that is on its way."""
        if (opening := self._opening.get(claim.id)) is not None:
            opening.cancel()
        if (link := self._links.pop(claim.id, None)) is not None:
            link.drop()

    async def _link(self, claim: SlotClaim) -> Connection | None:
        pool = claim.ad_wire.get(GUEST_OF)
        if not isinstance(pool, str):
            return None  # its schedd is of this pool
        if self.is_direct(claim):
            return self._links[claim.id]
        now = asyncio.get_running_loop().time()
        if now - self._failed.get(pool, -DIRECT_AGAIN) < DIRECT_AGAIN:
            return None
        opening = self._opening.get(claim.id)
        if opening is None:
            opening = self._opening[claim.id] = self._spawn(self._open(claim, pool), "direct connection", alone=True)
            opening.add_done_callback(lambda _: self._opening.pop(claim.id, None))
        await asyncio.wait([opening], timeout=WAIT)
        return self._links.get(claim.id)

    async def _open(self, claim: SlotClaim, pool: str) -> None:
        try:
            own = await asyncio.to_thread(LinkKeys, bytes.fromhex(self._secret(SEED)))
            asked = {"claim": claim.id, "key": own.public}
            offer = await claim.schedd.call("schedd.direct_to_schedd", asked, timeout=PATIENCE)
            keys = own.agree(offer["key"], "", dialed=True)
            peer = await dial(self._network(), offer["address"], "schedd", offer["ticket"], keys)
            name = f"the schedd {claim.node} of {pool}"
            link = await speak(peer, keys, Dispatcher(), dialed=True, name=name)
        except TROUBLE as error:
            self._failed.pop(pool, None)
            self._failed[pool] = asyncio.get_running_loop().time()
            if len(self._failed) > MOST_POOLS:
                del self._failed[next(iter(self._failed))]
            self._log.info("a job's schedd is not reached directly", extra={"pool": pool, "why": str(error)})
            return
        if claim.id not in self._claims:
            link.drop()
            return
        self._links[claim.id] = link
        self._failed.pop(pool, None)
        self._log.info("a job's schedd is connected directly", extra={"pool": pool, "owner": claim.owner})
        self._spawn(self._end_with(claim, link), "direct connection", alone=True)

    async def _end_with(self, claim: SlotClaim, link: WireConnection) -> None:
        while not link.closed.done() and claim.id in self._claims:
            await asyncio.wait([link.closed], timeout=CHECK)
        link.drop()
        if self._links.get(claim.id) is link:
            del self._links[claim.id]
