"""Conversions between types of values, as the functions int(), real(), string() and many others do them.

Each returns the converted value, or UNDEFINED for undefined, or ERROR for what cannot be converted.
"""

from __future__ import annotations

import math
import re
from typing import Any

from pool.classad import timetext
from pool.classad.expr import literal
from pool.classad.nodes import AdNode, ExprNode, ListNode
from pool.classad.printing import print_node, print_value
from pool.classad.scope import ListValue, Scope
from pool.classad.values import ERROR, UNDEFINED, AbsTime, RelTime, truncated, truncated32

_NUMBER = re.compile(
    r"[ \t\n\v\f\r]*([+-]?)(?:(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?)"
    r"|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(inf(?:inity)?)|(nan(?:\([A-Za-z0-9_]*\))?))",
    re.IGNORECASE,
)


def leading_number(text: str) -> float | None:
    """The number that a string begins with, as C's strtod reads it; None when there is none."""
    got = _NUMBER.match(text)
    if got is None:
        return None
    sign, hexadecimal, decimal, infinite, _ = got.groups()
    if hexadecimal:
        try:
            number = float.fromhex(hexadecimal)
        except OverflowError:
            number = math.inf
    elif decimal:
        number = float(decimal)
    else:
        number = math.inf if infinite else math.nan
    return -number if sign == "-" else number


def to_real(value: Any) -> Any:
    kind = type(value)
    if kind is float:
        return value
    if kind is int or kind is bool:
        return float(value)
    if kind is str:
        number = leading_number(value)
        return ERROR if number is None else number
    if kind is AbsTime:
        return float(value.seconds)
    if kind is RelTime:
        return float(truncated32(value.seconds))
    return UNDEFINED if value is UNDEFINED else ERROR


def to_int(value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return value
    if kind is bool:
        return int(value)
    if kind is float:
        return truncated(value)
    if kind is str:
        number = leading_number(value)
        return ERROR if number is None else truncated(number)
    if kind is AbsTime:
        return value.seconds
    if kind is RelTime:
        return truncated32(value.seconds)
    return UNDEFINED if value is UNDEFINED else ERROR


def to_string(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return value
    if kind is AbsTime:
        return timetext.print_abstime(value)
    if kind is RelTime:
        return timetext.print_reltime(float(truncated32(value.seconds)))
    if kind is ListValue or kind is Scope:
        return print_node(tree_of(value))
    if value is UNDEFINED or value is ERROR:
        return value
    return print_value(value)


def tree_of(value: Any) -> ExprNode:
    """The tree of a value, for printing: lists and ads as they are written, not evaluated."""
    if type(value) is ListValue:
        if value.values is None:
            return ListNode(value.nodes)
        if value.scope is not None:
            value.scope.spend(len(value.values))
        return ListNode(tuple(tree_of(item) for item in value.values))
    if type(value) is Scope:
        value.spend(len(value.ad))
        node: AdNode = value.ad.node()
        return node
    return literal(value).node
