"""Where a name is looked up, and how much work is left.

A `Scope` is an ad seen from inside one evaluation: the ad's lookup, the scope around it (for a nested ad), the ad on
the other side of a match, and the root, which carries what the whole evaluation shares. Lookup of a bare name goes
outward through the scopes around; then `my`, `target` and their like; then the other side's ad (the pool's mode of the
reference: an unscoped name falls through to TARGET). A value is evaluated where it was found, never where it was asked
for.

Evil expressions: every expression that is reached through a name pays for its size and its depth, every list
function for its elements, every string for its length. When the budget is gone `EvaluationFailed` ends the whole
evaluation with ERROR. An attribute that depends on itself is UNDEFINED.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pool.classad.errors import EvaluationFailed
from pool.classad.expr import Expr
from pool.classad.names import SCOPE_NAMES
from pool.classad.values import ERROR, UNDEFINED

if TYPE_CHECKING:
    from pool.classad.ad import ClassAd
    from pool.classad.nodes import ExprNode

STEPS = 40_000
"""Work that one evaluation may do, roughly in nodes evaluated; some ten milliseconds."""
ROOM = 560
"""Interpreter frames that one evaluation may be deep."""
MAX_STRING = 1_000_000
"""Longest string that an evaluation may make, in characters."""

Compiled = Callable[["Scope"], Any]


class Scope:
    """An ad in context; as a value it is that ad.

    Attributes:
        get: looks a folded name up in the ad and its chained parents; None when it is not there.
        outer: the scope around a nested ad.
        other: the ad on the other side of the match, for the two outermost scopes only.
        root: the scope that the evaluation began in.
        now, draws, steps, room, active, lost: meaningful in the root only.
    """

    __slots__ = ("active", "ad", "draws", "get", "lost", "now", "other", "outer", "room", "root", "steps")

    def __init__(self, ad: ClassAd, outer: Scope | None, root: Scope | None) -> None:
        self.ad = ad
        self.get: Callable[[str], Any] = ad.own_getter if ad.parent is None else ad.getter()
        self.outer = outer
        self.other: Scope | None = None
        if root is None:
            self.root = self
            self.now: float | None = None
            self.steps = STEPS
            self.room = ROOM
            self.draws = 0
            self.active: set[tuple[int, str]] | None = None
            self.lost: _Lost | None = None
        else:
            self.root = root

    def spend(self, steps: int) -> None:
        """Pay for work; raises EvaluationFailed when the budget is gone."""
        root = self.root
        root.steps -= steps
        if root.steps < 0:
            raise EvaluationFailed("too many steps")

    def leave(self) -> None:
        """End the evaluation that began in this scope: cut the references in a circle, so that no collection of
        garbage is needed to free what the evaluation made.
        """
        del self.root
        self.other = None

    def lose(self) -> None:
        """Find no more names in this scope until the attribute that is being evaluated is done."""
        root = self.root
        root.lost = (self, self.get, self.other, root.lost)
        self.get = _nowhere
        self.other = None


_Lost = tuple[Scope, Callable[[str], Any], "Scope | None", Any]


def _nowhere(key: str) -> None:
    return None


def _recover(root: Scope, before: _Lost | None) -> None:
    """Undo what `lose` did since then."""
    while root.lost is not before and root.lost is not None:
        scope, get, other, previous = root.lost
        scope.get, scope.other, root.lost = get, other, previous


class ListValue:
    """A list as a value: either plain values, or expressions with the scope that the list was met in.

    `items` evaluates the expressions in the scope of whoever asks, as the reference's list functions do; `at`
    (subscripts, results) in the scope the list is from.
    """

    __slots__ = ("compiled", "made", "nodes", "scope", "values")

    def __init__(
        self,
        values: tuple[Any, ...] | None,
        nodes: tuple[ExprNode, ...] = (),
        compiled: tuple[Compiled, ...] = (),
        scope: Scope | None = None,
        made: bool = False,
    ) -> None:
        self.made = made
        self.values = values
        self.nodes = nodes
        self.compiled = compiled
        self.scope = scope

    def __len__(self) -> int:
        return len(self.compiled if self.values is None else self.values)

    def items(self, scope: Scope) -> Iterator[Any]:
        scope.spend(len(self) + 1)
        if self.values is not None:
            yield from self.values
            return
        for one in self.compiled:
            yield one(scope)

    def at(self, index: int) -> Any:
        if self.values is not None:
            return self.values[index]
        assert self.scope is not None
        return self.compiled[index](self.scope)


def made(values: list[Any] | tuple[Any, ...]) -> ListValue:
    """A list of values that a function made."""
    return ListValue(tuple(values), made=True)


class _Missing:
    __slots__ = ()


MISSING = _Missing()
"""The value that `find` returns for a name that no scope knows; never a value of the language."""


def reached(scope: Scope, key: str, found: Any) -> Any:
    """The value of an attribute's expression found in this scope under this key."""
    root = scope.root
    mark = (id(scope.ad), key)
    active = root.active
    if active is None:
        active = root.active = set()
    elif mark in active:
        return UNDEFINED
    compiled = found.compiled or found.compile()
    height = found.height
    root.steps -= found.weight
    root.room -= height
    if root.steps < 0 or root.room < 0:
        raise EvaluationFailed("too many steps or too deep")
    active.add(mark)
    lost = root.lost
    value = compiled(scope)
    if root.lost is not lost:
        _recover(root, lost)
    active.discard(mark)
    root.room += height
    return value


