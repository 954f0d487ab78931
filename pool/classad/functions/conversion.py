"""int, real, string, bool, absTime, relTime."""

from __future__ import annotations

from typing import Any

from pool.classad import timetext
from pool.classad.functions import convert
from pool.classad.functions.registry import Family
from pool.classad.scope import Scope, wall_seconds
from pool.classad.values import ERROR, UNDEFINED, AbsTime, RelTime, int32, lowered, truncated32

FUNCTIONS = Family()


@FUNCTIONS.strict("int", 1)
def integer(scope: Scope, value: Any) -> Any:
    return convert.to_int(value)


@FUNCTIONS.strict("real", 1)
def real(scope: Scope, value: Any) -> Any:
    return convert.to_real(value)


@FUNCTIONS.strict("string", 1)
def string(scope: Scope, value: Any) -> Any:
    return convert.to_string(value)


@FUNCTIONS.strict("bool", 1)
def boolean(scope: Scope, value: Any) -> Any:
    kind = type(value)
    if kind is bool or kind is int or kind is float:
        return bool(value)
    if kind is str:
        return {"true": True, "false": False}.get(lowered(value), UNDEFINED)
    if kind is RelTime:
        return truncated32(value.seconds) != 0
    return UNDEFINED if value is UNDEFINED else ERROR


@FUNCTIONS.strict("absTime", 0, 2)
def abstime(scope: Scope, *values: Any) -> Any:
    """absTime(): now; absTime(seconds[, offset]). A second argument must be a number; the offset of the local
    time zone is taken when there is none. A string stays what it is: only literals are read, by the parser.
    """
    if not values:
        now = wall_seconds(scope)
        return UNDEFINED if now is UNDEFINED else AbsTime(now, timetext.local_offset(now))
    offset: int | None = None
    if len(values) == 2:
        given = values[1]
        if type(given) not in (int, float, RelTime):
            return ERROR
        offset = int32(given) if type(given) is int else truncated32(getattr(given, "seconds", given))
    value = values[0]
    kind = type(value)
    if kind is int or kind is float or kind is RelTime:
        seconds = int32(value) if kind is int else truncated32(value.seconds if kind is RelTime else value)
        return AbsTime(seconds, timetext.local_offset(seconds) if offset is None else offset)
    if kind is AbsTime or kind is str:
        return value
    return UNDEFINED if value is UNDEFINED else ERROR


@FUNCTIONS.strict("relTime", 1)
def reltime(scope: Scope, value: Any) -> Any:
    """Seconds as a span. A string that is no literal (those the parser reads) is no time at all."""
    kind = type(value)
    if kind is int or kind is float:
        return RelTime(float(int32(value) if kind is int else value))
    if kind is RelTime:
        return value
    if kind is AbsTime:
        return RelTime(float(value.seconds))
    if kind is str:
        return RelTime(0.0)
    return UNDEFINED if value is UNDEFINED else ERROR
