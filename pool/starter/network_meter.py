"""Measures what a job's own network carries for a part here, for the reports to its schedd."""

from __future__ import annotations

import asyncio

from pool.jobs.network_use import TO_ALL, NetworkUse
from pool.network.rooms import JobRoom
from pool.network.traffic import OUTSIDE, Traffic


class NetworkMeter:
    """The measurements of one part.

    Args:
        part: its number.
    """

    def __init__(self, part: int) -> None:
        self._part = part
        #: From relays that have ended: a new one counts from 0.
        self._earlier = NetworkUse()
        self._last = NetworkUse()
        #: When it was measured, by the loop's time.
        self._at: float | None = None

    async def measure(self, room: JobRoom) -> NetworkUse:
        """The use so far; that of the measurement before where the relay gives no answer."""
        try:
            traffic = await room.traffic()
        except (OSError, ValueError, TimeoutError):
            return self._last
        use, now = _of_part(self._part, traffic, lowest=self._part == min(room.parts, default=self._part)), _now()
        if _sum(use) < _sum(self._last) - _sum(self._earlier):
            self._earlier = self._last
        both = {to: self._earlier.sent.get(to, 0) + use.sent.get(to, 0) for to in {*self._earlier.sent, *use.sent}}
        passed = now - self._at if self._at is not None else 0.0
        whole = NetworkUse(
            sent=both,
            to_outside=self._earlier.to_outside + use.to_outside,
            from_outside=self._earlier.from_outside + use.from_outside,
            dropped=self._earlier.dropped + use.dropped,
            rate=max(0, sum(both.values()) - sum(self._last.sent.values())) / passed if passed > 0 else 0.0,
            down=room.down,
        )
        self._last, self._at = whole, now
        return whole


def _of_part(part: int, traffic: Traffic, *, lowest: bool) -> NetworkUse:
    """The part's own of what its machine's relay has counted; the lowest part there has what is the machine's."""
    sent = {TO_ALL if to is None else to: size for (one, to), (_, size) in traffic.pairs.items() if one == part}
    outside = sent.pop(OUTSIDE, 0)
    return NetworkUse(sent, outside, traffic.pairs.get((OUTSIDE, part), (0, 0))[1], traffic.dropped if lowest else 0)


def _sum(use: NetworkUse) -> int:
    return sum(use.sent.values()) + use.to_outside + use.from_outside


def _now() -> float:
    return asyncio.get_running_loop().time()
