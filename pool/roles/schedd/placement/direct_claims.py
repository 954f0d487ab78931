"""Direct connections from machines of other pools, for the files and checkpoints of the jobs that they run.

    startd (chem) --schedd.direct_to_schedd, by the worlds--> offer (`pool.network.direct_link`)
    startd (chem) ======== streams about one claim =========> schedd

On such a connection the machine may open the streams that it may open by the worlds, about its own claim: whatever
claim it names, this one is meant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from pool.errors import PoolError
from pool.network.direct_link import DirectOffers, numbered, speak
from pool.network.stream_link import SEED, LinkKeys
from pool.policy.slot_names import pool_of_slot
from pool.roles.base import Spawn
from pool.roles.schedd.core.claims import HeldClaim
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.parallel.between_pools import BetweenPools
from pool.roles.schedd.placement.methods import StartdMethods
from pool.wire import Call, Dispatcher, Identity, Right, Service, Stream, WireConnection, method, streaming
from pool.wire.errors import CallRefused

#: The streams of `StartdMethods` that may be opened on such a connection.
STREAMS = (
    *("fetch_inputs", "store_outputs", "remote_io", "store_image", "fetch_image", "link_to_part", "pipe_to_part"),
)
#: Connections of one schedd at most: two threads serve each. More claims go by the worlds.
MOST = 200
#: Seconds between two looks whether a claim is over.
CHECK = 5.0


class ClaimDoor(Service):
    """The streams about one claim, as its machine may open them on its direct connection.

    Args:
        identity: of the world by which the claim was made, for which the machine speaks.
        is_held: whether the claim is still held.
    """

    def __init__(
        self, methods: StartdMethods, claim: HeldClaim, identity: Identity, is_held: Callable[[], bool]
    ) -> None:
        self._methods = methods
        self._claim = claim
        self._identity = identity
        self._is_held = is_held

    async def serve(self, verb: str, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Serve a stream as if it had come by the worlds.

        Raises:
            CallRefused: the claim is over.
        """
        if not self._is_held():
            raise CallRefused("the claim is over", retry=True)
        known = Call(self._identity, call.connection, call.deadline)
        await getattr(self._methods, verb)(known, {**params, "claim": self._claim.id}, stream)


def _served(verb: str) -> Any:
    async def served(door: ClaimDoor, call: Call, params: dict[str, Any], stream: Stream) -> None:
        await door.serve(verb, call, params, stream)

    return streaming(None, takes=getattr(StartdMethods, verb).__pool_method__.takes)(served)


for _verb in STREAMS:
    setattr(ClaimDoor, _verb, _served(_verb))


class DirectMethods(Service):
    """The methods for direct connections, served under the schedd's name.

    Args:
        methods: what such a connection leads to.
        address: this node's.
    """

    def __init__(
        self,
        context: ScheddContext,
        methods: StartdMethods,
        between_pools: BetweenPools,
        address: Callable[[], str],
        spawn: Spawn,
    ) -> None:
        self._context = context
        self._methods = methods
        self._between_pools = between_pools
        self._address = address
        self._spawn = spawn
        self._offers = DirectOffers(context.outside.secret)
        self._open: dict[WireConnection, HeldClaim] = {}

    @method(Right.EXECUTE, takes={"claim": str, "key": bytes})
    async def direct_to_schedd(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A machine of another pool wants to bring and fetch its job's files directly: {claim, key} ->
        {address, ticket, key}
        """
        self._methods.check_claim(params["claim"], call.identity.node)
        claim = self._context.claims.get(params["claim"])
        if claim is None or not pool_of_slot(claim.slot):
            raise CallRefused("there is no such claim on a machine of another pool", retry=True)
        if len(self._open) >= MOST:
            raise CallRefused("this schedd has as many direct connections as it takes", retry=True)
        own = await asyncio.to_thread(LinkKeys, bytes.fromhex(self._context.outside.secret(SEED)))
        keys = own.agree(params["key"], "", dialed=False)
        ticket = self._offers.offer(keys, partial(self._came, claim, keys), claim)
        return {"address": await numbered(self._address()), "ticket": ticket, "key": own.public}

    @method(None, takes={"ticket": str, "proof": bytes})
    async def direct(self, call: Call, params: dict[str, Any]) -> None:
        """The connection that says this is one that was offered: {ticket, proof}; see `pool.network.direct_link`."""
        await self._offers.serve(call, params)

    @method(Right.EXECUTE, takes={"pool": str})
    async def end_direct(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The world says that machines of a pool may not be connected with directly any more: {pool}"""
        pool, world = params["pool"], call.identity.node
        for claim in list(self._context.claims.values()):
            if pool_of_slot(claim.slot) == pool and claim.slot.rpartition("@")[2] == world:
                self._offers.withdraw(claim)
        for link, claim in list(self._open.items()):
            if pool_of_slot(claim.slot) == pool and claim.slot.rpartition("@")[2] == world:
                link.drop()
        await self._between_pools.end_direct(pool, world)
        return {}

    def _came(self, claim: HeldClaim, keys: bytes, peer: Any) -> None:
        self._spawn(self._serve(claim, keys, peer), "direct connection", alone=True)

    async def _serve(self, claim: HeldClaim, keys: bytes, peer: Any) -> None:
        world = claim.slot.rpartition("@")[2]
        identity = Identity("node", world, world, None, frozenset({Right.EXECUTE}))
        dispatcher = Dispatcher()
        dispatcher.add("schedd", ClaimDoor(self._methods, claim, identity, partial(self._is_held, claim)))
        try:
            link = await speak(peer, keys, dispatcher, dialed=False, name=claim.slot)
        except (PoolError, OSError, TimeoutError) as error:
            self._context.log.info("a direct connection has ended", extra={"slot": claim.slot, "why": str(error)})
            return
        self._open[link] = claim
        try:
            while not link.closed.done() and self._is_held(claim):
                await asyncio.wait([link.closed], timeout=CHECK)
        finally:
            del self._open[link]
            link.drop()

    def _is_held(self, claim: HeldClaim) -> bool:
        return self._context.claims.get(claim.id) is claim and not claim.over
