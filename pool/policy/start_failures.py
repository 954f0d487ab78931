"""The fate of a job that could not be started: where and when it is tried again, and when it is held.

A start that fails for the machine's own cause keeps the job away from that machine for a while, each time for longer;
other machines may take it at once. Inputs that could not be sent or fetched for a cause that may pass are tried again
after the same pauses, on whatever machine. Failures count towards a hold once for each such pause, so that one machine
that fails many times in a moment holds no job while others are free. HTCondor puts such a job back into the queue
without a bound; here it is held in the end, with the last reason, because somebody has to look.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Seconds until the next try, after the first, second ... failure on one machine; the last for all that follow.
PAUSES = (10.0, 60.0, 300.0, 900.0)
#: So many failures that count hold the job.
MOST_FAILED_STARTS = 5
#: The name under which failures count that have to do with no machine.
EVERYWHERE = ""


@dataclass(frozen=True, slots=True)
class StartFailure:
    """A start that failed, and counts.

    Attributes:
        machine: where; EVERYWHERE for inputs.
        when, until: wall times in seconds: of the failure, and from when on the job may be tried there again.
    """

    machine: str
    when: float
    until: float

    def lasts(self, now: float) -> bool:
        """Whether its pause lasts still; not where the clock was set back meanwhile."""
        return self.when <= now < self.until


@dataclass(frozen=True, slots=True)
class Again:
    """The consequence.

    Attributes:
        failures: those to remember.
        until: wall time in seconds from when on the job may be tried there again.
        hold: it is held instead.
    """

    failures: tuple[StartFailure, ...]
    until: float
    hold: bool


def after_failure(before: Sequence[StartFailure], machine: str, now: float) -> Again:
    """The consequence of a failed start.

    Args:
        before: the failures that counted, the oldest first.
        machine: where it failed, or EVERYWHERE.
        now: wall time, seconds.
    """
    own = [failure for failure in before if failure.machine == machine]
    if own and own[-1].lasts(now):  # it was on its way there already
        return Again(tuple(before), own[-1].until, False)
    until = float(math.ceil(now + PAUSES[min(len(own), len(PAUSES) - 1)]))  # expressions see whole seconds
    failures = (*before, StartFailure(machine, now, until))
    return Again(failures, until, len(failures) >= MOST_FAILED_STARTS)


def waits_until(failures: Iterable[StartFailure], now: float) -> float | None:
    """Until when no machine is asked for the job; None where one may be."""
    ends = [failure.until for failure in failures if failure.machine == EVERYWHERE and failure.lasts(now)]
    return max(ends, default=None)


def next_change(failures: Iterable[StartFailure], now: float) -> float | None:
    """When the first of the pauses that last is over, and a machine is to be asked for again; None where none lasts."""
    return min((failure.until for failure in failures if failure.lasts(now)), default=None)


def to_wire(failures: Iterable[StartFailure]) -> list[list[str | float]]:
    """As a job keeps them."""
    return [[failure.machine, failure.when, failure.until] for failure in failures]


def from_wire(kept: Iterable[Sequence[object]] | None) -> tuple[StartFailure, ...]:
    """The reverse of `to_wire`."""
    return tuple(StartFailure(str(machine), float(str(when)), float(str(until))) for machine, when, until in kept or ())
