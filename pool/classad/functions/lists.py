"""member, identicalMember, anyCompare, allCompare, sum, avg, min, max."""

from __future__ import annotations

from typing import Any

from pool.classad import operations
from pool.classad.functions.registry import Family
from pool.classad.scope import ListValue, Scope
from pool.classad.values import ERROR, UNDEFINED

FUNCTIONS = Family()


@FUNCTIONS.strict("member", 2)
def member(scope: Scope, wanted: Any, items: Any) -> Any:
    """Whether some element == the value."""
    if items is UNDEFINED or wanted is UNDEFINED:
        return UNDEFINED
    if type(items) is not ListValue or type(wanted) in (ListValue, Scope) or wanted is ERROR:
        return ERROR
    return any(operations.compare("==", item, wanted) is True for item in items.items(scope))


@FUNCTIONS.strict("identicalMember", 2)
def identical_member(scope: Scope, wanted: Any, items: Any) -> Any:
    """Whether some element `is` the value."""
    if items is UNDEFINED:
        return UNDEFINED
    if type(items) is not ListValue or type(wanted) in (ListValue, Scope):
        return ERROR
    return any(operations.identical(item, wanted) is True for item in items.items(scope))


_COMPARISONS = {"<": "<", "<=": "<=", "!=": "!=", "==": "==", ">": ">", ">=": ">=", "is": "=?=", "isnt": "=!="}


def _compare_each(scope: Scope, sign: Any, items: Any, against: Any, *, everyone: bool) -> Any:
    if sign is UNDEFINED:
        return UNDEFINED
    if type(sign) is not str or sign not in _COMPARISONS:
        return ERROR
    if items is UNDEFINED:
        return UNDEFINED
    if type(items) is not ListValue:
        return ERROR
    apply = operations.binary(_COMPARISONS[sign])
    for item in items.items(scope):
        result = apply(item, against)
        if result is UNDEFINED:
            return False
        if type(result) is not bool:
            return ERROR
        if result is not everyone:
            return not everyone
    return everyone


@FUNCTIONS.strict("anyCompare", 3)
def any_compare(scope: Scope, sign: Any, items: Any, against: Any) -> Any:
    """Whether `element sign value` holds for some element. An undefined comparison ends it with false."""
    return _compare_each(scope, sign, items, against, everyone=False)


@FUNCTIONS.strict("allCompare", 3)
def all_compare(scope: Scope, sign: Any, items: Any, against: Any) -> Any:
    return _compare_each(scope, sign, items, against, everyone=True)


def _numbers(scope: Scope, items: Any) -> Any:
    """The list's numbers, undefined ones left out; or UNDEFINED or ERROR."""
    if items is UNDEFINED:
        return UNDEFINED
    if type(items) is not ListValue:
        return ERROR
    numbers = []
    for item in items.items(scope):
        if item is UNDEFINED:
            continue
        if type(item) not in operations.NUMBERS:
            return ERROR
        numbers.append(item)
    return numbers


def _total(numbers: list[Any]) -> Any:
    if not numbers:
        return 0
    total = numbers[0]
    for number in numbers[1:]:
        total = operations.arithmetic("+", total, number)
    return total


@FUNCTIONS.strict("sum", 1)
def total(scope: Scope, items: Any) -> Any:
    numbers = _numbers(scope, items)
    return _total(numbers) if type(numbers) is list else numbers


@FUNCTIONS.strict("avg", 1)
def average(scope: Scope, items: Any) -> Any:
    numbers = _numbers(scope, items)
    if type(numbers) is not list:
        return numbers
    return operations.arithmetic("/", _total(numbers), float(len(numbers))) if numbers else 0


def _extreme(scope: Scope, items: Any, sign: str) -> Any:
    """The extreme number, of the type that all those before it in the list were promoted to."""
    numbers = _numbers(scope, items)
    if type(numbers) is not list:
        return numbers
    if not numbers:
        return UNDEFINED
    best = numbers[0]
    for number in numbers[1:]:
        best, candidate = operations.promoted(best, number)
        if operations.compare(sign, candidate, best) is True:
            best = candidate
    return best


@FUNCTIONS.strict("min", 1)
def least(scope: Scope, items: Any) -> Any:
    return _extreme(scope, items, "<")


@FUNCTIONS.strict("max", 1)
def most(scope: Scope, items: Any) -> Any:
    return _extreme(scope, items, ">")
