"""Rules for every workload: no head is delayed by backfill, none starves, machines are never given twice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pool.policy.dedicated import (
    WRIGHT,
    Backfill,
    Decisions,
    DedicatedSettings,
    MachineClass,
    MachineState,
    QueueOrder,
    UserQueue,
    decide,
)
from pool.testing.dedicated import Durations, SimulatedCosts, Simulation, TraceJob
from tests.policy.dedicated.building import gang, machines, names, queue, runs

MACHINES = 8
EASY = replace(WRIGHT, backfill=Backfill.EASY)
JOBS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 40), st.integers(1, MACHINES), st.sampled_from(["a", "b", "c"])),
    min_size=1,
    max_size=25,
)


def trace(drawn: Sequence[tuple[int, int, int, str]]) -> list[TraceJob]:
    ordered = sorted(drawn, key=lambda one: one[0])
    return [
        TraceJob(number, float(at), float(runtime), size, None, user)
        for number, (at, runtime, size, user) in enumerate(ordered)
    ]


def check(sim: Simulation, now: float, decisions: Decisions) -> None:
    """No machine is in two decisions, starts are on idle claims only, and every idle claim is decided about."""
    idle = {name for found in sim.machine_state() if found.state is MachineState.CLAIMED_IDLE for name in found.names}
    started = [name for start in decisions.starts for name in names(start.shares)]
    kept = [name for keep in decisions.keeps for name in keep.machines]
    lent = [name for lend in decisions.lends for name in lend.machines]
    released = [name for release in decisions.releases for name in release.machines]
    given_out = started + kept + lent + released
    assert sorted(given_out) == sorted(idle)
    asked = [name for request in decisions.requests for name in names(request.shares)]
    assert len(asked) == len(set(asked))
    assert not idle.intersection(asked)
    for start in decisions.starts:
        assert len(names(start.shares)) == sim.gangs[start.job].job.size


@settings(max_examples=40, deadline=None)
@given(drawn=JOBS, backfill=st.sampled_from([Backfill.EASY, Backfill.CONSERVATIVE]))
def test_no_backfilled_job_delays_the_planned_start_of_the_head(
    drawn: list[tuple[int, int, int, str]], backfill: Backfill
) -> None:
    """The EASY property, if all durations hold (W52)."""
    promised: dict[str, float] = {}

    def observe(sim: Simulation, now: float, decisions: Decisions) -> None:
        check(sim, now, decisions)
        for wait in decisions.waits:
            if wait.blocks:
                assert wait.expected is not None
                assert wait.expected <= promised.setdefault(wait.job, wait.expected) + 1e-6

    sim = Simulation(
        trace(drawn), MACHINES, replace(EASY, backfill=backfill), durations=Durations.PERFECT, observer=observe
    )
    sim.run()
    for job in sim.finished:
        assert job.started <= promised.get(str(job.number), math.inf) + 1e-6


@settings(max_examples=40, deadline=None)
@given(
    drawn=JOBS,
    order=st.sampled_from(QueueOrder),
    backfill=st.sampled_from(Backfill),
    sharing=st.booleans(),
    lend=st.booleans(),
    durations=st.sampled_from([Durations.NONE, Durations.PERFECT, Durations.PREDICTED]),
)
def test_every_job_ends_and_no_work_is_lost(
    drawn: list[tuple[int, int, int, str]],
    order: QueueOrder,
    backfill: Backfill,
    sharing: bool,
    lend: bool,
    durations: Durations,
) -> None:
    configured = DedicatedSettings(
        order=order, backfill=backfill, time_sharing=sharing, lend=lend, first_quantum=5.0, least_gain=2.0
    )
    costs = SimulatedCosts(negotiate=1.0, reclaim=3.0, resume=1.0, refill=1.0, save=1.0, restore=1.0)
    sim = Simulation(
        trace(drawn),
        MACHINES,
        configured,
        costs=costs,
        durations=durations,
        saveable=True,
        opportunistic=True,
        observer=check,
    )
    metrics = sim.run()
    assert metrics.jobs == len(drawn)
    assert abs(metrics.lost) < 1e-6


@settings(max_examples=40, deadline=None)
@given(drawn=JOBS, idle=st.integers(0, 4), unclaimed=st.integers(0, 4), occupied=st.integers(0, 4))
def test_the_discipline_is_greedy_in_order(
    drawn: list[tuple[int, int, int, str]], idle: int, unclaimed: int, occupied: int
) -> None:
    """WR 3.3 for one kind of machine, written a second time as one loop over numbers."""
    jobs = [gang(f"{n}.0", size, submitted=float(n)) for n, (_, _, size, _) in enumerate(drawn)]
    busy = [runs(gang("busy", 2))]
    decisions = decide(queue(*jobs), busy, machines(idle, unclaimed, occupied), 100.0, WRIGHT)
    free, all_free = idle, idle + unclaimed + occupied
    starts, requests, head, skips = [], [], [], []
    for job in jobs:
        if job.size > idle + unclaimed + occupied + 2:
            skips.append(job.id)
        elif job.size <= free:
            starts.append(job.id)
            free -= job.size
            all_free -= job.size
        elif job.size <= all_free:
            requests.append(job.id)
            all_free -= job.size
            free = max(0, free - job.size)
        else:
            head.append(job.id)
            break
    assert [start.job for start in decisions.starts] == starts
    assert [request.job for request in decisions.requests] == requests
    assert [wait.job for wait in decisions.waits] == head
    assert [skip.job for skip in decisions.skips] == skips


def test_the_user_with_least_usage_is_next() -> None:  # W50
    flood = tuple(gang(f"1.{n}", 1, user="alice", submitted=0.0) for n in range(100))
    late = gang("2.0", 1, user="bob", submitted=50.0)
    queues = (UserQueue("alice", flood, 5000.0, 90.0), UserQueue("bob", (late,), 10.0))
    decisions = decide(queues, (), machines(idle=1), 100.0, DedicatedSettings())
    assert [start.job for start in decisions.starts] == ["2.0"]


def test_users_without_usage_alternate() -> None:
    flood = tuple(gang(f"1.{n}", 1, user="alice") for n in range(100))
    other = tuple(gang(f"2.{n}", 1, user="bob") for n in range(2))
    decisions = decide(
        (UserQueue("alice", flood), UserQueue("bob", other)), (), machines(idle=4), 0.0, DedicatedSettings()
    )
    assert sorted(start.job for start in decisions.starts) == ["1.0", "1.1", "2.0", "2.1"]


def test_a_waiting_head_ages_before_users_with_less_usage() -> None:
    big = gang("1.0", 4, user="alice", submitted=0.0)
    small = gang("2.0", 1, user="bob", submitted=10.0)
    running = [runs(gang("9.0", 1, user="carol"), 0.0)]
    queues = (UserQueue("alice", (big,), 1e6), UserQueue("bob", (small,), 0.0))
    young = replace(DedicatedSettings(), patience=1000.0, backfill=Backfill.NONE)
    assert [start.job for start in decide(queues, running, machines(idle=3), 500.0, young).starts] == ["2.0"]
    aged = decide(queues, running, machines(idle=3), 1000.0, young)
    assert not aged.starts
    assert [wait.job for wait in aged.waits] == ["1.0"]


@pytest.mark.parametrize("sharing", [False, True])
@pytest.mark.parametrize("backfill", list(Backfill))
def test_a_user_with_one_second_gangs_cannot_starve_others(sharing: bool, backfill: Backfill) -> None:
    """A flood of short gangs for 20 minutes; another user's gang needs every machine."""
    flood = [TraceJob(n, n * 0.5, 1.0, 1 + n % 5, None, "flood") for n in range(2400)]
    whole = TraceJob(len(flood), 100.0, 100.0, MACHINES, None, "patient")
    jobs = sorted([*flood, whole], key=lambda job: job.submitted)
    configured = DedicatedSettings(backfill=backfill, time_sharing=sharing, patience=300.0)
    costs = SimulatedCosts(save=1.0, restore=1.0)
    sim = Simulation(jobs, MACHINES, configured, costs=costs, durations=Durations.PREDICTED, saveable=True)
    sim.run()
    waited = next(job.started - job.submitted for job in sim.finished if job.user == "patient")
    assert waited <= configured.patience + 10.0


