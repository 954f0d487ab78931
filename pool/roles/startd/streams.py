"""The streams between parts of jobs that run on several machines: who waits for what here, and how others are reached.

A part is known by its gang's secret, which the schedd drew for this one start and told its parts alone: who shows it
may write into the job's pipes. What is carried, and what becomes of it when a connection breaks, is
`pool.starter.crossings`'.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from pool.jobs.activation import Activation
from pool.roles.startd.slots import Claim, Refused
from pool.starter.crossings import GONE, Inlet
from pool.wire import ConnectionLost, Stream

if TYPE_CHECKING:
    from pool.roles.startd.role import Startd

#: Streams that ended here are known for so many more, for writers who come late.
MOST_OVER = 10_000

Key = tuple[str, int, int]


class Streams:
    """The streams that are expected by one startd."""

    def __init__(self) -> None:
        self._expected: dict[Key, Inlet] = {}
        self._over: OrderedDict[Key, None] = OrderedDict()

    def expect(self, start: Activation, stream: int, inlet: Inlet) -> None:
        """Give what comes for this stream to the inlet."""
        self._expected[start.gang, start.run, stream] = inlet

    def forget(self, start: Activation) -> None:
        """The part is over: who writes to it hears that nobody reads."""
        for key in [key for key in self._expected if key[:2] == (start.gang, start.run)]:
            del self._expected[key]
            self._over[key] = None
        while len(self._over) > MOST_OVER:
            self._over.popitem(last=False)

    async def serve(self, params: dict[str, Any], stream: Stream) -> None:
        """Another part writes: {gang, run, stream}; says how many bytes have come, then takes them.

        Raises:
            Refused: nothing of it is known here: it is lost with what was on its way.
        """
        key = (str(params["gang"]), int(params["run"]), int(params["stream"]))
        inlet = self._expected.get(key)
        if inlet is not None:
            await inlet.serve(stream)
        elif key in self._over:
            await stream.send(GONE)
        else:
            raise Refused("no part of a job here waits for this stream")
        await stream.finish()


class Others:
    """The other parts of one start, as its starter reaches them."""

    def __init__(self, startd: Startd, claim: Claim) -> None:
        self._startd = startd
        self._claim = claim

    @property
    def patience(self) -> float:
        """Seconds for which another part may be out of reach: as long as its schedd would wait for it."""
        return self._claim.lease

    async def meet(self, start: Activation) -> list[dict[str, Any]]:
        """Wait at the schedd until every part can begin; what each brought."""
        link = self._claim.link
        if link is None or link.closed.done():
            raise ConnectionLost("the submit side is not connected")
        card = {"address": self._startd.given.address, "node": self._startd.given.node}
        params = {"claim": self._claim.id, "run": start.run, "card": card}
        answer = await link.call("schedd.meet", params, timeout=None)
        return [dict(card) for card in answer["cards"]]

    async def join(self, card: dict[str, Any], start: Activation, stream: int) -> Stream:
        """A stream to the part that brought this card."""
        async with asyncio.timeout(self.patience):
            link = await self._startd.given.links.to(str(card["address"]))
        return await link.stream("startd.join", {"gang": start.gang, "run": start.run, "stream": stream})

    def expect(self, start: Activation, stream: int, inlet: Inlet) -> None:
        """Have what comes for this stream given to the inlet."""
        self._startd.streams.expect(start, stream, inlet)

    def forget(self, start: Activation) -> None:
        """Nothing is expected for this start any more."""
        self._startd.streams.forget(start)
