"""versioncmp, versionLE, versionLT, versionGE, versionGT, versionEQ, version_in_range.

Strings compare as people read versions: runs of digits by their number, the rest byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pool.classad.functions.convert import to_string
from pool.classad.functions.registry import Family
from pool.classad.functions.strings import compared
from pool.classad.scope import Scope
from pool.classad.values import ERROR, UNDEFINED, encoded

FUNCTIONS = Family()

_DIGITS = frozenset(b"0123456789")


def compare_versions(left: str, right: str) -> int:
    """Negative, zero or positive; the size of it is the reference's: the difference of the bytes, of the lengths
    of numbers, or of leading zeros, at the first place where the strings differ.
    """
    a, b = encoded(left) + b"\0", encoded(right) + b"\0"
    at = 0
    while a[at] == b[at]:
        if a[at] == 0:
            return 0
        at += 1
    begin = at
    while begin > 0 and a[begin - 1] in _DIGITS:
        begin -= 1
    difference = _signed(a[at]) - _signed(b[at])
    if begin == at and (a[at] not in _DIGITS or b[at] not in _DIGITS):
        return difference
    zeros_a, zeros_b = _leading_zeros(a, begin), _leading_zeros(b, begin)
    if zeros_a != zeros_b:
        return zeros_b - zeros_a
    if zeros_a > 0:
        return difference
    return (_number_end(a, begin) - _number_end(b, begin)) or difference


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _leading_zeros(data: bytes, begin: int) -> int:
    end = begin
    while data[end] == ord("0"):
        end += 1
    if end > begin and data[end] not in _DIGITS:
        end -= 1
    return end - begin


def _number_end(data: bytes, begin: int) -> int:
    end = begin
    while data[end] in _DIGITS:
        end += 1
    return end


@FUNCTIONS.strict("versioncmp", 2)
def version_difference(scope: Scope, left: Any, right: Any) -> Any:
    pair = compared(left, right)
    return compare_versions(*pair) if type(pair) is tuple else pair


def _test(accepts: Callable[[int], bool]) -> Callable[[Scope, Any, Any], Any]:
    def apply(scope: Scope, left: Any, right: Any) -> Any:
        pair = compared(left, right)
        return accepts(compare_versions(*pair)) if type(pair) is tuple else pair

    return apply


FUNCTIONS.strict("versionLE", 2)(_test(lambda order: order <= 0))
FUNCTIONS.strict("versionLT", 2)(_test(lambda order: order < 0))
FUNCTIONS.strict("versionGE", 2)(_test(lambda order: order >= 0))
FUNCTIONS.strict("versionGT", 2)(_test(lambda order: order > 0))
FUNCTIONS.strict("versionEQ", 2)(_test(lambda order: order == 0))


@FUNCTIONS.strict("version_in_range", 3)
def version_in_range(scope: Scope, version: Any, least: Any, most: Any) -> Any:
    if least is UNDEFINED or most is UNDEFINED:
        return UNDEFINED
    texts = [to_string(value) for value in (version, least, most)]
    if not all(type(text) is str for text in texts):
        return ERROR
    return compare_versions(texts[1], texts[0]) <= 0 and compare_versions(texts[0], texts[2]) <= 0
