"""A network in memory with everything that goes wrong on a real one.

    network = MemoryNetwork(random.Random(7))
    server = await network.host("a", roles=["collector"]).listen("mem://a", dispatcher)
    connection = await network.host("b", roles=["startd"]).connect("mem://a")
    network.partition({"a"}, {"b"})

Connections speak the real protocol; only the transport is simulated. Bytes of one direction arrive in order, each piece
after a delay drawn from the given chance. The faults of a link between two hosts:

    cut       connections break (each side notices after a delay of its own) and new ones are refused
    silence   nothing arrives and no side is notified; what was sent arrives if the link heals before `keepalive`
              seconds are over, after that the connection breaks
    deafen    nothing arrives from one host at the other, and no side is notified; the other way all is well
    loss      each piece that is written breaks its connection with that probability (TCP loses no less)
    calls     single calls are lost, late, doubled, or overtake each other (`pool.testing.messages`)

The identity of a host is given when it is made and is what the others see; there is no TLS to fool. The same chance
gives the same order of all things on a `VirtualLoop`; `fingerprint` sums up everything that was delivered, and when.
"""

from __future__ import annotations

import asyncio
import math
import random
import zlib
from collections import Counter, deque
from collections.abc import Collection, Iterable
from struct import Struct
from typing import Any

from pool.testing.messages import CallTrouble, TroubledConnection
from pool.wire import (
    CannotConnect,
    CannotListen,
    Connection,
    Dispatcher,
    Identity,
    LocalConnection,
    WireConnection,
    node_identity,
    own_identity,
    user_identity,
)

HIGH_WATER = 1024 * 1024
CONNECT_SECONDS = 10.0
TIME = Struct(">d")


