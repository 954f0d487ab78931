"""Sets of slots as integers: slot n is bit n, so that `&`, `|` and `bit_count` work on a hundred thousand at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Bits = int

#: Octets of a set that are looked at together.
_STRETCH = 512


def bits_of(places: Iterable[int], size: int) -> Bits:
    """The set of these places, each below `size`."""
    marks = bytearray(size // 8 + 1)
    for place in places:
        marks[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(marks, "little")


def members(bits: Bits) -> Iterator[int]:
    """The places in a set, lowest first. A stretch is looked at once somebody asks for its places."""
    octets = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    for begin in range(0, len(octets), _STRETCH):
        digits = bin(int.from_bytes(octets[begin : begin + _STRETCH], "little"))[:1:-1]
        first = begin * 8
        place = digits.find("1")
        while place >= 0:
            yield first + place
            place = digits.find("1", place + 1)


_places: list[int] = []


def places_below(size: int) -> list[int]:
    """All places below `size` in order. Lists that are made of it share its integers, which a process has once."""
    global _places
    known = _places
    if len(known) < size:
        known = _places = list(range(size))
    return known[:size]


def full(size: int) -> Bits:
    """The set of all places below `size`."""
    return (1 << size) - 1


def marked(flags: bytes) -> Bits:
    """The set of the places where a string of the characters 0 and 1 has 1; the first is place 0."""
    return int(flags[::-1], 2) if flags else 0


def codes_of(sets: Sequence[Bits], size: int) -> bytes:
    """For each place below `size` the number of the set that it is in, from 1; 0 where it is in none. No place is in
    two sets, and there are 255 of them at most.
    """
    found = 0
    for number, bits in enumerate(sets, 1):
        if bits:
            digits = format(bits, f"0{size}b").encode()
            found |= int.from_bytes(digits.translate(bytes.maketrans(b"01", bytes((0, number)))), "big")
    return found.to_bytes(size, "little")
