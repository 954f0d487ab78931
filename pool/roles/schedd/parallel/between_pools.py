"""Bytes between parts of a job that are in different pools: each part asks its schedd, which asks the other part.

    part's startd --(its world, our world)--> schedd.link_to_part --> (our world, its world)--> startd.link_from_part
                                              schedd.pipe_to_part -->                           startd.pipe_from_part

A part of our own pool is asked without a world. What passes are the items of two streams that are joined here, with
their flow control, so nothing gathers. Links are sealed by the machines at both ends (`pool.network.stream_link`).

Where the pools let their machines connect directly, only the offer of one machine to the other comes this way:

    part's startd --> schedd.direct_to_part --> startd.direct_from_part --> {address, ticket, key} --> part's startd
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from pool.errors import PoolError
from pool.jobs.activation import Activation
from pool.pipes.protocol import GONE
from pool.policy.slot_names import machine_of_slot, pool_of_slot
from pool.policy.third_node import CarriedLinks, LinkAsk, Pair
from pool.roles.schedd.core.claims import HeldClaim
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.gang import RunningGang
from pool.wire import Stream
from pool.wire.errors import CallRefused
from pool.wire.joined_streams import pass_both_ways

#: Seconds for another machine's answer about a direct connection.
PATIENCE = 5.0


class BetweenPools:
    """The streams between parts in different pools, of one schedd's jobs.

    Args:
        start_of: the start of a claim's part.
    """

    def __init__(self, context: ScheddContext, start_of: Callable[[HeldClaim], Activation]) -> None:
        self._context = context
        self._start_of = start_of
        self._links = CarriedLinks()
        #: By pair, the stream of its link; by gang and number, that of a pipe. A new one takes the place of an old one.
        self._linked: dict[Pair, Stream] = {}
        self._piped: dict[tuple[str, int], Stream] = {}

    async def link(self, claim_id: str, run: int, parts: Sequence[int], key: bytes, stream: Stream) -> None:
        """Carry a link from the machine of a claim to the one of these parts, which is in another pool.

        Args:
            key: what the asking machine tells the other one.

        Raises:
            CallRefused: there is no such part of the job, or this node carries too many links.
            PoolError: the other machine is not reached.
        """
        claim, gang = self._running(claim_id, run)
        other = next((gang.claims[part] for part in parts if part in gang.claims), None)
        if other is None:
            raise CallRefused("these parts of the job have ended", retry=True)
        self._check_apart(claim, other)
        machines = frozenset(machine_of_slot(one.slot) for one in gang.claims.values())
        ask = LinkAsk(gang.secret, machine_of_slot(claim.slot), machine_of_slot(other.slot))
        if why_not := self._links.begin(ask, machines, asyncio.get_running_loop().time()):
            raise CallRefused(why_not, retry=True)
        pair = ask.pair
        asked = {"claim": other.id, "run": other.run, "part": claim.part, "key": key}
        try:
            far = await self._open(other, "startd.link_from_part", asked)
            before, self._linked[pair] = self._linked.get(pair), far
            if before is not None:
                before.abort()
        finally:
            self._links.settle(pair, there=pair in self._linked)
        try:
            await pass_both_ways(stream, far)
        finally:
            if self._linked.get(pair) is far:
                del self._linked[pair]
                self._links.end(pair)

    async def pipe(self, claim_id: str, run: int, part: int, number: int, stream: Stream) -> None:
        """Carry a pipe from the part of a claim to another one, which is in another pool.

        Args:
            number: the stream's, as of `Activation.crossings`.

        Raises:
            CallRefused: the part has no such pipe.
            PoolError: the other machine is not reached.
        """
        claim, gang = self._running(claim_id, run)
        start = claim.start if claim.start is not None else self._start_of(claim)
        if all((of, to) != (number, part) for _, of, to in start.crossings):
            raise CallRefused("the job has no such pipe")
        other = gang.claims.get(part)
        if other is None:
            await stream.send(GONE)
            return
        self._check_apart(claim, other)
        asked = {"claim": other.id, "gang": gang.secret, "run": other.run, "stream": number}
        far = await self._open(other, "startd.pipe_from_part", asked)
        key = gang.secret, number
        before, self._piped[key] = self._piped.get(key), far
        if before is not None:
            before.abort()
        try:
            await pass_both_ways(stream, far)
        finally:
            if self._piped.get(key) is far:
                del self._piped[key]

    async def direct(self, claim_id: str, run: int, parts: Sequence[int], key: bytes) -> dict[str, object]:
        """The offer of a direct connection to the machine of these parts, which is in another pool.

        Args:
            key: what the asking machine tells the other one.

        Returns:
            {address, ticket, key}, which the worlds on the way have looked at.

        Raises:
            CallRefused: there is no such part of the job.
            PoolError: the other machine is not reached, or a pool does not let its machines connect.
        """
        claim, gang = self._running(claim_id, run)
        other = next((gang.claims[part] for part in parts if part in gang.claims), None)
        if other is None:
            raise CallRefused("these parts of the job have ended", retry=True)
        self._check_apart(claim, other)
        asked = {"claim": other.id, "run": other.run, "part": claim.part, "key": key}
        link = await self._context.links.connect(other.startd)
        offer: dict[str, object] = await link.call("startd.direct_from_part", asked, timeout=PATIENCE)
        return offer

    async def end_direct(self, pool: str, node: str) -> None:
        """Have the direct connections end between machines of a pool and others, of all jobs here.

        Args:
            node: the world's that says so: of claims by other worlds nothing ends.
        """
        gangs = {
            claim.gang
            for claim in list(self._context.claims.values())
            if claim.gang is not None and pool_of_slot(claim.slot) == pool and claim.slot.rpartition("@")[2] == node
        }
        claims = [claim for gang in gangs for claim in gang.claims.values()]
        await asyncio.gather(*map(self._end_direct, claims))

    async def _end_direct(self, claim: HeldClaim) -> None:
        with contextlib.suppress(PoolError, OSError, TimeoutError):
            link = await self._context.links.connect(claim.startd)
            await link.call("startd.end_direct", {"claim": claim.id}, timeout=PATIENCE)

    def _running(self, claim_id: str, run: int) -> tuple[HeldClaim, RunningGang]:
        claim = self._context.claims.get(claim_id)
        gang = claim.gang if claim is not None and claim.run == run else None
        if claim is None or gang is None or gang.root is not None or gang.met is None or not gang.met.done():
            raise CallRefused("no such job runs", retry=True)
        return claim, gang

    @staticmethod
    def _check_apart(claim: HeldClaim, other: HeldClaim) -> None:
        if pool_of_slot(claim.slot) == pool_of_slot(other.slot):
            raise CallRefused("both machines are in one pool, and connect by themselves")

    async def _open(self, claim: HeldClaim, method: str, params: dict[str, object]) -> Stream:
        link = await self._context.links.connect(claim.startd)
        return await link.stream(method, params)
