"""stringListSize, -Sum, -Avg, -Min, -Max, -Member, -IMember, -SubsetMatch, -ISubsetMatch, -sIntersect and
stringList_regexpMember: lists written as one string, as ads were before they had lists.

Items are separated by any of the delimiters, stripped of white space, and dropped when empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pool.classad.functions.convert import leading_number
from pool.classad.functions.registry import Family
from pool.classad.patterns import PatternError, compiled_pattern
from pool.classad.scope import Scope
from pool.classad.values import ERROR, UNDEFINED, lowered, truncated

FUNCTIONS = Family()

_SPACES = " \t\n\v\f\r"
_WHOLE = re.compile(r"[-+0-9]*\Z")
_LEAST_FLOAT = 1.1754943508222875e-38
_MOST_FLOAT = 3.4028234663852886e38


def items_of(scope: Scope, text: str, delimiters: str = ", ") -> list[str]:
    """The items of a string list."""
    scope.spend(len(text) // 8 + 1)
    if not delimiters:
        parts = [text]
    else:
        parts = re.split("[" + re.escape(delimiters) + "]", text)
    return [part for part in (part.strip(_SPACES) for part in parts) if part]


@FUNCTIONS.strict("stringListSize", 1, 2)
def string_list_size(scope: Scope, text: Any, delimiters: Any = ", ") -> Any:
    if type(text) is not str or type(delimiters) is not str:
        return ERROR
    return len(items_of(scope, text, delimiters))


def _summary(begin: float, join: Callable[[float, float], float], *, average: bool = False) -> Callable[..., Any]:
    def apply(scope: Scope, text: Any, delimiters: Any = ", ") -> Any:
        if type(text) is not str or type(delimiters) is not str:
            return ERROR
        items = items_of(scope, text, delimiters)
        if not items:
            return 0.0 if begin == 0.0 else UNDEFINED
        total, real = begin, False
        for item in items:
            number = leading_number(item)
            if number is None:
                return ERROR
            real = real or _WHOLE.match(item) is None
            total = join(number, total)
        if average:
            total /= len(items)
        return total if real else truncated(total)

    return apply


FUNCTIONS.strict("stringListSum", 1, 2)(_summary(0.0, lambda item, total: item + total))
FUNCTIONS.strict("stringListAvg", 1, 2)(_summary(0.0, lambda item, total: item + total, average=True))
FUNCTIONS.strict("stringListMin", 1, 2)(_summary(_MOST_FLOAT, lambda item, total: item if item < total else total))
FUNCTIONS.strict("stringListMax", 1, 2)(_summary(_LEAST_FLOAT, lambda item, total: item if item > total else total))


def _enrolment(*, ignore_case: bool, subset: bool) -> Callable[..., Any]:
    def apply(scope: Scope, item: Any, text: Any, *third: Any) -> Any:
        delimiters = third[0] if third and third[0] is not UNDEFINED else ", \t\r\n"
        if any(value is not UNDEFINED and type(value) is not str for value in (item, text, delimiters)):
            return ERROR
        if item is UNDEFINED and text is UNDEFINED:
            return UNDEFINED
        wanted = "" if item is UNDEFINED else item
        members = items_of(scope, "" if text is UNDEFINED else text, delimiters)
        if ignore_case:
            members, wanted = [lowered(member) for member in members], lowered(wanted)
        if not subset:
            return wanted in members
        if not wanted:
            return True
        parts = items_of(scope, wanted, delimiters)
        return bool(parts) and set(members).issuperset(parts)

    return apply


FUNCTIONS.strict("stringListMember", 2, 3)(_enrolment(ignore_case=False, subset=False))
FUNCTIONS.strict("stringListIMember", 2, 3)(_enrolment(ignore_case=True, subset=False))
FUNCTIONS.strict("stringListSubsetMatch", 2, 3)(_enrolment(ignore_case=False, subset=True))
FUNCTIONS.strict("stringListISubsetMatch", 2, 3)(_enrolment(ignore_case=True, subset=True))


@FUNCTIONS.strict("stringListsIntersect", 2, 3)
def string_lists_intersect(scope: Scope, left: Any, right: Any, *third: Any) -> Any:
    """Whether the lists share an item; unlike elsewhere items are not stripped."""
    values = (left, right, *third)
    if ERROR in values:
        return ERROR
    if UNDEFINED in values:
        return UNDEFINED
    if not all(type(value) is str for value in values):
        return ERROR
    delimiters = third[0] if third and third[0] else " ,"
    scope.spend((len(left) + len(right)) // 8)
    cut = "[" + re.escape(delimiters) + "]+"
    return not {part for part in re.split(cut, left) if part}.isdisjoint(re.split(cut, right))


@FUNCTIONS.strict("stringList_regexpMember", 2, 4)
def string_list_regexp_member(scope: Scope, pattern: Any, text: Any, delimiters: Any = ", ", options: Any = "") -> Any:
    """Whether the pattern matches some item; undefined for an empty list."""
    if not all(type(value) is str for value in (pattern, text, delimiters, options)):
        return ERROR
    try:
        matcher = compiled_pattern(pattern, options.lower())
    except PatternError:
        return ERROR
    found = [matcher.search(item, scope.spend) is not None for item in items_of(scope, text, delimiters)]
    return any(found) if found else UNDEFINED
