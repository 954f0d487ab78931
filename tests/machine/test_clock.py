"""The time of day as expressions see it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pool.machine.clock import clock_facts


@pytest.mark.parametrize(
    ("when", "minute", "day"),
    [
        (datetime(2026, 11, 22, 0, 0, tzinfo=UTC), 0, 0),
        (datetime(2026, 11, 23, 18, 30, tzinfo=UTC), 1110, 1),
        (datetime(2026, 11, 28, 23, 59, tzinfo=UTC), 1439, 6),
    ],
)
def test_minutes_since_midnight_and_days_since_sunday(when: datetime, minute: int, day: int) -> None:
    assert clock_facts(when.timestamp(), UTC) == {"ClockMin": minute, "ClockDay": day}
