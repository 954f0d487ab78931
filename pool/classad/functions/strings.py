"""strcat, join, substr, toUpper, toLower, strcmp, stricmp, size, split, splitUserName, splitSlotName.

Positions and sizes count bytes of UTF-8; letters other than A to Z have no case.
"""

from __future__ import annotations

from typing import Any

from pool.classad.errors import EvaluationFailed
from pool.classad.functions.convert import to_string
from pool.classad.functions.registry import MANY, Family
from pool.classad.operations import compare_strings
from pool.classad.scope import MAX_STRING, ListValue, Scope, made
from pool.classad.values import ERROR, UNDEFINED, decoded, encoded, int32, lowered, raised

FUNCTIONS = Family()


def paid(scope: Scope, text: str) -> str:
    """The string, when it is within the bound and the budget."""
    if len(text) > MAX_STRING:
        raise EvaluationFailed("string too long")
    scope.spend(len(text) // 64)
    return text


@FUNCTIONS.strict("strcat", 0, MANY)
def concatenate(scope: Scope, *values: Any) -> Any:
    parts: list[str] = []
    for value in values:
        text = to_string(value)
        if type(text) is not str:
            return text
        parts.append(text)
    return paid(scope, "".join(parts))


@FUNCTIONS.lazy("join", 0, MANY)
def _join(nodes: Any, arguments: Any) -> Any:
    """join(separator, items...), join(separator, list), join(list); undefined items are left out."""

    def run(s: Scope) -> Any:
        values: list[Any]
        if 0 < len(arguments) <= 2:
            last = arguments[-1](s)
            if type(last) is ListValue:
                separator = arguments[0](s) if len(arguments) == 2 else ""
                values = [separator, *last.items(s)]
            else:
                values = [arguments[0](s), last] if len(arguments) == 2 else [last]
        else:
            values = [argument(s) for argument in arguments]
        return joined(s, values)

    return run


def joined(scope: Scope, values: list[Any]) -> Any:
    separator, size = "", 0
    parts: list[str] = []
    undefined = defined = False
    for index, value in enumerate(values):
        text = to_string(value)
        if text is UNDEFINED:
            undefined = True
            continue
        if type(text) is not str:
            return ERROR
        if index == 0:
            separator = text
            continue
        defined = True
        if size:
            parts.append(separator)
            size += len(separator)
        parts.append(text)
        size += len(text)
        if size > MAX_STRING:
            raise EvaluationFailed("string too long")
    if undefined and not defined:
        return UNDEFINED
    return paid(scope, "".join(parts))


@FUNCTIONS.strict("toUpper", 1)
def to_upper(scope: Scope, value: Any) -> Any:
    text = to_string(value)
    return raised(paid(scope, text)) if type(text) is str else text


@FUNCTIONS.strict("toLower", 1)
def to_lower(scope: Scope, value: Any) -> Any:
    text = to_string(value)
    return lowered(paid(scope, text)) if type(text) is str else text


@FUNCTIONS.strict("substr", 2, 3)
def substring(scope: Scope, text: Any, offset: Any, *length: Any) -> Any:
    """From the offset, as many bytes as said; negative numbers count from the end."""
    if text is UNDEFINED or offset is UNDEFINED or UNDEFINED in length:
        return UNDEFINED
    if type(text) is not str or type(offset) is not int or (length and type(length[0]) is not int):
        return ERROR
    data = encoded(paid(scope, text))
    size = len(data)
    begin = int32(offset)
    begin = max(size + begin, 0) if begin < 0 else min(begin, size)
    count = size - begin
    if length:
        wanted = int32(length[0])
        count = min(wanted, count) if wanted > 0 else max(count + wanted, 0) if wanted else 0
    return decoded(data[begin : begin + count])


@FUNCTIONS.strict("strcmp", 2)
def compare_exactly(scope: Scope, left: Any, right: Any) -> Any:
    pair = compared(left, right)
    if type(pair) is not tuple:
        return pair
    a, b = encoded(pair[0]), encoded(pair[1])
    return (a > b) - (a < b)


@FUNCTIONS.strict("stricmp", 2)
def compare_loosely(scope: Scope, left: Any, right: Any) -> Any:
    pair = compared(left, right)
    return compare_strings(*pair) if type(pair) is tuple else pair


def compared(left: Any, right: Any) -> Any:
    """Both values as strings, or UNDEFINED or ERROR."""
    if left is UNDEFINED or right is UNDEFINED:
        return UNDEFINED
    a, b = to_string(left), to_string(right)
    return (a, b) if type(a) is str and type(b) is str else ERROR


@FUNCTIONS.strict("size", 1)
def size(scope: Scope, value: Any) -> Any:
    """Bytes of a string, elements of a list, attributes of an ad."""
    if type(value) is str:
        return len(value) if value.isascii() else len(encoded(value))
    if type(value) is ListValue:
        return len(value)
    if type(value) is Scope:
        return len(value.ad)
    return UNDEFINED if value is UNDEFINED else ERROR


@FUNCTIONS.strict("split", 1, 2)
def split(scope: Scope, text: Any, separators: Any = ", \t") -> Any:
    """The parts between separators. White space around a separator counts with it; a separator that follows one
    of its own kind has an empty part before it. Empty parts at the ends are dropped.
    """
    if type(text) is not str or type(separators) is not str:
        return ERROR
    scope.spend(len(text) // 4)
    parts: list[str] = []
    begin, last = 0, ""
    for position, letter in enumerate(text):
        if letter not in separators:
            continue
        if position > begin:
            parts.append(text[begin:position])
        elif letter == last:
            parts.append("")
        if not letter.isspace():
            last = letter
        begin = position + 1
    if len(text) > begin:
        parts.append(text[begin:])
    return made(parts)


@FUNCTIONS.strict("splitUserName", 1)
def split_user_name(scope: Scope, text: Any) -> Any:
    """user@domain as { user, domain }."""
    if type(text) is not str:
        return ERROR
    user, _, domain = text.partition("@")
    return made([user, domain])


@FUNCTIONS.strict("splitSlotName", 1)
def split_slot_name(scope: Scope, text: Any) -> Any:
    """slot@machine as { slot, machine }; without @ the slot is empty."""
    if type(text) is not str:
        return ERROR
    slot, at, machine = text.partition("@")
    return made([slot, machine] if at else ["", slot])
