"""The references of an expression, from its text alone: names of attributes, the time, chance, or anything at all.

Names are gathered without asking which of the two ads will answer for them, so that what is said here is never too
little: a value changes only when an attribute of one of these names does, in either ad.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pool.classad import Expr
from pool.classad.names import SCOPE_NAMES, SHADOWED
from pool.classad.nodes import ExprNode, FunctionCall, Paren, Ref, children

#: Functions whose value is not settled by attributes: the time, its zone, the users of this machine.
_TIMED = frozenset(
    {"time", "currenttime", "daytime", "timezoneoffset", "abstime", "formattime", "splittime", "userhome", "usermap"}
)
_CHANCE = frozenset({"random"})
_HIDING = frozenset({"eval"})
_REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class ExprReferences:
    """The references of an expression.

    Attributes:
        names: folded names of attributes, of either ad; names of scopes are among them.
        timed: the value may differ from one moment to the next.
        chance: it draws a number.
        hidden: it may look at attributes that its text does not name.
    """

    names: frozenset[str] = frozenset()
    timed: bool = False
    chance: bool = False
    hidden: bool = False

    def __or__(self, other: ExprReferences) -> ExprReferences:
        return ExprReferences(
            self.names | other.names,
            self.timed or other.timed,
            self.chance or other.chance,
            self.hidden or other.hidden,
        )


NOTHING = ExprReferences()

_looks: dict[Expr, ExprReferences] = {}


def references_of(held: Any) -> ExprReferences:
    """The references in the text of an expression; none for a plain value."""
    if type(held) is not Expr:
        return NOTHING
    found = _looks.get(held)
    if found is None:
        if len(_looks) >= _REMEMBERED:
            _looks.clear()
        found = _looks[held] = _visible_names(held.node)
    return found


def attributes(names: frozenset[str]) -> frozenset[str]:
    """Those of the names that ads are asked for: names of scopes only where some ad has an attribute of that name."""
    scopes = names & SCOPE_NAMES
    return names - scopes | (scopes & SHADOWED) if scopes else names


def references_of_all(expressions: Iterable[Any]) -> ExprReferences:
    """The references of all of these together."""
    found = NOTHING
    for held in expressions:
        if type(held) is Expr:
            found = found | references_of(held)
    return found


def _visible_names(node: ExprNode) -> ExprReferences:
    names: set[str] = set()
    calls: set[str] = set()
    hidden = False
    waiting = [node]
    while waiting:
        below = waiting.pop()
        if isinstance(below, Ref):
            key = below.name.lower()
            names.add(key)
            if key in SCOPE_NAMES:
                hidden = True  # an ad as a value: whoever gets it may look up anything in it
            base = below.base
            while isinstance(base, Paren):
                base = base.inner
            while isinstance(base, Ref) and base.name.lower() in SCOPE_NAMES:
                names.add(base.name.lower())
                base = base.base
            if base is not None:
                waiting.append(base)
            continue
        if isinstance(below, FunctionCall):
            calls.add(below.name.lower())
        waiting.extend(children(below))
    timed = "currenttime" in names or not calls.isdisjoint(_TIMED)
    return ExprReferences(
        frozenset(names), timed, not calls.isdisjoint(_CHANCE), hidden or not calls.isdisjoint(_HIDING)
    )
