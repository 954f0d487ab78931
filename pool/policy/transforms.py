r"""Job transforms: what an administrator changes in each job's ad as it comes in, in HTCondor's language.

    REQUIREMENTS expression         only jobs that make it true; the first line of a transform, where it has one
    SET Name expression             whatever the job says
    DEFAULT Name expression         where it says nothing
    EVALSET Name expression         the value that the expression has now
    COPY Name Other                 also for the names that a pattern fits: COPY /Request(.*)/ Asked\1
    RENAME Name Other               so do RENAME
    DELETE Name                     and DELETE

`$(MY.Name)` in a line stands for what the job says of Name. Pure: a transform and an ad in wire form give an ad.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pool.classad import ClassAd, Expr, ParseError, evaluate, parse_expr
from pool.classad.patterns import Pattern, PatternError, Spans, compiled_pattern
from pool.errors import PoolError
from pool.jobs.description.expressions import ExpressionError, wire_of
from pool.jobs.privacy import canonical

WireAd = dict[str, Any]
#: The arguments of each statement: a name (or a pattern, where it may be one), and then.
_TAKES = {
    "SET": "Name expression",
    "DEFAULT": "Name expression",
    "EVALSET": "Name expression",
    "COPY": "Name Other",
    "RENAME": "Name Other",
    "DELETE": "Name",
}
_PATTERNED = frozenset({"COPY", "RENAME", "DELETE"})
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MY = re.compile(r"\$\(MY\.([A-Za-z][A-Za-z0-9_]*)\)", re.IGNORECASE)
_GROUP = re.compile(r"\\([0-9])")
#: The attributes that a transform never changes (lower case).
NOT_THEIRS = frozenset({"jobstatus", "clusterid", "procid"})


@dataclass(frozen=True, slots=True)
class Statement:
    """One line of a transform.

    Attributes:
        name: the attribute, or where `pattern` is given the text of it.
        rest: the expression, or the other name.
    """

    verb: str
    name: str
    rest: str
    pattern: Pattern | None = None


@dataclass(frozen=True, slots=True)
class Transform:
    """One transform: which jobs it changes, and how."""

    name: str
    requirements: Expr | None
    statements: tuple[Statement, ...]
    refused: frozenset[str] = NOT_THEIRS

    def apply(self, ad: WireAd, now: float) -> WireAd:
        """The ad as it is after this transform; the one that was given where that changes nothing.

        Raises:
            PoolError: what a line becomes with the job's values is no expression.
        """
        if self.requirements is not None:
            met = evaluate(self.requirements, ClassAd.from_wire(ad), None, now)
            if not isinstance(met, (bool, int, float)) or not met:
                return ad
        changed = _ChangingAd(ad)
        for one in self.statements:
            self._apply_step(one, changed, now)
        return changed.wire

    def _apply_step(self, one: Statement, ad: _ChangingAd, now: float) -> None:
        if one.verb in _PATTERNED:
            for name, other in self._chosen(one, ad):
                if one.verb != "DELETE":
                    ad.set_value(other, ad.wire[name])
                if one.verb != "COPY" and name.lower() != other.lower():
                    del ad.wire[name]
        elif one.verb != "DEFAULT" or ad.spelled(one.name) is None:
            text = _MY.sub(lambda found: ad.text(found[1]), one.rest)
            try:
                value = wire_of(text)
                if one.verb == "EVALSET":
                    value = _literal(evaluate(parse_expr(text, syntax="old"), ClassAd.from_wire(ad.wire), None, now))
            except (ExpressionError, ParseError) as error:
                raise PoolError(
                    f"cannot queue: the transform {self.name} gives {one.name} no expression: {text[:200]}",
                    hint="a transform of this schedd's administrator",
                ) from error
            ad.set_value(one.name, value)

    def _chosen(self, one: Statement, ad: _ChangingAd) -> list[tuple[str, str]]:
        """The attributes a statement is about, as they are spelled, each with its other name."""
        if one.pattern is None:
            spelled = ad.spelled(one.name)
            return [] if spelled is None else [(spelled, one.rest)]
        found = []
        for name in ad.wire:
            spans = one.pattern.search(name, lambda steps: None)
            if spans is None or name.lower() in self.refused:
                continue
            other = _filled(one.rest, name.encode(), spans)
            if one.verb == "DELETE" or (_NAME.fullmatch(other) and other.lower() not in self.refused):
                found.append((name, other))
        return found


class _ChangingAd:
    """An ad that is being changed; names are the same in either case."""

    def __init__(self, wire: Mapping[str, Any]) -> None:
        self.wire = dict(wire)

    def spelled(self, name: str) -> str | None:
        """How an attribute is spelled; None where there is none."""
        if name in self.wire:
            return name
        folded = name.lower()
        return next((one for one in self.wire if one.lower() == folded), None)

    def set_value(self, name: str, value: Any) -> None:
        self.wire[self.spelled(name) or canonical(name)] = value

    def text(self, name: str) -> str:
        """The text for `$(MY.name)`: a string without its quotes, another value as it is written."""
        spelled = self.spelled(name)
        if spelled is None:
            return ""
        value = self.wire[spelled]
        return value if isinstance(value, str) else str(ClassAd.from_wire({spelled: value})[spelled].text)


def read_transform(name: str, text: str, refused: Iterable[str], expand: Callable[[str], str]) -> Transform:
    """A transform from its text.

    Args:
        refused: attributes (lower case) that are not an administrator's to change.
        expand: replaces the configuration's macros in a line; `$(MY.Name)` stays.

    Raises:
        PoolError: a line that is none; it is shown, with the setting.
    """
    where, not_theirs = f"JOB_TRANSFORM_{name}", NOT_THEIRS | frozenset(refused)
    requirements: Expr | None = None
    statements: list[Statement] = []
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        line = expand(line)
        verb, _, rest = line.partition(" ")
        verb, rest = verb.upper(), rest.strip()
        if verb == "NAME":
            continue
        if verb == "REQUIREMENTS":
            if requirements is not None:
                raise PoolError(f"{where}: it has two REQUIREMENTS", hint="join them with &&")
            requirements = _expression(where, line, rest)
        elif verb in _TAKES:
            statements.append(_statement(where, line, verb, rest, not_theirs))
        else:
            raise PoolError(
                f"{where}: there is no statement {verb[:40]} here: {line[:100]}",
                hint=f"there are REQUIREMENTS, {', '.join(_TAKES)}",
            )
    if not statements:
        raise PoolError(f"{where} changes nothing", hint=f"a line of it begins with {', '.join(_TAKES)}")
    return Transform(name, requirements, tuple(statements), not_theirs)


def _filled(text: str, name: bytes, spans: Spans) -> str:
    r"""A new name, with what a pattern's groups have found in the old one at \0 to \9."""
    groups = [name[spans[i] : spans[i + 1]] if spans[i] >= 0 else b"" for i in range(0, len(spans), 2)]
    found = [group.decode(errors="replace") for group in groups] + [""] * 10
    return _GROUP.sub(lambda mark: found[int(mark[1])], text)


