"""Jobs that are larger than all dedicated machines gather others as they come, those of other pools too (WR 6.4)."""

from __future__ import annotations

from collections.abc import Iterable

from pool.policy.dedicated.decisions import SkipGang, SkipReason

#: Why a job is larger than all that is configured.
_TOO_LARGE = frozenset({SkipReason.TOO_BIG, SkipReason.NO_KIND})
#: Seconds after which such a job gathers other machines: a dedicated one may come back, or not be heard of yet.
SURE = 10.0


class LargerJobs:
    """The jobs that a dedicated scheduler has passed over since they are too large, and since when. Clocks count
    seconds from any moment.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def after_cycle(self, skips: Iterable[SkipGang], now: float) -> frozenset[str]:
        """The jobs of which it is sure by now, after a cycle that has passed over these."""
        skipped = {skip.job for skip in skips if skip.reason in _TOO_LARGE}
        self._since = {name: self._since.get(name, now) for name in skipped}
        return frozenset(name for name, since in self._since.items() if now - since >= SURE)

    def waits(self, now: float) -> list[float]:
        """The seconds until it is sure of each of the others."""
        return [since + SURE - now for since in self._since.values() if since + SURE > now]
