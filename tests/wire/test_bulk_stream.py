"""Lanes, over a pair of sockets and what was a connection: every byte, then the end; nothing of what was changed."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import socket
from pathlib import Path
from typing import Any

import pytest

from pool.outside import OutsideWorld
from pool.wire import (
    Call,
    ConnectionLost,
    Dispatcher,
    LocalFault,
    RealNetwork,
    Right,
    Service,
    WireConnection,
    bulk_stream,
    method,
    own_identity,
)
from pool.wire.authority import Authority
from pool.wire.bulk_stream import FRAME, KEY, QUEUE, BulkReceiver, BulkSender
from pool.wire.credentials import Credentials

DATA = random.Random(5).randbytes(2 * FRAME + 4711)
LONG = 20.0  # seconds for what takes none


async def received(lane: BulkReceiver) -> bytes:
    got = bytearray()
    while data := await asyncio.wait_for(lane.receive(), LONG):
        got += data
    return bytes(got)


async def test_bytes_of_all_lengths_come_in_order_and_then_the_end() -> None:
    ours, theirs = socket.socketpair()
    key = os.urandom(KEY)
    sender, receiver = BulkSender(ours, key), BulkReceiver(theirs, key)
    reading = asyncio.create_task(received(receiver))
    cuts = [0, 1, 2, 1000, FRAME, FRAME + 1, 2 * FRAME + 1, len(DATA)]
    for begin, end in itertools.pairwise(cuts):
        await sender.send(DATA[begin:end])
    await sender.send(b"")
    assert await reading == DATA
    sender.close()
    receiver.close()


async def test_nothing_goes_over_the_wire_that_can_be_read() -> None:
    ours, theirs = socket.socketpair()
    sender = BulkSender(ours, os.urandom(KEY))
    await sender.send(b"secret" * 100)
    assert b"secret" not in await asyncio.to_thread(theirs.recv, 620, socket.MSG_WAITALL)
    sender.close()
    theirs.close()


@pytest.mark.parametrize("place", [0, 3, 4, 700, -1])
async def test_what_was_changed_on_its_way_is_not_taken(place: int) -> None:
    """A bit of the length, of what is sealed, of what vouches for it."""
    ours, relay = socket.socketpair()
    onward, theirs = socket.socketpair()
    key = os.urandom(KEY)
    sender, receiver = BulkSender(ours, key), BulkReceiver(theirs, key)
    await sender.send(DATA[:1000])
    frame = bytearray(await asyncio.to_thread(relay.recv, 1020, socket.MSG_WAITALL))
    frame[place] ^= 1
    onward.sendall(frame)
    onward.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionLost):
        await asyncio.wait_for(receiver.receive(), LONG)
    for lane in (sender, receiver):
        lane.close()
    for end in (relay, onward):
        end.close()


async def test_what_comes_twice_or_out_of_order_is_not_taken() -> None:
    ours, relay = socket.socketpair()
    onward, theirs = socket.socketpair()
    key = os.urandom(KEY)
    sender, receiver = BulkSender(ours, key), BulkReceiver(theirs, key)
    await sender.send(b"x" * 10)
    frame = await asyncio.to_thread(relay.recv, 30, socket.MSG_WAITALL)
    onward.sendall(frame + frame)
    assert await asyncio.wait_for(receiver.receive(), LONG) == b"x" * 10
    with pytest.raises(ConnectionLost, match="tampered"):
        await asyncio.wait_for(receiver.receive(), LONG)
    for lane in (sender, receiver):
        lane.close()
    for end in (relay, onward):
        end.close()


async def test_either_end_hears_that_the_other_has_closed() -> None:
    ours, theirs = socket.socketpair()
    key = os.urandom(KEY)
    sender, receiver = BulkSender(ours, key), BulkReceiver(theirs, key)
    await sender.send(b"x")
    assert await asyncio.wait_for(receiver.receive(), LONG) == b"x"
    sender.close()
    with pytest.raises(ConnectionLost):
        await asyncio.wait_for(receiver.receive(), LONG)
    ours, theirs = socket.socketpair()
    sender, receiver = BulkSender(ours, key), BulkReceiver(theirs, key)
    receiver.close()

    async def send_for_ever() -> None:
        while True:
            await sender.send(DATA)

    with pytest.raises(ConnectionLost):
        await asyncio.wait_for(send_for_ever(), LONG)


async def test_what_nobody_takes_holds_the_sender_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """At no moment is more on its way than either end and the sockets hold."""
    monkeypatch.setattr(bulk_stream, "INBOX", 4 * QUEUE)
    ours, theirs = socket.socketpair()
    key = os.urandom(KEY)
    sender, receiver = BulkSender(ours, key), BulkReceiver(theirs, key)
    total, sent, some = 16 * QUEUE, 0, asyncio.Event()

    async def send() -> None:
        nonlocal sent
        while sent < total:
            sent += QUEUE
            if sent > 4 * QUEUE:
                some.set()
            await sender.send(bytes(QUEUE))

    sending, came = asyncio.create_task(send()), 0
    await asyncio.wait_for(some.wait(), LONG)
    while came < total:
        assert sent <= came + 9 * QUEUE
        came += len(await asyncio.wait_for(receiver.receive(), LONG))
    await sending
    sender.close()
    receiver.close()


async def test_a_key_is_not_used_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_stream, "MOST", 1000)
    ours, theirs = socket.socketpair()
    sender = BulkSender(ours, os.urandom(KEY))
    await sender.send(bytes(1000))
    with pytest.raises(ConnectionLost) as lost:
        await sender.send(b"x")
    assert lost.value.retry
    theirs.close()


class Giving(Service):
    """Takes its callers' connections apart."""

    def __init__(self) -> None:
        self.given: asyncio.Queue[socket.socket] = asyncio.Queue()

    @method(Right.READ)
    async def give(self, call: Call, params: dict[str, Any]) -> None:
        assert isinstance(call.connection, WireConnection)
        self.given.put_nowait(await call.connection.detach())


async def test_a_connection_over_tls_becomes_a_lane(tmp_path: Path) -> None:
    """Both sides take the socket out, with TLS and all that a loop has for it left behind, many times over."""
    credentials = Credentials.create(
        tmp_path / "trust", Authority.open(tmp_path / "authority", "ours", OutsideWorld()), "one", ["startd"]
    )
    giving, dispatcher = Giving(), Dispatcher()
    dispatcher.add("lane", giving)
    network = RealNetwork(None, own_identity("one"), credentials)
    server = await network.listen("tcp://127.0.0.1:0", dispatcher)
    for _ in range(5):
        link = await network.connect(server.address)
        assert isinstance(link, WireConnection)
        assert link.detachable
        link.notify("lane.give")
        theirs = await asyncio.wait_for(giving.given.get(), LONG)
        ours = await link.detach()
        assert link.closed.done()
        key = os.urandom(KEY)
        receiver, sender = BulkReceiver(theirs, key), BulkSender(ours, key)
        reading = asyncio.create_task(received(receiver))
        await sender.send(DATA)
        await sender.send(b"")
        assert await reading == DATA
        sender.close()
        receiver.close()
        with pytest.raises(LocalFault):
            await link.detach()
    assert not server.connections
    await server.close()
