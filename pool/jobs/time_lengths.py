"""Lengths of time as people write them: `90`, `30 m`, `2h`, `1 h 30 min`. Settings and descriptions share it."""

from __future__ import annotations

import math
import re

from pool.decimals import real_number

_UNITS = {
    "ms": 0.001,
    "s": 1.0, "sec": 1.0, "second": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0,
    "h": 3600.0, "hour": 3600.0,
    "d": 86400.0, "day": 86400.0,
    "w": 604800.0, "week": 604800.0,
}  # fmt: skip
_LENGTH = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")


def with_units(text: str) -> float | None:
    """Seconds, of numbers that each have a unit; None where the text is not made of these."""
    position, total = 0, 0.0
    stripped = text.strip()
    while match := _LENGTH.match(stripped, position):
        unit = match[2].lower()
        factor = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
        if factor is None:
            return None
        total += float(match[1]) * factor
        position = match.end()
    return total if position and position == len(stripped) and math.isfinite(total) else None


def time_length(text: str) -> float | None:
    """Seconds, of a plain number of seconds or of numbers with units; None where the text is neither."""
    seconds = real_number(text)
    return with_units(text) if seconds is None else seconds
