"""Payback: jobs of a pool to which we owe machine time come ahead of our own, up to the balance (EV 4.2).

Every machine that the creditor has of us pays the debt back, value-second by value-second. Some of them it was given
ahead of our own jobs: these end in the moment in which nothing is owed any more, if own jobs wait for a machine.

No pool is worse off with a flock than alone: own jobs that would run on our machines by now, had there been no flock,
come before a creditor's (`alone`). So machines are given ahead as long as these have theirs, and go back when they
have not. A pool that the flock has helped has fewer such jobs than machines, and pays with the difference.
"""

from __future__ import annotations

import math

#: A machine that is given ahead of own jobs is given for so many seconds at least.
LEAST = 60.0
#: Less machine-seconds than this is nothing.
TRIFLE = 1e-6


def slots_ahead(owed: float, rate: float, value: float = 1.0) -> int:
    """How many more machines the creditor may have ahead of our own jobs.

    Args:
        owed: machine-seconds that we owe it now, with all that is measured.
        rate: the value of the machines that it has already, which pay back by themselves.
        value: of one more machine.
    """
    return max(0, math.floor((owed - rate * LEAST) / (value * LEAST) + TRIFLE))


def machines_to_spare(units: int, alone: int, lent: int) -> int:
    """The processors that creditors may have more, ahead of own jobs that wait; negative: so many are to go back.

    Args:
        units: of the pool's own machines.
        alone: of these, those on which own jobs would run now if there were no flock.
        lent: those that other pools have.
    """
    return units - alone - lent


def lasts(owed: float, rate: float) -> float:
    """Seconds until nothing is owed any more."""
    if owed <= TRIFLE:
        return 0.0
    return owed / rate if rate > 0 else math.inf