class MemoryNetwork:
    """The wires between hosts.

    Args:
        chance: where delays and losses are drawn from.
        delay: shortest and longest time in seconds that a piece takes from one host to another.
        loss: probability, for each piece that is written, that its connection breaks.
        keepalive: seconds after which a silent connection breaks; None for never.
    """

    def __init__(
        self,
        chance: random.Random,
        *,
        delay: tuple[float, float] = (0.0002, 0.002),
        loss: float = 0.0,
        keepalive: float | None = 60.0,
    ) -> None:
        self.delay = delay
        self.loss = loss
        self.keepalive = keepalive
        self._chance = chance
        self._fingerprint = 0
        self._listeners: dict[str, MemoryServer] = {}
        self._wires: dict[_Wire, None] = {}
        self._cut: set[frozenset[str]] = set()
        self._silent: set[frozenset[str]] = set()
        self._deaf: set[tuple[str, str]] = set()
        self._down: set[str] = set()
        self._delays: dict[frozenset[str], tuple[float, float]] = {}
        self._call_trouble: dict[frozenset[str], CallTrouble] = {}
        self.under_way: Counter[str] = Counter()

    # -- hosts -----------------------------------------------------------------------------------------------

    def host(
        self,
        name: str,
        *,
        roles: Iterable[str] = (),
        identity: Identity | None = None,
        dispatcher: Dispatcher | None = None,
    ) -> MemoryHost:
        """A host as a `Network`. The others see it as `identity`, by default a node with these roles."""
        roles = frozenset(roles)
        seen = identity or node_identity(name, roles)
        return MemoryHost(self, name, seen, own_identity(name, roles), dispatcher)

    async def user(self, name: str, at: str, *, administer: bool = False) -> Connection:
        """A connection of a user's tool to the node on its own host.

        Raises:
            CannotConnect: no node listens at `mem://{at}`.
        """
        identity = user_identity(name, administer=administer)
        return await MemoryHost(self, at, identity, identity, None).connect(f"mem://{at}")

    # -- trouble ---------------------------------------------------------------------------------------------

    def cut(self, one: str, other: str) -> None:
        """Break every connection between two hosts, and let none come about until it heals."""
        self._cut.add(frozenset((one, other)))
        for wire in self._between(one, other):
            wire.break_()

    def drop_silently(self, one: str, other: str) -> None:
        """Let nothing through between two hosts, and tell nobody."""
        self._silent.add(frozenset((one, other)))
        for wire in self._between(one, other):
            wire.fall_silent()

    def drop_one_way(self, source: str, target: str) -> None:
        """Let nothing through from one host to another, and tell nobody."""
        self._deaf.add((source, target))
        for wire in self._between(source, target):
            wire.fall_silent()

    def slow_down(self, one: str, other: str, delay: tuple[float, float]) -> None:
        """Let pieces between two hosts take these seconds, at least and at most, instead of `delay`."""
        self._delays[frozenset((one, other))] = delay

    def trouble_calls(self, one: str, other: str, trouble: CallTrouble | None) -> None:
        """Have calls between two hosts lost, late or doubled from now on; None ends it."""
        if trouble is None:
            self._call_trouble.pop(frozenset((one, other)), None)
        else:
            self._call_trouble[frozenset((one, other))] = trouble

    def partition(self, *groups: Collection[str], silent: bool = False) -> None:
        """Part the hosts into groups that do not reach each other; who is in none stays with everybody."""
        for number, group in enumerate(groups):
            for other_group in groups[number + 1 :]:
                for one in sorted(group):
                    for other in sorted(other_group):
                        (self.drop_silently if silent else self.cut)(one, other)

    def restore_links(self, one: str | None = None, other: str | None = None) -> None:
        """Undo cuts, silences and partitions: between two hosts, of one host, or all."""
        wanted = {name for name in (one, other) if name is not None}
        for links in (self._cut, self._silent):
            links -= {link for link in links if wanted <= link}
        self._deaf = {pair for pair in self._deaf if not wanted <= set(pair)}
        for wire in list(self._wires):
            wire.speak_again()

    def crash(self, name: str, *, silent: bool = False) -> None:
        """End a host: it listens no more and sends no more. `silent` is a power failure, else its kernel
        tells."""
        self._down.add(name)
        for address in [address for address, server in self._listeners.items() if server.host == name]:
            del self._listeners[address]
        for wire in [wire for wire in self._wires if name in wire.hosts]:
            wire.lose_host(name, silent=silent)

    def restart(self, name: str) -> None:
        """Let a crashed host connect again; listening there does it too. Its connections from before stay dead."""
        for wire in [wire for wire in self._wires if name in wire.hosts]:
            wire.break_()
        self._down.discard(name)

    # -- for checks ------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Bytes that were sent and have not arrived; 0 when all is said."""
        return sum(end.flying for wire in self._wires for end in wire.ends)

    @property
    def connections(self) -> int:
        return len(self._wires)

    @property
    def fingerprint(self) -> int:
        """A sum of who got what from whom and when: equal in two runs that went the same way."""
        return self._fingerprint

    # -- inside ----------------------------------------------------------------------------------------------

    def _between(self, one: str, other: str) -> list[_Wire]:
        pair = frozenset((one, other))
        return [wire for wire in self._wires if wire.hosts == pair]

    def latency(self, hosts: frozenset[str] = frozenset()) -> float:
        least, most = self._delays.get(hosts, self.delay)
        return least + (most - least) * self._chance.random()

    def lost(self) -> bool:
        return self.loss > 0 and self._chance.random() < self.loss

    def is_cut(self, hosts: frozenset[str]) -> bool:
        return hosts in self._cut

    def is_silent(self, hosts: frozenset[str]) -> bool:
        return hosts in self._silent or any(name in self._down for name in hosts)

    def is_deaf(self, hosts: frozenset[str]) -> bool:
        return any(hosts == frozenset(pair) for pair in self._deaf)

    def lets_through(self, source: str, target: str) -> bool:
        if not (self._deaf or self._silent or self._down):
            return True
        return (source, target) not in self._deaf and not self.is_silent(frozenset((source, target)))

    def arrived(self, way: bytes, data: bytes, now: float) -> None:
        """Note that something arrived, on a way from one host to another."""
        self._fingerprint = zlib.crc32(data, zlib.crc32(TIME.pack(now), zlib.crc32(way, self._fingerprint)))

    def forget(self, wire: _Wire) -> None:
        self._wires.pop(wire, None)

    async def connect(self, host: MemoryHost, address: str, dispatcher: Dispatcher | None) -> Connection:
        if host.name in self._down:
            raise CannotConnect(f"cannot connect to {address}: {host.name} is down")
        server = self._listeners.get(address)
        target = server.host if server is not None else address.removeprefix("mem://").partition(":")[0]
        hosts = frozenset((host.name, target))
        await asyncio.sleep(self.latency(hosts))
        server = self._listeners.get(address)
        if self.is_silent(hosts) or self.is_deaf(hosts):
            await asyncio.sleep(CONNECT_SECONDS)
            raise CannotConnect(f"cannot connect to {address}: no answer within {CONNECT_SECONDS:g} s")
        if server is None or self.is_cut(hosts):
            raise CannotConnect(f"cannot connect to {address}: nobody listens there")
        seen, sees = host.identity, server.identity
        here = TroubledConnection(
            lambda: self._call_trouble.get(hosts),
            self.under_way,
            opener=True,
            dispatcher=dispatcher,
            identify=lambda *_: sees,
            hello={"node": host.name},
            address=address,
        )
        there = TroubledConnection(
            lambda: self._call_trouble.get(hosts),
            self.under_way,
            opener=False,
            dispatcher=server.dispatcher,
            identify=lambda *_: seen,
            hello={"node": target},
            address=f"{host.name} at {address}",
        )
        server.accepted(there)
        wire = _Wire(self, host.name, target)
        self._wires[wire] = None
        wire.join(here, there)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await here.opened
        except BaseException as error:
            here.drop()
            if isinstance(error, TimeoutError):
                raise CannotConnect(f"cannot connect to {address}: no answer in time") from None
            raise
        return here

    def listen(self, host: MemoryHost, address: str, dispatcher: Dispatcher) -> MemoryServer:
        if address in self._listeners:
            raise CannotListen(f"cannot listen on {address}: another node does already")
        if host.name in self._down:
            self.restart(host.name)
        server = self._listeners[address] = MemoryServer(self, host, address, dispatcher)
        return server

    def unlisten(self, address: str, server: MemoryServer) -> None:
        if self._listeners.get(address) is server:
            del self._listeners[address]


