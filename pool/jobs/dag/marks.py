"""Numbers that stand in a node's ad for what is known only when it is queued, as PROVISIONAL_CLUSTER does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The macros that a description may name, and the number that stands for each; no other number is likely to be it.
MARKS = {
    "DAG_STATUS": 9007199254740847,
    "FAILED_COUNT": 9007199254740849,
    "DAGManJobId": 9007199254740851,
}
_TEXTS = {name: str(mark) for name, mark in MARKS.items()}
#: All of them begin like this.
_BEGIN = "90071992547408"


def bind_marks(attributes: Mapping[str, Any], values: Mapping[str, int]) -> dict[str, Any]:
    """The attributes with the values where their marks stand."""
    found = {
        name: _bound(value, values)
        for name, value in attributes.items()
        if (_BEGIN in value if type(value) is str else type(value) in (list, int))
    }
    return {**attributes, **found}


def _bound(value: Any, values: Mapping[str, int]) -> Any:
    if isinstance(value, str):
        return _replaced(value, values) if _BEGIN in value else value
    if isinstance(value, list):
        return [_replaced(text, values) if isinstance(text, str) else text for text in value]
    if type(value) is int and value > 2**52:
        return next((values[name] for name, mark in MARKS.items() if mark == value), value)
    return value


def _replaced(text: str, values: Mapping[str, int]) -> str:
    for name, mark in _TEXTS.items():
        text = text.replace(mark, str(values[name]))
    return text
