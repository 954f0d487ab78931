"""Estimates for how long machines stay idle: as long as they have been idle, or as long as they usually are (EV 4.3.3).

A job of another pool leaves when the machine's own pool needs it. So a machine that is usually idle for a minute is
worth less to it than one that has been idle for a day. Times are rounded to a few steps, each four times the one
before, so that other pools need no update for every second.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The shortest step, seconds, and the ratio of each step to the one before.
LEAST, STEP = 60.0, 4.0
#: The longest step, seconds: about eleven days.
MOST = LEAST * STEP**7
#: The weight of the newest idle period in the mean.
NEW_PART = 0.25


@dataclass(slots=True)
class _Idle:
    since: float | None = None
    mean: float = 0.0
    told: float = 0.0


class IdleTimes:
    """The idle periods of a pool's machines since this began to watch. All times are of one clock, seconds."""

    def __init__(self) -> None:
        self._machines: dict[str, _Idle] = {}

    def see(self, name: str, *, idle: bool, now: float) -> None:
        """Note whether a machine is idle."""
        known = self._machines.setdefault(name, _Idle())
        if idle and known.since is None:
            known.since = now
        elif not idle and known.since is not None:
            period, known.since = now - known.since, None
            known.mean = period if not known.mean else (1 - NEW_PART) * known.mean + NEW_PART * period

    def forget(self, name: str) -> None:
        """Drop a machine that is gone."""
        self._machines.pop(name, None)

    def expected(self, name: str, now: float) -> float:
        """Seconds for which a machine is likely to stay idle, rounded; other pools are told this."""
        known = self._machines.setdefault(name, _Idle())
        so_far = now - known.since if known.since is not None else 0.0
        known.told = in_steps(max(so_far, known.mean))
        return known.told

    def rising(self, now: float) -> list[str]:
        """The idle machines whose estimate has grown by a step since `expected` was asked."""
        return [
            name
            for name, known in self._machines.items()
            if known.since is not None and in_steps(now - known.since) > known.told
        ]


def in_steps(seconds: float) -> float:
    """A time rounded down to a step."""
    step = LEAST
    while step < MOST and step * STEP <= seconds:
        step *= STEP
    return step
