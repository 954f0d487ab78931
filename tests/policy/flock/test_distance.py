"""The distance of another pool is measured often while it changes, and seldom while it stays."""

from __future__ import annotations

import pytest

from pool.policy.flock.distance import LONGEST, PART, SHORTEST, Distance


def test_a_distance_that_stays_is_measured_ever_less_often() -> None:
    distance = Distance()
    assert distance.is_news(0.1)
    assert distance.pause == SHORTEST
    pauses = []
    for found in (0.1, 0.11, 0.09, 0.1, 0.1, 0.1):
        assert not distance.is_news(found)
        pauses.append(distance.pause)
    assert pauses == [600.0, 1200.0, 2400.0, LONGEST, LONGEST, LONGEST]
    assert distance.round_trip == 0.1


@pytest.mark.parametrize("found", [0.2, 0.05])
def test_a_change_counts_at_once_and_is_looked_at_again_soon(found: float) -> None:
    distance = Distance()
    distance.is_news(0.1)
    distance.is_news(0.1)
    assert distance.is_news(found)
    assert (distance.round_trip, distance.pause) == (found, SHORTEST)


def test_a_distance_that_creeps_is_no_further_off_than_one_step() -> None:
    distance, found = Distance(), 0.1
    for _ in range(200):
        found *= 1.01
        distance.is_news(found)
        assert distance.round_trip is not None
        assert found / distance.round_trip <= 1 + PART


def test_a_millisecond_more_is_no_news_in_a_local_network() -> None:
    distance = Distance()
    assert distance.is_news(0.0002)
    assert not distance.is_news(0.0015)
    assert distance.is_news(0.0103)
