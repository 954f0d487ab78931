"""Reservations: accepted or refused in words, and kept without losing work (W53)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pool.policy.dedicated import (
    WRIGHT,
    Backfill,
    Decisions,
    DedicatedSettings,
    KeepReason,
    MachineClass,
    MachineState,
    PartClass,
    Reservation,
    ReservationQuota,
    SkipReason,
    decide,
    refusal,
)
from pool.testing.dedicated import SimulatedCosts, Simulation, TraceJob
from tests.policy.dedicated.building import gang, kept, machines, queue, requested, runs, started

QUOTA = ReservationQuota(machines=8, machine_seconds=16 * 3600.0, ahead=7 * 86400.0)
CONFIGURED = {"k": 10, "gpu": 2}


def reserve(
    name: str = "r1", size: int = 4, start: float = 1000.0, duration: float = 3600.0, **more: object
) -> Reservation:
    given: dict[str, object] = {"user": "bob", "asked_by": "bob", **more}
    return Reservation(name, parts=(PartClass(size, ("k",)),), start=start, duration=duration, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "existing", "quota", "words"),
    [
        (reserve(), (), QUOTA, None),
        (reserve(size=12), (), None, "it needs 12 machines, and the configured ones that fit are 10"),
        (reserve(size=0), (), None, "needs at least one machine"),
        (reserve(duration=0.0), (), None, "a duration of more than 0"),
        (reserve(start=-4000.0), (), None, "its end has passed"),
        (reserve(group="physics"), (), None, "for a user or for a group"),
        (reserve(user=""), (), None, "for a user or for a group"),
        (reserve(size=9), (), QUOTA, "9 machines reserved by you at once, and a user may reserve 8"),
        (reserve(duration=5 * 3600.0), (), QUOTA, "20.0 machine-hours reserved by you, and a user may reserve 16.0"),
        (reserve(start=8 * 86400.0), (), QUOTA, "users may reserve 604800 seconds ahead"),
        (reserve(size=5), (reserve("r0", 4, 2000.0, 60.0),), QUOTA, "9 machines reserved by you at once"),
        (reserve(size=5), (reserve("r0", 4, 5000.0, 60.0),), QUOTA, None),
        (
            reserve(size=5),
            (reserve("r0", 6, 4000.0, 60.0, user="eve", asked_by=""),),
            None,
            "reservation r0 has too many",
        ),
        (reserve(size=5), (reserve("r0", 6, 4600.0, 60.0, user="eve", asked_by=""),), None, None),
        (reserve(size=5), (reserve("r0", 6, 0.0, 1000.0, user="eve", asked_by=""),), None, None),
    ],
)
def test_a_reservation_is_accepted_or_refused_in_words(
    asked: Reservation, existing: Sequence[Reservation], quota: ReservationQuota | None, words: str | None
) -> None:
    answer = refusal(asked, existing, (), CONFIGURED, quota, 0.0)
    assert (answer is None) if words is None else words in str(answer)


def test_a_gang_that_cannot_be_saved_and_does_not_end_hinders_a_reservation() -> None:
    endless = runs(gang("9.0", 8))
    assert "cannot be saved" in str(refusal(reserve(), (), [endless], {"k": 10}, None, 0.0))
    assert refusal(reserve(), (), [runs(gang("9.0", 8, saveable=True))], {"k": 10}, None, 0.0) is None
    assert refusal(reserve(), (), [runs(gang("9.0", 8, duration=900.0))], {"k": 10}, None, 0.0) is None


def test_only_gangs_that_leave_the_reservation_its_machines_start_before_it() -> None:
    reserved = reserve(size=3, start=100.0)
    for job, starts in (
        (gang("1.0", 2), False),  # nobody knows until when
        (gang("1.0", 1), True),  # enough others are left
        (gang("1.0", 2, duration=50.0), True),  # over before
        (gang("1.0", 2, duration=150.0), False),
        (gang("1.0", 2, saveable=True), True),  # can leave
    ):
        decisions = decide(queue(job, gang("2.0", 1, duration=10.0)), (), machines(idle=4), 0.0, WRIGHT, [reserved])
        assert ("1.0" in started(decisions)) is starts
        assert "2.0" in started(decisions)  # and nobody waits behind a job that waits for a reservation's end
        if not starts:
            [wait] = decisions.waits
            assert (wait.expected, wait.blocks) == (3700.0, False)


def test_machines_are_chosen_and_cleared_when_it_begins() -> None:
    reserved = reserve(size=4, start=100.0)
    cheap = runs(gang("8.0", 1, saveable=True, save_seconds=3.0))
    dear = runs(gang("9.0", 2, saveable=True, save_seconds=3.0))
    settings = replace(WRIGHT, reservation_lead=5.0, reclaim_seconds=2.0)
    there = machines(idle=1, unclaimed=1, occupied=1)
    early = decide((), [cheap, dear], there, 91.0, settings, [reserved])
    assert not early.saves
    assert early.wake == 92.0
    decisions = decide((), [cheap, dear], there, 92.0, settings, [reserved])
    assert [save.job for save in decisions.saves] == ["8.0"]
    assert decisions.reserved == {"r1": ("i1", "u1", "8.0:1", "o1")}
    assert kept(decisions) == {"r1": ["i1"]}
    assert [request.reclaim for request in decisions.requests] == [(), ("o1",)]
    assert not decisions.releases


def test_its_machines_run_its_jobs_only() -> None:
    reserved = replace(reserve(size=2, start=100.0), machines=("i1", "u1"))
    own = gang("1.0", 1, user="bob", reservation="r1")
    large = gang("2.0", 3, user="bob", reservation="r1")
    foreign = gang("3.0", 1, user="eve", reservation="r1")
    other = gang("4.0", 2, user="eve")
    decisions = decide(queue(own, large, foreign, other), (), machines(idle=2, unclaimed=2), 200.0, WRIGHT, [reserved])
    assert started(decisions) == {"1.0": ["i1"]}
    assert requested(decisions) == {"r1": ["u1"], "4.0": ["u2"]}
    assert {skip.job: skip.words for skip in decisions.skips} == {
        "2.0": "reservation r1 has 2 machines, and the job needs 3",
        "3.0": "reservation r1 is for user bob",
    }
    assert all(skip.reason is SkipReason.NO_RESERVATION for skip in decisions.skips)


def test_a_job_waits_in_its_reservation_and_blocks_nobody() -> None:
    reserved = replace(reserve(size=2, start=100.0), machines=("i1", "x:1"))
    busy = runs(gang("x", 1, user="bob", reservation="r1"))
    jobs = queue(gang("1.0", 2, user="bob", reservation="r1"), gang("2.0", 1))
    decisions = decide(jobs, [busy], machines(idle=2), 200.0, WRIGHT, [reserved])
    assert started(decisions) == {"2.0": ["i2"]}
    assert [(wait.job, wait.blocks) for wait in decisions.waits] == [("1.0", False)]
    assert decisions.keeps[0].reason is KeepReason.RESERVED


def test_before_it_begins_its_job_is_passed_over_in_words() -> None:
    decisions = decide(
        queue(gang("1.0", 2, user="bob", reservation="r1"), gang("2.0", 1, reservation="r9")),
        (),
        machines(idle=2),
        0.0,
        WRIGHT,
        [reserve(start=5000.0)],
    )
    assert [skip.words for skip in decisions.skips] == [
        "reservation r1 has not begun",
        "reservation r9 is over, or was removed, or never was",
    ]


def test_a_group_has_a_reservation() -> None:
    reserved = replace(reserve(size=1, user="", group="physics", start=0.0), machines=("i1",))
    jobs = queue(gang("1.0", 1, user="eve", reservation="r1", group="physics"), gang("2.0", 1, reservation="r1"))
    decisions = decide(jobs, (), machines(idle=1), 1.0, WRIGHT, [reserved])
    assert started(decisions) == {"1.0": ["i1"]}
    assert decisions.skips[0].words == "reservation r1 is for group physics"


@pytest.mark.parametrize("backfill", list(Backfill))
@pytest.mark.parametrize("sharing", [False, True])
def test_exactly_at_its_time_all_its_machines_are_free_and_no_work_is_lost(backfill: Backfill, sharing: bool) -> None:
    """Gangs without durations fill the pool; at the reservation's time 6 of 8 machines are idle, for all of it."""
    jobs = [TraceJob(n, n * 3.0, 40.0 + 37 * (n % 7), 1 + n % 5, None, f"u{n % 3}") for n in range(120)]
    reserved = Reservation("r1", "bob", (PartClass(6, ("machine",)),), 500.0, 200.0)
    free_at: list[tuple[float, int]] = []

    def observe(sim: Simulation, now: float, decisions: Decisions) -> None:
        if 500.0 <= now < 700.0:
            mine = set(sim.reservations["r1"].machines)
            there = sim.machine_state()
            idle = {n for found in there if found.state is MachineState.CLAIMED_IDLE for n in found.names}
            free_at.append((now, len(mine & idle)))
            assert not mine.intersection(
                name for start in decisions.starts for s in start.shares for name in s.machines
            )

    configured = DedicatedSettings(backfill=backfill, time_sharing=sharing, reservation_lead=5.0)
    costs = SimulatedCosts(negotiate=1.0, reclaim=3.0, refill=1.0, resume=1.0, save=4.0, restore=4.0)
    sim = Simulation(
        jobs, 8, configured, costs=costs, saveable=True, opportunistic=True, reservations=[reserved], observer=observe
    )
    metrics = sim.run()
    assert metrics.jobs == 120
    assert abs(metrics.lost) < 1e-6
    assert free_at
    assert {count for _, count in free_at} == {6}


