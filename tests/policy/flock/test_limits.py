"""Which machines another pool may have and when, as conditions of a machine and of a request."""

from __future__ import annotations

import pytest

from pool.classad import ClassAd, requirements_accept
from pool.policy.flock.limits import BadLimit, MachineLimits, check_limits
from pool.policy.flock.shown import both


def lends(limits: MachineLimits, machine: dict[str, object], job: dict[str, object] | None = None) -> tuple[bool, bool]:
    """Whether a machine lets a job in as the other pool sees it, and whether a request as we see it takes it."""
    seen = ClassAd.from_wire({**machine, "Requirements": both(True, limits.of_machine or "true")})
    asked = ClassAd.from_wire({**(job or {}), "Requirements": both(True, limits.of_request or "true")})
    shown = limits.lends(machine) and requirements_accept(seen, asked)
    return shown, requirements_accept(asked, ClassAd.from_wire(machine))


def clock(day: int, time: str) -> dict[str, object]:
    hour, minute = time.split(":")
    return {"ClockDay": day, "ClockMin": int(hour) * 60 + int(minute)}


@pytest.mark.parametrize(
    ("hours", "day", "time", "lent"),
    [
        (("18:00-08:00",), 3, "17:59", False), (("18:00-08:00",), 3, "18:00", True),
        (("18:00-08:00",), 3, "07:59", True),
        (("18:00-08:00",), 3, "08:00", False), (("9:00-12:30",), 3, "12:29", True),
        (("9:00-12:30",), 3, "12:30", False),
        (("sat-sun",), 6, "00:00", True), (("sat-sun",), 0, "23:59", True), (("sat-sun",), 1, "00:00", False),
        (("mon-fri 20:00-06:00",), 5, "21:00", True), (("mon-fri 20:00-06:00",), 6, "05:00", True),
        (("mon-fri 20:00-06:00",), 1, "05:00", False), (("mon-fri 20:00-06:00", "sat"), 6, "12:00", True),
        (("fri-mon 00:00-24:00",), 0, "12:00", True), (("fri-mon 00:00-24:00",), 2, "12:00", False),
    ],
)  # fmt: skip
def test_hours_are_those_of_the_machines_clock(hours: tuple[str, ...], day: int, time: str, lent: bool) -> None:
    assert lends(check_limits(hours, ""), clock(day, time)) == (lent, lent)


def test_a_machine_without_a_clock_has_no_hours() -> None:
    assert lends(check_limits(("00:00-24:00",), ""), {}) == (False, False)


@pytest.mark.parametrize(
    ("kinds", "lent"),
    [
        ("Memory <= 4000", True), ("memory > 4000", False), ("MY.Memory <= 4000 && !HasGpu", False), ("NoSuch", False),
        ('regexp("^desk", Machine) ? true : Memory > 1', True), ("Nested.Inner == 3", False), ("Memory", True),
        ('member(OpSys, { "LINUX", "OSX" })', True), ("(HasGpu ?: true)", True), ("true", True),
    ],
)  # fmt: skip
def test_kinds_is_an_expression_of_the_machine_whatever_the_job_has(kinds: str, lent: bool) -> None:
    machine: dict[str, object] = {"Memory": 2000, "HasGpu": True, "Machine": "desk3", "OpSys": "LINUX"}
    job: dict[str, object] = {"Memory": 100_000 if lent else 1, "HasGpu": not lent, "OpSys": "WINDOWS", "NoSuch": True}
    assert lends(check_limits((), kinds), machine, job) == (lent, lent)


@pytest.mark.parametrize(
    ("hours", "kinds", "words"),
    [
        (("",), "", "no span of time"), (("evening",), "", "no span of time"), (("18-8",), "", "no span of time"),
        (("25:00-26:00",), "", "no time of day"), (("10:60-11:00",), "", "no time of day"),
        (("8:00-8:00",), "", "no time"),
        (("mon-xyz",), "", "whose day is none of"), ((), "Memory <=", "is no expression"),
        ((), 'TARGET.Owner == "bob"', "cannot ask what a job is like"), ((), 'eval("Owner")', "cannot ask"),
        ((), "[ a = Owner ].a", "cannot ask"),
    ],
)  # fmt: skip
def test_a_limit_that_makes_no_sense_is_refused(hours: tuple[str, ...], kinds: str, words: str) -> None:
    with pytest.raises(BadLimit, match=words):
        check_limits(hours, kinds)


def test_both_kinds_of_limits_hold_together() -> None:
    limits = check_limits(("18:00-08:00", "sat-sun"), "Memory < 10 || Memory > 20")
    for memory, time, lent in ((5, "19:00", True), (15, "19:00", False), (5, "12:00", False), (25, "03:00", True)):
        assert lends(limits, {"Memory": memory, **clock(3, time)}) == (lent, lent)
