"""The streams between parts of jobs on several machines that are expected here.

The gang's secret proves that a connection belongs to the job. The schedd draws it for this one start and sends it to
the parts only. `pool.pipes.remote_pipes` tells how bytes are carried, and how a broken stream continues.
"""

from __future__ import annotations

import socket
from collections import OrderedDict
from typing import Any

from pool.jobs.activation import Activation
from pool.pipes.bulk import LentConnections, SwitchingReceiver
from pool.pipes.protocol import GONE
from pool.pipes.receiver import Receiver
from pool.roles.startd.slots.records import SlotRefused
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

    def take_socket(self, ticket: str, peer: socket.socket, key: bytes) -> None:
        """A connected socket is to carry the bytes of a stream. Raises CallRefused if there is one with this ticket."""
        self._lent.take_socket(ticket, peer, key)

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
