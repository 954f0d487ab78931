"""The settings of the dedicated scheduler, out of the configuration."""

from __future__ import annotations

from pool.config import Settings
from pool.policy.dedicated import Backfill, DedicatedSettings, QueueOrder, ReservationQuota


def dedicated_settings(settings: Settings) -> DedicatedSettings:
    """How the dedicated scheduler is configured now; what is measured is filled in by the scheduler."""
    return DedicatedSettings(
        order=QueueOrder(settings.text("DEDICATED_ORDER").lower()),
        strict=settings.flag("DEDICATED_FIFO"),
        backfill=Backfill(settings.text("DEDICATED_BACKFILL").lower()),
        lend=settings.flag("DEDICATED_LEND"),
        time_sharing=settings.flag("DEDICATED_TIME_SHARING"),
        unused_claim_timeout=settings.number("UNUSED_CLAIM_TIMEOUT"),
    )


def reservation_quota(settings: Settings) -> ReservationQuota:
    """The most that a user may reserve."""
    return ReservationQuota(
        machines=int(settings.number("RESERVATION_MACHINES")),
        machine_seconds=3600.0 * settings.number("RESERVATION_MACHINE_HOURS"),
        ahead=settings.number("RESERVATION_AHEAD"),
    )
