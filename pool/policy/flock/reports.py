"""Checks what another pool's startds report to our schedds. It may report nothing else.

    ended           a run has ended: the report of its startd
    report          about a running job: started, suspended, its usage, saved ...
    revoked         a claim is over
    wait_for_parts  a part of a job on several machines can begin, with its card (`cards`)

Each field has a type and a range. A field that is not named here is dropped, since our schedd would only keep it in its
events and its queue. One wrong field makes the whole report invalid.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from pool.errors import PoolError
from pool.jobs.reasons import Reason
from pool.policy.flock.cards import BadCard, checked_card

Wire = dict[str, Any]
#: Characters of a text from another pool.
LONGEST_TEXT = 8192
#: The largest number of seconds, bytes or KiB.
MOST = 1e15
#: Exit statuses and signals are smaller than this.
WIDEST = 2**32
#: Lines of a list of reasons, processes of a job, names in a mapping of numbers.
MOST_LINES, MOST_PROCESSES, MOST_NAMES = 100, 1000, 50
#: Reports about one running job that are taken at once, and seconds between those that follow.
BURST, EACH = 30.0, 1.0
#: Jobs whose reports are counted.
MOST_PACED = 10_000


#: Control characters, and those of them that no text has; signs that turn the direction of a line among them.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class BadReport(PoolError):
    """A report of another pool makes no sense."""


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST


def _status(value: Any) -> bool:
    return value is None or (type(value) is int and abs(value) < WIDEST)


def _text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _flag(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MOST_LINES and all(map(_text, value)) and None not in value


def _name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 100


def _numbers(value: Any) -> bool:
    """A mapping of names to numbers, booleans or nothing."""
    if not isinstance(value, Mapping) or len(value) > MOST_NAMES:
        return False
    return all(_name(name) and (one is None or isinstance(one, bool) or _number(one)) for name, one in value.items())


def _words(value: Any) -> bool:
    """A mapping of names to texts."""
    if value is None:
        return True
    return isinstance(value, Mapping) and len(value) <= MOST_NAMES and all(map(_name, value)) and _all(value, _text)


def _all(value: Mapping[Any, Any], fits: Callable[[Any], bool]) -> bool:
    return all(map(fits, value.values()))


def _plain(value: Any, depth: int = 4) -> bool:
    """Nested mappings and lists of small values, such as counts. Their readers check each value."""
    if isinstance(value, Mapping):
        small = depth > 0 and len(value) <= MOST_PROCESSES and all(map(_name, value))
        return small and all(_plain(one, depth - 1) for one in value.values())
    if isinstance(value, list):
        return depth > 0 and len(value) <= MOST_PROCESSES and all(_plain(one, depth - 1) for one in value)
    if isinstance(value, str):
        return len(value) <= LONGEST_TEXT
    return value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))


_ENDED: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("user_cpu", "system_cpu", "wall", "max_rss", "started", "sent", "received", "suspended"), _number),
    **dict.fromkeys(("code", "signal", "subcode", "checkpoint"), _status),
    **dict.fromkeys(
        ("cause", "why", "reason", "said", "where", "step", "error", "output_error", "checkpoint_error", "singletons"),
        _text,
    ),
    **dict.fromkeys(
        ("core", "released", "retry", "unfit", "started_event", "checkpointed", "keeper_lost", "taken_over"), _flag
    ),
    "rank_failed": _flag,
    "costs": _numbers,
    "ends": _plain,
    "network": _plain,
}
_REPORTS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "started": {"started": _number},
    "suspended": {"why": _text},
    "continued": {},
    "checkpointed": {},
    "saved": {},
    "leaving": {"nearer": _words, "last": _words},
    "unresumable": {"why": _texts},
    "usage": dict.fromkeys(("user_cpu", "system_cpu", "max_rss", "rss", "processes", "wall"), _number),
}


def checked_words(verb: str, params: Wire) -> Wire:
    """The checked parameters of a call from another pool's startd to our schedd; unknown fields are dropped.

    Raises:
        BadReport: they make no sense.
    """
    if verb == "ended":
        return {**_only(params, "claim", "job", "run"), "report": _fields(_mapping(params, "report"), _ENDED)}
    if verb == "revoked":
        reason = _fields(_mapping(params, "reason"), _REASON)
        try:
            Reason.from_wire(reason)
        except (LookupError, TypeError, ValueError) as error:
            raise BadReport("its reason is of no known kind") from error
        return {**_only(params, "claim"), "reason": reason}
    if verb == "wait_for_parts":
        try:
            return {**_only(params, "claim", "run"), "card": checked_card(params.get("card"))}
        except BadCard as error:
            raise BadReport(error.message) from error
    if verb == "report":
        kind, data = params.get("kind"), _mapping(params, "data")
        if not isinstance(kind, str) or kind not in _REPORTS:
            raise BadReport(f"there is no report {kind!r:.60}")
        told = _fields(data, {**_REPORTS[kind], "network": _plain})
        if kind == "saved":
            if not _numbers(data):
                raise BadReport("the costs of a checkpoint are no numbers")
            told = dict(data)
        return {**_only(params, "claim", "run"), "kind": kind, "data": told}
    return params


_REASON: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("family", "text", "hint"), _text),
    "kind": lambda value: _text(value) or _status(value),
    "subcode": _status,
}


def _only(params: Wire, *names: str) -> Wire:
    return {name: params[name] for name in names if name in params}


def _mapping(params: Wire, name: str) -> Mapping[Any, Any]:
    value = params.get(name)
    if not isinstance(value, Mapping):
        raise BadReport(f"its {name} is no mapping")
    return value


def _fields(said: Mapping[Any, Any], fits: Mapping[str, Callable[[Any], bool]]) -> Wire:
    found = {name: said[name] for name in fits if name in said}
    for name, value in found.items():
        if not fits[name](value):
            raise BadReport(f"its {name} is {value!r:.60}")
    return {name: _short(value) for name, value in found.items()}


def plain_line(text: str, most: int = 500) -> str:
    """A text of another pool as it may stand in a line of a terminal: short, and without control characters."""
    return " ".join(_CONTROL.sub(" ", text[:most]).split())


def _short(value: Any) -> Any:
    """A text, or the texts of a list or a mapping, no longer than LONGEST_TEXT, without what steers a terminal."""
    if isinstance(value, str):
        return _STEERING.sub(" ", value[:LONGEST_TEXT])
    if isinstance(value, list):
        return [_short(one) for one in value]
    return {name: _short(one) for name, one in value.items()} if isinstance(value, dict) else value


class ReportPace:
    """Limits the rate of reports about each running job, since each may become an event of its user."""

    def __init__(self) -> None:
        self._spent: dict[str, tuple[float, float]] = {}

    def admits(self, claim: str, now: float) -> bool:
        """Whether one more report about the job on a claim is taken.

        Args:
            now: seconds.
        """
        spent, last = self._spent.pop(claim, (0.0, now))
        spent = max(0.0, spent - (now - last) / EACH)
        fits = spent < BURST
        self._spent[claim] = (spent + 1.0 if fits else spent, now)
        if len(self._spent) > MOST_PACED:
            del self._spent[next(iter(self._spent))]  # the one without a report for the longest time
        return fits
