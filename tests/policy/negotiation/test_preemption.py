"""The requests that may take a claimed slot, and the order in which candidates are compared (RL 4.3)."""

from __future__ import annotations

import pytest

from pool.classad import parse_expr
from pool.policy.negotiation import NegotiationTerms, ResourceRequest, UnmatchedReason
from tests.policy.negotiation.support import NOW, Slot, claimed, negotiate, request, slot

BETTER = {"anna": 1.0, "bob": 10.0}
YES = NegotiationTerms(preemption_requirements=True, priorities=BETTER)


def taken(
    slots: list[Slot], terms: NegotiationTerms = YES, wanted: ResourceRequest | None = None, user: str = "anna"
) -> list[tuple[str, str | None]]:
    outcome = negotiate({user: [wanted or request(1, 10)]}, slots, terms=terms)
    return [(match.slot, match.preempts) for match in outcome.matches]


def test_an_idle_machine_comes_before_any_that_must_be_taken() -> None:
    slots = [
        claimed("by-priority", "bob"),
        claimed("by-rank", "bob", Rank=5.0),
        slot("idle"),
    ]
    assert taken(slots) == [("idle", None), ("by-rank", "rank"), ("by-priority", "priority")]


def test_the_jobs_rank_comes_before_less_preemption() -> None:
    slots = [slot("idle", Mips=1), claimed("busy", "bob", Mips=9)]
    assert taken(slots, wanted=request(1, 1, Rank=["TARGET.Mips"])) == [("busy", "priority")]


def test_between_equal_preemptions_the_administrators_rank_decides() -> None:
    slots = [claimed(f"s{size}", "bob", JobSize=size) for size in (3, 1, 2)]
    terms = NegotiationTerms(
        preemption_requirements=True, priorities=BETTER, preemption_rank=parse_expr("0 - MY.JobSize")
    )
    assert [name for name, _ in taken(slots, terms)] == ["s1", "s2", "s3"]


def test_between_equals_by_every_rank_the_machines_own_decides() -> None:
    slots = [claimed("cold", "bob", Rank=1.0), claimed("warm", "bob", Rank=3.0)]
    assert [name for name, _ in taken(slots)] == ["warm", "cold"]


def test_pre_and_post_job_rank_frame_the_jobs_own() -> None:
    slots = [slot("a", Mips=1, Room=1), slot("b", Mips=2, Room=1), slot("c", Mips=3, Room=0)]
    wanted = request(1, 3, Rank=["TARGET.Mips > 1"])
    before = NegotiationTerms(pre_job_rank=parse_expr("MY.Room"), post_job_rank=parse_expr("0 - MY.Mips"))
    assert [name for name, _ in taken(slots, before, wanted)] == ["b", "a", "c"]
    after = NegotiationTerms(post_job_rank=parse_expr("MY.Mips"))
    assert [name for name, _ in taken(slots, after, wanted)] == ["c", "b", "a"]


@pytest.mark.parametrize(("current", "rank", "got"), [(0.0, 1.0, True), (1.0, 1.0, False), (2.0, 1.0, False)])
def test_a_machine_gives_way_to_a_job_that_it_likes_better(current: float, rank: float, got: bool) -> None:
    found = taken([claimed("s", "bob", rank=current, Rank=rank)], NegotiationTerms())
    assert found == ([("s", "rank")] if got else [])


def test_a_users_own_job_gives_way_to_one_that_the_machine_likes_better() -> None:
    assert taken([claimed("s", "anna", Rank=1.0)], NegotiationTerms()) == [("s", "rank")]


def test_rank_does_not_preempt_where_the_administrator_forbids_it() -> None:
    assert taken([claimed("s", "bob", Rank=1.0)], NegotiationTerms(rank_preemption=False)) == []


def test_priority_never_overrules_the_owners_wish() -> None:
    assert taken([claimed("s", "bob", rank=10.0, Rank=0.0)]) == []


def test_nobody_is_preempted_by_himself_or_by_his_betters_equals() -> None:
    assert taken([claimed("s", "anna")]) == []
    assert taken([claimed("s", "anna")], user="bob") == []
    assert taken([claimed("s", "carl")], user="dora") == []


