"""The fate of a job at its end, and the demands of periodic expressions."""

import pytest

from pool.classad import ClassAd
from pool.policy.exits import ExitVerdict, after_exit, has_periodic, periodic


def ad(**attributes: object) -> ClassAd:
    wire = {name: [value] if isinstance(value, str) else value for name, value in attributes.items()}
    return ClassAd.from_wire(wire)


@pytest.mark.parametrize(
    ("attributes", "verdict"),
    [
        ({}, ExitVerdict.COMPLETE),
        ({"OnExitRemove": "ExitCode == 0", "ExitCode": 0}, ExitVerdict.COMPLETE),
        ({"OnExitRemove": "ExitCode == 0", "ExitCode": 1}, ExitVerdict.REQUEUE),
        ({"OnExitRemove": "NoSuchThing"}, ExitVerdict.COMPLETE),
        ({"OnExitRemove": "1 / 0"}, ExitVerdict.COMPLETE),
        ({"OnExitHold": "ExitCode =!= 0", "ExitCode": 3}, ExitVerdict.HOLD),
        ({"OnExitHold": "NoSuchThing"}, ExitVerdict.COMPLETE),
        ({"OnExitHold": True, "OnExitRemove": False}, ExitVerdict.HOLD),
    ],
)
def test_after_exit(attributes: dict[str, object], verdict: ExitVerdict) -> None:
    assert after_exit(ad(**attributes), 0.0).verdict is verdict


def test_the_users_own_reason_is_shown() -> None:
    decision = after_exit(ad(OnExitHold=True, OnExitHoldReason='"out of luck"', OnExitHoldSubCode=7), 0.0)
    assert (decision.reason, decision.code, decision.subcode) == ("out of luck", 3, 7)


def test_periodic_expressions_act_by_state() -> None:
    job = ad(PeriodicHold=True, PeriodicRelease=True)
    assert periodic(job, False, 0.0).verdict is ExitVerdict.HOLD
    assert periodic(job, True, 0.0).verdict is ExitVerdict.RELEASE
    assert periodic(ad(PeriodicRemove="JobStatus == 5", JobStatus=5), True, 0.0).verdict is ExitVerdict.REMOVE
    assert periodic(ad(PeriodicRemove="time() > 100"), False, 50.0).verdict is ExitVerdict.STAY
    assert periodic(ad(PeriodicRemove="time() > 100"), False, 150.0).verdict is ExitVerdict.REMOVE


def test_most_jobs_have_nothing_periodic() -> None:
    assert not has_periodic(ad())
    assert not has_periodic(ad(PeriodicHold=False, PeriodicRemove="false"))
    assert has_periodic(ad(PeriodicHold="ImageSize > 10"))


def test_a_run_that_takes_too_long_is_held_and_one_that_is_to_leave_leaves() -> None:
    running = {"JobStatus": 2, "JobCurrentStartDate": 100, "JobCurrentStartExecutingDate": 130}
    job = ad(AllowedJobDuration=60, AllowedExecuteDuration="20 + 20", **running)
    assert periodic(job, False, 160.0).verdict is ExitVerdict.STAY
    assert (periodic(job, False, 161.0).verdict, periodic(job, False, 161.0).code) == (ExitVerdict.HOLD, 46)
    job = ad(AllowedExecuteDuration="20 + 20", **running)
    assert periodic(job, False, 170.0).verdict is ExitVerdict.STAY
    assert (periodic(job, False, 171.0).verdict, periodic(job, False, 171.0).code) == (ExitVerdict.HOLD, 47)
    assert (
        periodic(ad(AllowedJobDuration=60, JobStatus=1, JobCurrentStartDate=1), False, 1e6).verdict is ExitVerdict.STAY
    )
    assert periodic(ad(PeriodicVacate=True, **running), False, 0.0).verdict is ExitVerdict.VACATE
    assert periodic(ad(PeriodicVacate=True, JobStatus=1), False, 0.0).verdict is ExitVerdict.STAY
    assert has_periodic(ad(AllowedJobDuration=60))
