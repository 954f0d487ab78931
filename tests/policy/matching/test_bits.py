"""Sets of slots as integers: the places that go in come out again, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pool.policy.matching import bits_of, members


@given(st.sets(st.one_of(st.integers(0, 40), st.integers(0, 5000), st.integers(4000, 4100))))
def test_a_set_has_the_places_that_it_was_made_of(places: set[int]) -> None:
    assert list(members(bits_of(places, 5001))) == sorted(places)


@given(st.integers(0, 2**300 - 1))
def test_a_set_has_the_bits_of_its_number(bits: int) -> None:
    assert list(members(bits)) == [place for place in range(300) if bits >> place & 1]


def test_places_beside_long_stretches_of_nothing_and_of_everything() -> None:
    full = (1 << 80_000) - 1
    bits = 1 | 1 << 9_999 | (full << 20_000)
    assert list(members(bits)) == [0, 9_999, *range(20_000, 100_000)]
