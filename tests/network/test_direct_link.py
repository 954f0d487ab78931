"""Direct connections between nodes of two pools: the other end alone has one, once, and only for what it is for."""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pool.errors import PoolError
from pool.network import direct_link
from pool.network.direct_link import MOST_OFFERS, DirectOffers, dial, speak
from pool.network.sealed_link import KEYS
from pool.outside import OutsideWorld
from pool.wire import (
    Call,
    CannotConnect,
    Dispatcher,
    RealNetwork,
    Right,
    Service,
    Stream,
    WireConnection,
    method,
    own_identity,
    streaming,
)
from pool.wire.authority import Authority
from pool.wire.credentials import Credentials
from pool.wire.errors import CallRefused, RemoteError
from pool.wire.join import strangers_network
from tests.starter.support import until


class Door(Service):
    """The startd of a node, as strangers reach it."""

    def __init__(self) -> None:
        self.offers = DirectOffers(secrets.token_hex)
        self.taken: list[socket.socket] = []

    def offer(self, keys: bytes, holder: object = None) -> str:
        return self.offers.offer(keys, self.taken.append, holder)

    @method(None, takes={"ticket": str, "proof": bytes})
    async def direct(self, call: Call, params: dict[str, Any]) -> None:
        await self.offers.serve(call, params)

    @method(Right.READ)
    async def secret(self, call: Call, params: dict[str, Any]) -> str:
        return "of the pool"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[tuple[Door, str]]:
    """A node of a pool with an authority of its own, and its address."""
    outside = OutsideWorld(wall=time.time, chance=random.Random(1))
    authority = Authority.open(tmp_path / "authority", "chem", outside)
    door, dispatcher = Door(), Dispatcher()
    dispatcher.add("startd", door)
    credentials = Credentials.create(tmp_path / "node", authority, "node", ["startd"])
    server = await RealNetwork(dispatcher, own_identity("node"), credentials).listen("tcp://127.0.0.1:0", dispatcher)
    yield door, server.address
    for peer in door.taken:
        peer.close()
    await server.close()


async def connect(address: str, ticket: str, keys: bytes) -> socket.socket:
    return await dial(strangers_network(), address, "startd", ticket, keys)


async def refused(address: str, ticket: str, keys: bytes) -> None:
    with pytest.raises((PoolError, OSError, TimeoutError)):
        await connect(address, ticket, keys)


async def test_bytes_pass_between_two_pools(node: tuple[Door, str]) -> None:
    door, address = node
    keys = secrets.token_bytes(KEYS)
    peer = await connect(address, door.offer(keys), keys)
    with peer:
        (other,) = door.taken
        loop = asyncio.get_running_loop()
        other.setblocking(False)
        for source, to in ((peer, other), (other, peer)):
            await loop.sock_sendall(source, b"raw")
            assert await loop.sock_recv(to, 100) == b"raw"


async def test_a_ticket_opens_one_connection(node: tuple[Door, str]) -> None:
    """Somebody on the way has heard all that the asker said, and says it again."""
    door, address = node
    keys = secrets.token_bytes(KEYS)
    ticket = door.offer(keys)
    with await connect(address, ticket, keys):
        await refused(address, ticket, keys)
    assert len(door.taken) == 1


async def test_a_ticket_is_nothing_without_its_keys(node: tuple[Door, str]) -> None:
    door, address = node
    keys = secrets.token_bytes(KEYS)
    ticket = door.offer(keys)
    await refused(address, ticket, secrets.token_bytes(KEYS))
    await refused(address, "guess", keys)
    proof = direct_link._proof(keys, direct_link._ACCEPTS, ticket)  # that of the other side, given back
    link = await strangers_network().connect(address)
    with pytest.raises(PoolError):
        await link.call("startd.direct", {"ticket": ticket, "proof": proof})
    assert not door.taken
    with await connect(address, ticket, keys):
        assert len(door.taken) == 1, "whoever has them still may"


async def test_an_offer_lapses_and_can_be_withdrawn(node: tuple[Door, str], monkeypatch: pytest.MonkeyPatch) -> None:
    door, address = node
    keys, job = secrets.token_bytes(KEYS), object()
    tickets = [door.offer(keys, job), door.offer(keys, job)]
    other = door.offer(keys, object())
    door.offers.withdraw(job)
    for ticket in tickets:
        await refused(address, ticket, keys)
    with await connect(address, other, keys):
        pass
    monkeypatch.setattr("pool.network.direct_link.LIFE", 0.0)
    lapsed = door.offer(keys)
    await until(lambda: not door.offers._offers)
    await refused(address, lapsed, keys)


