"""Jobs that are larger than all dedicated machines: they may gather other machines, also of other pools (WR 6.4)."""

from __future__ import annotations

from collections.abc import Iterable

from pool.policy.dedicated.decisions import SkipGang, SkipReason

#: The reasons that say so.
_TOO_LARGE = frozenset({SkipReason.TOO_BIG, SkipReason.NO_KIND})
#: Seconds until such a job gathers other machines. A dedicated machine may come back, or be new.
SURE = 10.0


class OversizedJobs:
    """The jobs that a dedicated scheduler has skipped because they are too large, and since when. All times are of one
    clock, seconds.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def after_cycle(self, skips: Iterable[SkipGang], now: float) -> frozenset[str]:
        """Take the gangs that a cycle has skipped; the jobs that have been too large for `SURE` seconds."""
        skipped = {skip.job for skip in skips if skip.reason in _TOO_LARGE}
        self._since = {name: self._since.get(name, now) for name in skipped}
        return frozenset(name for name, since in self._since.items() if now - since >= SURE)

    def waits(self, now: float) -> list[float]:
        """The seconds until each of the other jobs has been too large for so long."""
        return [since + SURE - now for since in self._since.values() if since + SURE > now]
