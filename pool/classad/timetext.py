"""Times as text: what absTime("...") and relTime("...") read, and how both kinds of time are printed.

Local time is that of the process's time zone; no clock is read here.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable

from pool.classad.values import AbsTime, RelTime

_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
_ZONE = re.compile(r"([+-])([0-9]{2}):?([0-9]{2})\Z")
_TWO = re.compile(r"[^0-9]*([0-9]{2})")
_FOUR = re.compile(r"[^0-9]*([0-9]{4})")
_RELATIVE = re.compile(
    r"""\s*(?:[sS]\s*(?P<marked>[0-9]*(?:\.[0-9]*)?)|(?P<bare>[0-9]+(?:\.[0-9]*)?))?
    \s*(?:[mM:]\s*(?P<minutes>[0-9]*))?
    \s*(?:[hH:]\s*(?P<hours>[0-9]*))?
    \s*(?:[dD+]\s*(?P<days>[0-9]*))?
    \s*(?P<sign>-)?\s*\Z""",
    re.VERBOSE | re.ASCII,
)
"""A relative time read backwards, because its last part is always the seconds."""


def local_offset(seconds: int, *, summer: bool = True) -> int:
    """Seconds east of Greenwich of the local time zone at that moment; without summer time if asked so."""
    try:
        local = time.localtime(seconds)
    except (OverflowError, ValueError, OSError):
        return -time.timezone
    offset = local.tm_gmtoff
    return offset if summer or not local.tm_isdst else -time.timezone


def read_abstime(text: str) -> AbsTime | None:
    """Year, month, day, hours, minutes, seconds in this order, anything that is no digit between them, and at
    the end Z, +hh:mm or -hhmm; without it local time is meant. None when it is no such text.
    """
    stripped = text.rstrip(" \t\n\v\f\r")
    offset: int | None = None
    if len(stripped) > 1 and stripped[-1] in "zZ":
        offset = 0
        text = stripped[:-1]
    else:
        zone = _ZONE.search(text)
        if zone is not None and zone.start() > 0:
            offset = int(zone[2]) * 3600 + int(zone[3]) * 60
            if zone[1] == "-":
                offset = -offset
            text = text[: zone.start()]
    year = _FOUR.match(text)
    if year is None:
        return None
    fields = [1, 0, 0, 0, 0]
    position = year.end()
    for index in range(5):
        field = _TWO.match(text, position)
        if field is None:
            break
        fields[index] = int(field[1])
        position = field.end()
    if re.match(r"[^0-9]*[0-9]", text[position:]):
        return None
    month, day, hours, minutes, seconds = fields
    shown = days_before(int(year[1]), month, day) * 86400 + hours * 3600 + minutes * 60 + seconds
    if offset is None:
        offset = local_offset(shown - local_offset(shown, summer=False))
    return AbsTime(shown - offset, offset)


def days_before(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a date of the Gregorian calendar; months and days beyond their range count on."""
    years, month = divmod(month - 1, 12)
    year += years
    days = 365 * (year - 1970) + (year - 1) // 4 - (year - 1) // 100 + (year - 1) // 400 - 477
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return days + _BEFORE_MONTH[month] + (leap and month > 1) + day - 1


def _small(digits: str | None) -> int:
    """The number whose digits these are from the last to the first; 0 when there are none or too many for 32 bits."""
    return int(digits[::-1]) if digits and len(digits) <= 10 and int(digits[::-1]) < 2**31 else 0


def read_reltime(text: str) -> RelTime | None:
    """`[-][days+][hours:][minutes:]seconds`, or the same with the letters d, h, m, s. None when it is neither."""
    got = _RELATIVE.match(text[::-1])
    if got is None:
        return None
    days, hours, minutes = (_small(got[name]) for name in ("days", "hours", "minutes"))
    seconds = (got["marked"] or got["bare"] or "")[::-1]
    total = days * 86400 + hours * 3600 + minutes * 60 + (float(seconds) if seconds not in ("", ".") else 0.0)
    return RelTime(-total if got["sign"] else total)


FOLDED: dict[str, Callable[[str], AbsTime | RelTime | None]] = {"abstime": read_abstime, "reltime": read_reltime}
"""Functions that the parser applies at once when their only argument is a literal string."""


def civil(seconds: int) -> time.struct_time:
    """Calendar fields of a moment already moved to the zone it is shown in."""
    try:
        return time.gmtime(seconds)
    except (OverflowError, ValueError, OSError):
        return time.gmtime(0)


def print_abstime(moment: AbsTime) -> str:
    shown = civil(moment.seconds + moment.offset)
    sign = "+" if moment.offset > 0 else "-"
    offset = abs(moment.offset)
    return (
        f"{shown.tm_year:04d}-{shown.tm_mon:02d}-{shown.tm_mday:02d}"
        f"T{shown.tm_hour:02d}:{shown.tm_min:02d}:{shown.tm_sec:02d}"
        f"{sign}{offset // 3600:02d}:{offset // 60 % 60:02d}"
    )


def print_reltime(span: float) -> str:
    """`days+hh:mm:ss`, leading parts that are zero left out; a fraction of a second is kept."""
    if not math.isfinite(span):
        return "-2147483648" if math.isnan(span) else ("-" if span < 0 else "") + "inf"
    sign, span = ("-", -span) if span < 0 else ("", span)
    whole = int(span)
    fraction = span - math.floor(span)
    days, hours, minutes = whole // 86400, whole % 86400 // 3600, whole % 3600 // 60
    seconds = f"{whole % 60:02d}" if fraction == 0 else ("%02g" % (whole % 60 + fraction))
    if days:
        return f"{sign}{days}+{hours:02d}:{minutes:02d}:{seconds}"
    if hours:
        return f"{sign}{hours:02d}:{minutes:02d}:{seconds}"
    if minutes:
        return f"{sign}{minutes:02d}:{seconds}"
    return sign + seconds
