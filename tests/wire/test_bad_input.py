"""Callers at a node's doors that are no nodes: garbage, half a frame, too much, silence, crowds."""

from __future__ import annotations

import asyncio
import os
import pwd
import random
import types
from collections.abc import AsyncIterator
from pathlib import Path

import msgpack
import pytest

from pool.wire import CannotConnect, CannotListen, Dispatcher, RealNetwork, Server, identity, own_identity
from pool.wire import endpoint as endpoint_module
from pool.wire import network as network_module
from pool.wire.admission import Admission
from pool.wire.bounds import MEMBER
from pool.wire.frames import HEADER
from pool.wire.identity import USER_RIGHTS, Identity, node_identity, peer_identity, user_identity
from pool.wire.protocol import VERSION
from tests.wire.services import serving, soon

HELLO = {"version": list(VERSION), "features": [], **MEMBER.to_wire()}


def frame(value: object) -> bytes:
    body: bytes = msgpack.packb(value)
    return HEADER.pack(len(body)) + body


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    _, dispatcher = serving()
    server = await RealNetwork(dispatcher, own_identity("here")).listen(f"unix://{tmp_path}/s", dispatcher)
    yield server
    await server.close()


async def raw(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(server.address.removeprefix("unix://"))


async def answered(reader: asyncio.StreamReader) -> list[list[object]]:
    """Everything that a server sends until it closes."""
    data = await asyncio.wait_for(reader.read(), 5)
    frames = []
    while data:
        (size,) = HEADER.unpack_from(data)
        frames.append(msgpack.unpackb(data[4 : 4 + size]))
        data = data[4 + size :]
    return frames


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "a frame of"),
        (b"\x00\x00\x00\x05hello", "not msgpack"),
        (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes, where 65536 are allowed"),
        (frame([0, 1, "echo.say", [{}]]), "a request in phase greeting"),
        (frame([2, "$hello", [HELLO]]) + HEADER.pack(1 << 20), "where 65536 are allowed"),
        (frame([2, "$hello", [{**HELLO, "version": [7, 0]}]]), "version 7"),
    ],
)
async def test_it_is_told_why_and_the_door_closes(server: Server, data: bytes, said: str) -> None:
    reader, writer = await raw(server)
    writer.write(data)
    *_, bye = await answered(reader)
    assert bye[1] == "$bye"
    assert said in str(bye[2])
    writer.close()
    await soon(lambda: not server.connections)


async def test_garbage_of_every_kind_leaves_the_server_well(server: Server) -> None:
    chance = random.Random(5)
    for _ in range(60):
        _, writer = await raw(server)
        if chance.random() < 0.5:
            writer.write(frame([2, "$hello", [HELLO]]))
        writer.write(chance.randbytes(chance.randrange(1, 300)))
        writer.close()
    await soon(lambda: not server.connections)
    link = await RealNetwork().connect(server.address)
    assert await link.call("echo.ping") == "pong"
    await link.close()


async def test_half_a_frame_then_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "GREETING_SECONDS", 0.05)
    reader, writer = await raw(server)
    writer.write(frame([2, "$hello", [HELLO]])[:9])
    (bye,) = await answered(reader)
    assert "did not introduce itself in time" in str(bye)
    writer.close()
    reader, writer = await raw(server)
    writer.write(b"\x00\x00")
    writer.close()
    await soon(lambda: not server.connections)


async def test_a_server_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "GREETING_SECONDS", 0.05)
    silent = await asyncio.start_unix_server(lambda r, w: None, tmp_path / "s")
    with pytest.raises(CannotConnect, match="did not introduce itself"):
        await RealNetwork().connect(f"unix://{tmp_path}/s")
    silent.close()


async def test_a_server_that_is_something_else(tmp_path: Path) -> None:
    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_unix_server(web, tmp_path / "s")
    with pytest.raises(CannotConnect, match="broke the protocol"):
        await RealNetwork().connect(f"unix://{tmp_path}/s")
    server.close()


async def test_a_crowd_that_says_nothing_keeps_nobody_out(server: Server) -> None:
    """The oldest of them goes; who says at once who he is gets in."""
    server.admission.of_peer = 3
    crowd = [await raw(server) for _ in range(8)]
    await soon(lambda: len(server.connections) == 3)
    link = await RealNetwork().connect(server.address)
    assert await link.call("echo.ping") == "pong"
    await link.close()
    assert await asyncio.wait_for(crowd[0][0].read(), 5) == b""
    for _, writer in crowd:
        writer.close()
    await soon(lambda: not server.connections)


