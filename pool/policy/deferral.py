"""When a job may start that asks for a moment: `deferral_time`, and the `cron_*` commands, which ask again and again.

A deferred job is kept back until `DeferralPrepTime` before its moment; then a machine is looked for, and its program
begins at the moment. One that has no machine when `DeferralWindow` has passed has missed it. Pure functions; the schedd
keeps the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pool.policy.queue import QueuedJob

#: Seconds before its moment when a machine is looked for, where the job does not say.
PREPARATION = 300.0


@dataclass(frozen=True, slots=True)
class Deferral:
    """The moment of a job, wall time; it has missed it `window` seconds later, and prepares so long before."""

    time: float
    window: float = 0.0
    preparation: float = PREPARATION


def deferral_of(job: QueuedJob) -> Deferral | None:
    """The moment that a job waits for; None for one that may start at any time.

    An expression counts as it was when the job was queued: it must not run away before the clock.
    """
    if job.get("DeferralTime") is None:
        return None
    ad = job.ad()
    queued = ad.value("QDate", 0)
    now = float(queued) if isinstance(queued, (int, float)) else 0.0
    moment = ad.value("DeferralTime", None, now=now)
    if isinstance(moment, bool) or not isinstance(moment, (int, float)):
        return None
    window, before = ad.value("DeferralWindow", 0, now=now), ad.value("DeferralPrepTime", PREPARATION, now=now)
    apart = job.get("GangParts") is not None  # its parts begin together, as soon as they can
    return Deferral(float(moment), _seconds(window), 0.0 if apart else _seconds(before))


def _seconds(value: Any) -> float:
    return max(0.0, float(value)) if isinstance(value, (int, float)) else 0.0
