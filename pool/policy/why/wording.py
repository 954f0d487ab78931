"""Conditions as their user wrote them: `request_memory 64 GB` rather than the clause that submitting made of it.

A submit file's `request_memory` comes to the matchmaker twice: as a clause of the job's Requirements and as one of the
machine's. Both are known here by their form, and have the same *key*, so that an explanation counts them once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pool.classad import ClassAd, Expr
from pool.policy.flock.shown import GUEST_CONDITIONS

#: Amounts are shown in units of 1024 from the unit that the resource is kept in.
_SIZES = {"memory": 1, "disk": 0}
_UNITS = ("KB", "MB", "GB", "TB", "PB")
#: A clause is shown with at most so many characters.
LONGEST = 120

_SQUEEZE = re.compile(r"[\s()]+")
_MADE = (
    re.compile(r"(?:versionge.*\|\|)?target\.(\w+)>=(?:my\.)?request\1", re.DOTALL),
    re.compile(r"countmatchesmy\.require(\w+),target\.available\1>=request\1"),
    re.compile(r"regexprequest(\w+),target\.\1"),
    re.compile(r"target\.request(\w+)\?:[0-9.]+<=(?:my\.)?\1(?:\?:0)?"),
)


@dataclass(frozen=True, slots=True)
class Wording:
    """A clause for people.

    Attributes:
        key: equal for clauses that ask for the same thing.
        text: what is shown.
        resource: the resource whose request this is, in lower case; empty for any other clause.
    """

    key: str
    text: str
    resource: str = ""


def wording(clause: str, job: ClassAd) -> Wording:
    """How a clause of a job's Requirements, or of a machine's, is shown."""
    resource = requested(clause)
    if resource:
        return Wording(f"request_{resource}", request_text(resource, job), resource)
    shown = _FOR_GUESTS.get(_squeezed(clause)) or shorten(bare(clause))
    return Wording(bare(clause), shown)


def requested(clause: str) -> str:
    """The resource (lower case) whose request a clause stands for; empty when it is another clause."""
    squeezed = _squeezed(clause)
    for made in _MADE:
        found = made.fullmatch(squeezed)
        if found:
            return found[1]
    return ""


def _squeezed(clause: str) -> str:
    return _SQUEEZE.sub("", clause[:2000]).lower()


#: The conditions of a machine that another pool lends.
_FOR_GUESTS = {_squeezed(condition): words for condition, words in GUEST_CONDITIONS}


def request_text(resource: str, job: ClassAd) -> str:
    """`request_memory 64 GB`, or the expression that the job has there."""
    name = f"request_{resource}"
    value = job.value(f"Request{resource}", None)
    if value is not None and not _is_number(value) and not isinstance(value, str):
        value = None
    if value is None:
        held = job.get(f"Request{resource}")
        return f"{name} {shorten(held.text)}" if isinstance(held, Expr) else name
    return f"{name} {amount(resource, value)}"


def amount(attribute: str, value: Any) -> str:
    """A machine's value for people: memory and disk with their units, strings bare."""
    unit = _SIZES.get(attribute.lower())
    if isinstance(value, bool):
        return "true" if value else "false"
    if unit is not None and _is_number(value) and value >= 0:
        return size(float(value), unit)
    if isinstance(value, float):
        return f"{value:g}"
    return shorten(str(value), 60)


def size(value: float, unit: int) -> str:
    """An amount of `_UNITS[unit]` in the largest unit of which there is at least one: 65536 MB is `64 GB`."""
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def bare(clause: str) -> str:
    """A clause in one line, without parentheses that hold the whole of it."""
    text = " ".join(clause.split())
    while text.startswith("(") and _closes(text) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def shorten(text: str, most: int = LONGEST) -> str:
    """A text of other people's in one line, printable, and no longer than that."""
    line = " ".join(text[: most * 4].split())
    clean = line if line.isprintable() else "".join(c if c.isprintable() else "?" for c in line)
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def _closes(text: str) -> int:
    """Where the parenthesis at the beginning is closed; -1 if nowhere."""
    depth = 0
    quoted = False
    previous = ""
    for place, char in enumerate(text):
        if char == '"' and previous != "\\":
            quoted = not quoted
        elif not quoted and char == "(":
            depth += 1
        elif not quoted and char == ")":
            depth -= 1
            if not depth:
                return place
        previous = char
    return -1


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
