"""The streams between parts of jobs on several machines: which are expected here, and how other parts are reached.

The gang's secret proves that a connection belongs to the job. The schedd draws it for this one start and sends it to
the parts only. `pool.pipes.remote_pipes` tells how bytes are carried, and how a broken stream continues.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pool.jobs.activation import Activation
from pool.network.stream_link import SEED, LinkKeys, agree_over, carry_link, ends
from pool.pipes.bulk import LentConnections, SwitchingReceiver, SwitchingSender, open_bulk_stream
from pool.pipes.protocol import GONE, PipeStream
from pool.pipes.receiver import Receiver
from pool.pipes.remote_pipes import Cards
from pool.roles.base import Spawn
from pool.roles.links import Links
from pool.roles.startd.slots.records import SlotClaim, SlotRefused
from pool.wire import Connection
from pool.wire import Stream as WireStream

#: So many ended streams are remembered, for writers that come late.
MOST_OVER = 10_000

Key = tuple[str, int, int]


class ExpectedStreams:
    """The streams that are expected by one startd."""

    def __init__(self) -> None:
        self._expected: dict[Key, Receiver] = {}
        self._over: OrderedDict[Key, None] = OrderedDict()
        self._lent = LentConnections()

    def expect(self, start: Activation, stream: int, receiver: Receiver) -> None:
        """Give what comes for this stream to the receiver."""
        self._expected[start.gang, start.run, stream] = receiver

    def forget(self, start: Activation) -> None:
        """The part is over: who writes to it hears that nobody reads."""
        for key in [key for key in self._expected if key[:2] == (start.gang, start.run)]:
            del self._expected[key]
            self._over[key] = None
        while len(self._over) > MOST_OVER:
            self._over.popitem(last=False)

    async def serve(self, params: dict[str, Any], stream: WireStream) -> None:
        """Another part writes: {gang, run, stream}; says how many bytes have come, then takes them.

        Raises:
            SlotRefused: nothing of it is known here: it is lost with what was on its way.
        """
        key = _key(params)
        receiver = self._expected.get(key)
        if receiver is not None:
            arriving = SwitchingReceiver(stream, self._lent.take_stream)
            try:
                await receiver.serve(arriving)
            finally:
                arriving.close()
        elif key in self._over:
            await stream.send(GONE)
        else:
            raise _unknown()
        await stream.finish()

    async def open_bulk(self, params: dict[str, Any], connection: Connection) -> None:
        """This connection is to carry the bytes of a stream from now on: {gang, run, stream, ticket, key}.

        Raises:
            SlotRefused: nothing of the stream is known here, or the connection cannot.
        """
        if _key(params) not in self._expected:
            await connection.close()
            raise _unknown()
        await self._lent.open_bulk(str(params["ticket"]), params["key"], connection)

    async def wait_bulk(self, params: dict[str, Any]) -> None:
        """Wait until `open_bulk` is done: {gang, run, stream, ticket}.

        Raises:
            SlotRefused: nothing of the stream is known here, or nobody lends.
        """
        if _key(params) not in self._expected:
            raise _unknown()
        await self._lent.wait_bulk(str(params["ticket"]))


def _key(params: dict[str, Any]) -> Key:
    return str(params["gang"]), int(params["run"]), int(params["stream"])


def _unknown() -> SlotRefused:
    return SlotRefused("no part of a job here waits for this stream")


class Others:
    """The other parts of one start, as its starter reaches them.

    Args:
        streams: those that are expected on this machine.
        card: address and name of this node, for the other parts.
        secret: draws that many random bytes as text.
    """

    def __init__(
        self,
        claim: SlotClaim,
        streams: ExpectedStreams,
        card: dict[str, str | bool],
        links: Links,
        secret: Callable[[int], str],
        spawn: Spawn,
    ) -> None:
        self._spawn = spawn
        self._claim = claim
        self._streams = streams
        self._card = card
        self._links = links
        self._secret = secret

    @property
    def patience(self) -> float:
        """Seconds for which another part may be out of reach: as long as its schedd would wait for it."""
        return self._claim.lease

    async def wait_for_parts(self, start: Activation) -> Cards:
        """Wait at the schedd until every part can begin; what each brought."""
        params = {"claim": self._claim.id, "run": start.run, "card": self._card}
        answer = await self._claim.schedd.call("schedd.wait_for_parts", params, timeout=None)
        return [dict(card) if card is not None else None for card in answer["cards"]]

    async def ask_third(self, start: Activation, other: str, ticket: str) -> str:
        """Ask the schedd's node to carry a link to another machine of the job; the name of the node that does."""
        params = {"claim": self._claim.id, "run": start.run, "other": other, "ticket": ticket}
        return str((await self._claim.schedd.call("schedd.carry_link", params))["by"])

    async def reach(self, start: Activation, parts: Sequence[int]) -> tuple[socket.socket, bytes]:
        """A connection to the machine of these parts, in another pool, by way of the schedd; the keys of the link."""
        own = await asyncio.to_thread(LinkKeys, bytes.fromhex(self._secret(SEED)))
        asked = {"claim": self._claim.id, "run": start.run, "parts": list(parts), "key": own.public}
        stream = await self._claim.schedd.stream("schedd.link_to_part", asked)
        try:
            keys = await agree_over(stream, own, start.gang)
        except BaseException:
            stream.abort()
            raise
        near, far = ends()
        self._spawn(_carry(stream, far), "link to another pool", alone=True)
        return near, keys

    async def join(self, part: int, card: dict[str, Any], start: Activation, stream: int) -> PipeStream:
        """A stream to the part that brought this card; to one in another pool, by way of the schedd."""
        links, address = self._links, str(card.get("address", ""))
        if not address:
            asked = {"claim": self._claim.id, "run": start.run, "part": part, "stream": stream}
            return await self._claim.schedd.stream("schedd.pipe_to_part", asked)
        params = {"gang": start.gang, "run": start.run, "stream": stream}
        async with asyncio.timeout(self.patience):
            link = await links.connect(address)
        branch = partial(open_bulk_stream, link, partial(links.connect_apart, address), params, self._secret)
        return SwitchingSender(await link.stream("startd.join", params), branch)

    def expect(self, start: Activation, stream: int, receiver: Receiver) -> None:
        """Have what comes for this stream given to the receiver."""
        self._streams.expect(start, stream, receiver)

    def forget(self, start: Activation) -> None:
        """Nothing is expected for this start any more."""
        self._streams.forget(start)


async def _carry(stream: WireStream, far: socket.socket) -> None:
    async with stream:
        await carry_link(stream, far)
