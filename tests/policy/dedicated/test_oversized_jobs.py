"""When a job that is larger than all dedicated machines gathers others."""

from __future__ import annotations

from pool.policy.dedicated.decisions import SkipGang, SkipReason
from pool.policy.dedicated.oversized_jobs import SURE, OversizedJobs


def skip(job: str, reason: SkipReason = SkipReason.TOO_BIG) -> SkipGang:
    return SkipGang(job, reason, "")


def test_a_job_is_let_go_once_it_has_been_too_large_for_a_while() -> None:
    jobs = OversizedJobs()
    assert jobs.after_cycle([skip("1.0")], 100.0) == frozenset()
    assert jobs.waits(104.0) == [SURE - 4]
    assert jobs.after_cycle([skip("1.0"), skip("2.0", SkipReason.NO_KIND)], 100.0 + SURE) == {"1.0"}
    assert jobs.waits(100.0 + SURE) == [SURE]
    assert jobs.after_cycle([skip("1.0"), skip("2.0")], 100.0 + 2 * SURE) == {"1.0", "2.0"}


def test_a_moment_in_which_it_fits_begins_anew() -> None:
    jobs = OversizedJobs()
    jobs.after_cycle([skip("1.0")], 100.0)
    assert jobs.after_cycle([], 105.0) == frozenset()
    assert jobs.after_cycle([skip("1.0")], 100.0 + SURE) == frozenset()


def test_machines_that_are_away_or_lent_are_waited_for() -> None:
    jobs = OversizedJobs()
    for reason in (SkipReason.AWAY, SkipReason.LENT, SkipReason.NO_RESERVATION):
        for now in (0.0, 1000.0):
            assert jobs.after_cycle([skip("1.0", reason)], now) == frozenset()
    assert jobs.waits(1000.0) == []
