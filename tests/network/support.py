"""Frames as a job's device sends them, and a relay with datagram sockets in place of packet sockets."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from pool.jobs.network import address4, address6
from pool.network.relay_process import RelayProcess
from pool.network.traffic import Traffic

VNET, HARDWARE = bytes(10), b"\x02pool\x01"


def frame(source: str, to: str, data: bytes = b"data", *, vnet: bytes = VNET, hardware: bytes = HARDWARE) -> bytes:
    """A UDP packet without a checksum, in a frame."""
    body = struct.pack(">HHHH", 1000, 2000, 8 + len(data), 0) + data
    one, other = ipaddress.ip_address(source), ipaddress.ip_address(to)
    if one.version == 4:
        head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 0, 0, 64, 17, 0, one.packed, other.packed)
        kind = 0x0800
    else:
        head = struct.pack(">IHBB16s16s", 6 << 28, len(body), 17, 64, one.packed, other.packed)
        kind = 0x86DD
    return vnet + hardware + hardware + struct.pack(">H", kind) + head + body


def between(part: int, other: int, data: bytes = b"data", *, six: bool = False) -> bytes:
    """A packet from part to part."""
    address = address6 if six else address4
    return frame(address(part), address(other), data)


class Bench:
    """One relay, and the far ends of its ports."""

    def __init__(self, relay: RelayProcess) -> None:
        self.relay = relay
        self.wires: dict[int, socket.socket] = {}
        self.links: list[socket.socket] = []

    async def wire(self, part: int) -> socket.socket:
        """A part here, as its device is at the other end of the wire."""
        far, near = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in (far, near):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        far.setblocking(False)
        near.setblocking(False)
        with near:
            self.relay.add_wire(part, near)
        self.wires[part] = far
        await self.traffic()
        return far

    async def link(self, *parts: int, large: bool = False) -> socket.socket:
        """A link to another machine, which takes large packets whole or not."""
        far, near = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        far.setblocking(False)
        near.setblocking(False)
        with near:
            self.relay.add_link(parts, near, large=large)
        self.links.append(far)
        await self.traffic()
        return far

    async def traffic(self) -> Traffic:
        """The relay has obeyed all orders before this answer."""
        return await self.relay.traffic()

    async def counted(self, sent: int) -> Traffic:
        """The traffic, when the relay has seen so many frames."""

        def all_seen(seen: Traffic) -> bool:
            refused = seen.forged + seen.malformed + seen.outside
            return refused + sum(frames for frames, _ in seen.pairs.values()) >= sent

        return await self.seen(all_seen)

    async def seen(self, enough: Callable[[Traffic], bool]) -> Traffic:
        """The traffic, as soon as it is so."""
        async with asyncio.timeout(30):
            while True:
                traffic = await self.traffic()
                if enough(traffic):
                    return traffic
                await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def bench(program: Path, parts: int = 4) -> AsyncIterator[Bench]:
    """A relay for a network of so many parts."""
    relay = RelayProcess(program)
    await relay.begin(parts)
    made = Bench(relay)
    try:
        yield made
    finally:
        await relay.close()
        for end in (*made.wires.values(), *made.links):
            end.close()


async def heard(end: socket.socket, size: int = 1 << 17) -> bytes:
    """The next bytes or frame."""
    async with asyncio.timeout(30):
        return await asyncio.get_running_loop().sock_recv(end, size)


async def heard_whole(link: socket.socket, count: int) -> list[bytes]:
    """So many frames of a link, and nothing behind them."""
    stream, frames = b"", list[bytes]()
    while len(frames) < count:
        more, stream = taken_apart(stream + await heard(link))
        frames += more
    assert not stream
    return frames


def taken_apart(stream: bytes) -> tuple[list[bytes], bytes]:
    """The whole frames at the beginning of a link's bytes, and the rest."""
    frames = []
    while len(stream) >= 4 and len(stream) >= 4 + (size := struct.unpack_from("=I", stream)[0]):
        frames.append(stream[4 : 4 + size])
        stream = stream[4 + size :]
    return frames, stream


def silent(end: socket.socket) -> bool:
    """Whether nothing has come; the relay is known to have done all before."""
    with contextlib.suppress(BlockingIOError):
        return not end.recv(1 << 17)
    return True


def sealed(data: bytes) -> bytes:
    """A frame as it goes over a link."""
    return struct.pack("=I", len(data)) + data
