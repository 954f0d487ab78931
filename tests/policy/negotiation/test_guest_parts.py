"""Guests on divided machines: which of their parts one job of this pool is given (EV 4.2)."""

from __future__ import annotations

import random

import pytest

from pool.classad import parse_expr
from pool.policy.negotiation import Match, NegotiationTerms, Outcome
from pool.policy.negotiation.guest_parts import GuestPart, fewest
from tests.policy.negotiation.support import NOW, Slot, negotiate, request, slot
from tests.policy.negotiation.test_guests import MINIMUM, TERMS, guest, lent


def divided(machine: str, rest: int, *parts: int, saved: bool = True, since: float = NOW - 7200) -> list[Slot]:
    """A machine of which so many processors are free, and parts of so many have guests."""
    whole = slot(f"slot1@{machine}", cpus=rest, memory=1000 * rest, partitionable=True)
    return [whole, *(part(machine, number, cpus, saved, since) for number, cpus in enumerate(parts, 1))]


def part(machine: str, number: int, cpus: int, saved: bool = True, since: float = NOW - 7200) -> Slot:
    return guest(f"slot1_{number}@{machine}", saved=saved, since=since, cpus=cpus, memory=1000 * cpus, DynamicSlot=True)


def leaving(outcome: Outcome) -> list[tuple[str, ...]]:
    return [match.leaving for match in outcome.matches]


def ask(slots: list[Slot], count: int = 1, cpus: int = 1, terms: NegotiationTerms = TERMS, **ad: object) -> Outcome:
    return negotiate({"bob": [request(1, count, RequestCpus=cpus, **ad)]}, slots, terms=terms)  # type: ignore[arg-type]


def test_a_job_has_the_part_of_one_guest_that_is_enough() -> None:
    outcome = ask(divided("m", 0, 1, 4, 2), cpus=2)
    assert outcome.matches == [Match("bob", 1, "slot1@m", 1, "guest", ("slot1_2@m",))]
    outcome = ask([*divided("m", 0, 1, 4), part("m", 3, 2, since=NOW - 100)], cpus=2)
    assert leaving(outcome) == [("slot1_3@m",)], "the one that loses less"


def test_the_free_rest_counts_and_is_not_given_twice() -> None:
    slots = [*divided("m", 1, 1, 1, 1), slot("slot1@n", partitionable=True)]
    outcome = ask(slots, count=2, cpus=2)
    assert sorted(len(parts) for parts in leaving(outcome)) == [1, 2]
    assert outcome.unmatched == {}


def test_several_guests_leave_only_where_one_is_not_enough() -> None:
    assert leaving(ask(divided("m", 1, 1, 1, 1, 1), cpus=4)) == [("slot1_1@m", "slot1_2@m", "slot1_3@m")]
    slots = [*divided("many", 0, 1, 1, 1), *divided("one", 0, 3)]
    assert leaving(ask(slots, cpus=3)) == [("slot1_1@one",)]


def test_a_job_that_is_too_large_has_nobody_leave() -> None:
    outcome = ask(divided("m", 1, 1, 1), cpus=4)
    assert outcome.matches == []
    assert ask(divided("m", 1, 1, 1), cpus=1, RequestMemory=5000).matches == []


def test_many_jobs_share_one_machine_and_each_guest_leaves_for_one() -> None:
    outcome = ask(divided("m", 0, *[1] * 8), count=3, cpus=2)
    assert [len(parts) for parts in leaving(outcome)] == [2, 2, 2]
    assert len({name for parts in leaving(outcome) for name in parts}) == 6
    assert {match.count for match in outcome.matches} == {1}
    more = ask(divided("m", 0, *[1] * 8), count=9, cpus=2)
    assert (len(more.matches), more.unmatched) == (4, {"bob": {1: 5}})


def test_users_share_what_guests_leave() -> None:
    wanted = {name: [request(1, 4, RequestCpus=1)] for name in ("ann", "bob")}
    outcome = negotiate(wanted, divided("m", 0, 1, 1, 1, 1), terms=TERMS)
    assert sorted(match.submitter for match in outcome.matches) == ["ann", "ann", "bob", "bob"]
    assert len({match.leaving for match in outcome.matches}) == 4


def test_an_idle_part_comes_first() -> None:
    outcome = ask([*divided("m", 0, 2), slot("slot1@n", partitionable=True)], count=2)
    assert [(match.slot, match.preempts) for match in outcome.matches] == [("slot1@n", None), ("slot1@m", "guest")]


def test_a_guest_leaves_a_part_before_a_job_is_sent_to_another_pool() -> None:
    slots = [lent("away"), *divided("m", 0, 1)]
    assert [match.slot for match in ask(slots, count=2).matches] == ["slot1@m", "away"]
    anywhere = NegotiationTerms(guest_minimum=MINIMUM)
    assert [match.slot for match in ask(slots, count=2, terms=anywhere).matches] == ["away", "slot1@m"]
    preferring = NegotiationTerms(pre_job_rank=parse_expr("FlockPool =!= undefined"))
    assert [match.slot for match in ask(slots, count=2, terms=preferring).matches] == ["away", "slot1@m"]


def test_a_guest_that_cannot_be_saved_has_its_minimum_on_a_part_too() -> None:
    slots = divided("m", 0, 1, 1, saved=False, since=NOW - MINIMUM + 30)
    outcome = ask(slots, cpus=2)
    assert (outcome.matches, outcome.guests_leave_at) == ([], NOW + 30)
    assert ask(slots, cpus=3).guests_leave_at is None, "the machine is too small for it"


def test_a_machine_that_the_job_does_not_want_is_left_alone() -> None:
    slots = [*divided("m", 0, 2), *divided("n", 0, 2)]
    assert leaving(ask(slots, count=2, Requirements=['TARGET.Kind =?= "none"'])) == []


def test_a_part_whose_machine_is_not_known_is_taken_as_it_is() -> None:
    outcome = ask([part("m", 1, 2)])
    assert outcome.matches == [Match("bob", 1, "slot1_1@m", 1, "guest")]


@pytest.mark.parametrize("seed", range(20))
def test_no_guest_leaves_that_could_stay(seed: int) -> None:
    """By chance: what leaves is enough, and without any of it, it is not; if anything is enough, something leaves."""
    chance = random.Random(seed)
    for _ in range(50):
        rest = {"Cpus": chance.randint(0, 3), "Memory": chance.randint(0, 3)}
        wanted = {"Cpus": chance.randint(1, 8), "Memory": chance.randint(0, 8)}
        parts: list[GuestPart] = [
            GuestPart(
                place,
                {"Cpus": chance.randint(1, 4), "Memory": chance.randint(0, 4)},
                (chance.random() < 0.5, chance.random()),
            )
            for place in range(chance.randint(0, 6))
        ]

        def enough(some: list[GuestPart], rest: dict[str, int] = rest, wanted: dict[str, int] = wanted) -> bool:
            return all(rest[name] + sum(part.amounts[name] for part in some) >= wanted[name] for name in wanted)

        chosen = fewest(rest, parts, wanted)
        if enough([]) or not enough(parts):
            assert chosen == []
            continue
        assert enough(chosen)
        assert not any(enough([other for other in chosen if other is not part]) for part in chosen)
        assert len(chosen) == 1 or not any(enough([part]) for part in parts)
