"""Packets that make connections notice that they are gone: what they are, and for which connections."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from pool.network.probes import End, outside_connections, probes
from tests.network.test_closing import row

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def test_established_connections_to_the_outside_are_probed_and_no_others() -> None:
    own, other = (ip_address("10.77.0.1"), 0xC7CA), (ip_address("192.0.2.253"), 0x973F)
    mapped = f"{'0' * 16}FFFF0000"
    rows = [
        row("01004D0A:C7CA", "FD0200C0:973F", "01"),
        row(f"{mapped}01004D0A:C7CA", f"{mapped}FD0200C0:973F", "01"),
        row("01004D0A:C7CA", "FD0200C0:973F", "02"),
        row("01004D0A:C7CA", "02004D0A:973F", "01"),
        row("0100007F:C7CA", "0100007F:973F", "01"),
        "nonsense",
    ]
    assert outside_connections(HEAD + "\n".join(rows)) == [(own, other)] * 2
    assert outside_connections("") == []


@pytest.mark.parametrize(
    ("own", "other", "size"),
    [
        ((ip_address("10.77.0.1"), 80), (ip_address("192.0.2.7"), 443), 20),
        ((ip_address("fd70:6f6f:6c00::1"), 80), (ip_address("2001:db8::7"), 443), 40),
    ],
)
def test_probes_are_sound_packets_without_data(own: End, other: End, size: int) -> None:
    """Sums over header and segment come to 0xffff (RFC 1071); numbers are half of all numbers apart."""
    numbers = []
    for frame in probes(own, other):
        head, segment = frame[24 : 24 + size], frame[24 + size :]
        assert len(segment) == 20
        assert frame[22:24] == (b"\x08\x00" if size == 20 else b"\x86\xdd")
        addresses = other[0].packed + own[0].packed
        assert head.endswith(addresses)
        assert size == 40 or total(head) == 0xFFFF
        assert total(addresses + bytes([0, 6, 0, 20]) + segment) == 0xFFFF
        assert segment[:4] == bytes([1, 187, 0, 80])
        assert segment[13] == 16, "an acknowledgement alone"
        numbers.append(int.from_bytes(segment[4:8]))
    assert numbers == [0, 1 << 31]


def total(data: bytes) -> int:
    found = sum(int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2))
    while found >> 16:
        found = (found & 0xFFFF) + (found >> 16)
    return found
