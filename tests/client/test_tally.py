"""Counting jobs from their events."""

from __future__ import annotations

from pool.client.tally import COMPLETED, HELD, IDLE, REMOVED, RUNNING, Tally

JOBS = [(1, 0), (1, 1)]


def test_all_begin_idle_and_each_event_moves_one() -> None:
    tally = Tally(JOBS)
    assert (tally.counts[IDLE], tally.all_ended, tally.only_held) == (2, False, False)
    assert tally.apply((1, 0), "EXECUTE") == RUNNING
    assert tally.apply((1, 0), "IMAGE_SIZE") is None
    assert tally.apply((1, 0), "TERMINATED") == COMPLETED
    assert tally.apply((1, 1), "ABORTED") == REMOVED
    assert tally.all_ended
    assert tally.ended == tally.total == 2
    assert tally.unfinished() == []


def test_an_evicted_or_released_job_is_idle_again() -> None:
    tally = Tally(JOBS)
    for kind in ("EXECUTE", "EVICTED", "EXECUTE", "SHADOW_EXCEPTION", "HELD", "RELEASED"):
        tally.apply((1, 0), kind)
    assert tally.counts == {IDLE: 2, RUNNING: 0, HELD: 0}


def test_events_of_others_and_repeated_ones_change_nothing() -> None:
    tally = Tally(JOBS)
    assert tally.apply((2, 0), "EXECUTE") is None
    assert tally.apply((1, 0), "EXECUTE") == RUNNING
    assert tally.apply((1, 0), "EXECUTE") is None
    assert sum(tally.counts.values()) == 2


def test_an_event_of_the_whole_cluster_moves_all_its_jobs() -> None:
    tally = Tally([*JOBS, (2, 0)])
    tally.apply((1, 1), "ABORTED")
    assert tally.apply((1, -1), "ABORTED") == REMOVED
    assert tally.apply((1, -1), "ABORTED") is None
    assert tally.counts[REMOVED] == 2
    assert tally.unfinished() == [(2, 0)]


def test_held_jobs_are_stuck_only_when_nothing_else_moves() -> None:
    tally = Tally({(1, 0): HELD, (1, 1): IDLE})
    assert not tally.only_held
    tally.apply((1, 1), "TERMINATED")
    assert tally.only_held
    assert not tally.all_ended
    assert tally.unfinished() == [(1, 0)]
