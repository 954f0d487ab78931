"""Payback: jobs of a pool to which we owe machine time come ahead of our own, up to the balance (EV 4.2).

Each of our machines that the creditor has pays the debt back, value-second by value-second. Some of them were given
ahead of our own jobs. These are taken back as soon as nothing is owed any more, if own jobs wait for a machine.

No pool is worse off with a flock than without: own jobs that would run on our machines by now if there were no flock
come before a creditor's (`without_flock`). So machines are given ahead only while these jobs have machines, and are
taken back otherwise. A pool that the flock has helped has fewer such jobs than machines, and pays with the difference.
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
    """The processors that can still be given ahead of waiting own jobs; if negative, those to take back.

    Args:
        units: processors of the pool's own machines.
        alone: those of them on which own jobs would run now if there were no flock.
        lent: those that other pools have.
    """
    return units - alone - lent


def lasts(owed: float, rate: float) -> float:
    """Seconds until nothing is owed any more."""
    if owed <= TRIFLE:
        return 0.0
    return owed / rate if rate > 0 else math.inf
