"""Time sharing by saving: who runs, who is saved, and who is not."""

from __future__ import annotations

from dataclasses import replace

from pool.policy.dedicated import WRIGHT, DedicatedSettings, MachineClass, MachineState, Share, decide
from pool.policy.dedicated.model import DedicatedRun
from pool.policy.dedicated.time_sharing import level_of
from tests.policy.dedicated.building import gang, machines, queue, requested, runs, started

SHARING = replace(WRIGHT, time_sharing=True, first_quantum=60.0, level_factor=4.0, least_gain=5.0)


def test_levels_grow_by_their_factor() -> None:
    assert [level_of(seconds, SHARING) for seconds in (0, 59, 60, 239, 240, 959, 960)] == [0, 0, 1, 1, 2, 2, 3]


def test_a_new_gang_takes_the_machines_of_one_that_has_run() -> None:
    old = runs(gang("9.0", 4, saveable=True), 0.0)
    decisions = decide(queue(gang("1.0", 2, saveable=True)), [old], (), 100.0, SHARING)
    assert [(save.job, save.beneficiary) for save in decisions.saves] == [("9.0", "1.0")]
    assert decisions.saves[0].because == "job 1.0 has had less time"


def test_nobody_is_saved_who_is_not_in_the_way() -> None:
    old = runs(gang("9.0", 4, saveable=True), 0.0)
    decisions = decide(queue(gang("1.0", 2, saveable=True)), [old], machines(idle=2), 100.0, SHARING)
    assert not decisions.saves
    assert started(decisions) == {"1.0": ["i1", "i2"]}


def test_the_gang_with_the_most_time_is_saved() -> None:
    short, long = runs(gang("8.0", 2, saveable=True), 900.0), runs(gang("9.0", 2, saveable=True), 0.0)
    decisions = decide(queue(gang("1.0", 2, saveable=True)), [short, long], (), 1000.0, SHARING)
    assert [save.job for save in decisions.saves] == ["9.0"]


def test_a_gang_of_the_same_level_goes_on() -> None:
    decisions = decide(
        queue(gang("1.0", 2, saveable=True)), [runs(gang("9.0", 2, saveable=True), 50.0)], (), 60.0, SHARING
    )
    assert not decisions.saves
    assert decisions.wake == 110.0  # when the running one leaves its level


def test_a_gang_that_cannot_be_saved_goes_on() -> None:
    decisions = decide(queue(gang("1.0", 2, saveable=True)), [runs(gang("9.0", 2), 0.0)], (), 1e5, SHARING)
    assert not decisions.saves


def test_a_save_must_be_worth_its_cost() -> None:
    dear = gang("9.0", 2, saveable=True, save_seconds=20.0, restore_seconds=20.0)
    waiting = queue(gang("1.0", 2, saveable=True), gang("2.0", 1, saveable=True))
    early = decide(waiting, [runs(dear, 0.0)], (), 100.0, SHARING)
    assert not early.saves
    assert early.wake == 200.0  # five times what the save and the restore cost
    assert [(wait.job, wait.expected) for wait in early.waits] == [("1.0", 200.0)]
    assert [save.job for save in decide(waiting, [runs(dear, 0.0)], (), 200.0, SHARING).saves] == ["9.0"]


def test_what_a_large_gang_waits_for_no_later_gang_takes() -> None:
    """It needs the protected gang's machines, and the free ones are kept for it."""
    protected = runs(gang("9.0", 2, saveable=True, save_seconds=20.0, restore_seconds=20.0), 0.0)
    waiting = queue(gang("1.0", 4, saveable=True), gang("2.0", 2, saveable=True, submitted=1.0))
    decisions = decide(waiting, [protected], machines(idle=2), 100.0, SHARING)
    assert not decisions.starts
    assert [wait.job for wait in decisions.waits] == ["1.0"]


