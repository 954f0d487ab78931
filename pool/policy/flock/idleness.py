"""For how long machines are likely to stay idle: as long as they have been, or usually are (EV 4.3.3).

A job of another pool leaves when the machine's own pool needs it. So a machine that is usually idle for a minute is
worth less to it than one that has stood idle for a day. Times are told in few steps, each four times the one before, so
that other pools need not be told of every second.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The least time that is told, seconds, and how many times the one before each step is.
LEAST, STEP = 60.0, 4.0
#: No step is longer, seconds: about eleven days.
MOST = LEAST * STEP**7
#: The part of the last idle period in the mean of all.
NEW_PART = 0.25


@dataclass(slots=True)
class _Idle:
    since: float | None = None
    mean: float = 0.0
    told: float = 0.0


class IdleTimes:
    """The idle periods of a pool's machines, as far as they were seen. All times are of one clock."""

    def __init__(self) -> None:
        self._machines: dict[str, _Idle] = {}

    def see(self, name: str, *, idle: bool, now: float) -> None:
        """A machine is idle, or is not."""
        known = self._machines.setdefault(name, _Idle())
        if idle and known.since is None:
            known.since = now
        elif not idle and known.since is not None:
            period, known.since = now - known.since, None
            known.mean = period if not known.mean else (1 - NEW_PART) * known.mean + NEW_PART * period

    def forget(self, name: str) -> None:
        """A machine is gone."""
        self._machines.pop(name, None)

    def expected(self, name: str, now: float) -> float:
        """Seconds for which a machine is likely to stay idle, as they are told."""
        known = self._machines.setdefault(name, _Idle())
        so_far = now - known.since if known.since is not None else 0.0
        known.told = in_steps(max(so_far, known.mean))
        return known.told

    def rising(self, now: float) -> list[str]:
        """The idle machines of which a longer time would be told now."""
        return [
            name
            for name, known in self._machines.items()
            if known.since is not None and in_steps(now - known.since) > known.told
        ]


def in_steps(seconds: float) -> float:
    """A time as it is told."""
    step = LEAST
    while step < MOST and step * STEP <= seconds:
        step *= STEP
    return step
