"""Which running jobs look for a better machine, and how they ask for one (RL 4.1)."""

from __future__ import annotations

import pytest

from pool.classad import ClassAd, requirements_accept
from pool.policy.moving import MovingTerms, after_move, may_move, request

NOW = 10**9
TERMS = MovingTerms(gain=10, pause=3600, most=2)
JOB = {"Rank": ["TARGET.Speed"], "JobCurrentStartDate": NOW - 3600, "Requirements": ["TARGET.Speed > 50"]}


@pytest.mark.parametrize(
    ("changes", "may"),
    [
        ({}, True),
        ({"JobCurrentStartDate": NOW - 3599}, False),
        ({"JobCurrentStartDate": None}, False),
        ({"NumMoves": 1}, True),
        ({"NumMoves": 2}, False),
        ({"Rank": 0.0}, False),
        ({"Rank": None}, False),
    ],
)
def test_who_may_look_for_a_better_machine(changes: dict[str, object], may: bool) -> None:
    job = {name: value for name, value in {**JOB, **changes}.items() if value is not None}
    assert may_move(TERMS, job, NOW) is may


@pytest.mark.parametrize(("speed", "accepts"), [(40, False), (70, False), (80, False), (81, True), (None, False)])
def test_it_asks_for_more_than_it_has_by_the_gain(speed: int | None, accepts: bool) -> None:
    ad = ClassAd.from_wire(request(TERMS, JOB, 70.0))
    assert ad.value("CurrentRank") == 70.0
    assert requirements_accept(ad, ClassAd({} if speed is None else {"Speed": speed}), NOW) is accepts


def test_it_does_not_go_back() -> None:
    moved = {**JOB, **after_move(JOB, "m1", NOW)}
    assert (moved["NumMoves"], moved["MovedFrom"], moved["LastMoveTime"]) == (1, "m1", NOW)
    ad = ClassAd.from_wire(request(TERMS, moved, 0.0))
    assert not requirements_accept(ad, ClassAd({"Speed": 90, "Machine": "M1"}), NOW)
    assert requirements_accept(ad, ClassAd({"Speed": 90, "Machine": "m2"}), NOW)
    again = after_move({**moved, **after_move(moved, "m2", NOW)}, "m1", NOW)
    assert (again["NumMoves"], again["MovedFrom"]) == (3, "m2,m1")


def test_the_machines_left_are_bounded() -> None:
    job = dict(JOB)
    for number in range(100):
        job |= after_move(job, f"m{number}", NOW)
    assert len(str(job["MovedFrom"]).split(",")) == 32


def test_requirements_that_are_a_literal_stay_what_they_are() -> None:
    for literal, text in ((False, "(false)"), (True, "(true)")):
        made = request(TERMS, {"Rank": ["TARGET.Speed"], "Requirements": literal}, 1.0)
        assert made["Requirements"][0].startswith(text)
