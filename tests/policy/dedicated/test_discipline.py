"""Section 3.3 of Wright 2001, case by case (W15 to W22), and the holes (W23, W26)."""

from __future__ import annotations

from dataclasses import replace

from pool.policy.dedicated import (
    WRIGHT,
    DedicatedJob,
    DedicatedSettings,
    KeepReason,
    MachineClass,
    MachineState,
    PartClass,
    SkipReason,
    decide,
)
from pool.policy.dedicated.expectations import GRACE
from tests.policy.dedicated.building import gang, kept, machines, queue, requested, runs, started

LENDING = replace(WRIGHT, lend=True, unused_claim_timeout=300.0, reclaim_seconds=5.0)


def test_claimed_idle_machines_are_preferred_even_if_others_are_liked_better() -> None:  # W15
    liked = gang("1.0", 1, fits=("fast", "k"))
    both = (*machines(idle=1), MachineClass("fast", MachineState.UNCLAIMED, ("f1",)))
    decisions = decide(queue(liked), (), both, 0.0, WRIGHT)
    assert started(decisions) == {"1.0": ["i1"]}
    assert not decisions.requests


def test_claims_wait_for_the_rest_of_a_job_and_serve_no_later_one() -> None:  # W16
    decisions = decide(queue(gang("1.0", 3), gang("2.0", 1)), (), machines(idle=2, unclaimed=1), 0.0, WRIGHT)
    assert requested(decisions) == {"1.0": ["u1"]}
    assert kept(decisions) == {"1.0": ["i1", "i2"]}
    assert decisions.keeps[0].reason is KeepReason.REQUESTED
    assert not decisions.starts
    assert not decisions.releases
    assert [wait.job for wait in decisions.waits] == ["2.0"]


def test_nothing_starts_behind_a_head_that_waits() -> None:  # W17
    running = [runs(gang("9.0", 2))]
    decisions = decide(queue(gang("1.0", 3), gang("2.0", 1)), running, machines(idle=2), 10.0, WRIGHT)
    assert not decisions.starts
    [wait] = decisions.waits
    assert (wait.job, wait.missing, wait.available, wait.configured) == ("1.0", ((1, ("k",)),), 2, 4)
    assert wait.blocks


def test_a_job_that_is_too_big_is_skipped_in_words_and_runs_when_machines_are_added() -> None:  # W18
    jobs = queue(gang("1.0", 5), gang("2.0", 1))
    decisions = decide(jobs, (), machines(idle=2, unclaimed=1), 0.0, WRIGHT)
    [skip] = decisions.skips
    assert (skip.job, skip.reason) == ("1.0", SkipReason.TOO_BIG)
    assert skip.words == "too big: 3 configured machines fit it, and it needs 5"
    assert started(decisions) == {"2.0": ["i1"]}
    assert requested(decide(jobs, (), machines(idle=2, unclaimed=3), 0.0, WRIGHT)) == {"1.0": ["u1", "u2", "u3"]}


def test_a_job_whose_machines_are_away_blocks_nobody() -> None:
    decisions = decide(queue(gang("1.0", 3), gang("2.0", 1)), (), machines(idle=2, away=2), 0.0, WRIGHT)
    [skip] = decisions.skips
    assert skip.reason is SkipReason.AWAY
    assert skip.words == "machines are away: 4 are configured that fit it, 2 of them are away, and it needs 3"
    assert started(decisions) == {"2.0": ["i1"]}


def test_a_job_that_no_machine_fits_is_skipped() -> None:
    [skip] = decide(queue(gang("1.0", 1, fits=("gpu",))), (), machines(idle=2), 0.0, WRIGHT).skips
    assert (skip.reason, skip.words) == (SkipReason.NO_KIND, "no configured machine fits it; it needs 1")
    [skip] = decide(queue(gang("1.0", 1, fits=())), (), machines(idle=2), 0.0, WRIGHT).skips
    assert skip.reason is SkipReason.NO_KIND


def test_kinds_that_overlap_are_matched_and_not_first_fit() -> None:  # W19
    parts = (PartClass(2, ("a", "b"), "worker"), PartClass(1, ("a",), "master"))
    job = DedicatedJob("1.0", "alice", parts, 0.0)
    there = (
        MachineClass("a", MachineState.CLAIMED_IDLE, ("a1",)),
        MachineClass("b", MachineState.CLAIMED_IDLE, ("b1", "b2")),
    )
    [start] = decide(queue(job), (), there, 0.0, WRIGHT).starts
    assert {(share.part, share.kind, share.machines) for share in start.shares} == {
        (0, "b", ("b1", "b2")),
        (1, "a", ("a1",)),
    }
    # and so do two jobs of one cycle: the first gives way
    decisions = decide(queue(gang("1.0", 1, fits=("a", "b")), gang("2.0", 1, fits=("a",))), (), there, 0.0, WRIGHT)
    assert started(decisions) == {"1.0": ["b1"], "2.0": ["a1"]}


