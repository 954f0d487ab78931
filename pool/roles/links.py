"""Connections to other nodes, kept and shared by all roles of a node.

One connection for each address, made at first use and again after it was lost. Both sides call on it, so a node
behind a firewall that can reach the others is served as well as any.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

from pool.wire import CannotConnect, Connection, Dispatcher, Network, RealNetwork, Stream, WireConnection

#: In an address: after it comes the name of the service there that answers in place of the usual one. The world role
#: is a startd to schedds and a schedd to startds, on nodes that may have a startd and a schedd, too.
SERVICE = "#"


class ServiceConnection(Connection):
    """A connection on which another service answers: `schedd.requests` becomes `SERVICE.requests`."""

    def __init__(self, link: Connection, service: str) -> None:
        self.link = link
        self.identity = link.identity
        self.address = link.address
        self.closed = link.closed
        self._service = service

    async def call(self, method: str, params: Mapping[str, Any] | None = None, timeout: float | None = 30.0) -> Any:
        return await self.link.call(self._renamed(method), params, timeout)

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        self.link.notify(self._renamed(method), params)

    async def stream(
        self, method: str, params: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Stream:
        return await self.link.stream(self._renamed(method), params, timeout)

    async def close(self) -> None:
        await self.link.close()

    def _renamed(self, method: str) -> str:
        return f"{self._service}.{method.partition('.')[2]}"


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
        self._services: dict[str, ServiceConnection] = {}

    def set_own(self, addresses: frozenset[str]) -> None:
        """Say which addresses are this node's own."""
        self._own = addresses

    def is_own(self, address: str) -> bool:
        """Whether this is the address of this node itself."""
        return address.partition(SERVICE)[0] in self._own

    async def connect(self, address: str) -> Connection:
        """A connection to the node at `address`, which may end with `#` and the name of a service there.

        Raises:
            ConnectionLost: nobody answers there.
        """
        plain, _, service = address.partition(SERVICE)
        if not service:
            return await self._node(plain)
        link = await self._node(plain)
        known = self._services.get(address)
        if known is None or known.link is not link:
            known = self._services[address] = ServiceConnection(link, service)
        return known

    async def _node(self, address: str) -> Connection:
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

    async def connect_apart(self, address: str, dispatcher: Dispatcher | None = None) -> Connection:
        """A connection of the caller's own, who closes it. For the raised see `connect`.

        Args:
            dispatcher: serves what the other side calls on it.
        """
        return await self._network.connect("local:" if address in self._own else address, dispatcher)

    async def speak_over(self, peer: socket.socket, *, opener: bool, name: str) -> WireConnection:
        """Speak with another node over a connected socket; the caller closes it. For the raised see `RealNetwork`.

        Args:
            opener: whether this side is the client. The other one's calls are served as on any connection.
        """
        if not isinstance(self._network, RealNetwork):
            peer.close()
            raise CannotConnect("this network has no sockets")
        return await self._network.speak_over(peer, self._dispatcher, opener=opener, name=name)

    async def call(self, address: str, method: str, params: dict[str, Any], timeout: float = 30.0) -> Any:
        """Connect if need be, then call."""
        async with asyncio.timeout(timeout):
            link = await self.connect(address)
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
