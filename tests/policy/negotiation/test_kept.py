"""The reasons that keep a claimed slot from being taken, given for each slot."""

from __future__ import annotations

from pool.classad import parse_expr
from pool.policy.negotiation import NegotiationTerms
from tests.policy.negotiation.support import NOW, claimed, kept_of, negotiate, request

OLD = parse_expr("TotalJobRunTime > 3600")
WORSE = {"alice@h": 1.0, "bob@h": 50.0, "carol@h": 1.0}


def test_each_slot_is_told_by_the_first_thing_that_keeps_it() -> None:
    slots = [
        claimed("own@m", "alice@h"),
        claimed("order@m", "carol@h"),
        claimed("young@m", "bob@h", since=NOW - 60),
        claimed("liked@m", "bob@h", rank=5.0),
        claimed("requirements@m", "bob@h", since=NOW - 1800),
        claimed("leaving@m", "bob@h", Activity="Vacating"),
        claimed("taken@m", "bob@h"),
        claimed("better@m", "bob@h", rank=-1.0, since=NOW - 1),
    ]
    terms = NegotiationTerms(preemption_requirements=OLD, minimum_run=600.0, priorities=WORSE)
    assert kept_of("alice@h", request(1), slots, terms) == {
        name.upper(): [f"{name}@m"] for name in ("leaving", "own", "order", "young", "liked", "requirements")
    }
    outcome = negotiate({"alice@h": [request(1, 8)]}, slots, terms=terms)
    assert {match.slot for match in outcome.matches} == {"taken@m", "better@m"}


def test_where_priority_takes_nothing() -> None:
    slots = [claimed("own@m", "alice@h"), claimed("other@m", "bob@h")]
    assert kept_of("alice@h", request(1), slots) == {"OWN": ["own@m"], "NEVER": ["other@m"]}
