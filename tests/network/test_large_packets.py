"""Large packets: TCP over IPv4, longer than an IP header can say. Machines whose kernels take them get them whole, and
others in pieces, as the job's kernel would have cut them."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import random
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

from pool.jobs.network import address4
from pool.network.large_packets import kernel_takes_large
from tests.network.support import HARDWARE, bench, between, heard, sealed, silent, taken_apart

VNET, IP, TCP = struct.Struct("=BBHHHH"), struct.Struct(">BBHHHBBH4s4s"), struct.Struct(">HHIIBBHHH")
SEGMENT, SEQUENCE, NUMBER = 64_948, 0xFFFF_F000, 0xFFFE
OPTIONS = bytes(range(12))
FIN, PSH, ACK, CWR = 1, 8, 16, 128
NEEDS_CSUM, TCP4, ECN = 1, 1, 0x80


def large(
    data: bytes, *, flags: int = ACK | PSH, segment: int = SEGMENT, gso: int = TCP4, vnet: bytes = b"", words: int = 8
) -> bytes:
    """A large packet of part 0 to part 1, as a kernel hands it over: the sums are left to the receiver."""
    one, other = (ipaddress.ip_address(address4(part)).packed for part in (0, 1))
    vnet = vnet or VNET.pack(NEEDS_CSUM, gso, 14 + 20 + 32, segment, 34, 16)
    ip = IP.pack(0x45, 0, 0, NUMBER, 0x4000, 64, 6, 0xABCD, one, other)
    tcp = TCP.pack(1000, 2000, SEQUENCE, 7, words << 4, flags, 500, 0x1234, 0) + OPTIONS
    return vnet + HARDWARE + HARDWARE + b"\x08\x00" + ip + tcp + data


def total(data: bytes) -> int:
    """The sum of the words of 16 bits, as TCP and IP have it."""
    value: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while value >> 16:
        value = (value & 0xFFFF) + (value >> 16)
    return value


@dataclass(frozen=True)
class Piece:
    """A frame of a link, taken apart."""

    vnet: tuple[int, ...]
    number: int
    sequence: int
    flags: int
    data: bytes

    @classmethod
    def of(cls, frame: bytes) -> Piece:
        """Looks at lengths and sums, too."""
        vnet, ip, tcp = VNET.unpack_from(frame), frame[24:44], TCP.unpack_from(frame, 44)
        fields = IP.unpack(ip)
        assert fields[2] == len(frame) - 24
        assert total(ip) == 0xFFFF
        assert tcp[7] == total(ip[12:] + struct.pack(">HH", 6, len(frame) - 44))
        assert frame[64:76] == OPTIONS
        return cls(vnet, fields[3], tcp[2], tcp[5], frame[76:])


async def pieces(end: socket.socket, bytes_expected: int) -> list[Piece]:
    """The frames of a link with so many bytes of TCP in all."""
    found: list[Piece] = []
    stream = b""
    while sum(len(piece.data) for piece in found) < bytes_expected:
        frames, stream = taken_apart(stream + await heard(end))
        found += map(Piece.of, frames)
    assert not stream
    return found


async def test_a_large_packet_goes_whole_from_part_to_part(relay: Path) -> None:
    async with bench(relay) as made:
        one, other = await made.wire(0), await made.wire(1)
        sent = large(random.Random(1).randbytes(262_000))
        one.send(sent)
        assert await heard(other, 1 << 19) == sent
        assert (await made.counted(1)).pairs == {(0, 1): (1, len(sent) - 24)}


async def test_it_goes_whole_to_a_machine_that_takes_it(relay: Path) -> None:
    async with bench(relay) as made, bench(relay) as there:
        one, far = await made.wire(0), await made.link(1, large=True)
        sent, came = sealed(large(random.Random(1).randbytes(262_000))), b""
        one.send(sent[4:])
        while len(came) < len(sent):
            came += await heard(far)
        assert came == sent
        other, back = await there.wire(1), await there.link(0)
        await asyncio.get_running_loop().sock_sendall(back, came)
        assert await heard(other, 1 << 19) == sent[4:]


@pytest.mark.parametrize("size", [65_484, 70_000, 2 * SEGMENT, 2 * SEGMENT + 1, 262_000])
async def test_to_another_machine_it_goes_in_pieces(relay: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    async with bench(relay) as made:
        one, far = await made.wire(0), await made.link(1)
        one.send(large(data, flags=ACK | PSH | FIN | CWR, segment=1000, gso=TCP4 | ECN))
        came = await pieces(far, size)
    assert b"".join(piece.data for piece in came) == data
    at = 0
    for turn, piece in enumerate(came):
        first, last = turn == 0, turn == len(came) - 1
        assert piece.sequence == (SEQUENCE + at) % 2**32
        assert piece.number == (NUMBER + (at + 999) // 1000) % 2**16
        assert piece.flags == ACK | (CWR if first else 0) | (PSH | FIN if last else 0)
        assert piece.vnet[:2] == (NEEDS_CSUM, TCP4 | ECN if len(piece.data) > 1000 else 0)
        assert last or len(piece.data) == 65_000
        at += len(piece.data)


async def test_a_last_piece_of_one_segment_is_an_ordinary_packet(relay: Path) -> None:
    async with bench(relay) as made:
        one, far = await made.wire(0), await made.link(1)
        one.send(large(bytes(2 * SEGMENT + 1)))
        came = await pieces(far, 2 * SEGMENT + 1)
    assert [len(piece.data) for piece in came] == [SEGMENT, SEGMENT, 1]
    assert [piece.vnet[1:4:2] for piece in came] == [(0, 0)] * 3


@pytest.mark.parametrize(
    "wrong",
    [
        large(bytes(65_483 - 8)),  # its length fits
        large(bytes(70_000), gso=4),  # of IPv6
        large(bytes(70_000), gso=5),  # of UDP
        large(bytes(70_000), gso=0),
        large(bytes(70_000), vnet=VNET.pack(0, TCP4, 66, SEGMENT, 34, 16)),  # its sums are said to be there
        large(bytes(262_200)),  # longer than any
    ],
)
async def test_other_packets_without_a_length_are_dropped(relay: Path, wrong: bytes) -> None:
    async with bench(relay) as made:
        one, other, far = await made.wire(0), await made.wire(1), await made.link(1, 2)
        one.send(wrong)
        assert (await made.counted(1)).malformed == 1
        assert all(map(silent, (other, far)))


@pytest.mark.parametrize(
    "wrong",
    [
        large(bytes(70_000), segment=0),
        large(bytes(70_000), segment=65_484),  # no piece could hold one
        large(bytes(70_000), words=4),
        large(bytes(70_000), vnet=VNET.pack(NEEDS_CSUM, TCP4, 66, SEGMENT, 36, 16)),
        large(bytes(70_000), vnet=VNET.pack(NEEDS_CSUM, TCP4, 66, SEGMENT, 34, 6)),
    ],
)
async def test_headers_that_contradict_each_other_are_not_cut(relay: Path, wrong: bytes) -> None:
    async with bench(relay) as made:
        one, far = await made.wire(0), await made.link(1)
        one.send(wrong)
        one.send(between(0, 1))
        assert await heard(far) == sealed(between(0, 1))
        assert (await made.traffic()).malformed == 1


async def test_large_packets_do_not_keep_the_other_parts_waiting(relay: Path) -> None:
    """Part 0 floods part 1 with large packets; a packet of part 2 to part 3 comes through meanwhile."""
    async with bench(relay) as made:
        ends = [await made.wire(part) for part in range(4)]
        sent, flood = large(bytes(262_000)), 0
        for turn in range(50):
            try:
                while flood < 1000:
                    ends[0].send(sent)
                    flood += 1
            except BlockingIOError:
                pass
            ends[2].send(between(2, 3, b"%d" % turn))
            assert await heard(ends[3]) == between(2, 3, b"%d" % turn)
            while not silent(ends[1]):
                pass


@pytest.mark.parametrize(
    ("release", "takes"),
    [("6.3.0", True), ("6.2.16-1", False), ("6.1.0-26-amd64", False), ("6.18.44", True), ("10.0", True), ("x", False)],
)
def test_a_kernel_says_by_its_release_whether_it_takes_them(release: str, takes: bool) -> None:
    assert kernel_takes_large(release) is takes
    assert isinstance(kernel_takes_large(os.uname().release), bool)
