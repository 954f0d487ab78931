"""An ordered list of dedicated schedulers for a machine (W55)."""

from __future__ import annotations

import math

import pytest

from pool.policy.dedicated import (
    WRIGHT,
    DedicatedMachine,
    MachineClass,
    MachineStanding,
    MachineState,
    SkipReason,
    claim_refusal,
    decide,
    group_machines,
    standing_for,
)
from tests.policy.dedicated.building import gang, queue, requested, started

BOTH = ("upper", "lower")


@pytest.mark.parametrize(
    ("machine", "upper", "lower"),
    [
        (MachineStanding(BOTH), (MachineState.UNCLAIMED, math.inf), (MachineState.UNCLAIMED, 10.0)),
        (
            MachineStanding(BOTH, loans={"upper": 500.0}),
            (MachineState.UNCLAIMED, math.inf),
            (MachineState.UNCLAIMED, 500.0),
        ),
        (MachineStanding(BOTH, holder="upper"), (MachineState.CLAIMED_IDLE, math.inf), (MachineState.AWAY, 10.0)),
        (
            MachineStanding(BOTH, holder="lower", loans={"upper": 500.0}),
            (MachineState.OCCUPIED, math.inf),
            (MachineState.CLAIMED_IDLE, 500.0),
        ),
        (
            MachineStanding(BOTH, holder="lower", saveable=False, loans={"upper": 500.0}),
            (MachineState.AWAY, math.inf),  # the promise holds until then
            (MachineState.CLAIMED_IDLE, 500.0),
        ),
        (
            MachineStanding(BOTH, opportunistic=True, ends=90.0),
            (MachineState.OCCUPIED, 90.0),
            (MachineState.OCCUPIED, 10.0),
        ),
        (MachineStanding(BOTH, holder="stranger"), (MachineState.OCCUPIED, math.inf), (MachineState.OCCUPIED, 10.0)),
    ],
)
def test_each_scheduler_sees_a_machine_by_its_place_in_the_list(
    machine: MachineStanding, upper: tuple[MachineState, float], lower: tuple[MachineState, float]
) -> None:
    assert standing_for(machine, "upper", 10.0) == upper
    assert standing_for(machine, "lower", 10.0) == lower
    assert standing_for(machine, "third", 10.0) is None


def test_a_promise_that_is_over_binds_the_upper_one_no_more() -> None:
    machine = MachineStanding(BOTH, holder="lower", saveable=False, loans={"upper": 500.0})
    assert standing_for(machine, "upper", 501.0) == (MachineState.OCCUPIED, math.inf)


def test_what_may_run_on_a_loan() -> None:
    lent = MachineStanding(BOTH, loans={"upper": 500.0})
    assert claim_refusal(lent, "lower", True, None, 10.0) is None
    assert claim_refusal(lent, "lower", False, 490.0, 10.0) is None
    assert claim_refusal(lent, "lower", False, 560.0, 10.0) == (
        "the loan is over 60 seconds before the gang's expected end"
    )
    assert "nobody said how long" in str(claim_refusal(lent, "lower", False, None, 10.0))
    assert claim_refusal(lent, "upper", False, None, 10.0) is None
    until_called = MachineStanding(BOTH)
    assert claim_refusal(until_called, "lower", True, None, 10.0) is None
    assert "call the machine back at any time" in str(claim_refusal(until_called, "lower", False, 11.0, 10.0))
    assert claim_refusal(lent, "third", True, None, 10.0) == (
        "third is not among the machine's dedicated schedulers (upper, lower)"
    )
    assert claim_refusal(MachineStanding(BOTH, holder="upper"), "lower", True, None, 10.0) == "upper uses the machine"


def pools(near: MachineStanding, far: MachineStanding, scheduler: str, now: float) -> tuple[MachineClass, ...]:
    """Four machines of each of two pools, as a scheduler sees them."""
    machines = []
    for letter, machine in (("n", near), ("f", far)):
        seen = standing_for(machine, scheduler, now)
        assert seen is not None
        machines += [DedicatedMachine(f"{letter}{n}", "k", seen[0], until=seen[1]) for n in range(4)]
    return group_machines(machines, now, 300.0)


def test_a_job_of_six_runs_on_two_pools_of_four() -> None:
    near, far = MachineStanding(("near", "far")), MachineStanding(("far", "near"), loans={"far": 1000.0})
    there = pools(near, far, "near", 0.0)
    known = decide(queue(gang("1.0", 6, duration=900.0)), (), there, 0.0, WRIGHT)
    assert requested(known) == {"1.0": ["n0", "n1", "n2", "n3", "f0", "f1"]}  # its own pool first
    saved = decide(queue(gang("1.0", 6, saveable=True)), (), there, 0.0, WRIGHT)
    assert requested(saved) == {"1.0": ["n0", "n1", "n2", "n3", "f0", "f1"]}
    for job in (gang("1.0", 6, duration=1100.0), gang("1.0", 6)):
        late = decide(queue(job), (), there, 0.0, WRIGHT)
        assert not late.requests
        assert not late.waits, "it would block others for as long as nobody lends for longer"
        [skip] = late.skips
        assert skip.reason is SkipReason.LENT


def test_the_upper_scheduler_calls_back() -> None:
    far = MachineStanding(("far", "near"), holder="near", loans={"far": math.inf})
    there = pools(far, MachineStanding(("far", "near")), "far", 0.0)
    decisions = decide(queue(gang("1.0", 6)), (), there, 0.0, WRIGHT)
    [request] = decisions.requests
    assert request.reclaim == ("n0", "n1")
    assert not started(decisions)
