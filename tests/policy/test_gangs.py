"""Gangs: what is asked for, when claims are given back, and that two that want the same slots both run in the end."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pool.policy.gangs import FIRST_PAUSE, LONGEST_PAUSE, Gathering, ends_gang, explains, merged

PATIENCE = 30.0


def test_parts_that_ask_for_the_same_are_asked_for_together() -> None:
    gang = Gathering(kinds=("a", "b", "a"))
    assert gang.wanted_parts(0.0) == [[0, 2], [1]]
    gang.coming.add(1)
    assert gang.assign_part([0, 2], "m1", 0.0) == 0
    assert gang.wanted_parts(0.0) == [[2]]
    gang.coming.clear()
    assert [gang.assign_part([1], "m1", 1.0), gang.assign_part([2], "m2", 2.0), gang.assign_part([2], "m3", 2.0)] == [
        1,
        2,
        None,
    ]
    assert gang.is_complete
    assert gang.wanted_parts(2.0) == []


def test_parts_that_must_be_apart_are_asked_for_one_by_one_and_never_share_a_machine() -> None:
    gang = Gathering(kinds=("a", "a"), apart=True)
    assert gang.wanted_parts(0.0) == [[0]]
    gang.coming.add(0)
    assert gang.wanted_parts(0.0) == []
    gang.coming.clear()
    assert gang.assign_part([0], "m1", 0.0) == 0
    assert gang.assign_part([1], "m1", 0.0) is None
    assert gang.wanted_parts(0.0) == [[1]]


def test_it_gives_up_after_its_patience_and_pauses_longer_each_time() -> None:
    gang = Gathering(kinds=("a", "a"))
    assert gang.gives_up_at(PATIENCE) is None
    gang.assign_part([0], "m1", 5.0)
    assert gang.gives_up_at(PATIENCE) == 5.0 + PATIENCE
    pauses = []
    for _ in range(20):
        gang.release_all(100.0, 1.0)
        assert gang.wanted_parts(100.0) == []
        pauses.append(gang.not_before - 100.0)
    assert pauses[:2] == [FIRST_PAUSE, 2 * FIRST_PAUSE]
    assert pauses[-1] == LONGEST_PAUSE
    assert gang.wanted_parts(100.0 + LONGEST_PAUSE) == [[0, 1]]


def test_a_claim_that_is_lost_is_asked_for_again() -> None:
    gang = Gathering(kinds=("a", "a"))
    gang.assign_part([0], "m1", 5.0)
    gang.remove_part(0)
    assert (gang.wanted_parts(6.0), gang.gives_up_at(PATIENCE)) == ([[0, 1]], None)


def test_slots_that_others_have_are_of_use_only_together() -> None:
    gang = Gathering(kinds=("a", "a", "a"), apart=True)
    assert gang.assign_part([0], "m1", 0.0) == 0
    offers = ("slot1@m1", "slot1@m2", "slot1@m2", "slot2@m2")
    assert [gang.offer([1, 2], slot) for slot in offers] == [None, 1, None, None]
    assert (gang.covered, gang.wanted_parts(0.0)) == (False, [[2]])
    assert gang.offer([1, 2], "slot1@m3") == 2
    assert (gang.covered, gang.is_complete, gang.wanted_parts(0.0)) == (True, False, [])
    gang.remove_part(0)
    assert (gang.covered, gang.wanted_parts(0.0)) == (False, [[0]])
    gang.release_all(0.0, 0.0)
    assert gang.wanted_parts(LONGEST_PAUSE) == [[0]]


@pytest.mark.parametrize("seed", range(20))
def test_gangs_that_hold_what_the_others_lack_all_run_in_the_end(seed: int) -> None:
    """Three queues, each with gangs of two and three parts, and three machines that whoever comes first gets."""
    chance = random.Random(seed)
    free, waiting = ["m1", "m2", "m3"], [Gathering(kinds=("k",) * (2 + i % 2), apart=True) for i in range(3)]
    now = 0.0
    for _ in range(100_000):
        if not waiting:
            break
        now += chance.random()
        gang = chance.choice(waiting)
        wanted = gang.wanted_parts(now)
        if wanted and free:
            machine = chance.choice(free)
            assert gang.assign_part(wanted[0], machine, now) is not None
            free.remove(machine)
        due = gang.gives_up_at(PATIENCE)
        if gang.is_complete:
            free += gang.held.values()
            waiting.remove(gang)
        elif due is not None and now >= due:
            free += gang.held.values()
            gang.release_all(now, chance.random())
    assert not waiting
    assert now < 3600.0


def end(name: str, code: int | None = 0, signal: int | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "code": code, "signal": signal, "failed": False, **more}


def part(*ends: dict[str, Any], cause: str = "exit", **more: Any) -> dict[str, Any]:
    last = ends[-1] if ends else {}
    own = {"cause": cause, "code": last.get("code"), "signal": last.get("signal"), "ends": list(ends)}
    return {**own, "user_cpu": 1.0, "wall": 2.0, "max_rss": 10, **more}


def test_the_end_is_that_of_the_last_process_whichever_part_ended_last() -> None:
    reports = [part(end("c", 3), wall=5.0), part(end("a"), end("b", None, 13))]
    whole = merged(reports, ["a", "b", "c"], None, "end")
    assert (whole["cause"], whole["code"], whole["signal"]) == ("exit", 3, None)
    assert [one["name"] for one in whole["ends"]] == ["a", "b", "c"]
    assert (whole["user_cpu"], whole["wall"], whole["max_rss"]) == (2.0, 5.0, 20)


def test_a_failure_is_the_gangs_end_as_the_job_says() -> None:
    failed = part(end("a", 9, failed=True), said="process a exited with 9")
    good = part(end("b", 0))
    assert ends_gang(failed, "end")
    assert not ends_gang(failed, "wait")
    assert not ends_gang(good, "end")
    killed = part(end("b", None, 9, with_job=True), cause="vacated", code=None)
    assert merged([failed, killed], ["a", "b"], 0, "end")["code"] == 9
    ends = merged([failed], ["a", "b"], 0, "end")["ends"]  # the part with b had not begun when a failed
    assert [(one["name"], one.get("with_job")) for one in ends] == [("a", None), ("b", True)]
    assert merged([failed, good], ["a", "b"], None, "wait")["code"] == 9
    assert merged([failed, good], ["a", "b"], None, "ignore")["code"] == 0


def test_a_part_that_lost_its_machine_takes_all_with_it() -> None:
    lost = {"cause": "vacated", "why": "the owner is back", "reason": "owner_returned", "released": True}
    assert ends_gang(lost, "ignore")
    whole = merged([part(end("a")), lost, part(end("c", None, 9), cause="vacated")], ["a", "b", "c"], 1, "end")
    assert (whole["cause"], whole["why"]) == ("vacated", "the owner is back")
    assert "ends" not in whole
    assert "released" not in whole


LOST: dict[str, Any] = {"cause": "lost"}
STOPPED: dict[str, Any] = {"cause": "killed", "signal": 9, "reason": "vacated"}
FAILED: dict[str, Any] = {"cause": "exit", "code": 1, "signal": None}


@pytest.mark.parametrize(
    ("later", "counts"),
    [
        (LOST, True),
        ({**STOPPED, "keeper_lost": True}, True),
        ({**STOPPED, "cause": "exceeded"}, True),
        ({**STOPPED, "reason": "owner_returned"}, True),
        (STOPPED, False),
        (FAILED, False),
        ({"cause": "start", "reason": "machine_lost"}, False),
    ],
)
def test_a_failure_that_another_part_explains(later: dict[str, Any], counts: bool) -> None:
    for root in (FAILED, {"cause": "signal", "signal": 11}, {**FAILED, "code": 0, "rank_failed": True}):
        assert explains(later, root, wished=False) is counts
    for good in ({**FAILED, "code": 0}, {"cause": "start"}, {"cause": "exceeded"}, {**FAILED, "output_error": "full"}):
        assert not explains(later, good, wished=False)


def test_parts_that_were_asked_to_leave_explain_a_failure() -> None:
    assert explains(STOPPED, FAILED, wished=True)
    assert not explains(FAILED, FAILED, wished=True)