def test_a_gang_that_needs_everything_starts_though_short_ones_never_stop() -> None:
    """One queue, time sharing: the large gang is as new as each small one, and then ages."""
    flood = [TraceJob(n, float(n), 7.0, 1, None) for n in range(3600)]
    jobs = sorted([*flood, TraceJob(3600, 100.0, 50.0, MACHINES, None)], key=lambda job: job.submitted)
    configured = replace(WRIGHT, time_sharing=True, patience=300.0, first_quantum=10.0)
    sim = Simulation(jobs, MACHINES, configured, costs=SimulatedCosts(save=1.0, restore=1.0), saveable=True)
    sim.run()
    large = next(job for job in sim.finished if job.size == MACHINES)
    assert large.started - large.submitted <= 320.0
    assert large.ended <= 3600.0


def test_a_gang_never_waits_for_one_that_is_skipped() -> None:
    """Larger than all machines ever configured, first in the queue, and others run."""
    jobs = queue(*(gang(f"{n}.0", 100, submitted=float(n)) for n in range(50)), gang("60.0", 2, submitted=60.0))
    for backfill in Backfill:
        decisions = decide(jobs, (), machines(idle=2), 100.0, replace(WRIGHT, backfill=backfill))
        assert [start.job for start in decisions.starts] == ["60.0"]
        assert len(decisions.skips) == 50


def test_alike_machines_are_one_record_whatever_their_number() -> None:
    many = MachineClass("k", MachineState.CLAIMED_IDLE, tuple(f"slot1@node{n}" for n in range(100_000)))
    jobs = [gang(f"{n}.0", 100, submitted=float(n)) for n in range(1000)]
    decisions = decide(queue(*jobs), (), [many], 0.0, WRIGHT)
    assert len(decisions.starts) == 1000
    assert len({name for start in decisions.starts for name in names(start.shares)}) == 100_000
