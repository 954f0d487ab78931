"""Where and when a job is tried again that could not be started, and when it is held."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pool.policy.start_failures import (
    EVERYWHERE,
    MOST_FAILED_STARTS,
    PAUSES,
    StartFailure,
    after_failure,
    from_wire,
    next_change,
    to_wire,
    waits_until,
)


def failures(*names: str, at: float = 0.0, gap: float = 0.0) -> tuple[tuple[StartFailure, ...], bool]:
    """The record of failures on these machines, one each `gap` seconds, and whether the job is held."""
    known: tuple[StartFailure, ...] = ()
    for name in names:
        again = after_failure(known, name, at)
        known, at = again.failures, at + gap
        if again.hold:
            return known, True
    return known, False


def test_one_machine_that_fails_at_once_again_and_again_counts_once() -> None:
    known, held = failures(*["m"] * 100, gap=0.02)
    assert not held
    assert [failure.machine for failure in known] == ["m"]


def test_one_machine_holds_a_job_only_over_time_with_growing_pauses() -> None:
    known: tuple[StartFailure, ...] = ()
    pauses: list[float] = []
    now = 1000.0
    while not (again := after_failure(known, "m", now)).hold:
        known = again.failures
        pauses.append(again.until - now)
        now = again.until
    assert pauses == list(PAUSES)
    assert now - 1000.0 == sum(PAUSES)


def test_different_machines_that_fail_at_once_hold_a_job() -> None:
    assert failures(*"abcd") == (failures(*"abcd")[0], False)
    assert failures(*"abcde")[1]


def test_a_machine_that_failed_keeps_a_job_back_nowhere_else() -> None:
    known, _ = failures("m", at=50.0)
    assert waits_until(known, 51.0) is None
    assert next_change(known, 51.0) == 60.0
    assert next_change(known, 60.0) is None


def test_inputs_that_did_not_come_keep_a_job_back_everywhere() -> None:
    known, _ = failures(EVERYWHERE, at=50.0)
    assert waits_until(known, 51.0) == 60.0
    assert waits_until(known, 60.0) is None
    assert waits_until(known, 49.0) is None, "the clock was set back"


@given(st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), st.floats(0, 2000)), max_size=60))
def test_every_failure_pauses_and_none_is_counted_twice(story: list[tuple[str, float]]) -> None:
    known: tuple[StartFailure, ...] = ()
    now = 0.0
    for machine, pause in story:
        now += pause
        again = after_failure(known, machine, now)
        assert again.until > now
        assert set(known) <= set(again.failures)
        own = [failure for failure in again.failures if failure.machine == machine]
        assert all(first.until <= second.when for first, second in itertools.pairwise(own))
        assert again.hold == (len(again.failures) >= MOST_FAILED_STARTS and again.failures != known)
        if again.hold:
            return
        known = again.failures
        assert from_wire(to_wire(known)) == known
