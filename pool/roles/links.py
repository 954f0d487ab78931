"""Connections to other nodes, kept and shared by all roles of a node.

One connection for each address, made at first use and again after it was lost. Both sides call on it, so a node
behind a firewall that can reach the others is served as well as any.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pool.wire import Connection, Dispatcher, Network


class Links:
    """The connections of one node.

    Args:
        network: how to connect.
        dispatcher: serves what the other side calls on our connections.
        own: this node's own addresses, which are reached without any network.
    """

    def __init__(self, network: Network, dispatcher: Dispatcher, own: frozenset[str] = frozenset()) -> None:
        self._network = network
        self._dispatcher = dispatcher
        self._own = own
        self._open: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Task[Connection]] = {}

    def own(self, addresses: frozenset[str]) -> None:
        """Say which addresses are this node's own."""
        self._own = addresses

    def is_own(self, address: str) -> bool:
        """Whether this is the address of this node itself."""
        return address in self._own

    async def to(self, address: str) -> Connection:
        """A connection to the node at `address`.

        Raises:
            ConnectionLost: nobody answers there.
        """
        if address in self._own:
            address = "local:"
        link = self._open.get(address)
        if link is not None and not link.closed.done():
            return link
        opening = self._opening.get(address)
        if opening is None:
            opening = asyncio.get_running_loop().create_task(self._connect(address))
            self._opening[address] = opening
            opening.add_done_callback(lambda done: self._opened(address, done))
        return await asyncio.shield(opening)

    async def apart(self, address: str) -> Connection:
        """A connection of the caller's own, who closes it. For the raised see `to`."""
        return await self._network.connect("local:" if address in self._own else address)

    async def call(self, address: str, method: str, params: dict[str, Any], timeout: float = 30.0) -> Any:
        """Connect if need be, then call."""
        async with asyncio.timeout(timeout):
            link = await self.to(address)
        return await link.call(method, params, timeout=timeout)

    async def close(self) -> None:
        """Close every connection."""
        for task in list(self._opening.values()):
            task.cancel()
        links, self._open = list(self._open.values()), {}
        for link in links:
            await link.close()

    def _opened(self, address: str, done: asyncio.Task[Connection]) -> None:
        self._opening.pop(address, None)
        if not done.cancelled():
            done.exception()  # callers that still wait for it get the error; there may be none

    async def _connect(self, address: str) -> Connection:
        link = await self._network.connect(address, dispatcher=self._dispatcher)
        self._open[address] = link
        return link
