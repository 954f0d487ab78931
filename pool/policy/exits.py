"""The fate of a job when its program has ended, or when a control expression asks for something.

Pure functions over the job's ad: the schedd applies what they answer. The order is the one users know:
hold before removal at exit; of the periodic expressions hold, then remove for a job in the queue, and release
for a held one. An expression that is undefined or an error never acts, except that OnExitRemove then counts as
true: a job is not run again for ever because of a typing error.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pool.classad import ClassAd
from pool.jobs.reasons import Hold
from pool.jobs.states import JobStatus


class ExitVerdict(StrEnum):
    """The action on a job."""

    STAY = "stay"
    COMPLETE = "complete"
    REQUEUE = "requeue"
    HOLD = "hold"
    RELEASE = "release"
    REMOVE = "remove"
    VACATE = "vacate"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and, for hold, release and removal, the reason in words with HTCondor's numeric code."""

    verdict: ExitVerdict
    reason: str = ""
    code: int = 0
    subcode: int = 0


STAY = Decision(ExitVerdict.STAY)
#: Expressions of jobs that are evaluated at intervals.
WATCHED = (
    "PeriodicHold",
    "PeriodicRelease",
    "PeriodicRemove",
    "PeriodicVacate",
    "LeaveJobInQueue",
    "AllowedJobDuration",
    "AllowedExecuteDuration",
)
#: How long a run may take: what says so, when it began, what is said about it, and the code.
_DURATIONS = (
    ("AllowedJobDuration", "JobCurrentStartDate", "it ran longer than allowed_job_duration", Hold.TIME_EXCEEDED),
    (
        "AllowedExecuteDuration",
        "JobCurrentStartExecutingDate",
        "its program ran longer than allowed_execute_duration",
        Hold.EXECUTION_TIME_EXCEEDED,
    ),
)
#: The attributes that say how long a run may take.
DURATIONS = tuple(row[0] for row in _DURATIONS)
_ON_A_MACHINE = frozenset(status.value for status in JobStatus if status.has_machine)


def truth(ad: ClassAd, name: str, now: float, otherwise: bool) -> bool:
    """An expression of the ad as a condition; `otherwise` where it is absent, undefined, an error or no number."""
    value = ad.value(name, None, now=now)
    if isinstance(value, (bool, int, float)):
        return bool(value)
    return otherwise


def after_exit(ad: ClassAd, now: float) -> Decision:
    """The next step of a job whose program has ended by itself.

    The ad already holds how it ended (ExitBySignal, ExitCode or ExitSignal, NumJobCompletions counted).
    """
    if truth(ad, "OnExitHold", now, False):
        reason = ad.value("OnExitHoldReason", None, now=now)
        text = reason if isinstance(reason, str) and reason else "the job's on_exit_hold became true"
        return Decision(ExitVerdict.HOLD, text, 3, _subcode(ad, "OnExitHoldSubCode", now))
    if truth(ad, "OnExitRemove", now, True):
        return Decision(ExitVerdict.COMPLETE)
    return Decision(ExitVerdict.REQUEUE, "the job's on_exit_remove is false: it runs again")


def periodic(ad: ClassAd, held: bool, now: float) -> Decision:
    """The present demand of the job's periodic expressions (RL 4.1: preemption given at submit)."""
    if held:
        if truth(ad, "PeriodicRelease", now, False):
            return Decision(ExitVerdict.RELEASE, "the job's periodic_release became true")
    elif truth(ad, "PeriodicHold", now, False):
        reason = ad.value("PeriodicHoldReason", None, now=now)
        text = reason if isinstance(reason, str) and reason else "the job's periodic_hold became true"
        return Decision(ExitVerdict.HOLD, text, 3, _subcode(ad, "PeriodicHoldSubCode", now))
    if truth(ad, "PeriodicRemove", now, False):
        return Decision(ExitVerdict.REMOVE, "the job's periodic_remove became true")
    if ad.value("JobStatus") in _ON_A_MACHINE:
        return _of_a_run(ad, now)
    return STAY


def _of_a_run(ad: ClassAd, now: float) -> Decision:
    for allowed, since, said, code in _DURATIONS:
        most, began = ad.value(allowed, None, now=now), ad.value(since)
        if isinstance(most, (int, float)) and isinstance(began, (int, float)) and now - began > most:
            return Decision(ExitVerdict.HOLD, f"{said} = {most:g} seconds", code)
    if truth(ad, "PeriodicVacate", now, False):
        return Decision(ExitVerdict.VACATE, "the job's periodic_vacate became true")
    return STAY


def run_ends_at(ad: ClassAd, now: float) -> float | None:
    """The wall time at which a job's run has taken as long as it may; None where it may take any time."""
    ends = []
    for allowed, since, _, _ in _DURATIONS:
        most, began = ad.value(allowed, None, now=now), ad.value(since)
        if isinstance(most, (int, float)) and isinstance(began, (int, float)):
            ends.append(float(began + most))
    return min(ends, default=None)


def stays_in_queue(ad: ClassAd, now: float) -> bool:
    """Whether a completed job is still to be seen in the queue (`leave_in_queue`); undefined and error are no."""
    return truth(ad, "LeaveJobInQueue", now, False)


def has_periodic(ad: ClassAd) -> bool:
    """Whether any expression that is looked at now and again could ever act: most jobs have none."""
    for name in WATCHED:
        expression = ad.get(name)
        if expression is not None and expression.text.lower() not in ("false", "0"):
            return True
    return False


def _subcode(ad: ClassAd, name: str, now: float) -> int:
    value = ad.value(name, 0, now=now)
    return value if isinstance(value, int) else 0
