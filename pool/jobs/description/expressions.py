"""ClassAd expressions as a description file uses them: checked, evaluated to a number, looked through for
names.

A value is kept in wire form: a scalar literally, any other expression as a list with its long-form text.
Texts are parsed with the quoting rules of submit files (a backslash only escapes a double quote).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from pool.classad import ERROR, UNDEFINED, ClassAd, ParseError, parse_expr

Wire = bool | int | float | str | list[str]

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:\\"|[^"])*")|(?P<name>[A-Za-z_]\w*|'(?:\\'|[^'])*')"""
    r"""|(?P<number>[0-9][\w.]*|\.[0-9][\w.]*)"""
    r"""|(?P<sign>=\?=|=!=|\|\||&&|==|!=|<=|>=|>>>|<<|>>|.))""",
    re.DOTALL,
)
_WORDS = frozenset({"true", "false", "undefined", "error", "is", "isnt", "parent"})
_SMALL_INTEGER = re.compile(r"0|[1-9][0-9]{0,17}")
_PLAIN_STRING = re.compile(r'"[^"\\]*"')
_INTEGER = re.compile(r"\s*[-+]?[0-9]+\s*")
_REAL = re.compile(r"\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*")
_BOOLEAN = re.compile(r"(true|1|false|0)\s*", re.IGNORECASE)
_SIZE = re.compile(r"\s*(?P<whole>[-+]?[0-9]{0,15})(?P<fraction>\.[0-9]*)?\s*(?P<unit>[kKmMgGtT])?(?P<byte>[bB])?\s*")
_FACTORS = {"k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


class ExpressionError(Exception):
    """A text that is no expression; the message says where it stops being one."""


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Wire:
    try:
        ad = ClassAd({"X": parse_expr(text, "old")})
    except ParseError as trouble:
        raise ExpressionError(str(trouble)) from trouble
    value: Wire = ad.to_wire()["X"]
    return value


def wire_of(text: str) -> Wire:
    """The wire form of an expression. Raises ExpressionError."""
    if _SMALL_INTEGER.fullmatch(text):
        return int(text)
    if _PLAIN_STRING.fullmatch(text):
        return text[1:-1]
    value = _parsed(text)
    return list(value) if isinstance(value, list) else value


def evaluate_text(text: str) -> bool | int | float | str | None:
    """The value of an expression that refers to nothing, or None where it is no scalar or no expression."""
    try:
        ad = ClassAd({"X": parse_expr(text, "old")})
    except ParseError:
        return None
    value = ad.eval("X")
    return value if isinstance(value, bool | int | float | str) else None


def unparsed(text: str) -> str:
    """The value of an expression as text: strings bare, reals in full; the text itself where it is none."""
    try:
        ad = ClassAd({"X": parse_expr(text, "old")})
    except ParseError:
        return text
    value = ad.eval("X")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.15E}"
    if value is UNDEFINED or value is ERROR:
        return "undefined" if value is UNDEFINED else "error"
    return str(value) if isinstance(value, int | str) else text


def integer_of(text: str) -> int | None:
    """The integer that a text is or evaluates to (reals are cut, true is 1), or None."""
    if _INTEGER.fullmatch(text):
        return int(text) if len(text.strip()) <= 20 and -(2**63) <= int(text) < 2**63 else None
    value = evaluate_text(text)
    if isinstance(value, float):
        return int(value) if abs(value) < 2**63 else None
    return None if value is None or isinstance(value, str) else int(value)


def real_of(text: str) -> float | None:
    """The number that a text is or evaluates to, or None."""
    if _REAL.fullmatch(text):
        return float(text)
    value = evaluate_text(text)
    return None if value is None or isinstance(value, str) else float(value)


def boolean_of(text: str) -> bool | None:
    """The truth of `true`, `false`, `1`, `0`, or of an expression that refers to nothing; else None."""
    if found := _BOOLEAN.fullmatch(text):
        return found[1].lower() in ("true", "1")
    value = evaluate_text(text)
    return None if value is None or isinstance(value, str) else bool(value)


@dataclass(frozen=True, slots=True)
class SizeInUnit:
    """An amount in the unit asked for, whether it named a unit itself, and what stood behind a comma."""

    amount: int
    named: bool
    rest: str = ""


def size_of(text: str, unit: int, *, several: bool = False) -> SizeInUnit | None:
    """Read `1.5GB` and the like in units of `unit` bytes, rounded up; a bare number already is in that unit.

    With `several`, text behind a comma is returned too. None where it is no such amount.
    """
    head, comma, rest = text.partition(",") if several else (text, "", "")
    found = _SIZE.fullmatch(head)
    if not found or not (found["whole"].strip("+-") or found["fraction"]) or (found["byte"] and not found["unit"]):
        return None
    thousandths = int(((found["fraction"] or ".")[1:] + "000")[:3])
    factor = _FACTORS[found["unit"].lower()] if found["unit"] else unit
    whole = int(found["whole"]) if found["whole"].strip("+-") else 0
    amount = int(int((whole + thousandths / 1000) * factor + unit - 1) / unit)
    if abs(amount) >= 2**63:
        return None
    return SizeInUnit(amount, found["unit"] is not None, rest if comma else "")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for found in _TOKEN.finditer(text):
        yield found.lastgroup or "sign", found[found.lastgroup or 0]


def referenced(text: str, own: frozenset[str]) -> tuple[set[str], set[str]]:
    """The attribute names, in lower case, that an expression takes from the job itself and from the machine.

    A name is the job's when it is in `own`, unless TARGET stands before it; any other is the machine's.
    """
    job: set[str] = set()
    machine: set[str] = set()
    tokens = list(_tokens(text))
    for index, (kind, token) in enumerate(tokens):
        if kind != "name":
            continue
        name = token.strip("'").lower()
        before = tokens[index - 1][1] if index else ""
        after = tokens[index + 1][1] if index + 1 < len(tokens) else ""
        if before == ".":
            scope = tokens[index - 2][1].lower() if index >= 2 else ""
            if scope in ("my", "self") and name in own:
                job.add(name)
            elif scope in ("my", "self", "target", "other"):
                machine.add(name)
        elif after in ("(", "=") or name in _WORDS or (after == "." and name in ("my", "self", "target", "other")):
            continue
        else:
            (job if name in own else machine).add(name)
    return job, machine


def in_parentheses_for(operator: str, text: str) -> str:
    """The expression, in parentheses where it could not stand beside `&&` or `||` without them."""
    depth = 0
    for kind, token in _tokens(text):
        if kind != "sign":
            continue
        depth += (token in "([{") - (token in ")]}")
        if depth == 0 and (token == "?" or (token == "||" and operator == "&&")):
            return f"({text})"
    return text