async def test_a_sequence_of_known_connections_is_no_crowd(server: Server) -> None:
    server.admission.of_peer = 3
    links = [await RealNetwork().connect(server.address) for _ in range(10)]
    for link in links:
        assert await link.call("echo.ping") == "pong"
        await link.close()
    await soon(lambda: not server.connections)


class Stranger:
    """A connection as `Admission` sees it."""


def ordinary(name: str) -> Identity:
    return Identity("user", name, uid=1000, rights=USER_RIGHTS)


def test_there_is_room_for_each_peer_and_each_user_and_a_reserve() -> None:
    out: list[Stranger] = []
    admission: Admission[Stranger] = Admission(128, out.append)
    assert (admission.strangers, admission.of_peer, admission.of_name, admission.of_users) == (16, 8, 8, 64)

    def come(peer: str) -> Stranger:
        one = Stranger()
        admission.connection_opened(one, peer)
        return one

    attackers = [come(f"10.0.0.{number % 4}") for number in range(500)]
    assert len(out) == 500 - 16
    member = come("10.0.1.1")
    assert member not in out
    assert attackers[-1] not in out, "the one that has waited longest goes, of the peer that has most"
    admission.identify(member, node_identity("desk", ["startd"]))
    for number in range(8):
        for user in range(8):
            admission.identify(come(f"uid {user}"), ordinary(f"u{user}"))
            assert number < 8
    for name, said in (("u1", "has 8 connections"), ("u9", "as many users' connections as it takes")):
        with pytest.raises(CannotConnect, match=said):
            admission.identify(come("uid 1"), ordinary(name))
    for who in (peer_identity(0, 0), user_identity("chief", administer=True), node_identity("other", ["schedd"])):
        admission.identify(come("10.0.0.1"), who)
    left = come("uid 2")
    admission.connection_ended(left)
    admission.connection_ended(left)
    for one in [*attackers, member]:
        admission.connection_ended(one)


async def test_a_user_with_too_many_connections_is_told_so(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_module, "peer_identity", lambda uid, own, node: ordinary("ann"))
    server.admission.of_name = 3
    links = [await RealNetwork().connect(server.address) for _ in range(3)]
    with pytest.raises(CannotConnect, match="user ann has 3 connections to this node already"):
        await RealNetwork().connect(server.address)
    await links[0].close()
    await soon(lambda: len(server.connections) == 2)
    again = await RealNetwork().connect(server.address)
    assert await again.call("echo.ping") == "pong"
    for link in [*links, again]:
        await link.close()


async def test_a_user_who_cannot_be_looked_up_is_nobody_else(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a free descriptor getpwuid knows nobody: a submit under the number would be another user's."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(identity, "os", types.SimpleNamespace(getuid=lambda: 4242))  # the caller is not the node's user
    with pytest.raises(CannotConnect, match="cannot find out who the user with the number"):
        await RealNetwork().connect(server.address)


async def test_sockets_that_are_there_already(server: Server, tmp_path: Path) -> None:
    with pytest.raises(CannotListen, match="another node does already"):
        await RealNetwork().listen(server.address, Dispatcher())
    (tmp_path / "file").touch()
    with pytest.raises(CannotListen, match="is no socket"):
        await RealNetwork().listen(f"unix://{tmp_path}/file", Dispatcher())
    with pytest.raises(CannotListen):
        await RealNetwork().listen(f"unix://{tmp_path}/none/s", Dispatcher())
    await server.close()
    os.close(os.open(tmp_path / "other", os.O_CREAT))
    again = await RealNetwork().listen(server.address, Dispatcher())
    await again.close()


async def test_a_socket_that_a_dead_node_left(tmp_path: Path) -> None:
    import socket

    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "s"))
    dead.close()
    with pytest.raises(CannotConnect, match="nobody listens"):
        await RealNetwork().connect(f"unix://{tmp_path}/s")
    server = await RealNetwork().listen(f"unix://{tmp_path}/s", Dispatcher())
    await server.close()


async def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(CannotConnect, match="no such socket"):
        await RealNetwork().connect(f"unix://{tmp_path}/s")
