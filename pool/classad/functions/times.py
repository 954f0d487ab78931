"""time, currentTime, dayTime, timeZoneOffset, getYear ... getSeconds, splitTime, formatTime, interval.

The time is the evaluation's, never the machine's clock; without it time() and its like are undefined.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable
from typing import Any

from pool.classad import timetext
from pool.classad.functions.convert import to_int
from pool.classad.functions.registry import Family
from pool.classad.operations import attribute
from pool.classad.scope import Scope, wall_seconds
from pool.classad.values import ERROR, UNDEFINED, AbsTime, RelTime, int32, truncated32

FUNCTIONS = Family()


@FUNCTIONS.strict("time", 0)
def time(scope: Scope) -> Any:
    return wall_seconds(scope)


@FUNCTIONS.strict("currentTime", 0)
def current_time(scope: Scope) -> Any:
    now = wall_seconds(scope)
    return UNDEFINED if now is UNDEFINED else AbsTime(now, timetext.local_offset(now))


@FUNCTIONS.strict("dayTime", 0)
def day_time(scope: Scope) -> Any:
    """Seconds since local midnight."""
    now = wall_seconds(scope)
    return UNDEFINED if now is UNDEFINED else RelTime(float((now + timetext.local_offset(now)) % 86400))


@FUNCTIONS.strict("timeZoneOffset", 0)
def time_zone_offset(scope: Scope) -> Any:
    now = wall_seconds(scope)
    return UNDEFINED if now is UNDEFINED else RelTime(float(timetext.local_offset(now)))


def _toward_zero(number: int, divisor: int) -> int:
    return number // divisor if number >= 0 else -(-number // divisor)


def _remainder(number: int, divisor: int) -> int:
    return number % divisor if number >= 0 else -(-number % divisor)


_OF_MOMENT: dict[str, Callable[[clock.struct_time], int]] = {
    "getYear": lambda t: t.tm_year,
    "getMonth": lambda t: t.tm_mon,
    "getDayOfYear": lambda t: t.tm_yday - 1,
    "getDayOfMonth": lambda t: t.tm_mday,
    "getDayOfWeek": lambda t: (t.tm_wday + 1) % 7,
    "getHours": lambda t: t.tm_hour,
    "getMinutes": lambda t: t.tm_min,
    "getSeconds": lambda t: t.tm_sec,
}
_OF_SPAN: dict[str, Callable[[int], int]] = {
    "getDays": lambda n: _toward_zero(n, 86400),
    "getHours": lambda n: _toward_zero(_remainder(n, 86400), 3600),
    "getMinutes": lambda n: _toward_zero(_remainder(n, 3600), 60),
    "getSeconds": lambda n: _remainder(n, 60),
}


def _field(name: str) -> Callable[[Scope, Any], Any]:
    of_moment, of_span = _OF_MOMENT.get(name), _OF_SPAN.get(name)

    def apply(scope: Scope, value: Any) -> Any:
        if type(value) is AbsTime and of_moment is not None:
            return of_moment(timetext.civil(value.seconds + timetext.local_offset(value.seconds)))
        if type(value) is RelTime and of_span is not None:
            return of_span(truncated32(value.seconds))
        return ERROR

    return apply


for _name in {**_OF_MOMENT, **_OF_SPAN}:
    FUNCTIONS.strict(_name, 1)(_field(_name))


def _moment_ad(moment: AbsTime) -> dict[str, Any]:
    shown = timetext.civil(moment.seconds + moment.offset)
    return {
        "Type": "AbsoluteTime",
        "Year": shown.tm_year,
        "Month": shown.tm_mon,
        "Day": shown.tm_mday,
        "Hours": shown.tm_hour,
        "Minutes": shown.tm_min,
        "Seconds": shown.tm_sec,
        "Offset": moment.offset,
    }


def _span_ad(span: float) -> dict[str, Any]:
    whole = truncated32(abs(span))
    parts: list[int | float] = [whole // 86400, whole % 86400 // 3600, whole % 3600 // 60]
    parts.append(whole % 60 + (abs(span) - whole))
    if span < 0:
        index = next((index for index in range(3) if parts[index] > 0), 3)
        parts[index] = -parts[index]
    return {"Type": "RelativeTime", "Days": parts[0], "Hours": parts[1], "Minutes": parts[2], "Seconds": parts[3]}


def _moment(value: Any) -> AbsTime | None:
    """A number of seconds or an absolute time as a moment; numbers are shown in the local zone."""
    if type(value) is int or type(value) is float:
        seconds = value if type(value) is int else truncated32(value)
        return AbsTime(seconds, timetext.local_offset(seconds))
    return value if type(value) is AbsTime else None


@FUNCTIONS.strict("splitTime", 1)
def split_time(scope: Scope, value: Any) -> Any:
    """A time as an ad of its parts."""
    from pool.classad.ad import ClassAd

    if value is UNDEFINED:
        return UNDEFINED
    moment = _moment(value)
    if moment is not None:
        return Scope(ClassAd(_moment_ad(moment)), None, scope.root)
    if type(value) is RelTime:
        return Scope(ClassAd(_span_ad(value.seconds)), None, scope.root)
    return ERROR


@FUNCTIONS.strict("formatTime", 0, 2)
def format_time(scope: Scope, *values: Any) -> Any:
    """formatTime([time[, format]]): strftime; the time may be a number, a time, or an ad as splitTime makes."""
    if not values:
        now = wall_seconds(scope)
        if now is UNDEFINED:
            return UNDEFINED
        values = (now,)
    moment = _moment(values[0])
    if moment is not None:
        shown = timetext.civil(moment.seconds + moment.offset)
        parts = [shown.tm_year, shown.tm_mon, shown.tm_mday, shown.tm_hour, shown.tm_min, shown.tm_sec]
    elif type(values[0]) is Scope:
        given = [attribute(values[0], name) for name in ("Year", "Month", "Day", "Hours", "Minutes", "Seconds")]
        whole = [part if type(part) is int and abs(part) < 2**31 else None for part in given]
        parts = [part if part is not None else (1900, 1, 0, 0, 0, 0)[index] for index, part in enumerate(whole)]
    else:
        return ERROR
    form = values[1] if len(values) == 2 else "%c"
    if type(form) is not str:
        return ERROR
    scope.spend(len(form))
    return formatted(parts, form)


_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_COMPOSED = {"c": "%a %b %e %H:%M:%S %Y", "D": "%m/%d/%y", "F": "%Y-%m-%d", "r": "%I:%M:%S %p", "R": "%H:%M"}
_COMPOSED |= {"T": "%H:%M:%S", "x": "%m/%d/%y", "X": "%H:%M:%S"}
_LONGEST = 1023


def formatted(parts: list[int], form: str) -> str:
    """The time by a strftime format in the locale C. Parts out of their range are printed as they are; a result
    of more than 1023 bytes is empty.
    """
    year, month, day, hours, minutes, seconds = parts
    weekday, yearday = _day_numbers(year, month, day)
    twelve = (hours % 12) or 12
    output: list[str] = []
    for name in ("c", "D", "F", "r", "R", "T", "x", "X"):
        form = form.replace("%%", "\0").replace("%" + name, _COMPOSED[name]).replace("\0", "%%")
    at = 0
    size = 0
    while at < len(form):
        if size > _LONGEST:
            return ""
        size += len(output[-1]) if output else 0
        letter = form[at]
        if letter != "%" or at + 1 == len(form):
            output.append(letter)
            at += 1
            continue
        kind = form[at + 1]
        at += 2
        if kind in "EO" and at < len(form):
            kind = form[at]
            at += 1
        iso_year, iso_week = _iso_week(year, weekday, yearday)
        text = {
            "a": _DAYS[weekday][:3],
            "A": _DAYS[weekday],
            "b": _MONTHS[month - 1][:3] if 1 <= month <= 12 else "?",
            "h": _MONTHS[month - 1][:3] if 1 <= month <= 12 else "?",
            "B": _MONTHS[month - 1] if 1 <= month <= 12 else "?",
            "C": f"{year // 100:02d}",
            "d": f"{day:02d}",
            "e": f"{day:2d}",
            "g": f"{iso_year % 100:02d}",
            "G": str(iso_year),
            "H": f"{hours:02d}",
            "I": f"{twelve:02d}",
            "j": f"{yearday + 1:03d}",
            "k": f"{hours:2d}",
            "l": f"{twelve:2d}",
            "m": f"{month:02d}",
            "M": f"{minutes:02d}",
            "n": "\n",
            "p": "PM" if hours > 11 else "AM",
            "P": "pm" if hours > 11 else "am",
            "S": f"{seconds:02d}",
            "t": "\t",
            "u": str(weekday or 7),
            "U": f"{(yearday - weekday + 7) // 7:02d}",
            "V": f"{iso_week:02d}",
            "w": str(weekday),
            "W": f"{(yearday - (weekday - 1) % 7 + 7) // 7:02d}",
            "y": f"{year % 100:02d}",
            "Y": str(year),
            "z": "+0000",
            "Z": "",
            "%": "%",
        }.get(kind)
        output.append("%" + kind if text is None else text)
    result = "".join(output)
    return result if len(result.encode("utf-8", "surrogateescape")) < _LONGEST else ""


def _day_numbers(year: int, month: int, day: int) -> tuple[int, int]:
    """Weekday (Sunday 0) and day of the year (from 0)."""
    days = timetext.days_before(year, max(1, min(12, month)), day)
    return (days + 4) % 7, days - timetext.days_before(year, 1, 1)


def _length(year: int) -> int:
    return timetext.days_before(year + 1, 1, 1) - timetext.days_before(year, 1, 1)


def _iso_week(year: int, weekday: int, yearday: int) -> tuple[int, int]:
    week = (yearday - (weekday + 6) % 7 + 10) // 7
    if week < 1:
        return _iso_week(year - 1, weekday, yearday + _length(year - 1))
    length = _length(year)
    if week == 53 and yearday - (weekday + 6) % 7 + 3 >= length:
        return year + 1, 1
    return year, week


@FUNCTIONS.strict("interval", 1)
def interval(scope: Scope, value: Any) -> Any:
    """Seconds as days+hh:mm:ss, leading parts that are zero left out."""
    number = to_int(value)
    if type(number) is not int:
        return ERROR
    number = int32(number)
    days, rest = _toward_zero(number, 86400), _remainder(number, 86400)
    hours, minutes, seconds = _toward_zero(rest, 3600), _toward_zero(_remainder(rest, 3600), 60), _remainder(rest, 60)
    if days:
        return f"{days}+{abs(hours):02d}:{abs(minutes):02d}:{abs(seconds):02d}"
    if hours:
        return f"{hours}:{abs(minutes):02d}:{abs(seconds):02d}"
    return f"{minutes}:{abs(seconds):02d}" if minutes else str(seconds)
