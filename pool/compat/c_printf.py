"""C's printf for one value, with HTCondor's own letters: v and V (a value), r (unevaluated), T (a span), Y (a date).

Texts are bytes, each as the character of its number (latin-1), so that widths count what C counts. Pure, but for the
zone in which a date is shown.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import lru_cache

_CONVERSION = re.compile(
    r"%(?P<flags>[#0\- +']*)(?P<width>[0-9]*)(?:\.(?P<precision>[0-9]*))?(?P<length>[hlLqjzt]*)(?P<letter>.)", re.S
)
_KINDS = {
    **dict.fromkeys("diouxX", "int"),
    **dict.fromkeys("eEfFgGaA", "float"),
    **dict.fromkeys("cC", "char"),
    **dict.fromkeys("sS", "string"),
    "p": "pointer",
    **dict.fromkeys("vV", "value"),
    **dict.fromkeys("rR", "raw"),
    "T": "time",
    "Y": "date",
}


@dataclass(frozen=True, slots=True)
class Conversion:
    """The first conversion of a format, and the text around it.

    Attributes:
        kind: int, float, char, string, pointer, value, raw, time or date.
        letter: as it is written.
        width: columns; 0 if none are given.
        left: aligned to the left.
    """

    before: str
    after: str
    kind: str
    letter: str
    flags: str
    width: int
    precision: int | None
    length: str

    @property
    def left(self) -> bool:
        return "-" in self.flags


@lru_cache(maxsize=256)
def read_format(text: str) -> Conversion | None:
    """The first conversion of a format; None if it has none, or one that no value can be given to."""
    at = 0
    while (percent := text.find("%", at)) >= 0:
        if text.startswith("%%", percent):
            at = percent + 2
            continue
        found = _CONVERSION.match(text, percent)
        if found is None or found["letter"] not in _KINDS:
            return None
        precision = found["precision"]
        return Conversion(
            _literal(text[:percent]),
            _literal(text[found.end() :]),
            _KINDS[found["letter"]],
            found["letter"],
            found["flags"],
            int(found["width"] or 0),
            None if precision is None else int(precision or 0),
            found["length"],
        )
    return None


def _literal(text: str) -> str:
    return text.replace("%%", "%")


def format_string(conversion: Conversion, text: str) -> str:
    """A text by a conversion, whatever its letter."""
    if conversion.precision is not None:
        text = text[: conversion.precision]
    text = text.ljust(conversion.width) if conversion.left else text.rjust(conversion.width)
    return conversion.before + text + conversion.after


def format_integer(conversion: Conversion, value: int) -> str:
    """A whole number by a conversion of kind int, char or pointer, as wide as C takes it."""
    letter = conversion.letter
    if conversion.kind == "char":
        return format_string(conversion, chr(value & 255) if value & 255 else "")
    if letter == "p":
        return format_string(conversion, f"{value & (2**64 - 1):#x}" if value else "(nil)")
    length = conversion.length
    bits = 64 if set(length) & set("lLqjzt") else 8 if length == "hh" else 16 if length == "h" else 32
    value &= (1 << bits) - 1
    if letter in "di" and value >> (bits - 1):
        value -= 1 << bits
    letter = "d" if letter in "iu" else letter
    return conversion.before + _percent(conversion, letter) % value + conversion.after


def format_real(conversion: Conversion, value: float) -> str:
    """A real number by a conversion of kind float."""
    if conversion.letter in "aA":
        return format_string(conversion, _hexadecimal(value, conversion.letter))
    return conversion.before + _percent(conversion, conversion.letter) % value + conversion.after


def _percent(conversion: Conversion, letter: str) -> str:
    flags = conversion.flags.replace("'", "")
    precision = "" if conversion.precision is None else f".{conversion.precision}"
    if precision and letter in "diouxX":
        flags = flags.replace("0", "")
    return f"%{flags}{conversion.width or ''}{precision}{letter}"


def _hexadecimal(value: float, letter: str) -> str:
    text = re.sub(r"\.?0*p", "p", value.hex())
    return text.upper() if letter == "A" else text


def whole_number(value: float) -> int:
    """A number cut as C cuts it: one that is too large is the least there is."""
    whole = int(value)
    return whole if -(2**63) <= whole < 2**63 else -(2**63)


@lru_cache(maxsize=4096)
def format_span(seconds: int) -> str:
    """`ddd+hh:mm:ss`."""
    sign, whole = (-1, -seconds) if seconds < 0 else (1, seconds)
    days, rest = divmod(whole, 86400)
    parts = [sign * days, sign * (rest // 3600), sign * (rest // 60 % 60), sign * (rest % 60)]
    return f"{parts[0]:3d}+{parts[1]:02d}:{parts[2]:02d}:{parts[3]:02d}"


@lru_cache(maxsize=4096)
def format_date(seconds: int) -> str:
    """`mm/dd hh:mm` in local time."""
    if not 0 <= seconds < 2**40:
        return "    ???    "
    when = time.localtime(seconds)
    return f"{when.tm_mon:2d}/{when.tm_mday:<2d} {when.tm_hour:02d}:{when.tm_min:02d}"


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]+|[0-7]{1,3}|.)", re.S)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}


def collapse_escapes(text: str) -> str:
    """C's escapes of a format, resolved: a shell hands `\\n` on as two characters."""

    def meant(found: re.Match[str]) -> str:
        inside = found[1]
        if inside[0] in "01234567":
            return chr(int(inside, 8) & 255)
        if inside[0] == "x" and len(inside) > 1:
            return chr(int(inside[1:], 16) & 255)
        return _ESCAPES.get(inside, inside)

    return _ESCAPE.sub(meant, text) if "\\" in text else text
