"""isUndefined and the rest: what type a value is. They take exactly one argument and never propagate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pool.classad.functions.registry import Family
from pool.classad.scope import ListValue, Scope
from pool.classad.values import ERROR, UNDEFINED, AbsTime, RelTime

FUNCTIONS = Family()

_TYPES: dict[str, type] = {
    "isUndefined": type(UNDEFINED),
    "isError": type(ERROR),
    "isString": str,
    "isInteger": int,
    "isReal": float,
    "isBoolean": bool,
    "isList": ListValue,
    "isClassAd": Scope,
    "isAbsTime": AbsTime,
    "isRelTime": RelTime,
}


def _test(wanted: type) -> Callable[[Scope, Any], bool]:
    return lambda _scope, value: type(value) is wanted


for _name, _type in _TYPES.items():
    FUNCTIONS.strict(_name, 1)(_test(_type))
