"""The kinds of values that settings take, and their reading: calculated numbers, durations with units, flags, choices.

NUMBER, COUNT   1.5     2 * 3     $(OTHER) + 1          arithmetic is the expression language's
DURATION        90      10 min    1 h 30 min    20 * 60           seconds where no unit stands
FLAG            true yes on 1     false no off 0
SPAN            a DURATION, or an expression that comes to seconds
"""

from __future__ import annotations

import math
import re
from enum import StrEnum

from pool.classad import ClassAd, ParseError, evaluate, parse_expr
from pool.decimals import real_number
from pool.jobs.time_lengths import with_units

TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^\s:\[\]/]*):([0-9]{1,5})")


class SettingKind(StrEnum):
    """The kind of a setting's value."""

    TEXT = "text"
    NUMBER = "number"
    COUNT = "count"
    DURATION = "duration"
    FLAG = "flag"
    CHOICE = "choice"
    ADDRESS = "address"
    EXPRESSION = "expression"
    SPAN = "duration or expression"


class Unfit(ValueError):
    """A value is not of its kind; says what was expected."""


def number(text: str) -> float:
    """A number, or arithmetic that comes to one.

    Raises:
        Unfit: it is none.
    """
    found = real_number(text)
    if found is None:
        found = _calculated(text)
    if not math.isfinite(found):
        raise Unfit("a number")
    return found


def _calculated(text: str) -> float:
    try:
        value = evaluate(parse_expr(text), ClassAd())
    except ParseError:
        value = None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Unfit("a number")
    return float(value)


def count(text: str) -> float:
    """A whole number of at least 0.

    Raises:
        Unfit: it is none.
    """
    try:
        found = number(text)
    except Unfit:
        raise Unfit("a whole number") from None
    if found < 0 or found != int(found):
        raise Unfit("a whole number")
    return found


def duration(text: str) -> float:
    """Seconds.

    Raises:
        Unfit: it is no length of time.
    """
    if (seconds := with_units(text)) is not None:
        return seconds
    try:
        return number(text)
    except Unfit:
        raise Unfit("a length of time such as 90, 10 min or 2 h") from None


def flag(text: str) -> bool:
    """True or false.

    Raises:
        Unfit: it is neither.
    """
    lowered = text.strip().lower()
    if lowered not in TRUE + FALSE:
        raise Unfit("true or false")
    return lowered in TRUE


def address(text: str) -> str:
    """`host:port`, or nothing.

    Raises:
        Unfit: it is none.
    """
    match = _ADDRESS.fullmatch(text.strip())
    if text.strip() and (match is None or int(match[2]) > 65535):
        raise Unfit("HOST:PORT")
    return text.strip()


def expression(text: str) -> str:
    """An expression's text.

    Raises:
        Unfit: it is none.
    """
    try:
        parse_expr(text, syntax="old")
    except ParseError as error:
        raise Unfit(f"an expression: {error.message}") from None
    return text


def span(text: str) -> str:
    """The text of an expression that comes to seconds, of a length of time or an expression.

    Raises:
        Unfit: it is neither.
    """
    try:
        return f"{duration(text):g}"
    except Unfit:
        pass
    try:
        return expression(text)
    except Unfit as unfit:
        raise Unfit(f"a length of time such as 90, 10 min or 2 h, or {unfit}") from None