class MemoryHost:
    """One host's `Network`."""

    def __init__(
        self,
        network: MemoryNetwork,
        name: str,
        identity: Identity,
        own: Identity,
        dispatcher: Dispatcher | None,
    ) -> None:
        self.network = network
        self.name = name
        self.identity = identity
        self._own = own
        self._dispatcher = dispatcher

    async def connect(self, address: str, dispatcher: Dispatcher | None = None) -> Connection:
        if address == "local:":
            return LocalConnection(self._dispatcher or dispatcher or Dispatcher(), self._own)
        return await self.network.connect(self, address, dispatcher)

    async def listen(self, address: str, dispatcher: Dispatcher) -> MemoryServer:
        if self._dispatcher is None:
            self._dispatcher = dispatcher
        return self.network.listen(self, address, dispatcher)


class MemoryServer:
    """A host that listens."""

    def __init__(self, network: MemoryNetwork, host: MemoryHost, address: str, dispatcher: Dispatcher) -> None:
        self.address = address
        self.host = host.name
        self.identity = host.identity
        self.dispatcher = dispatcher
        self._network = network
        self._connections: dict[WireConnection, None] = {}

    def accepted(self, connection: WireConnection) -> None:
        self._connections[connection] = None
        connection.closed.add_done_callback(lambda _: self._connections.pop(connection, None))

    async def close(self) -> None:
        self._network.unlisten(self.address, self)
        await asyncio.gather(*(connection.close() for connection in list(self._connections)))


class _Wire:
    """A connection between two hosts, both of its ends."""

    def __init__(self, network: MemoryNetwork, one: str, other: str) -> None:
        self.network = network
        self.hosts = frozenset((one, other))
        self.loop = asyncio.get_running_loop()
        self.ends = (_TransportEnd(self, one, other), _TransportEnd(self, other, one))
        self.ends[0].other, self.ends[1].other = self.ends[1], self.ends[0]
        self._patience: asyncio.TimerHandle | None = None

    @property
    def silent(self) -> bool:
        return self.network.is_silent(self.hosts) or self.network.is_deaf(self.hosts)

    def join(self, here: asyncio.Protocol, there: asyncio.Protocol) -> None:
        for end, protocol in zip(self.ends, (here, there), strict=True):
            end.set_protocol(protocol)
        for end in reversed(self.ends):  # who accepts is ready before who connected speaks
            end.protocol.connection_made(end)

    def break_(self) -> None:
        """Both sides notice, each in its own time."""
        for end in self.ends:
            self.loop.call_later(self.network.latency(), end.connection_over, ConnectionResetError("connection reset"))

    def lose_host(self, name: str, *, silent: bool) -> None:
        """One end is gone, with what it had not sent."""
        for end in self.ends:
            if end.host == name:
                end.cut_off()
            elif not silent:
                self.loop.call_later(
                    self.network.latency(), end.connection_over, ConnectionResetError("connection reset")
                )
        if silent:
            self.fall_silent()

    def fall_silent(self) -> None:
        if self._patience is None and self.network.keepalive is not None:
            self._patience = self.loop.call_later(self.network.keepalive, self._out_of_patience)

    def _out_of_patience(self) -> None:
        self._patience = None
        if self.silent:
            for end in self.ends:
                end.connection_over(TimeoutError("connection timed out"))

    def speak_again(self) -> None:
        if self.silent:
            return
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        for end in self.ends:
            end.send_held()

    def ended(self) -> None:
        if all(end.dead for end in self.ends):
            if self._patience is not None:
                self._patience.cancel()
            self.network.forget(self)