def test_too_big_by_kinds_though_the_numbers_are_enough() -> None:
    parts = (PartClass(2, ("a",), "x"), PartClass(2, ("a",), "y"))
    there = (
        MachineClass("a", MachineState.CLAIMED_IDLE, ("a1", "a2", "a3")),
        MachineClass("b", MachineState.CLAIMED_IDLE, ("b1", "b2")),
    )
    [skip] = decide(queue(DedicatedJob("1.0", "alice", parts, 0.0)), (), there, 0.0, WRIGHT).skips
    assert skip.words.startswith("too big: its parts need 4 machines, and no choice")


def test_the_same_state_gives_the_same_decisions() -> None:  # W20, W21
    state = (queue(gang("1.0", 2), gang("2.0", 2, user="bob")), [runs(gang("9.0", 1))], machines(1, 2, 3), 5.0)
    assert decide(*state, DedicatedSettings()) == decide(*state, DedicatedSettings())


def test_best_fit_passes_the_head() -> None:  # W22
    running = [runs(gang("9.0", 2))]
    decisions = decide(
        queue(gang("1.0", 3), gang("2.0", 1)), running, machines(idle=2), 10.0, replace(WRIGHT, strict=False)
    )
    assert started(decisions) == {"2.0": ["i1"]}


def test_an_opportunistic_job_leaves_for_the_head_only() -> None:
    decisions = decide(queue(gang("1.0", 3)), (), machines(idle=1, unclaimed=1, occupied=2), 0.0, WRIGHT)
    [request] = decisions.requests
    assert requested(decisions) == {"1.0": ["u1", "o1"]}
    assert request.reclaim == ("o1",)


def test_holes_are_lent_where_nobody_knows_when_the_head_starts() -> None:  # W23
    decisions = decide(queue(gang("1.0", 3)), [runs(gang("9.0", 2))], machines(idle=2), 10.0, LENDING)
    [lend] = decisions.lends
    assert (lend.machines, lend.job) == (("i1", "i2"), "1.0")
    assert not decisions.keeps


def test_a_hole_shorter_than_a_reclaim_is_kept_and_lent_ones_come_back_in_time() -> None:  # W23
    running = [runs(gang("9.0", 2, duration=100.0))]
    decisions = decide(queue(gang("1.0", 4)), running, machines(idle=1, occupied=1), 96.0, LENDING)
    assert kept(decisions) == {"1.0": ["i1"]}
    assert decisions.keeps[0].reason is KeepReason.SOON
    assert requested(decisions) == {"1.0": ["o1"]}
    short = decide(queue(gang("1.0", 4)), running, machines(idle=1, occupied=1), 90.0, LENDING)
    assert (kept(short), short.lends, short.requests) == ({"1.0": ["i1"]}, (), ())
    before = decide(queue(gang("1.0", 4)), running, machines(idle=1, occupied=1), 80.0, LENDING)
    assert before.lends[0].machines == ("i1",)
    assert before.lends[0].until == 100.0
    assert not before.requests
    assert before.wake == 95.0


def test_a_hole_is_not_lent_again_when_an_expected_end_passes_by_a_moment() -> None:
    quick = replace(LENDING, reclaim_seconds=0.5)
    running = [runs(gang("9.0", 2, duration=100.0))]
    for over in (0.0, 0.002, 1.0, GRACE - 0.1):
        decisions = decide(queue(gang("1.0", 4)), running, machines(idle=1, occupied=1), 100.0 + over, quick)
        assert kept(decisions) == {"1.0": ["i1"]}, over
        assert requested(decisions) == {"1.0": ["o1"]}, over
        assert not decisions.lends, over
        assert decisions.wake is not None
        assert decisions.wake - 100.0 <= 2 * GRACE
    later = decide(queue(gang("1.0", 4)), running, machines(idle=1, occupied=1), 100.0 + GRACE + 0.1, quick)
    assert later.lends[0].machines == ("i1",)


def test_machines_that_are_reclaimed_early_are_for_parts_that_they_fit() -> None:
    parts = (PartClass(1, ("a",), "master"), PartClass(2, ("b", "a"), "worker"))
    head = DedicatedJob("1.0", "alice", parts, 0.0)
    running = [runs(gang("9.0", 1, fits=("b",), duration=100.0), kind="b")]
    there = (
        MachineClass("b", MachineState.CLAIMED_IDLE, ("b1",)),
        MachineClass("a", MachineState.OCCUPIED, ("a1",)),
    )
    [request] = decide(queue(head), running, there, 97.0, LENDING).requests
    assert [(share.part, share.kind, share.machines) for share in request.shares] == [(0, "a", ("a1",))]
    assert request.reclaim == ("a1",)


def test_claims_that_no_job_can_use_are_released_after_a_time() -> None:  # W26
    assert decide((), (), machines(idle=2), 0.0, LENDING).keeps[0].reason is KeepReason.RECENT
    assert decide((), (), machines(idle=2, unused=True), 0.0, LENDING).releases[0].machines == ("i1", "i2")


def test_a_hundred_jobs_use_two_claims_without_a_request() -> None:  # W13
    jobs = [gang(f"{n}.0", 2, submitted=float(n)) for n in range(100)]
    for n in range(100):
        decisions = decide(queue(*jobs[n:]), (), machines(idle=2), float(n), WRIGHT)
        assert started(decisions) == {f"{n}.0": ["i1", "i2"]}
        assert not decisions.requests
        assert not decisions.releases
