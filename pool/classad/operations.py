"""The operators on evaluated values.

Operands are promoted boolean -> integer -> real. Integers wrap at 64 bits, division truncates toward zero, a real
result of +infinity is ERROR. ERROR in either operand gives ERROR, else UNDEFINED in either gives UNDEFINED, save
for `is` and `isnt`, which compare type and value and never promote. Strings compare without regard to the case
of A to Z, with `is` exactly. `&&`, `||`, `?:` do not evaluate all of their operands and live in `compiling`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from pool.classad.scope import ListValue, Scope, valued
from pool.classad.values import (
    ERROR,
    INT_MAX,
    INT_MIN,
    UNDEFINED,
    AbsTime,
    RelTime,
    encoded,
    int32,
    lowered,
    truncated32,
    wrap,
)

NUMBERS = frozenset({int, float, bool})
_NATIVE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def string_key(text: str) -> Any:
    """The form of a string for comparisons that ignore case."""
    return text.lower() if text.isascii() else encoded(lowered(text))


def compare_strings(a: str, b: str) -> int:
    """-1, 0 or 1, without regard to the case of A to Z."""
    if a.isascii() and b.isascii():
        x, y = a.lower(), b.lower()
        return (x > y) - (x < y)
    p, q = encoded(lowered(a)), encoded(lowered(b))
    return (p > q) - (p < q)


def compare(sign: str, a: Any, b: Any) -> Any:
    """`a sign b` for == != < <= > >=."""
    if a is ERROR or b is ERROR:
        return ERROR
    if a is UNDEFINED or b is UNDEFINED:
        return UNDEFINED
    kind, other = type(a), type(b)
    native = _NATIVE[sign]
    if kind in NUMBERS and other in NUMBERS:
        if kind is not other and (kind is float or other is float):
            return native(float(a), float(b))
        return native(a, b)
    if kind is str and other is str:
        return native(compare_strings(a, b), 0)
    if kind is other and kind is AbsTime:
        return native(a.seconds, b.seconds)
    if kind is other and kind is RelTime:
        return native(a.seconds, b.seconds)
    return ERROR


def promoted(a: Any, b: Any) -> tuple[Any, Any]:
    """Two numbers as the type that they are compared in."""
    if type(a) is float or type(b) is float:
        return float(a), float(b)
    return int(a), int(b)


def identical(a: Any, b: Any) -> Any:
    """`a is b`; ERROR for two lists or two ads. A list that a function made is of another type than one that was
    written.
    """
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is ListValue:
        return ERROR if a.made is b.made else False
    if kind is Scope:
        return ERROR
    if a is UNDEFINED or a is ERROR:
        return True
    return bool(a == b)


def distinct(a: Any, b: Any) -> Any:
    """`a isnt b`."""
    same = identical(a, b)
    return ERROR if same is ERROR else not same


def _divide(a: int, b: int) -> Any:
    if b == 0:
        return ERROR
    if a == INT_MIN and b == -1:
        return INT_MAX
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _modulo(a: int, b: int) -> Any:
    return ERROR if b == 0 else int(math.copysign(1, a)) * (abs(a) % abs(b))


def arithmetic(sign: str, a: Any, b: Any) -> Any:
    """`a sign b` for + - * / %."""
    if a is ERROR or b is ERROR:
        return ERROR
    if a is UNDEFINED or b is UNDEFINED:
        return UNDEFINED
    kind, other = type(a), type(b)
    if kind in NUMBERS and other in NUMBERS:
        if kind is float or other is float:
            return _reals(sign, float(a), float(b))
        a, b = int(a), int(b)
        if sign == "+":
            return wrap(a + b)
        if sign == "-":
            return wrap(a - b)
        if sign == "*":
            return wrap(a * b)
        return _divide(a, b) if sign == "/" else _modulo(a, b)
    return _times(sign, a, b)


def _quotient(a: float, b: float) -> float:
    if b != 0.0:
        return a / b
    if a == 0.0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _reals(sign: str, a: float, b: float) -> Any:
    if sign == "+":
        result = a + b
    elif sign == "-":
        result = a - b
    elif sign == "*":
        result = a * b
    elif sign == "/":
        result = _quotient(a, b)
    else:
        return ERROR
    return ERROR if result == math.inf else result


def _times(sign: str, a: Any, b: Any) -> Any:
    kind, other = type(a), type(b)
    if kind is AbsTime:
        if other is AbsTime:
            return RelTime(float(a.seconds - b.seconds)) if sign == "-" else ERROR
        if other is RelTime and sign in "+-":
            span = truncated32(b.seconds)
            return AbsTime(a.seconds + (span if sign == "+" else -span), a.offset)
        return ERROR
    if kind is RelTime:
        if other is AbsTime and sign == "+":
            return AbsTime(b.seconds + truncated32(a.seconds), b.offset)
        if other is RelTime and sign in "+-":
            return RelTime(a.seconds + b.seconds if sign == "+" else a.seconds - b.seconds)
        if other is int or other is float:
            if sign == "*":
                return RelTime(a.seconds * b)
            if sign == "/":
                return RelTime(_quotient(a.seconds, float(b)))
        return ERROR
    if other is RelTime and sign == "*" and (kind is int or kind is float):
        return RelTime(a * b.seconds)
    return ERROR


def bitwise(sign: str, a: Any, b: Any) -> Any:
    """`a sign b` for & | ^ << >> >>>; integers only, shift counts count modulo 64."""
    if a is ERROR or b is ERROR:
        return ERROR
    if a is UNDEFINED or b is UNDEFINED:
        return UNDEFINED
    if type(a) is not int or type(b) is not int:
        return ERROR
    if sign == "&":
        return a & b
    if sign == "|":
        return a | b
    if sign == "^":
        return a ^ b
    if sign == "<<":
        return wrap(a << (b & 63))
    if a >= 0:
        return a >> (b & 63)
    if sign == ">>":
        return a if b <= 0 else a >> min(b, 64)
    return ((a >> 1) & INT_MAX) >> ((b - 1) & 63)


def negative(a: Any) -> Any:
    kind = type(a)
    if kind is int:
        return wrap(-a)
    if kind is float:
        return -a
    if kind is RelTime:
        return RelTime(-a.seconds)
    return UNDEFINED if a is UNDEFINED else ERROR


def positive(a: Any) -> Any:
    return a if type(a) in (int, float, RelTime) or a is UNDEFINED else ERROR


def opposite(a: Any) -> Any:
    """`!a`."""
    if type(a) in NUMBERS:
        return not a
    return UNDEFINED if a is UNDEFINED else ERROR


def complement(a: Any) -> Any:
    """`~a`."""
    if type(a) is int:
        return ~a
    return UNDEFINED if a is UNDEFINED else ERROR


def subscript(base: Any, index: Any) -> Any:
    """`base[index]`: an element of a list, or an attribute of an ad by name."""
    if base is ERROR or index is ERROR:
        return ERROR
    if base is UNDEFINED or index is UNDEFINED:
        return UNDEFINED
    if type(base) is ListValue and type(index) is int:
        index = int32(index)
        return base.at(index) if 0 <= index < len(base) else ERROR
    if type(base) is Scope and type(index) is str:
        return attribute(base, index)
    return ERROR


def attribute(scope: Scope, name: str) -> Any:
    """The value of an ad's own attribute; UNDEFINED when it has none of that name."""
    key = name.lower()
    found = scope.get(key)
    return UNDEFINED if found is None else valued(scope, key, found)


UNARY: dict[str, Callable[[Any], Any]] = {"-": negative, "+": positive, "!": opposite, "~": complement}


def binary(sign: str) -> Callable[[Any, Any], Any]:
    """The function of two values behind a binary operator other than && and ||."""
    if sign == "=?=":
        return identical
    if sign == "=!=":
        return distinct
    general = compare if sign in _NATIVE else arithmetic if sign in "+-*/%" else bitwise
    return lambda a, b: general(sign, a, b)
