"""The time of day and of the week as owners' expressions see it, for policies of nights and week-ends."""

from __future__ import annotations

from datetime import datetime, tzinfo


def clock_facts(wall: float, zone: tzinfo | None = None) -> dict[str, int]:
    """ClockMin: minutes since midnight; ClockDay: the day of the week, Sunday is 0. Both by the machine's own zone.

    Args:
        wall: wall seconds.
        zone: another zone than the machine's.
    """
    now = datetime.fromtimestamp(wall, zone)
    return {"ClockMin": now.hour * 60 + now.minute, "ClockDay": now.isoweekday() % 7}