def test_only_machines_of_a_kind_that_helps_are_cleared() -> None:
    other = DedicatedRun(gang("8.0", 2, fits=("b",), saveable=True), 0.0, (Share(0, "b", ("b1", "b2")),))
    mine = runs(gang("9.0", 2, saveable=True), 500.0)
    decisions = decide(queue(gang("1.0", 2, saveable=True)), [other, mine], (), 1000.0, SHARING)
    assert [save.job for save in decisions.saves] == ["9.0"]


def test_machines_of_a_gang_that_leaves_already_need_no_further_save() -> None:
    leaving = replace(runs(gang("8.0", 2, saveable=True), 0.0), leaving=True)
    other = runs(gang("9.0", 2, saveable=True), 0.0)
    decisions = decide(queue(gang("1.0", 2, saveable=True)), [leaving, other], (), 1000.0, SHARING)
    assert not decisions.saves
    assert not decisions.requests


def test_turns_go_to_users_by_usage_and_levels_order_each_users_own() -> None:
    settings = replace(DedicatedSettings(), time_sharing=True)
    flood = [gang(f"1.{n}", 1, user="alice", saveable=True) for n in range(50)]
    old = gang("2.0", 2, user="bob", saveable=True, attained=5000.0)
    decisions = decide(queue(*flood, old), (), machines(idle=4), 0.0, settings)
    assert "2.0" in started(decisions)


def test_opportunistic_jobs_leave_before_gangs_are_saved() -> None:
    running = runs(gang("9.0", 2, saveable=True), 0.0)
    decisions = decide(queue(gang("1.0", 2, saveable=True)), [running], machines(occupied=2), 1000.0, SHARING)
    assert not decisions.saves
    assert requested(decisions) == {"1.0": ["o1", "o2"]}


def test_backfilled_gangs_that_can_be_saved_leave_when_the_head_can_start() -> None:
    """Without durations: behind a head that waits (case b' of the discipline)."""
    easy = replace(WRIGHT, backfill=DedicatedSettings().backfill)
    busy = runs(gang("9.0", 2, duration=1000.0), 0.0)
    waiting = queue(gang("1.0", 4), gang("2.0", 2, saveable=True, submitted=1.0))
    behind = decide(waiting, [busy], machines(idle=2), 10.0, easy)
    assert [(start.job, start.backfilled) for start in behind.starts] == [("2.0", True)]
    filler = runs(gang("2.0", 2, saveable=True), 10.0, backfilled=True)
    now = decide(queue(gang("1.0", 4)), [filler], machines(idle=2), 1000.0, easy)
    assert [(save.job, save.beneficiary) for save in now.saves] == [("2.0", "1.0")]
    assert [keep.job for keep in now.keeps] == ["1.0"]


def test_a_backfilled_gang_does_not_leave_for_a_later_job() -> None:
    easy = replace(WRIGHT, backfill=DedicatedSettings().backfill)
    filler = runs(gang("2.0", 2, saveable=True, submitted=1.0), 10.0, backfilled=True)
    later = decide(queue(gang("3.0", 4, submitted=2.0)), [filler], machines(idle=2), 1000.0, easy)
    assert not later.saves
    assert [wait.job for wait in later.waits] == ["3.0"]


def test_a_backfilled_gang_does_not_leave_where_the_head_could_not_stay() -> None:
    """Two of the machines are lent for a time that is too short for the head."""
    easy = replace(WRIGHT, backfill=DedicatedSettings().backfill)
    filler = runs(gang("2.0", 2, saveable=True, submitted=1.0), 10.0, backfilled=True)
    lent = MachineClass("k", MachineState.CLAIMED_IDLE, ("i1", "i2"), until=1050.0)
    head = gang("1.0", 4, duration=100.0)
    assert not decide(queue(head), [filler], [lent], 1000.0, easy).saves
    assert decide(queue(replace(head, duration=20.0)), [filler], [lent], 1000.0, easy).saves
