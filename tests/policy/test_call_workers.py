"""How many workers an executor has, and how many calls each is given ahead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from pool.policy.call_workers import MOST, call_to_recall, calls_for_worker, workers_to_end, workers_to_start


def test_an_unknown_or_long_call_is_not_given_ahead() -> None:
    assert calls_for_worker(None, 1000, 8) == 1
    assert calls_for_worker(10.0, 1000, 8) == 1


@pytest.mark.parametrize(("seconds", "waiting", "workers", "calls"), [(0.01, 1000, 8, 6), (1e-5, 10**6, 8, MOST)])
def test_short_calls_are_given_ahead(seconds: float, waiting: int, workers: int, calls: int) -> None:
    assert calls_for_worker(seconds, waiting, workers) == calls


def test_the_last_calls_are_shared() -> None:
    assert calls_for_worker(1e-5, 16, 8) == 3


@given(*[some.integers(0, 50)] * 6)
def test_the_bounds_hold(waiting: int, starting: int, free: int, workers: int, least: int, more: int) -> None:
    started = workers_to_start(waiting, starting, free, workers, least, least + more)
    assert started >= 0
    assert workers + started <= max(least + more, workers)
    assert workers + started >= least


def test_no_worker_is_started_for_calls_that_have_one() -> None:
    assert workers_to_start(3, 2, 1, 3, 0, 8) == 0
    assert workers_to_start(9, 2, 0, 2, 0, 8) == 6


def test_the_longest_idle_end_first() -> None:
    idle = {"1.0": 40.0, "1.1": 31.0, "1.2": 5.0}
    assert workers_to_end(idle, 3, 0, 30.0) == ["1.0", "1.1"]
    assert workers_to_end(idle, 3, 2, 30.0) == ["1.0"]


def test_calls_behind_a_long_one_are_taken_back_when_others_rest() -> None:
    assert call_to_recall({"1.0": 5, "1.1": 3, "1.2": 0}, {"1.0": 1.0, "1.1": 1.0, "1.2": 0.0}, 1) == "1.0"
    assert call_to_recall({"1.0": 5}, {"1.0": 0.01}, 1) is None, "it answers all the time"
    assert call_to_recall({"1.0": 5}, {"1.0": 1.0}, 0) is None
    assert call_to_recall({"1.0": 1}, {"1.0": 9.0}, 3) is None