class _TransportEnd(asyncio.Transport):
    """One end: the transport of the protocol on that host."""

    other: _TransportEnd
    protocol: asyncio.Protocol

    def __init__(self, wire: _Wire, host: str, to: str) -> None:
        super().__init__()
        self.wire = wire
        self.host = host
        self._way = f"{host}>{to}@".encode()
        self.flying = 0  # bytes sent from here that have not arrived
        self.dead = False
        self._closing = False
        self._paused = False
        self._torn = False  # a piece was lost: nothing that is sent after it arrives
        self._last = 0.0  # when the piece sent last arrives
        self._held: deque[bytes | None] = deque()  # what arrived at a silent link; None is the end

    # asyncio.Transport

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The limit is the network's."""

    def get_write_buffer_size(self) -> int:
        return self.flying

    def is_closing(self) -> bool:
        return self._closing or self.dead

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self.dead or self._torn:
            return
        if self.wire.network.lost():
            self._torn = True
            self.wire.break_()
            return
        self.flying += len(data)
        self._launch(bytes(data))
        if self.flying > HIGH_WATER and not self._paused:
            self._paused = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._closing and not self.dead:
            self._closing = True
            self._launch(None)
            self.wire.loop.call_soon(self.connection_over, None)

    def abort(self) -> None:
        if not self.dead:
            self._closing = True
            self._launch(None)
            self.wire.loop.call_soon(self.connection_over, None)

    def cut_off(self) -> None:
        """Nothing leaves from here any more."""
        self._closing = True
        self.wire.loop.call_soon(self.connection_over, ConnectionResetError("the host crashed"))

    # the way over

    def _launch(self, data: bytes | None) -> None:
        loop, network = self.wire.loop, self.wire.network
        # Never at one time with the piece before: the loop runs timers of the same time in any order.
        self._last = max(math.nextafter(self._last, math.inf), loop.time() + network.latency(self.wire.hosts))
        loop.call_at(self._last, self._arrive, data)

    def _arrive(self, data: bytes | None) -> None:
        if not self.wire.network.lets_through(self.host, self.other.host):
            self._held.append(data)
            self.wire.fall_silent()
        elif self._held:
            self._held.append(data)  # behind those that arrived before the link healed
        else:
            self._deliver(data)

    def send_held(self) -> None:
        if self._held:
            loop, network = self.wire.loop, self.wire.network
            loop.call_later(network.latency(self.wire.hosts), self._release_held)

    def _release_held(self) -> None:
        """Deliver what was held, in order; pieces that were sent since are behind it."""
        if self._held and not self.wire.network.lets_through(self.host, self.other.host):
            self.wire.fall_silent()
            return
        while self._held:
            self._deliver(self._held.popleft())

    def _deliver(self, data: bytes | None) -> None:
        if data is not None and not self.dead:
            self.flying -= len(data)
        other = self.other
        if other.dead:
            return
        if data is None:
            other.connection_over(None)
            return
        self.wire.network.arrived(self._way, data, self.wire.loop.time())
        other.protocol.data_received(data)
        if self._paused and self.flying < HIGH_WATER // 2 and not self.dead:
            self._paused = False
            self.protocol.resume_writing()

    def connection_over(self, error: Exception | None) -> None:
        """The connection is over for this side."""
        if self.dead:
            return
        self.dead = True
        self.flying = 0
        self.protocol.connection_lost(error)
        self.wire.ended()
