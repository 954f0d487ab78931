"""Packets that make a job's connections to the outside show whether they still are connections.

If a relay and its way out die in the same moment, nobody knows the connections that went through them any more, and
nobody resets them: a job that only reads would wait for ever. So each gets an old packet from its other side. The job's
kernel answers with an acknowledgement (RFC 9293, 3.10.7.4), as for any packet outside its window. The new way out does
not know the connection, and resets it; one that still exists takes the acknowledgement as nothing new.
"""

from __future__ import annotations

import contextlib
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from struct import Struct

from pool.jobs.network import RANGE4, RANGE6

#: The kernel's number of ESTABLISHED (include/net/tcp_states.h).
_ESTABLISHED = "01"
#: Of two numbers half of all numbers apart one at least is outside the window.
_NUMBERS = (0, 1 << 31)
_ACK, _TCP = 16, 6
#: Before a packet on a wire: no offloads, and the hardware addresses that all devices have (relay/judge.c).
_VNET, _HARDWARE = bytes(10), b"\x02pool\x01" * 2
_HEAD4, _HEAD6, _SEGMENT = Struct(">BBHHHBBH4s4s"), Struct(">IHBB16s16s"), Struct(">HHIIBBHHH")
Address = IPv4Address | IPv6Address
End = tuple[Address, int]


def outside_connections(tables: str) -> list[tuple[End, End]]:
    """The established connections to addresses outside the job's network: its own end, and the other one.

    Args:
        tables: texts as /proc/net/tcp and tcp6 have them.
    """
    found = []
    for line in tables.splitlines():
        words = line.split()
        if len(words) < 10 or words[3] != _ESTABLISHED:
            continue
        own, other = _end(words[1]), _end(words[2])
        if own[0] in (RANGE4 if own[0].version == 4 else RANGE6) and not _is_inside(other[0]):
            found.append((own, other))
    return found


def probes(own: End, other: End) -> list[bytes]:
    """The frames for one connection, as if from its other end."""
    return [_frame(other, own, number) for number in _NUMBERS]


def send_probes(wire: socket.socket, tables: str) -> None:
    """Send probes to all connections to the outside; packets that do not fit are lost, as on any wire."""
    for own, other in outside_connections(tables):
        for frame in probes(own, other):
            with contextlib.suppress(OSError):
                wire.send(frame, socket.MSG_DONTWAIT)


def _is_inside(address: Address) -> bool:
    return address.is_loopback or address in (RANGE4 if address.version == 4 else RANGE6)


def _end(word: str) -> End:
    """An address is words of four bytes, each as a number of the processor: x86-64 has the least byte first."""
    number, _, port = word.partition(":")
    found = ip_address(b"".join(bytes.fromhex(number[at : at + 8])[::-1] for at in range(0, len(number), 8)))
    return (found.ipv4_mapped if isinstance(found, IPv6Address) else None) or found, int(port, 16)


def _frame(source: End, to: End, number: int) -> bytes:
    (one, here), (other, there) = source, to
    size = _SEGMENT.size
    pseudo = one.packed + other.packed + Struct(">II").pack(size, _TCP)
    fields = here, there, number, 0, size // 4 << 4, _ACK, 0
    segment = _SEGMENT.pack(*fields, _sum(pseudo + _SEGMENT.pack(*fields, 0, 0)), 0)
    if one.version == 4:
        words = 0x45, 0, _HEAD4.size + size, 0, 0, 64, _TCP
        head = _HEAD4.pack(*words, _sum(_HEAD4.pack(*words, 0, one.packed, other.packed)), one.packed, other.packed)
        return _VNET + _HARDWARE + b"\x08\x00" + head + segment
    return _VNET + _HARDWARE + b"\x86\xdd" + _HEAD6.pack(6 << 28, size, _TCP, 64, one.packed, other.packed) + segment


def _sum(data: bytes) -> int:
    """The checksum of IP and TCP (RFC 1071)."""
    total = sum(data[::2]) * 256 + sum(data[1::2])
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