def valued(scope: Scope, key: str, found: Any) -> Any:
    """The value of what an ad holds: a plain value, or an expression evaluated in that ad's scope."""
    return reached(scope, key, found) if type(found) is Expr else found


def outward(scope: Scope, key: str) -> Any:
    """The value of a name looked for in this scope and the ones around it, then among the names of scopes."""
    current: Scope | None = scope
    special = key in SCOPE_NAMES
    while current is not None:
        found = current.get(key)
        if found is not None:
            return valued(current, key, found)
        if special:
            value = _named_scope(current, key)
            if value is not MISSING:
                return value
        elif key == "currenttime":
            return wall_seconds(scope)
        current = current.outer
    return MISSING


def _named_scope(scope: Scope, key: str) -> Any:
    if key in ("my", "self"):
        return scope
    if key == "parent":
        return scope.outer if scope.outer is not None else UNDEFINED
    if key in ("root", "toplevel"):
        return outermost(scope)
    other = scope.other
    if other is None or scope.outer is not None:
        return MISSING
    if key in ("target", "other"):
        return other
    if key == "ad":
        return scope
    return scope.root if key == "left" else (scope.root.other or MISSING)


def outermost(scope: Scope) -> Scope:
    while scope.outer is not None:
        scope = scope.outer
    return scope


def bare(scope: Scope, key: str) -> Any:
    """The value of an unscoped name; UNDEFINED when nobody knows it."""
    value = outward(scope, key)
    if value is MISSING:
        other = scope.other
        if other is None:
            return UNDEFINED
        value = outward(other, key)
        if value is MISSING:
            return UNDEFINED
    return value


def absolute(scope: Scope, key: str) -> Any:
    """The value of `.Name`: looked up in the outermost ad; during a match that is the match, which knows only
    LEFT and RIGHT.
    """
    top = outermost(scope)
    if top.other is not None:
        if key in ("left", "right"):
            return _named_scope(top, key)
        return UNDEFINED
    value = outward(top, key)
    return UNDEFINED if value is MISSING else value


def selected(base: Any, key: str, scope: Scope) -> Any:
    """The value of `base.Name`: in an ad (and outward from it), or of each element of a list."""
    if type(base) is Scope:
        found = base.get(key)
        if found is not None:
            return valued(base, key, found)
        value = outward(base, key)
        return UNDEFINED if value is MISSING else value
    if base is UNDEFINED:
        return UNDEFINED
    if type(base) is ListValue:
        return ListValue(tuple([selected(item, key, scope) for item in base.items(scope)]))
    return ERROR


def wall_seconds(scope: Scope) -> Any:
    """The time of the evaluation in whole seconds; UNDEFINED when the caller gave none."""
    now = scope.root.now
    return UNDEFINED if now is None else int(now)
