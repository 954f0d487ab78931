"""floor, ceiling, ceil, round, pow, quantize, random."""

from __future__ import annotations

import math
from typing import Any

from pool.classad.errors import EvaluationFailed
from pool.classad.functions.convert import to_real
from pool.classad.functions.registry import Family
from pool.classad.scope import ListValue, Scope
from pool.classad.values import ERROR, int32, truncated, wrap

FUNCTIONS = Family()


def _rounded(value: Any, how: Any) -> Any:
    if type(value) is int:
        return value
    number = to_real(value)
    if type(number) is not float:
        return ERROR
    return how(number) if math.isfinite(number) and abs(number) < 2**63 else truncated(number)


@FUNCTIONS.strict("floor", 1)
def floor(scope: Scope, value: Any) -> Any:
    return _rounded(value, math.floor)


@FUNCTIONS.strict("ceil", 1)
@FUNCTIONS.strict("ceiling", 1)
def ceiling(scope: Scope, value: Any) -> Any:
    return _rounded(value, math.ceil)


@FUNCTIONS.strict("round", 1)
def nearest(scope: Scope, value: Any) -> Any:
    """To the nearest integer, halves to the even one."""
    return _rounded(value, round)


def _power(base: float, exponent: float) -> float:
    try:
        result = math.pow(base, exponent)
    except OverflowError:
        odd = exponent == math.floor(exponent) and math.fmod(exponent, 2.0) != 0.0
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        if base == 0.0:
            odd = exponent == math.floor(exponent) and math.fmod(exponent, 2.0) != 0.0
            return math.copysign(math.inf, base) if odd else math.inf
        return math.nan
    return result


@FUNCTIONS.strict("pow", 2)
def power(scope: Scope, base: Any, exponent: Any) -> Any:
    """base to the exponent; an integer when both are and the exponent is not negative."""
    if type(base) is int and type(exponent) is int and exponent >= 0:
        return truncated(_power(float(base), float(exponent)) + 0.5)
    a, b = to_real(base), to_real(exponent)
    if type(a) is not float or type(b) is not float:
        return ERROR
    return _power(a, b)


@FUNCTIONS.strict("quantize", 2)
def quantize(scope: Scope, value: Any, quantum: Any) -> Any:
    """The value rounded up to a multiple of the quantum; of a list of quanta, the first that is not smaller than
    the value, or else a multiple of the last.
    """
    number = to_real(value)
    if type(number) is not float:
        return ERROR
    step: Any
    if type(quantum) is ListValue:
        quanta = quantum
        step, quantum = 0.0, 0.0
        for item in quanta.items(scope):
            step, quantum = to_real(item), item
            if type(step) is not float:
                return ERROR
            if step >= number:
                return item
    else:
        step = to_real(quantum)
        if type(step) is not float:
            return ERROR
    if type(quantum) is int:
        if quantum == 0:
            return value
        if type(value) is int:
            total = wrap(value + quantum - 1)
            whole = abs(total) // abs(quantum)
            return wrap((whole if (total < 0) == (quantum < 0) else -whole) * quantum)
        return _up(number, float(quantum))
    return value if -1e-8 <= step <= 1e-8 else _up(number, step)


def _up(number: float, step: float) -> float:
    count = number / step
    return math.ceil(count) * step if math.isfinite(count) else count * step


@FUNCTIONS.strict("random", 0, 1)
def random(scope: Scope, limit: Any = 1.0) -> Any:
    """An integer in [0, limit) or a real in [0, limit). Chance is drawn from the evaluation's time, so that the
    same evaluation at the same time gives the same number; nothing secret must depend on it.
    """
    root = scope.root
    root.draws += 1
    seed = hash((root.now, root.draws, 0x9E3779B97F4A7C15)) & 0xFFFFFFFFFFFFFFFF
    seed ^= seed >> 31
    seed = seed * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    seed ^= seed >> 29
    if type(limit) is int:
        limit = int32(limit)
        if limit <= 0:
            raise EvaluationFailed("random needs a positive limit")
        return seed % limit
    if type(limit) is float:
        if limit <= 0:
            raise EvaluationFailed("random needs a positive limit")
        return limit * ((seed >> 11) / 2**53)
    return ERROR
