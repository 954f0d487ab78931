"""Cycles over mixed pools: slots are compared alike in every way, and nothing is left to a collection of garbage."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest

from pool.classad import ClassAd, parse_expr
from pool.policy.matching import SlotIndex
from pool.policy.negotiation import EqualTurns, NegotiationTerms, Outcome, ResourceRequest, cycle, ordering
from tests.benchmarks.mixed_pool import NOW, SUBMITTERS, MixedPool, submitter
from tests.policy.negotiation.support import negotiate, picture_of, request
from tests.policy.negotiation.test_guest_parts import divided
from tests.policy.negotiation.test_guests import TERMS

SLOTS, REQUESTS = 300, 60
PREEMPTING: dict[str, Any] = {
    "preemption_requirements": parse_expr("RemoteUserResourcesInUse >= 0 && RemoteUserPrio > SubmitterUserPrio"),
    "preemption_rank": parse_expr("MY.Memory % 3"),
    "priorities": {submitter(number): 1.0 + number for number in range(SUBMITTERS)},
}
#: Ranks that many slots share, and that each slot has for itself.
RANKS = ["TARGET.Memory", "TARGET.Mips / 4000", "TARGET.LoadAvg", "TARGET.KFlops"]


class _Pool:
    def __init__(self, seed: int) -> None:
        mixed = MixedPool(SLOTS, REQUESTS, 4 * SLOTS, seed)
        self.picture = SlotIndex()
        self.requests: dict[str, list[ResourceRequest]] = {}
        for number in range(SLOTS):
            name, wire = mixed.slot(number)
            if number % 5 == 0 and wire["State"] == "Claimed":
                leaves = {"RemoteGuestLeaves": True, "RemoteNiceUser": True, "JobCanCheckpoint": number % 2 == 0}
                wire |= {"RemoteGuestOf": "other", **leaves}
            if number % 7 == 0:
                wire["StartUrgent"] = True
            self.picture.set_ad(name, ClassAd.from_wire(wire))
        for number in range(REQUESTS):
            name, request = mixed.request(number)
            ad = request.ad.copy()
            ad["Rank"] = parse_expr(RANKS[number % len(RANKS)])
            if number % 9 == 0:
                ad["Urgent"] = True
            self.requests.setdefault(name, []).append(replace(request, ad=ad))

    def cycle(self, terms: NegotiationTerms) -> Outcome:
        return cycle(self.picture, self.requests, EqualTurns(dict.fromkeys(self.requests, 0.0)), terms, float(NOW))


@pytest.mark.parametrize(("seed", "pre_job_rank"), [(0, 0.0), (1, parse_expr("MY.Disk % 7"))])
def test_slots_are_compared_alike_set_by_set_and_in_lists(
    seed: int, pre_job_rank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = NegotiationTerms(**PREEMPTING, pre_job_rank=pre_job_rank)
    outcomes = []
    for few, sparse in ((10**9, 10**9), (0, 10**9), (0, 0)):
        monkeypatch.setattr(ordering, "_FEW", few)
        monkeypatch.setattr(ordering, "_SPARSE", sparse)
        outcomes.append(_Pool(seed).cycle(terms))
    assert {match.preempts for match in outcomes[0].matches} == {None, "guest", "urgent", "rank", "priority"}
    assert outcomes[1] == outcomes[0]
    assert outcomes[2] == outcomes[0]


def test_a_cycle_leaves_no_circle_of_references(no_collection: None) -> None:
    pool, terms = _Pool(5), NegotiationTerms(**PREEMPTING)
    pool.cycle(terms)
    gc.collect()
    assert pool.cycle(terms).matches
    assert gc.collect() == 0


def test_guests_that_leave_parts_leave_no_circle_of_references(no_collection: None) -> None:
    picture, wanted = picture_of(divided("m", 1, 1, 1, 1)), {"bob": [request(1, 2, RequestCpus=2)]}
    negotiate(wanted, picture, terms=TERMS)
    gc.collect()
    assert any(match.leaving for match in negotiate(wanted, picture, terms=TERMS).matches)
    assert gc.collect() == 0