async def test_for_one_job_so_many_are_waited_for_at_a_time(node: tuple[Door, str]) -> None:
    """And others' offers are none of its business."""
    door, _ = node
    for _ in range(MOST_OFFERS):
        door.offer(bytes(KEYS), door)
    with pytest.raises(CallRefused) as error:
        door.offer(bytes(KEYS), door)
    assert error.value.retry
    door.offer(bytes(KEYS), object())
    door.offers.withdraw(door)
    door.offer(bytes(KEYS), door)


async def test_a_node_at_the_address_that_has_not_the_keys_is_not_believed(node: tuple[Door, str]) -> None:
    """An evil pool names a node that takes any ticket, and answers with what it likes."""
    door, address = node
    theirs, ours = secrets.token_bytes(KEYS), secrets.token_bytes(KEYS)

    class Liar(DirectOffers):
        async def serve(self, call: Call, params: dict[str, Any]) -> None:
            params["proof"] = direct_link._proof(theirs, direct_link._DIALS, params["ticket"])
            await super().serve(call, params)

    door.offers = Liar(secrets.token_hex)
    with pytest.raises(CannotConnect, match="is not the one that offered"):
        await connect(address, door.offer(theirs), ours)


async def test_what_answers_at_the_address_need_not_be_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service of a third party hears a TLS greeting, and nothing of the job; it may be silent as well."""
    monkeypatch.setattr("pool.network.direct_link.PATIENCE", 1.0)
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(100))
        if len(heard) == 1:
            writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
        else:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for _ in range(2):
        await refused(address, "a ticket for this", bytes(KEYS))
    server.close()
    assert all(data[0] == 0x16 and b"a ticket" not in data for data in heard), "a handshake"


async def test_a_stranger_may_do_nothing_else(node: tuple[Door, str]) -> None:
    link = await strangers_network().connect(node[1])
    with pytest.raises(RemoteError, match="strangers may not"):
        await link.call("startd.elsewhere", {})
    with pytest.raises(RemoteError, match="needs the right"):
        await link.call("startd.secret", {})
    await link.close()


class Parts(Service):
    """The methods of one end of a direct connection."""

    @method(None)
    async def add(self, call: Call, params: dict[str, Any]) -> int:
        assert not call.identity.rights
        return int(params["one"]) + int(params["two"])

    @streaming(None)
    async def echo(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        async for item in stream:
            await stream.send(item)


async def both_ends(door: Door, address: str, keys: bytes, other: bytes | None = None) -> list[Any]:
    dispatcher = Dispatcher()
    dispatcher.add("direct", Parts())
    peer = await connect(address, door.offer(keys), keys)
    ends = (peer, keys, True), (door.taken[-1], other or keys, False)
    speaking = [speak(one, own, dispatcher, dialed=dialed, name="it") for one, own, dialed in ends]
    return await asyncio.gather(*speaking, return_exceptions=True)


async def test_the_protocol_is_spoken_on_it_both_ways(node: tuple[Door, str]) -> None:
    door, address = node
    here, there = await both_ends(door, address, secrets.token_bytes(KEYS))
    for link in (here, there):
        assert await link.call("direct.add", {"one": 1, "two": 2}) == 3
        async with await link.stream("direct.echo") as stream:
            for _ in range(20):
                await stream.send(big := secrets.token_bytes(300_000))
                assert await stream.receive() == big
        with pytest.raises(RemoteError):
            await link.call("startd.secret", {})
    await here.close()
    async with asyncio.timeout(10.0):
        await there.closed


async def test_it_is_sealed_with_its_keys(node: tuple[Door, str]) -> None:
    door, address = node
    found = await both_ends(door, address, secrets.token_bytes(KEYS), secrets.token_bytes(KEYS))
    assert all(isinstance(one, PoolError | OSError | TimeoutError) for one in found), found


async def test_bytes_that_are_tampered_with_end_it(node: tuple[Door, str]) -> None:
    """Somebody on the way puts a byte among those of one end."""
    door, address = node
    keys = secrets.token_bytes(KEYS)
    peer = await connect(address, door.offer(keys), keys)
    again = peer.dup()
    dispatcher = Dispatcher()
    dispatcher.add("direct", Parts())
    here, there = await asyncio.gather(
        speak(peer, keys, dispatcher, dialed=True, name="it"),
        speak(door.taken[-1], keys, dispatcher, dialed=False, name="it"),
    )
    with again:
        again.send(b"\0")
        with pytest.raises(PoolError):
            await _ask_until_the_end(here)
    await until(there.closed.done)


async def _ask_until_the_end(link: WireConnection) -> None:
    while True:
        await link.call("direct.add", {"one": 1, "two": 2}, timeout=10.0)
