"""When checkpoints are made, and what a start goes on from."""

from __future__ import annotations

import pytest

from pool.classad import ClassAd
from pool.policy.checkpoints import (
    Attempt,
    CheckpointInterval,
    CheckpointWish,
    avoided_machines,
    before_leaving,
    go_on_from,
    rhythm_of,
    wish_of,
)


def test_the_papers_rhythm() -> None:
    """EV 2.7: after 30 minutes, then twice the interval, up to 2 hours."""
    minutes = [interval / 60 for made in range(6) if (interval := CheckpointInterval().interval(made)) is not None]
    assert minutes == [30, 60, 120, 120, 120, 120]
    assert CheckpointInterval().interval(10**6) == 7200


@pytest.mark.parametrize(
    ("rhythm", "intervals"),
    [
        (CheckpointInterval(0), [None, None]),
        (CheckpointInterval(-5), [None, None]),
        (CheckpointInterval(60, 60, 1), [60, 60]),
        (CheckpointInterval(100, 30), [30, 30]),
        (CheckpointInterval(10, 1000, 10), [10, 100, 1000, 1000]),
        (CheckpointInterval(10, 1000, 0.5), [10, 10]),
    ],
)
def test_other_rhythms(rhythm: CheckpointInterval, intervals: list[float | None]) -> None:
    assert [rhythm.interval(made) for made in range(len(intervals))] == intervals


def test_what_came_to_nothing_is_tried_again_soon_and_never_later_than_the_next() -> None:
    assert [CheckpointInterval().interval(1, failed) for failed in range(8)] == [
        3600,
        60,
        120,
        240,
        480,
        960,
        1920,
        3600,
    ]
    assert CheckpointInterval().interval(1, 10**6) == 3600
    assert CheckpointInterval(30, 30).interval(0, 1) == 30
    assert CheckpointInterval(0).interval(0, 1) is None


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("", CheckpointWish.AUTO),
        ('JobCheckpoint = "off"', CheckpointWish.OFF),
        ('JobCheckpoint = "Required"', CheckpointWish.REQUIRED),
        ('JobCheckpoint = "nonsense"', CheckpointWish.AUTO),
        ("JobCheckpoint = 7", CheckpointWish.AUTO),
        ("SuccessCheckpointExitCode = 85", CheckpointWish.SELF),
        ('SuccessCheckpointExitCode = 85\nJobCheckpoint = "auto"', CheckpointWish.AUTO),
    ],
)
def test_what_a_job_wants(text: str, wish: CheckpointWish) -> None:
    assert wish_of(ClassAd.from_long(text)) is wish


@pytest.mark.parametrize(
    ("text", "rhythm"),
    [
        ("", CheckpointInterval()),
        ("CheckpointInterval = 60", CheckpointInterval(60, 60, 1)),
        ("CheckpointInterval = 0", CheckpointInterval(0)),
        ("CheckpointInterval = 0.001", CheckpointInterval(1, 1, 1)),
        ("CheckpointInterval = true", CheckpointInterval()),
        ('CheckpointInterval = "often"', CheckpointInterval()),
        ("CheckpointInterval = error", CheckpointInterval()),
    ],
)
def test_a_jobs_own_rhythm(text: str, rhythm: CheckpointInterval) -> None:
    assert rhythm_of(ClassAd.from_long(text), CheckpointInterval()) == rhythm


@pytest.mark.parametrize(
    ("wish", "allowed", "resumable", "ran", "made"),
    [
        (CheckpointWish.AUTO, True, True, 60, True),
        (CheckpointWish.REQUIRED, True, True, 60, True),
        (CheckpointWish.AUTO, True, True, 5, False),
        (CheckpointWish.AUTO, False, True, 60, False),
        (CheckpointWish.AUTO, True, False, 60, False),
        (CheckpointWish.OFF, True, True, 60, False),
        (CheckpointWish.SELF, True, True, 60, False),
    ],
)
def test_the_last_one(wish: CheckpointWish, allowed: bool, resumable: bool, ran: float, made: bool) -> None:
    assert before_leaving(wish, allowed, resumable, ran, 10) is made


def test_a_restore_that_fails_never_eats_the_work() -> None:
    """The next start falls back to the one before, then to the beginning; one bad machine costs nothing."""
    assert go_on_from([], []) is None
    assert go_on_from([3, 4], []) == 4
    bad = [Attempt("a", 4)]
    assert go_on_from([3, 4], bad) == 4
    assert go_on_from([3, 4], [*bad, Attempt("b", 4)]) == 3
    assert go_on_from([3, 4], [Attempt("a", 4)] * 3) == 4
    assert go_on_from([3, 4], [Attempt("a", 4)] * 4) == 3
    assert go_on_from([3, 4], [Attempt("a", 4)] * 3, "a") == 3
    assert go_on_from([3], [Attempt("a", 3), Attempt("b", 3)]) is None
    assert go_on_from([5], [Attempt("a", 3), Attempt("b", 3)]) == 5


def test_a_machine_where_it_failed_thrice_is_shunned() -> None:
    tries = [Attempt("a", 4), Attempt("a", 4), Attempt("b", 4)]
    assert avoided_machines(tries) == ()
    assert avoided_machines([*tries, Attempt("a", 3)]) == ("a",)
    assert avoided_machines([*tries, Attempt("a", 3)], "a") == ()
