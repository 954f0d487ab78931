"""Connections between nodes of two pools that let their machines connect directly: each is made for one job.

    asker                                             the other node
    key, by the pools' worlds ----------------------> offers: draws a ticket, keeps the keys
    its key, address and ticket <-------------------- by the worlds, which look at the address
    connects as a stranger: ROLE.direct {ticket, proof} ->
                                                      detaches that connection
    detaches it, too <------------------------------- its proof
    socket ============ sealed frames ==============> socket

Neither pool's authority vouches for the other's nodes, so TLS proves nothing here: it is only the way to the port that
is open anyway. Both ends have agreed on keys for this one connection over the worlds (`stream_link.LinkKeys`), and
each proves that it has them before a byte is taken from it. A ticket opens one connection, within `LIFE` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pool.network.sealed_link import SealedLink
from pool.wire import Call, Connection, Dispatcher, Identity, Network, WireConnection
from pool.wire.addresses import parse_address, tcp_address
from pool.wire.errors import CallRefused, CannotConnect

#: Seconds for making a connection, and for which an offer holds.
PATIENCE, LIFE = 5.0, 20.0
#: Offers for one holder that nobody has taken yet, at most.
MOST_OFFERS = 64
#: Seconds without an answer of the other machine after which a connection is lost: the worlds take over then.
SILENT = 10
_DIALS, _ACCEPTS = b"dials", b"accepts"


def _proof(keys: bytes, side: bytes, ticket: str) -> bytes:
    return hmac.digest(keys, side + b" " + ticket.encode(errors="replace"), hashlib.sha256)


PROOF = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class _Offer:
    keys: bytes
    take: Callable[[socket.socket], None]
    holder: object
    lapses: asyncio.TimerHandle


class DirectOffers:
    """The connections that a node has offered and that have not come yet.

    Args:
        secret: draws that many random bytes as text.
    """

    def __init__(self, secret: Callable[[int], str]) -> None:
        self._secret = secret
        self._offers: dict[str, _Offer] = {}

    def offer(self, keys: bytes, take: Callable[[socket.socket], None], holder: object) -> str:
        """Expect a connection; its ticket.

        Args:
            keys: that both ends have.
            take: called with the socket once the other end has proved that it has them.
            holder: what it is for; see `withdraw`.

        Raises:
            CallRefused: too many are expected for this holder.
        """
        if sum(offer.holder is holder for offer in self._offers.values()) >= MOST_OFFERS:
            raise CallRefused(f"{MOST_OFFERS} direct connections are waited for already", retry=True)
        ticket = self._secret(16)
        lapses = asyncio.get_running_loop().call_later(LIFE, self._offers.pop, ticket, None)
        self._offers[ticket] = _Offer(keys, take, holder, lapses)
        return ticket

    def withdraw(self, holder: object) -> None:
        """Expect nothing more for this holder."""
        for ticket in [ticket for ticket, offer in self._offers.items() if offer.holder is holder]:
            self._offers.pop(ticket).lapses.cancel()

    async def serve(self, call: Call, params: dict[str, Any]) -> None:
        """A stranger's connection is to be one that was offered: {ticket, proof}. If none was, or it does not have
        the keys, it is closed without a word: strangers fill no log.
        """
        connection, ticket = call.connection, params["ticket"]
        offer = self._offers.get(ticket)
        proved = offer is not None and hmac.compare_digest(params["proof"], _proof(offer.keys, _DIALS, ticket))
        if offer is None or not proved or not isinstance(connection, WireConnection):
            await connection.close()
            return
        del self._offers[ticket]  # before anything else may use it
        offer.lapses.cancel()
        peer = await connection.detach()
        try:
            peer.setblocking(False)
            _tune(peer)
            peer.send(_proof(offer.keys, _ACCEPTS, ticket))
        except OSError:
            peer.close()
            return
        offer.take(peer)


async def dial(network: Network, address: str, role: str, ticket: str, keys: bytes) -> socket.socket:
    """Connect where a connection was offered.

    Args:
        network: a stranger's.
        address: that has been checked.
        role: that has offered it there.

    Raises:
        PoolError, OSError, TimeoutError: it does not come about.
    """
    async with asyncio.timeout(PATIENCE):
        connection = await network.connect(address)
        try:
            if not isinstance(connection, WireConnection):
                raise CannotConnect("this network has no sockets")
            connection.notify(f"{role}.direct", {"ticket": ticket, "proof": _proof(keys, _DIALS, ticket)})
            peer = await connection.detach()
        except BaseException:
            if not connection.closed.done():
                await connection.close()
            raise
        try:
            peer.setblocking(False)
            _tune(peer)
            said = b""
            while len(said) < PROOF:
                piece = await asyncio.get_running_loop().sock_recv(peer, PROOF - len(said))
                if not piece:
                    raise CannotConnect(f"the node at {address} does not know the connection")
                said += piece
            if not hmac.compare_digest(said, _proof(keys, _ACCEPTS, ticket)):
                raise CannotConnect(f"the node at {address} is not the one that offered the connection")
        except BaseException:
            peer.close()
            raise
    return peer


async def speak(peer: socket.socket, keys: bytes, dispatcher: Dispatcher, *, dialed: bool, name: str) -> WireConnection:
    """Speak the protocol over such a connection; what passes is sealed, and the other side has no rights.

    Args:
        keys: of that connection.
        dispatcher: serves what the other side may call, and nothing else.
        name: of the other side, for people.

    Raises:
        PoolError, OSError, TimeoutError: the other side does not.
    """
    sealed = SealedLink(peer, keys, dialed=dialed, ended=lambda: None)
    other = Identity("node", name)
    connection = WireConnection(
        opener=dialed,
        dispatcher=dispatcher,
        identify=lambda hello, transport: other,
        hello={"software": "poolnode"},
        address=name,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            await asyncio.get_running_loop().create_unix_connection(lambda: connection, sock=sealed.relay)
            await connection.opened
    except BaseException:
        connection.drop()
        sealed.close()
        raise
    connection.closed.add_done_callback(lambda _: sealed.close())
    return connection


async def numbered(address: str) -> str:
    """A node's own address with the number of its host, as other pools may be told it.

    Raises:
        OSError: the host's name has no number.
    """
    _, host, port = parse_address(address)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return tcp_address(str(found[0][4][0]), port)
    return address


def is_open(connection: Connection | None) -> bool:
    """Whether something can be asked on a connection."""
    return connection is not None and not connection.closed.done()


def _tune(peer: socket.socket) -> None:
    """Have the kernel end a connection whose other side is silent, and send small frames at once."""
    with contextlib.suppress(OSError):  # not of TCP
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT // 2)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENT // 2)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT * 1000)
