"""A link between two machines: all bytes both ways, encrypted; tampering and wrong keys end it."""

from __future__ import annotations

import asyncio
import secrets
import socket

import pytest

from pool.network.sealed_link import KEYS, SealedLink


def tcp() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one, server.accept()[0]


async def transfer(one: SealedLink, other: SealedLink, data: bytes) -> bytes:
    loop, came = asyncio.get_running_loop(), bytearray()
    sending = loop.create_task(loop.sock_sendall(one.relay, data))
    async with asyncio.timeout(30):
        while len(came) < len(data):
            came += await loop.sock_recv(other.relay, 1 << 20)
        await sending
    return bytes(came)


async def test_bytes_pass_both_ways_and_the_end_is_heard() -> None:
    here, there = tcp()
    keys, over = secrets.token_bytes(KEYS), (asyncio.Event(), asyncio.Event())
    one = SealedLink(here, keys, dialed=True, ended=over[0].set)
    other = SealedLink(there, keys, dialed=False, ended=over[1].set)
    data = secrets.token_bytes(3_000_001)
    assert await transfer(one, other, data) == data
    assert await transfer(other, one, data) == data
    one.relay.close()
    async with asyncio.timeout(30):
        for event in over:
            await event.wait()
    assert await asyncio.get_running_loop().sock_recv(other.relay, 1) == b""
    other.relay.close()


@pytest.mark.parametrize("harm", ["bytes", "key", "length"])
async def test_tampering_ends_it(harm: str) -> None:
    (here, middle), (far, there) = tcp(), tcp()
    keys = secrets.token_bytes(KEYS)
    wrong, over = secrets.token_bytes(KEYS), asyncio.Event()
    one = SealedLink(here, keys, dialed=True, ended=lambda: None)
    other = SealedLink(there, wrong if harm == "key" else keys, dialed=False, ended=over.set)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(one.relay, b"secret words")
    middle.setblocking(False)
    passing = bytearray(await loop.sock_recv(middle, 4096))
    while len(passing) < 4 + 12 + 16:
        passing += await loop.sock_recv(middle, 4096)
    assert b"secret" not in passing
    if harm == "bytes":
        passing[10] ^= 1
    elif harm == "length":
        passing[:4] = b"\xff\xff\xff\xff"
    far.sendall(passing)
    async with asyncio.timeout(30):
        await over.wait()
        assert await loop.sock_recv(other.relay, 100) == b""
    one.close()
    for end in (middle, far, one.relay, other.relay):
        end.close()
