"""Sets of slots by a number that each has, the greatest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pool.policy.matching import Bits, bits_of, members
from pool.policy.matching.levels import Levels

#: Up to so many different ranks the slots are divided set by set.
_FEW = 48
#: One slot in so many: fewer are sorted by themselves, more are picked from the order of all.
_MANY = 16


class SingleCandidate:
    """A single slot, where a set would be too much."""

    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.place = place


def places_in(slots: Bits | SingleCandidate) -> Iterator[int]:
    """The places of slots, lowest first."""
    return iter((slots.place,)) if isinstance(slots, SingleCandidate) else members(slots)


def divided(slots: Bits | SingleCandidate, levels: Levels | None) -> Iterator[tuple[float, Bits | SingleCandidate]]:
    """Slots by their number, greatest first."""
    if isinstance(slots, SingleCandidate):
        yield (levels.number(slots.place) if levels else 0.0), slots
    elif not slots:
        return
    elif levels is None:
        yield 0.0, slots
    elif len(levels) <= _FEW:
        for number, places in levels.sets():
            some = slots & places
            if some:
                yield number, some
    else:
        yield from _one_by_one(slots, levels)


def _in_order(bits: Bits, levels: Levels, size: int) -> Iterable[tuple[float, int]]:
    """(number with the other sign, place) of the slots of a set, the greatest number first."""
    number = levels.number
    if bits.bit_count() * _MANY < size:
        return sorted([(-number(place), place) for place in members(bits)])
    digits = bin(bits)[:1:-1].ljust(size, "0")
    return ((-number(place), place) for place in levels.order() if digits[place] == "1")


def _one_by_one(bits: Bits, levels: Levels) -> Iterator[tuple[float, Bits | SingleCandidate]]:
    size = len(levels.grouping.groups)
    run: list[int] = []
    present = 0.0
    for negative, place in _in_order(bits, levels, size):
        if run and negative != present:
            yield -present, SingleCandidate(run[0]) if len(run) == 1 else bits_of(run, size)
            run.clear()
        run.append(place)
        present = negative
    if run:
        yield -present, SingleCandidate(run[0]) if len(run) == 1 else bits_of(run, size)
