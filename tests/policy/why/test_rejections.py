"""A cycle's rejections in words, and which are news."""

from __future__ import annotations

from pool.policy.negotiation import Rejection, UnmatchedReason
from pool.policy.why.rejections import AGAIN, RejectionNotices, rejection_text

NONE = Rejection(UnmatchedReason.NO_MACHINE, 3, 0)
CLAIMED = Rejection(UnmatchedReason.CLAIMED, 3, 1200, 0, 1200)
LIMIT = Rejection(UnmatchedReason.LIMIT, 3, None, 0, 0, "matlab")


def test_in_one_line() -> None:
    assert [rejection_text(one) for one in (NONE, CLAIMED, LIMIT)] == [
        "no machine matches",
        "every machine that matches has another job, which may not be preempted (1,200 match)",
        "a concurrency limit is used up (matlab)",
    ]


def test_only_what_is_new_is_told_and_all_of_it_once_in_a_while() -> None:
    news = RejectionNotices()
    first, second = {1: "none", 2: "claimed"}, {1: "limit", 2: "claimed"}
    assert news.notices_for("alice@h", first, 100.0) == [(1, "none"), (2, "claimed")]
    assert news.notices_for("alice@h", first, 101.0) == []
    assert news.notices_for("bob@h", first, 101.0) == [(1, "none"), (2, "claimed")]
    assert news.notices_for("alice@h", second, 102.0) == [(1, "limit")]
    assert news.notices_for("alice@h", {}, 103.0) == []
    assert news.notices_for("alice@h", second, 104.0) == [(1, "limit"), (2, "claimed")]
    assert len(news.notices_for("alice@h", second, 104.0 + AGAIN)) == 2


def test_what_did_not_arrive_is_told_again() -> None:
    news = RejectionNotices()
    news.notices_for("alice@h", {1: "none"}, 100.0)
    news.forget("alice@h")
    assert news.notices_for("alice@h", {1: "none"}, 101.0) == [(1, "none")]
