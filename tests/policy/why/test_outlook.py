"""How long it may take: never more than is known."""

from __future__ import annotations

from pool.policy.why import crowd
from pool.policy.why.findings import Busy, Finding, Free, Limit, Machines, Outlook, Quota, Refused, Unmet, Unusable
from pool.policy.why.outlook import FEWEST, KEPT, Lengths, ages, outlook
from tests.policy.why.support import NOW, pool, slot

SOME = Machines(2, 2)


def at(
    *findings: Finding, typical: tuple[float, int] | None = (600.0, 10), running: tuple[float, ...] = (60.0, 90.0)
) -> Outlook:
    return outlook(findings, running, typical, 0, 1, 300.0)


def test_what_nobody_can_tell_is_not_told() -> None:
    for findings, said in (
        ((Machines(0, 0),), "no machine"),
        ((SOME, Unmet(2)), "no machine of the pool would do"),
        ((SOME, Refused(2)), "accepts it"),
        ((SOME, Unusable(2)), "had again"),
        ((SOME, Free(1), Limit("matlab", 1, 1, 1, True)), "the end of a job that counts against matlab"),
        ((SOME, Free(1), Limit("matlab", 0, 0, 1, True)), "there are 0 of matlab, and it takes 1"),
        ((SOME, Unmet(2), Limit("matlab", 1, 1, 1, True)), "no machine of the pool would do"),
        ((SOME, Busy(1), Quota("physics", 1, 1, True)), "physics"),
        ((), "nothing is known"),
    ):
        found = at(*findings)
        assert found.seconds is None
        assert said in found.basis


def test_a_free_machine_is_given_in_the_next_negotiation() -> None:
    assert at(SOME, Free(1)).seconds == 300.0


def test_machines_that_come_free_by_and_by() -> None:
    assert at(SOME, Busy(2)).seconds == 300.0
    later = outlook([SOME, Busy(2)], [60.0, 90.0], (600.0, 10), 3, 2, 300.0)
    assert later.seconds == 2400.0
    assert later.basis == "jobs here mostly take 10 min (the last 10), on 2 machines, and 7 may come first"


def test_without_an_end_seen_only_the_ages_are_told() -> None:
    found = at(SOME, Busy(2), typical=None)
    assert found.seconds is None
    assert "have run for 1 min, and too few" in found.basis
    assert at(SOME, Busy(2), typical=None, running=()).basis == "it takes the end of somebody's job"


def test_lengths_are_those_of_jobs_that_ended() -> None:
    lengths = Lengths()
    running = slot("slot1@m", JobStart=int(NOW) - 100, TotalJobSuspendTime=40)
    for _ in range(FEWEST - 1):
        lengths.saw(running, slot("slot1@m"), NOW)
    assert lengths.typical() is None
    lengths.saw(running, running, NOW)
    lengths.saw(None, running, NOW)
    assert lengths.typical() is None
    lengths.saw(running, slot("slot1@m", JobStart=int(NOW)), NOW)
    assert lengths.typical() == (60.0, FEWEST)
    for _ in range(2 * KEPT):
        lengths.saw(running, None, NOW)
    assert lengths.typical() == (60.0, KEPT)
    lengths.saw(slot("slot1@m", JobStart="yesterday"), None, NOW)


def test_ages_of_what_runs() -> None:
    places = crowd.places(
        pool(
            slot("slot1@a", RemoteUser="bob@h", JobStart=int(NOW) - 50),
            slot("slot1@b", RemoteUser="bob@h", EnteredCurrentActivity=int(NOW) - 10),
            slot("slot1@c"),
        )
    )
    assert ages(places, NOW) == [50.0, 10.0]