def test_a_high_number_is_good_where_the_terms_say_so() -> None:
    terms = NegotiationTerms(preemption_requirements=True, priorities=BETTER, lower_is_better=False)
    assert taken([claimed("s", "anna")], terms, user="bob") == [("s", "priority")]
    assert taken([claimed("s", "bob")], terms, user="anna") == []


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("RemoteUserPrio > SubmitterUserPrio * 1.2", True),
        ("MY.RemoteUserPrio == 10 && TARGET.SubmitterUserPrio == 1", True),
        ("RemoteUserPrio > SubmitterUserPrio * 12", False),
        ("MY.TotalJobRunTime > 3600", True),
        ("ActivityTimer > 3600 && StateTimer == 7200", True),
        ("ActivityTimer > 9000", False),
        ("(time() - EnteredCurrentState) > 3600", True),
        ("RemoteUserResourcesInUse == 1 && SubmitterUserResourcesInUse == 0", True),
        ('RemoteGroup == "theirs" && SubmitterGroup == "ours"', True),
        ("TARGET.RequestMemory == 10", True),
        ('eval("RemoteUserPrio") == 10', True),
        ("nosuch", False),
        ("error", False),
        ('"yes"', False),
        ("1", True),
    ],
)
def test_the_administrators_requirements_decide_on_preemption_by_priority(text: str, got: bool) -> None:
    terms = NegotiationTerms(
        preemption_requirements=parse_expr(text), priorities=BETTER, groups={"anna": "ours", "bob": "theirs"}
    )
    assert taken([claimed("s", "bob")], terms) == ([("s", "priority")] if got else [])


def test_a_job_has_its_minimum_time() -> None:
    terms = NegotiationTerms(preemption_requirements=True, priorities=BETTER, minimum_run=3600.0)
    slots = [
        claimed("young", "bob", since=NOW - 3599),
        claimed("old", "bob", since=NOW - 3600),
        claimed("silent", "bob", JobStart="long ago"),
    ]
    assert taken(slots, terms) == [("old", "priority")]


def test_nobody_takes_more_than_his_share_by_priority() -> None:
    from pool.policy.negotiation import EqualTurns

    slots = [claimed(f"s{number}", "bob") for number in range(6)]
    turns = EqualTurns({"anna": 1.0, "bob": 6.0}, total=6.0)
    outcome = negotiate({"anna": [request(1, 6)]}, slots, terms=YES, turns=turns)
    assert len(outcome.matches) == 2
    assert outcome.rejections["anna"][1].why is UnmatchedReason.SHARE


def test_who_was_preempted_does_not_preempt_back() -> None:
    slots = [claimed("s0", "bob"), claimed("s1", "anna")]
    outcome = negotiate({"anna": [request(1, 5)], "bob": [request(2, 5)]}, slots, terms=YES)
    assert [(match.submitter, match.slot) for match in outcome.matches] == [("anna", "s0")]


@pytest.mark.parametrize("activity", ["Retiring", "Vacating", "Killing"])
def test_a_slot_on_its_way_out_of_a_claim_is_left_alone(activity: str) -> None:
    assert taken([claimed("s", "bob", Activity=activity)]) == []


def test_a_running_job_moves_to_a_free_machine_that_it_likes_better_by_enough() -> None:
    slots = [slot("same", Mips=10), slot("little", Mips=11), slot("much", Mips=15), claimed("busy", "bob", Mips=99)]
    wanted = request(1, 1, moving=True, Rank=["TARGET.Mips"], CurrentRank=10.0)
    assert taken(slots, NegotiationTerms(moving_gain=2.0, preemption_requirements=True, priorities=BETTER), wanted) == [
        ("much", None)
    ]
    outcome = negotiate({"anna": [wanted]}, slots, terms=NegotiationTerms(moving_gain=5.0))
    assert outcome.rejections["anna"][1].why is UnmatchedReason.NO_GAIN


def test_a_running_job_that_does_not_say_how_it_likes_its_machine_stays() -> None:
    for present in ({}, {"CurrentRank": "high"}, {"CurrentRank": ['real("nan")']}):
        assert (
            taken([slot("s", Mips=1)], NegotiationTerms(), request(1, 1, moving=True, Rank=["TARGET.Mips"], **present))
            == []
        )


def test_what_the_administrator_asks_of_jobs_tells_requests_apart() -> None:
    terms = NegotiationTerms(
        preemption_requirements=parse_expr("TARGET.ImageSize < 5"), pre_job_rank=parse_expr("TARGET.Urgent")
    )
    assert {"imagesize", "urgent"} <= terms.references


def test_requests_of_one_submitter_are_told_apart_by_what_the_administrator_looks_at() -> None:
    """Also where what is looked at is an expression, or follows from the slot."""
    slots = [claimed(f"s{number}", "bob", Most=number) for number in range(1, 5)]
    terms = NegotiationTerms(preemption_requirements=parse_expr("TARGET.Size < MY.Most"), priorities=BETTER)
    sizes = (3, 1, ["1 + 1"], ["MY.Other"], ["TARGET.Most - 1"])
    wanted = [request(number, 1, Size=size) for number, size in enumerate(sizes)]
    outcome = negotiate({"anna": wanted}, slots, terms=terms)
    assert {match.request: match.slot for match in outcome.matches} == {0: "s4", 1: "s2", 2: "s3", 4: "s1"}
    assert list(outcome.rejections["anna"]) == [3]
