"""How long it may take: never more than is known."""

from __future__ import annotations

import pytest

from pool.policy.why import crowd
from pool.policy.why.findings import (
    Busy,
    Finding,
    Free,
    Limit,
    Machines,
    Outlook,
    QuotaFinding,
    RefusedFinding,
    Unmet,
    Unusable,
)
from pool.policy.why.outlook import KEPT, JobDurations, Kind, ages, outlook
from tests.policy.why.support import NOW, pool, slot

SOME = Machines(2, 2)


BOB: Kind = ("bob@h", "7")


def at(
    *findings: Finding,
    lengths: tuple[float, ...] = (600.0, 600.0),
    running: tuple[float, ...] = (60.0, 90.0),
    ahead: int = 0,
    users: int = 1,
) -> Outlook:
    return outlook(findings, [(BOB, age) for age in running], {BOB: lengths}, ahead, users, 300.0)


def test_what_nobody_can_tell_is_not_told() -> None:
    for findings, said in (
        ((Machines(0, 0),), "no machine"),
        ((SOME, Unmet(2)), "no machine of the pool would do"),
        ((SOME, RefusedFinding(2)), "accepts it"),
        ((SOME, Unusable(2)), "had again"),
        ((SOME, Free(1), Limit("matlab", 1, 1, 1, True)), "the end of a job that counts against matlab"),
        ((SOME, Free(1), Limit("matlab", 0, 0, 1, True)), "there are 0 of matlab, and it takes 1"),
        ((SOME, Unmet(2), Limit("matlab", 1, 1, 1, True)), "no machine of the pool would do"),
        ((SOME, Busy(1), QuotaFinding("physics", 1, 1, True)), "physics"),
        ((), "nothing is known"),
    ):
        found = at(*findings)
        assert found.seconds is None
        assert said in found.basis


def test_a_free_machine_is_given_in_the_next_negotiation() -> None:
    assert at(SOME, Free(1)).seconds == 300.0


def test_machines_that_come_free_by_and_by() -> None:
    assert at(SOME, Busy(2)).seconds == 510.0
    later = at(SOME, Busy(2), ahead=3, users=2)
    assert later.seconds == 540.0 + 3 * 600.0
    assert later.basis == "jobs like those there mostly take 10 min, on 2 machines, and 7 may come first"
    assert (at(SOME, Busy(2), ahead=1_000_000).seconds or 0) == pytest.approx(1_000_000 * 300.0, rel=0.01)


def test_only_jobs_of_the_same_cluster_that_lasted_as_long_are_gone_by() -> None:
    findings, sleepers = (SOME, Busy(2)), [(("bob@h", "8"), 5.0)]
    assert outlook(findings, sleepers, {BOB: (2.0, 2.0, 2.0)}, 0, 1, 300.0).seconds is None
    found = at(SOME, Busy(2), lengths=(2.0, 2.0, 2.0))
    assert found.seconds is None
    assert "none like them has ended yet" in found.basis
    assert at(SOME, Busy(2), lengths=(2.0, 2.0, 100.0)).seconds == 10.0


def test_without_an_end_seen_only_the_ages_are_told() -> None:
    found = at(SOME, Busy(2), lengths=())
    assert found.seconds is None
    assert "have run for 1 min, and none like them" in found.basis
    assert at(SOME, Busy(2), running=()).basis == "it takes the end of somebody's job"


def test_lengths_are_those_of_jobs_that_ended() -> None:
    lengths = JobDurations()
    running = slot("slot1@m", RemoteUser="bob@h", JobId="7.3", JobStart=int(NOW) - 100, TotalJobSuspendTime=40)
    lengths.record_change(running, running, NOW)
    lengths.record_change(None, running, NOW)
    assert lengths.by_kind() == {}
    lengths.record_change(running, slot("slot1@m", JobStart=int(NOW)), NOW)
    assert lengths.by_kind() == {BOB: [60.0]}
    for _ in range(2 * KEPT):
        lengths.record_change(running, None, NOW)
    assert lengths.by_kind() == {BOB: [60.0] * KEPT}
    lengths.record_change(slot("slot1@m", JobStart="yesterday"), None, NOW)


def test_ages_of_what_runs() -> None:
    places = crowd.whole_slots(
        pool(
            slot("slot1@a", RemoteUser="bob@h", JobId="7.0", JobStart=int(NOW) - 50),
            slot("slot1@b", RemoteUser="bob@h", EnteredCurrentActivity=int(NOW) - 10),
            slot("slot1@c"),
        )
    )
    assert ages(places, NOW) == [(BOB, 50.0), (("bob@h", ""), 10.0)]