def test_kinds_are_matched_for_reservations_too() -> None:
    reserved = Reservation("r1", "bob", (PartClass(1, ("a", "b")), PartClass(1, ("a",))), 100.0, 50.0)
    there = (
        MachineClass("a", MachineState.CLAIMED_IDLE, ("a1",)),
        MachineClass("b", MachineState.CLAIMED_IDLE, ("b1",)),
    )
    decisions = decide((), (), there, 99.0, WRIGHT, [reserved])
    assert sorted(decisions.reserved["r1"]) == ["a1", "b1"]


@pytest.mark.parametrize("backfill", list(Backfill))
def test_its_job_starts_behind_a_head_that_waits_for_more_machines_than_are_left(backfill: Backfill) -> None:
    """The head had all machines, and was saved for the reservation: too few are left for either outside of it."""
    there = machines(3)
    reserved = reserve(size=2, start=0.0, machines=("i1", "i2"))
    jobs = (gang("1.0", 3, saveable=True), gang("2.0", 2, user="bob", submitted=5.0, reservation="r1"))
    settings = replace(WRIGHT, backfill=backfill)
    decisions = decide(queue(*jobs), (), there, 10.0, settings, [reserved])
    assert started(decisions) == {"2.0": ["i1", "i2"]}
    assert [wait.job for wait in decisions.waits if wait.blocks] == ["1.0"]