def _statement(where: str, line: str, verb: str, rest: str, refused: frozenset[str]) -> Statement:
    pattern: Pattern | None = None
    if rest.startswith("/") and verb in _PATTERNED:
        name, slash, more = rest[1:].rpartition("/")
        try:
            if not slash or not name:
                raise PatternError("it has no end")
            pattern = compiled_pattern(name, "i")
        except PatternError as error:
            raise PoolError(f"{where}: no pattern in: {line[:100]}: {error}") from error
    else:
        name, _, more = rest.partition(" ")
    more = more.strip()
    takes = _TAKES[verb]
    fits = (pattern is not None or _NAME.fullmatch(name)) and bool(more) == (" " in takes)
    if not fits:
        raise PoolError(f"{where}: {line[:100]} is not {verb} {takes}")
    for one in (name, more if verb in ("COPY", "RENAME") else ""):
        if one.lower() in refused or one.startswith("_"):
            raise PoolError(f"{where}: {one} is the schedd's to say: {line[:100]}", hint="leave the line out")
    if verb in ("COPY", "RENAME") and pattern is None and not _NAME.fullmatch(more):
        raise PoolError(f"{where}: {more[:60]!r} is no name of an attribute: {line[:100]}")
    if verb not in _PATTERNED and not _MY.search(more):
        _expression(where, line, more)
    return Statement(verb, name, more, pattern)


def _expression(where: str, line: str, text: str) -> Expr:
    try:
        return parse_expr(text, syntax="old")
    except ParseError as error:
        raise PoolError(f"{where}: no expression in: {line[:100]}: {error}") from error


def _literal(value: Any) -> Any:
    """A value in wire form."""
    ad = ClassAd()
    ad["Value"] = value
    return ad.to_wire()["Value"]
