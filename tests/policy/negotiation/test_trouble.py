"""Ads that lack attributes or lie, and knobs without sense: nothing raises, and everything has a defined outcome."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pool.classad import ClassAd, parse_expr
from pool.policy.matching import SlotIndex
from pool.policy.negotiation import EqualTurns, NegotiationTerms, Outcome, ResourceRequest, UnmatchedReason, cycle
from tests.policy.matching.expressions import Ads
from tests.policy.negotiation.support import NOW, claimed, negotiate, request, slot

NONSENSE = ["undefined", "error", '"text"', "{1, 2}", "[a = 1]", "1 / 0", "nosuch", 'real("nan")', "a0"]


@pytest.mark.parametrize("text", NONSENSE)
def test_knobs_without_sense_prefer_nothing_and_preempt_nobody(text: str) -> None:
    expression = parse_expr(text)
    terms = NegotiationTerms(
        preemption_requirements=expression,
        preemption_rank=expression,
        pre_job_rank=expression,
        post_job_rank=expression,
        priorities={"a": 1.0, "b": 2.0},
    )
    outcome = negotiate({"a": [request(1, 5)]}, [slot("s0"), claimed("s1", "b"), slot("s2")], terms=terms)
    preempted = [match.slot for match in outcome.matches if match.preempts]
    assert [match.slot for match in outcome.matches if not match.preempts] == ["s0", "s2"]
    assert preempted == (["s1"] if text == 'real("nan")' else [])  # not a number counts as true, as in any requirement


@pytest.mark.parametrize("name", ["Rank", "SlotWeight", "Cpus", "State", "CurrentRank", "RemoteUser", "JobStart"])
@pytest.mark.parametrize("text", NONSENSE)
def test_slots_that_lie_are_matched_or_left_but_harm_nobody(name: str, text: str) -> None:
    terms = NegotiationTerms(preemption_requirements=True, priorities={"a": 1.0, "b": 2.0}, minimum_run=1.0)
    lie: dict[str, Any] = {name: [text]}
    slots = [slot("odd", **lie), claimed("busy", "b", **lie), slot("good")]
    outcome = negotiate({"a": [request(1, 5)]}, slots, terms=terms)
    assert "good" in [match.slot for match in outcome.matches]


@pytest.mark.parametrize("name", ["Rank", "RequestCpus", "RequestMemory", "Requirements"])
@pytest.mark.parametrize("text", NONSENSE)
def test_requests_that_lie_get_nothing_of_others(name: str, text: str) -> None:
    slots = [slot("p", cpus=4, partitionable=True), slot("s")]
    lie: dict[str, Any] = {name: [text]}
    outcome = negotiate({"a": [request(1, 1, **lie)], "b": [request(2, 5)]}, slots)
    assert sum(match.count for match in outcome.matches if match.submitter == "b") >= 4


def test_empty_ads_match_nothing() -> None:
    picture = SlotIndex()
    picture.set_ad("empty", ClassAd())
    outcome = negotiate({"a": [ResourceRequest(1, ClassAd(), 3, 0.0)]}, picture)
    assert outcome.matches == []
    assert outcome.rejections["a"][1].why is UnmatchedReason.NO_MACHINE


def test_a_request_without_an_amount_is_told_so() -> None:
    wanted = request(1, 1, RequestCpus="many", Requirements=True)
    assert negotiate({"a": [wanted]}, [slot("s")]).rejections["a"][1].why is UnmatchedReason.MALFORMED


def test_what_is_left_over_says_why() -> None:
    slots = [slot("s0"), claimed("s1", "b"), slot("s2", memory=5)]
    outcome = negotiate(
        {"a": [request(1, 3), request(2, 1, RequestMemory=10**6), request(3, 1, Requirements=['Name == "s1"'])]}, slots
    )
    found = outcome.rejections["a"]
    assert (found[1].why, found[1].matching, found[1].free, found[1].claimed) == (UnmatchedReason.TAKEN, 2, 1, 1)
    assert (found[2].why, found[2].matching) == (UnmatchedReason.NO_MACHINE, 0)
    assert outcome.machines == 3


class Never:
    """Turns that offer the same submitter for ever, and never let it take anything."""

    def next(self) -> tuple[str, float] | None:
        return "a", 1.0

    def charge(self, submitter: str, weight: float, holder: str = "") -> None:
        raise AssertionError

    def retire(self, submitter: str) -> None:
        pass

    def allows(self, submitter: str, weight: float, *, preempting: bool, holder: str = "") -> bool:
        return False


def test_turns_that_lead_nowhere_end() -> None:
    outcome = negotiate({"a": [request(1, 2)]}, [slot("s")], turns=Never())
    assert outcome.rejections["a"][1].why is UnmatchedReason.SHARE


@pytest.mark.parametrize("seed", range(6))
def test_the_same_again_comes_to_the_same(seed: int) -> None:
    """Also with a picture that has seen other things before."""

    def once(picture: SlotIndex) -> Outcome:
        ads, chance = Ads(seed), random.Random(seed)
        requests: dict[str, list[ResourceRequest]] = {}
        for number in range(12):
            requests.setdefault(f"u{number % 3}", []).append(ResourceRequest(number, ads.request(), 3, 0.0))
        for number in range(20):
            ad = ads.machine()
            busy = chance.random() < 0.5
            ad["State"], ad["RemoteUser"], ad["CurrentRank"] = "Claimed" if busy else "Unclaimed", "u1", 0.0
            picture.set_ad(f"s{number}", ad)
        terms = NegotiationTerms(preemption_requirements=True, priorities={"u0": 1.0, "u1": 2.0, "u2": 3.0})
        return cycle(picture, requests, EqualTurns(dict.fromkeys(requests, 0.0)), terms, NOW)

    used = SlotIndex()
    once(used)
    assert once(SlotIndex()) == once(used)
