"""How nodes reach each other: TCP with TLS, unix sockets, and themselves.

    tcp://HOST:PORT     TLS 1.3 with certificates of the pool on both sides; users may bring a token instead
    unix:///PATH        people of this machine, by the kernel's word
    local:              this node

`Network` is what everything else depends on; `pool.testing` has one in memory. A silent peer is found by the
kernel: keepalive and a limit on unacknowledged data end a TCP connection after `SILENT_SECONDS`.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import resource
import socket
import ssl
import stat
import struct
import weakref
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Protocol, TypeAlias

from pool import __version__
from pool.errors import PoolError
from pool.wire.addresses import parse_address, tcp_address
from pool.wire.admission import Admission
from pool.wire.connection import Connection
from pool.wire.dispatch import Dispatcher
from pool.wire.endpoint import GREETING_SECONDS, Identify, WireConnection
from pool.wire.errors import CannotConnect
from pool.wire.identity import ANONYMOUS, Identity, own_identity, peer_identity
from pool.wire.local import LocalConnection

log = logging.getLogger("pool.wire")

CONNECT_SECONDS = 10.0
SILENT_SECONDS = 60
SHORT = 0.1  # seconds between two tries to take a connection while descriptors are short
CROWD = 64  # connections whose buffers are worth giving back when they have gone

Users: TypeAlias = Callable[[str], Identity]


class CannotListen(PoolError):
    """The address cannot be listened on."""


class Listening(Protocol):
    """A server. `address` is the one to connect to, with the port that was taken."""

    @property
    def address(self) -> str: ...
    async def close(self) -> None: ...


class Network(Protocol):
    """How to reach others and be reached."""

    async def connect(self, address: str, dispatcher: Dispatcher | None = None) -> Connection:
        """Connect; `dispatcher` serves what the other side calls on the connection.

        Raises:
            CannotConnect: nobody answers there, or the other side would not have us.
        """
        ...

    async def listen(self, address: str, dispatcher: Dispatcher) -> Listening:
        """Serve at `address`.

        Raises:
            CannotListen: it is taken, or is none of this machine's.
        """
        ...


class TlsCredentials(Protocol):
    """The TLS credentials; see `pool.wire.credentials`."""

    @property
    def token(self) -> str | None: ...
    def client_context(self) -> ssl.SSLContext: ...
    def server_context(self) -> ssl.SSLContext: ...
    def identify(self, certificate: Mapping[str, Any]) -> Identity: ...


class Server:
    """Accepts connections until it is closed; then its connections are closed too.

    A connection counts from when the kernel has it, not from when it speaks TLS.
    """

    def __init__(self, address: str, dispatcher: Dispatcher) -> None:
        self.address = address
        self.dispatcher = dispatcher
        self.connections: set[WireConnection] = set()
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.admission: Admission[WireConnection] = Admission(min(descriptors, 2**20), self._drop)
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._shaking: dict[WireConnection, asyncio.Task[None]] = {}
        self._crowded = False

    def listening(
        self, sockets: list[socket.socket], accept: Callable[[], WireConnection], context: ssl.SSLContext | None
    ) -> None:
        """Take what comes at these sockets."""
        self._sockets = sockets
        loop = asyncio.get_running_loop()
        self._accepting = [loop.create_task(self._accept(one, accept, context)) for one in sockets]

    async def _accept(
        self, listener: socket.socket, accept: Callable[[], WireConnection], context: ssl.SSLContext | None
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listener)
            except OSError as error:  # no descriptor is left, or the other side has gone again
                log.warning("a connection could not be taken", extra={"address": self.address, "error": str(error)})
                self.admission.drop_stranger()
                await asyncio.sleep(SHORT)
                continue
            connection = accept()
            peer = str(address[0]) if listener.family != socket.AF_UNIX else f"uid {_uid_of(accepted)}"
            self.connections.add(connection)
            self.admission.connection_opened(connection, peer)
            connection.closed.add_done_callback(partial(self._closed, connection))
            shaking = loop.create_task(self._start_handshake(connection, accepted, context))
            self._shaking[connection] = shaking
            shaking.add_done_callback(partial(self._handshake_done, connection, accepted))

    async def _start_handshake(
        self, connection: WireConnection, accepted: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        """Have a connection speak TLS, where it is to."""
        more = {"ssl_handshake_timeout": GREETING_SECONDS, "ssl_shutdown_timeout": 1.0} if context else {}
        try:
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(lambda: connection, accepted, ssl=context, **more)
        except (OSError, TimeoutError, asyncio.CancelledError):
            connection.drop()
            connection.connection_lost(None)  # which nobody says of a transport that did not come about
            accepted.close()

    def _handshake_done(self, connection: WireConnection, accepted: socket.socket, shaking: asyncio.Task[None]) -> None:
        self._shaking.pop(connection, None)
        if shaking.cancelled():  # before it had begun
            connection.drop()
            accepted.close()

    def _closed(self, connection: WireConnection, _: object) -> None:
        self.connections.discard(connection)
        self.admission.connection_ended(connection)
        self._crowded |= len(self.connections) >= CROWD
        if self._crowded and len(self.connections) < CROWD // 4:
            self._crowded = False
            _give_memory_back()

    def _drop(self, connection: WireConnection) -> None:
        shaking = self._shaking.get(connection)
        if shaking is not None and not shaking.done():
            shaking.cancel()
        else:
            connection.drop()

    async def close(self) -> None:
        """Stop listening and close what was accepted."""
        for task in self._accepting:
            task.cancel()
        for listener in self._sockets:
            listener.close()
        shaking = list(self._shaking.values())
        for task in shaking:
            task.cancel()
        await asyncio.gather(*self._accepting, *shaking, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in list(self.connections)))


class RealNetwork:
    """The network of a node, or of a user's tool.

    Args:
        dispatcher: what `local:` reaches.
        identity: who this is: a node, or None for a user's tool.
        credentials: for TCP; without them it is refused.
        users: finds the user that a token stands for, or raises PoolError; without it tokens are refused.
    """

    def __init__(
        self,
        dispatcher: Dispatcher | None = None,
        identity: Identity | None = None,
        credentials: TlsCredentials | None = None,
        users: Users | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._identity = identity
        self._credentials = credentials
        self._users = users
        self._made: weakref.WeakSet[WireConnection] = weakref.WeakSet()
        self._servers: set[Server] = set()  # a listener that nobody holds would be closed by the collector
        self._hello: dict[str, Any] = {"software": f"poolnode {__version__}"}
        if identity is not None and identity.kind == "node":
            self._hello["node"] = identity.name

    def prove_with(self, credentials: TlsCredentials | None) -> None:
        """From now on use these credentials: the node has become part of a pool."""
        self._credentials = credentials

    def part_with(self, nodes: Collection[str]) -> None:
        """End the TLS connections with these nodes; those who still belong to the pool may come again."""
        for connection in [*self._made, *(one for server in self._servers for one in server.connections)]:
            if connection.identity.node in nodes and connection.identity.uid is None:
                connection.drop()

    def part_with_token(self, number: str) -> None:
        """End the connections of users who came with this token."""
        for connection in [one for server in self._servers for one in server.connections]:
            if connection.identity.token == number:
                connection.drop()

    async def connect(self, address: str, dispatcher: Dispatcher | None = None) -> Connection:
        scheme, place, port = parse_address(address)
        if scheme == "local":
            own = self._dispatcher or Dispatcher()
            back = dispatcher if dispatcher is not own else None
            return LocalConnection(own, self._identity or own_identity(""), address, back)
        loop = asyncio.get_running_loop()
        hello = self._hello
        if scheme == "tcp" and self._credentials is not None and self._credentials.token is not None:
            hello = {**hello, "token": self._credentials.token}
        connection = WireConnection(
            opener=True,
            dispatcher=dispatcher,
            identify=self._identify_unix if scheme == "unix" else self._identify_server,
            hello=hello,
            address=address,
        )
        self._made.add(connection)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if scheme == "unix":
                    await loop.create_unix_connection(lambda: connection, place)
                else:
                    transport, _ = await loop.create_connection(
                        lambda: connection,
                        place,
                        port,
                        ssl=self._tls(address).client_context(),
                        ssl_handshake_timeout=CONNECT_SECONDS,
                        ssl_shutdown_timeout=1.0,
                    )
                    _keep_alive(transport)
                await connection.opened
        except BaseException as error:
            connection.drop()
            if isinstance(error, OSError | TimeoutError):
                raise _explained(address, error) from error
            raise
        return connection

    async def speak_over(
        self, peer: socket.socket, dispatcher: Dispatcher | None, *, opener: bool, name: str
    ) -> WireConnection:
        """Speak the protocol with another node by TLS over a connected socket, which is taken over.

        Args:
            opener: whether this side is the client; the other one is not.
            name: for people, where it leads.

        Raises:
            CannotConnect: the other side is no node of the pool, or does not answer.
        """
        identify = self._identify_server if opener else self._identify_client

        def identified(hello: Mapping[str, Any], transport: asyncio.BaseTransport) -> Identity:
            who = identify(hello, transport)
            if not who.node:
                raise CannotConnect(f"{name} is no node of this pool")
            return who

        connection = WireConnection(
            opener=opener, dispatcher=dispatcher, identify=identified, hello=self._hello, address=name
        )
        self._made.add(connection)
        loop = asyncio.get_running_loop()
        try:
            tls = self._tls(name)
            peer.setblocking(False)
            async with asyncio.timeout(CONNECT_SECONDS):
                if opener:
                    context = tls.client_context()
                    await loop.create_connection(
                        lambda: connection, sock=peer, ssl=context, server_hostname="", ssl_shutdown_timeout=1.0
                    )
                else:
                    context = tls.server_context()
                    await loop.connect_accepted_socket(lambda: connection, peer, ssl=context, ssl_shutdown_timeout=1.0)
                await connection.opened
        except BaseException as error:
            connection.drop()
            peer.close()
            if isinstance(error, OSError | TimeoutError):
                raise _explained(name, error) from error
            raise
        return connection

    async def listen(self, address: str, dispatcher: Dispatcher) -> Server:
        scheme, place, port = parse_address(address)
        if scheme == "local":
            raise CannotListen("cannot listen on local:", hint="it needs no server")
        loop = asyncio.get_running_loop()
        server = Server(address, dispatcher)
        if scheme == "unix":
            await _clear_socket(place)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                listener.bind(place)
                os.chmod(place, 0o666)  # who it is is known; who may is decided by the directory and by rights
                _listen(listener)
            except OSError as error:
                listener.close()
                raise CannotListen(f"cannot listen on {address}: {error.strerror or error}") from error
            server.listening([listener], lambda: self._accept(server, self._identify_unix, "a local user"), None)
            self._servers.add(server)
            return server
        context = self._tls(address).server_context()
        sockets: list[socket.socket] = []
        try:
            for family, kind, number, _, at in await loop.getaddrinfo(
                place, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            ):
                listener = socket.socket(family, kind, number)
                sockets.append(listener)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind(at)
                _listen(listener)
        except OSError as error:
            for listener in sockets:
                listener.close()
            raise CannotListen(
                f"cannot listen on {address}: {error.strerror or error}",
                hint="choose another port or stop who has it",
            ) from error
        server.address = tcp_address(place, sockets[0].getsockname()[1])
        server.listening(sockets, lambda: self._accept(server, self._identify_client, "a node"), context)
        self._servers.add(server)
        return server

    # -- who is there ----------------------------------------------------------------------------------------

    def _accept(self, server: Server, identify: Identify, name: str) -> WireConnection:
        def identified(hello: Mapping[str, Any], transport: asyncio.BaseTransport) -> Identity:
            who = identify(hello, transport)
            server.admission.identify(connection, who)
            return who

        connection = WireConnection(
            opener=False,
            dispatcher=server.dispatcher,
            identify=identified,
            hello=self._hello,
            address=f"{name} at {server.address}",
        )
        return connection

    def _identify_unix(self, hello: Mapping[str, Any], transport: asyncio.BaseTransport) -> Identity:
        node = hello.get("node")
        return peer_identity(_peer_uid(transport), os.geteuid(), node if isinstance(node, str) else "")

    def _identify_server(self, hello: Mapping[str, Any], transport: asyncio.BaseTransport) -> Identity:
        certificate = transport.get_extra_info("peercert")
        assert self._credentials is not None
        return self._credentials.identify(certificate or {})

    def _identify_client(self, hello: Mapping[str, Any], transport: asyncio.BaseTransport) -> Identity:
        _keep_alive(transport)
        certificate = transport.get_extra_info("peercert")
        if certificate and self._credentials is not None:
            return self._credentials.identify(certificate)
        token = hello.get("token")
        if token is None:
            return ANONYMOUS
        if self._users is None or not isinstance(token, str):
            raise CannotConnect("this node takes no tokens of users", hint="ask the node that made the token")
        return self._users(token)

    def _tls(self, address: str) -> TlsCredentials:
        if self._credentials is None:
            raise CannotConnect(
                f"cannot use {address}: there are no credentials of a pool here",
                hint="join the pool with a token from `poolnode token`",
            )
        return self._credentials


def _listen(listener: socket.socket) -> None:
    listener.setblocking(False)
    listener.listen(1024)


def _give_memory_back() -> None:
    """Many connections have ended: their buffers go back to the system."""
    ctypes.CDLL(None).malloc_trim(0)


def _peer_uid(transport: asyncio.BaseTransport) -> int:
    return _uid_of(transport.get_extra_info("socket"))


def _uid_of(peer: Any) -> int:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)


def _keep_alive(transport: asyncio.BaseTransport) -> None:
    peer = transport.get_extra_info("socket")
    try:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_SECONDS // 2)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENT_SECONDS // 6)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_SECONDS * 1000)
    except OSError:
        pass  # the connection is gone already, which its end will tell


async def _clear_socket(path: str) -> None:
    """Remove a socket that a node left behind.

    Raises:
        CannotListen: a node answers on it, or the path is something else.
    """
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise CannotListen(f"cannot listen on {path}: it is there and is no socket")
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotListen(f"cannot listen on {path}: {error.strerror}") from error
    try:
        transport, _ = await asyncio.get_running_loop().create_unix_connection(asyncio.Protocol, path)
    except OSError:
        os.unlink(path)
    else:
        transport.abort()
        raise CannotListen(f"cannot listen on {path}: another node does already", hint="stop that one first")


def _explained(address: str, error: OSError | TimeoutError) -> CannotConnect:
    said = f"cannot connect to {address}"
    if isinstance(error, ssl.SSLCertVerificationError):
        if "expired" in error.verify_message or "not yet valid" in error.verify_message:
            return CannotConnect(f"{said}: {error.verify_message}", hint="compare the clocks of both machines")
        return CannotConnect(
            f"{said}: it is not of this pool ({error.verify_message})",
            hint="check the address, or join that pool with a token",
            retry=False,
        )
    if isinstance(error, ssl.SSLError):
        return CannotConnect(f"{said}: TLS failed ({error.reason or error})", hint="is it a poolnode?")
    if isinstance(error, FileNotFoundError):
        return CannotConnect(f"{said}: there is no such socket", hint="no node runs there")
    if isinstance(error, ConnectionRefusedError):
        return CannotConnect(f"{said}: nobody listens there", hint="is the node running?")
    if isinstance(error, TimeoutError):
        return CannotConnect(f"{said}: no answer within {CONNECT_SECONDS:g} s")
    return CannotConnect(f"{said}: {(error.strerror or str(error) or type(error).__name__).lower()}")
