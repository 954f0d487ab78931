"""Sets of slots by a number that each has, the greatest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import filterfalse

from pool.policy.matching import Bits, bits_of, members
from pool.policy.matching.bits import codes_of
from pool.policy.matching.levels import Levels

#: Up to so many different ranks the slots are divided set by set.
_FEW = 48
#: One slot in so many: fewer are sorted by themselves, more are picked from the order of all.
_MANY = 16
#: One slot in so many: fewer with the same number stay a list, since a set is as long as the pool is large.
_SPARSE = 1024


class FewCandidates:
    """A few slots, for which a set would be too much.

    Attributes:
        places: at least one, lowest first.
    """

    __slots__ = ("places",)

    def __init__(self, places: Sequence[int]) -> None:
        self.places = places


def places_in(slots: Bits | FewCandidates) -> Iterator[int]:
    """The places of slots, lowest first."""
    return iter(slots.places) if isinstance(slots, FewCandidates) else members(slots)


def divided(
    slots: Bits | FewCandidates, levels: Levels | None, gone: bytes | bytearray = b""
) -> Iterator[tuple[float, Bits | FewCandidates]]:
    """Slots by their number, greatest first.

    Args:
        gone: not 0 for places that may be left out, which may become more while the slots are looked at.
    """
    if not slots:
        return
    if levels is None:
        yield 0.0, slots
    elif isinstance(slots, FewCandidates):
        yield from _few_divided(slots, levels)
    elif len(levels) <= _FEW:
        for number, places in levels.sets():
            some = slots & places
            if some:
                yield number, some
    else:
        yield from _one_by_one(slots, levels, gone)


def _few_divided(slots: FewCandidates, levels: Levels) -> Iterator[tuple[float, FewCandidates]]:
    if len(slots.places) == 1:
        yield levels.number(slots.places[0]), slots
        return
    by_number: dict[float, list[int]] = {}
    for place in slots.places:
        by_number.setdefault(levels.number(place), []).append(place)
    for number in sorted(by_number, reverse=True):
        yield number, FewCandidates(by_number[number])


def _in_order(bits: Bits, levels: Levels, size: int, gone: bytes | bytearray) -> Iterable[int]:
    """The places of a set, those with the greatest number first."""
    if bits.bit_count() * _MANY < size:
        number = levels.number
        return sorted(members(bits), key=lambda place: -number(place))
    found = filter(codes_of((bits,), size).__getitem__, levels.order())
    return filterfalse(gone.__getitem__, found) if gone else found


def _one_by_one(bits: Bits, levels: Levels, gone: bytes | bytearray) -> Iterator[tuple[float, Bits | FewCandidates]]:
    size = len(levels.grouping.groups)
    number = levels.number
    run: list[int] = []
    present = 0.0
    for place in _in_order(bits, levels, size, gone):
        other = number(place)
        if run and other != present:
            yield present, _together(run, size)
            run = []
        run.append(place)
        present = other
    if run:
        yield present, _together(run, size)


def _together(run: list[int], size: int) -> Bits | FewCandidates:
    return FewCandidates(run) if len(run) == 1 or len(run) * _SPARSE <= size else bits_of(run, size)
