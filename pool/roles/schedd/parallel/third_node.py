"""This node between two machines of a job's network that do not reach each other: it carries the bytes of their link.

    one machine                      schedd                        the other machine
    schedd.carry_link -------------> connects to both again:
      <--------- startd.lend_link    startd.lend_link ----------->
    gives that connection up         copies bytes (relay)          gives that connection up
    TLS of the pool ================ they mean nothing here ====== proves itself by its certificate
    key of the link, then sealed frames as over a direct link

The schedd reaches every machine of a job that runs, since it claimed them. It learns no key: the machines prove
themselves to each other through the connection, so it can delay or end a link, but neither read nor forge a packet.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pool.errors import PoolError
from pool.network import program
from pool.network.relay_process import RelayFinder
from pool.network.splices import SpliceRelays
from pool.pipes.bulk import open_connection
from pool.policy.slot_names import machine_of_slot
from pool.policy.third_node import CarriedLinks, LinkAsk, Pair
from pool.roles.schedd.core.claims import HeldClaim
from pool.roles.schedd.core.context import ScheddContext
from pool.wire.errors import CallRefused


class ThirdNode:
    """The links that one schedd's node carries.

    Args:
        relay: the relay of this installation.
    """

    def __init__(self, context: ScheddContext, relay: Path | None = None) -> None:
        self._context = context
        self._splices = SpliceRelays(RelayFinder(relay or program()))
        self._links = CarriedLinks()
        #: By pair, its link and what ends it.
        self._carried: dict[Pair, tuple[object, Callable[[], None]]] = {}

    async def carry(self, claim_id: str, run: int, other: str, ticket: str) -> str:
        """Make a link between the machine of a claim and another one of the job; this node's name.

        Args:
            other: the other machine's node.
            ticket: by which the asker knows the connection that comes.

        Raises:
            CallRefused: there is no such part of the job, or this node carries too many links.
            PoolError, OSError, TimeoutError: a machine is not reached.
        """
        claim = self._context.claims.get(claim_id)
        gang = claim.gang if claim is not None and claim.run == run else None
        if claim is None or gang is None or gang.root is not None or gang.met is None or not gang.met.done():
            raise CallRefused("no such job runs", retry=True)
        machines = {_node(one): one for one in gang.claims.values()}
        ask, loop = LinkAsk(gang.secret, _node(claim), other), asyncio.get_running_loop()
        if why_not := self._links.begin(ask, frozenset(machines), loop.time()):
            raise CallRefused(why_not, retry=True)
        pair, link = ask.pair, object()
        try:
            both = await self._lent(claim, machines[other], ticket)
            close = await self._splices.add(gang.secret, *both, partial(self._ended, pair, link))
            before = self._carried.get(pair)
            self._carried[pair] = link, close
            if before is not None:
                before[1]()
        finally:
            self._links.settle(pair, there=pair in self._carried)
        said = {"job": ".".join(map(str, gang.job.id)), "machines": f"{ask.asker}, {other}"}
        self._context.log.info("carries a link of a job's network", extra=said)
        return self._context.name

    def _ended(self, pair: Pair, link: object) -> None:
        """A link is over; another one may have taken its place."""
        if pair in self._carried and self._carried[pair][0] is link:
            del self._carried[pair]
            self._links.end(pair)

    async def _lent(self, asker: HeldClaim, other: HeldClaim, ticket: str) -> tuple[socket.socket, socket.socket]:
        """The connections to both machines, which have given them up."""
        tasks = [
            asyncio.ensure_future(self._lend(one, _node(peer), ticket, asks=one is asker))
            for one, peer in ((asker, other), (other, asker))
        ]
        found = await asyncio.gather(*tasks, return_exceptions=True)
        sockets = [one for one in found if isinstance(one, socket.socket)]
        if len(sockets) < len(found):
            for one in sockets:
                one.close()
            raise next(error for error in found if isinstance(error, BaseException))
        return sockets[0], sockets[1]

    async def _lend(self, claim: HeldClaim, peer: str, ticket: str, *, asks: bool) -> socket.socket:
        links = self._context.links
        try:
            link = await links.connect(claim.startd)
            apart = partial(links.connect_apart, claim.startd)
            params = {"claim": claim.id, "run": claim.run, "ticket": ticket, "other": peer, "asks": asks}
            return await open_connection(link, apart, ("startd.lend_link", "startd.link_lent"), params)
        except PoolError as error:
            raise CallRefused(f"no link by this node: {_node(claim)}: {error.message}", retry=True) from error

    async def close(self) -> None:
        """End all links."""
        await self._splices.close()


def _node(claim: HeldClaim) -> str:
    """The name of a claim's node; of a machine in another pool, NODE@POOL."""
    return machine_of_slot(claim.slot)
