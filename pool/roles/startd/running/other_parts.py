"""The other parts of a job on several machines, as its starter reaches them.

    in the same pool                by their addresses
    in another pool                 by the schedd and the pools' worlds, from the beginning
    in one that lets machines       directly as soon as there is a connection (`direct_parts`); by the worlds again
    connect, as ours does           when that breaks

No way is waited for: bytes take the one that is there.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pool.jobs.activation import Activation
from pool.network.stream_link import SEED, LinkKeys, agree_over, carry_link, ends
from pool.pipes.bulk import SwitchingSender, open_bulk_stream
from pool.pipes.moving import MovingStream
from pool.pipes.protocol import PipeStream
from pool.pipes.receiver import Receiver
from pool.pipes.remote_pipes import Cards
from pool.roles.base import Spawn
from pool.roles.links import Links
from pool.roles.startd.running.direct_parts import DirectParts
from pool.roles.startd.running.streams import ExpectedStreams
from pool.roles.startd.slots.records import SlotClaim
from pool.wire import Stream as WireStream


class Others:
    """The other parts of one start, as its starter reaches them.

    Args:
        streams: those that are expected on this machine.
        direct: the direct connections to machines of other pools.
        card: address and name of this node, for the other parts.
        secret: draws that many random bytes as text.
    """

    def __init__(
        self,
        claim: SlotClaim,
        streams: ExpectedStreams,
        direct: DirectParts,
        card: dict[str, str | bool],
        links: Links,
        secret: Callable[[int], str],
        spawn: Spawn,
    ) -> None:
        self._spawn = spawn
        self._claim = claim
        self._streams = streams
        self._direct = direct
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

    async def reach(self, start: Activation, parts: Sequence[int], direct: bool) -> tuple[socket.socket, bytes]:
        """A connection to the machine of these parts, in another pool; the keys of the link.

        Args:
            direct: whether it leads there directly; else by way of the schedd.
        """
        if direct:
            return await self._direct.link(self._claim, start, parts)
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
        """A stream to the part that brought this card."""
        links, address = self._links, str(card.get("address", ""))
        if not address:
            return await self._join_apart(part, start, stream)
        params = {"gang": start.gang, "run": start.run, "stream": stream}
        async with asyncio.timeout(self.patience):
            link = await links.connect(address)
        branch = partial(open_bulk_stream, link, partial(links.connect_apart, address), params, self._secret)
        return SwitchingSender(await link.stream("startd.join", params), branch)

    async def _join_apart(self, part: int, start: Activation, stream: int) -> PipeStream:
        """A stream to a part in another pool."""
        if (opened := await self._direct.join(start, part, stream)) is not None:
            return opened
        asked = {"claim": self._claim.id, "run": start.run, "part": part, "stream": stream}
        by_schedd = await self._claim.schedd.stream("schedd.pipe_to_part", asked)
        return MovingStream(by_schedd, partial(self._direct.wait_reached, self._claim, start, part))

    def is_direct(self, start: Activation, part: int) -> bool:
        """Whether there is a direct connection to a part in another pool."""
        return self._direct.is_reached(start, part)

    def expect(self, start: Activation, stream: int, receiver: Receiver) -> None:
        """Have what comes for this stream given to the receiver."""
        self._streams.expect(start, stream, receiver)

    def forget(self, start: Activation) -> None:
        """Nothing is expected for this start any more."""
        self._streams.forget(start)


async def _carry(stream: WireStream, far: socket.socket) -> None:
    async with stream:
        await carry_link(stream, far)
