"""Concurrency limits."""

from __future__ import annotations

import pytest

from pool.policy.negotiation import NegotiationTerms, UnmatchedReason
from pool.policy.negotiation.limits import parse_limits
from tests.policy.negotiation.support import claimed, negotiate, request, slot


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("matlab", {"matlab": 1}),
        ("Matlab, db:3,farm.small", {"matlab": 1, "db": 3, "farm.small": 1}),
        ("db, db:2", {"db": 3}),
        ("db:0.5", {"db": 0.5}),
        ("", {}),
        (None, {}),
        (" , ", {}),
        ("db:", None),
        ("db:-1", None),
        ("3db", None),
        ("a b", None),
        (7, None),
        (("db",), None),
    ],
)
def test_what_a_job_says_of_its_limits(text: object, wanted: dict[str, float] | None) -> None:
    assert parse_limits(text) == wanted


def test_no_more_jobs_run_than_a_limit_has_and_it_is_named() -> None:
    slots = [slot(f"s{number}") for number in range(9)]
    terms = NegotiationTerms(limits={"db": 5.0}, limits_in_use={"db": 1.0})
    outcome = negotiate({"a": [request(1, 9, ConcurrencyLimits="DB:2, other")]}, slots, terms=terms)
    assert len(outcome.matches) == 2
    found = outcome.rejections["a"][1]
    assert (found.why, found.limit, found.left) == (UnmatchedReason.LIMIT, "db", 7)


def test_what_is_in_use_is_counted_from_the_slots() -> None:
    slots = [claimed("busy", "b", ConcurrencyLimits="db:2"), claimed("odd", "b", ConcurrencyLimits=5), slot("s")]
    outcome = negotiate(
        {"a": [request(1, 1, ConcurrencyLimits="db")]}, slots, terms=NegotiationTerms(limits={"db": 2.0})
    )
    assert outcome.matches == []


def test_a_limit_without_number_has_the_default() -> None:
    slots = [slot(f"s{number}") for number in range(4)]
    outcome = negotiate({"a": [request(1, 4, ConcurrencyLimits="x")]}, slots, terms=NegotiationTerms(default_limit=3.0))
    assert len(outcome.matches) == 3


def test_one_match_of_a_partitionable_slot_keeps_to_the_limit() -> None:
    outcome = negotiate(
        {"a": [request(1, 9, ConcurrencyLimits="x")]},
        [slot("p", cpus=16, partitionable=True)],
        terms=NegotiationTerms(limits={"x": 3.0}),
    )
    assert sum(match.count for match in outcome.matches) == 3


@pytest.mark.parametrize("limits", ["db::", 3, ["error"], ["nosuch + error"]])
def test_limits_that_make_no_sense_keep_the_job_and_say_so(limits: object) -> None:
    outcome = negotiate({"a": [request(1, 1, ConcurrencyLimits=limits)]}, [slot("s")])
    assert outcome.matches == []
    assert outcome.rejections["a"][1].why is UnmatchedReason.MALFORMED


def test_a_job_whose_limit_has_no_value_has_none() -> None:
    assert negotiate({"a": [request(1, 1, ConcurrencyLimits=["nosuch"])]}, [slot("s")]).matches
