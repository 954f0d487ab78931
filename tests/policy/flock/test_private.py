"""Wishes of a private flock are few and small, however many jobs wait at home, and whatever another pool sends."""

from __future__ import annotations

import pytest

from pool.policy.flock.private import MOST_BYTES, MOST_WISHES, BadWish, FlockWish, Wire, read_wishes, within_bounds


def wish(number: int, ad: Wire, oldest: float = 0.0) -> FlockWish:
    return FlockWish("home", number, 1, 60.0, oldest, ad)


def test_as_many_are_told_as_are_taken_in_the_oldest_first() -> None:
    told = within_bounds(wish(number, {}, float(-number)) for number in range(MOST_WISHES + 10))
    assert [one.number for one in told] == list(range(MOST_WISHES + 9, 9, -1))
    large = {"Environment": "x" * (MOST_BYTES // 4)}
    told = within_bounds([*(wish(number, large) for number in range(6)), wish(9, {})])
    assert [one.number for one in told] == [0, 1, 2, 9]
    assert read_wishes({"seen": 0, "wishes": [one.to_wire() for one in told]}) == (0, told)


def test_more_is_refused() -> None:
    large = {"Environment": "x" * (MOST_BYTES // 4)}
    many = [wish(number, {}) for number in range(MOST_WISHES + 1)]
    for wishes in (many, [wish(number, large) for number in range(4)]):
        with pytest.raises(BadWish):
            read_wishes({"seen": 0, "wishes": [one.to_wire() for one in wishes]})
