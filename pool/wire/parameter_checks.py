"""The form of a method's parameters, checked before it runs: a caller's mistake is reported to the caller in words.

    @method(Right.SUBMIT, takes={"count": int, "deltas": list | None, "ids": JOB_IDS})

A kind is a type, a union of types, or a `Check`; one that None fits may be left out. Parameters that are not named
pass, so that a newer caller may say more than an older method knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any

from pool.wire.errors import Malformed

_LARGEST = 2**53


@dataclass(frozen=True, slots=True)
class Check:
    """A kind that no type names: what it is called, and what fits it."""

    name: str
    fits: Callable[[Any], bool]


Kind = type | UnionType | Check
Takes = Mapping[str, Kind]
#: Items of a stream that are a word with what belongs to it: by the word, what follows.
Forms = Mapping[str, tuple[Kind, ...]]

_NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
    bytes: "bytes",
    type(None): "nothing",
}


def optional(check: Check) -> Check:
    """The same, or nothing."""
    return Check(f"{check.name} or nothing", lambda value: value is None or check.fits(value))


def _all_of_kind(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(one, kind) for one in value)


def _id(value: Any) -> bool:
    whole = isinstance(value, list) and len(value) in (1, 2) and all(type(part) is int for part in value)
    return whole and all(abs(part) <= _LARGEST for part in value)


def _pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(PATH.fits, value))


JOB_ID = Check("a job id [cluster, process]", lambda value: _id(value) and len(value) == 2)
JOB_IDS = Check(
    "a list of [cluster] and [cluster, process]", lambda value: isinstance(value, list) and all(map(_id, value))
)
NUMBERS = Check("a list of whole numbers", lambda value: _all_of_kind(value, int))
TEXTS = Check("a list of texts", lambda value: _all_of_kind(value, str))
SIZE = Check("a number of bytes", lambda value: type(value) is int and 0 <= value <= _LARGEST)
#: Of a file: whoever sends it makes nothing that runs as somebody else.
MODE = Check("a mode up to 0777", lambda value: type(value) is int and 0 <= value <= 0o777)
PATH = Check("a path", lambda value: isinstance(value, str) and "\0" not in value)
PLACES = Check("a list of [path here, path there]", lambda value: isinstance(value, list) and all(map(_pair, value)))
DIGESTS = Check("a list of bytes", lambda value: _all_of_kind(value, bytes))
MAPPINGS = Check("a list of mappings", lambda value: _all_of_kind(value, dict))


def check(method: str, takes: Takes, params: Mapping[str, Any]) -> None:
    """Look at a call's parameters.

    Raises:
        Malformed: one is missing or of another kind.
    """
    for name, kind in takes.items():
        value = params.get(name)
        if not _fits(value, kind):
            what = "is missing" if name not in params else f"is {_shown(value)}"
            raise Malformed(f"cannot call {method}: {name!r} {what}", hint=f"it takes {described(kind)}")


def check_item(item: Any, forms: Forms) -> list[Any]:
    """Look at an item of a stream that is a word with what belongs to it: ["file", name, mode, size].

    Args:
        forms: by the word, what follows it. More may follow.

    Raises:
        Malformed: it is none of these.
    """
    word = item[0] if isinstance(item, list) and item and isinstance(item[0], str) else None
    kinds = forms.get(word) if word is not None else None
    if kinds is None:
        raise Malformed(f"a stream said {_shown(item if word is None else word)}", hint=f"it takes {', '.join(forms)}")
    if len(item) <= len(kinds) or not all(map(_fits, item[1:], kinds)):
        takes = ", ".join(map(described, kinds))
        raise Malformed(f"a stream said {word!r} with something else than {takes}")
    return list(item)


def _fits(value: Any, kind: Kind) -> bool:
    if isinstance(kind, Check):
        return kind.fits(value)
    if isinstance(value, bool):
        return (isinstance(kind, UnionType) and bool in kind.__args__) or kind is bool
    return isinstance(value, kind) and not (isinstance(value, int | float) and not abs(value) <= _LARGEST)


def described(kind: Kind) -> str:
    """A kind in words."""
    if isinstance(kind, Check):
        return kind.name
    kinds = kind.__args__ if isinstance(kind, UnionType) else (kind,)
    return " or ".join(_NAMES.get(one, one.__name__) for one in kinds)


def _shown(value: Any) -> str:
    plain = isinstance(value, str | int | float | bool)
    return f"{value!r:.60}" if plain else _NAMES.get(type(value), "something else")
