"""Which attributes an expression needs.

`mentioned` lists the names in the text itself. `internal` and `external` follow the expression through an ad. Internal
names are the ad's attributes that it needs, directly or through others. External names are those that the ad lacks;
names of the other side of a match come with their scope (`TARGET.Memory`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pool.classad.errors import EvaluationFailed
from pool.classad.expr import Expr
from pool.classad.names import SCOPE_NAMES
from pool.classad.nodes import AdNode, ExprNode, Ref, children
from pool.classad.printing import print_node
from pool.classad.scope import Scope, outermost
from pool.classad.values import UNDEFINED

if TYPE_CHECKING:
    from pool.classad.ad import ClassAd

_DEEPEST = 200


def mentioned(node: ExprNode) -> Iterator[str]:
    """Names of attributes in the text, as spelled; names of scopes are left out. Of `a.b` both are given, of
    `TARGET.b` the latter.
    """
    waiting = [node]
    while waiting:
        below = waiting.pop()
        if isinstance(below, Ref) and not (below.base is None and below.name.lower() in SCOPE_NAMES):
            yield below.name
        waiting.extend(children(below))


def internal(expr: Expr, ad: ClassAd) -> frozenset[str]:
    """The ad's own attributes that the expression needs, spelled as in the expressions that need them. Empty
    when the expression is beyond the bounds of evaluation.
    """
    walk = _Walk(Scope(ad, None, None), follow_scopes=True)
    return _collected(walk, expr)


def external(expr: Expr, ad: ClassAd, *, full: bool = True) -> frozenset[str]:
    """The names that the expression needs and the ad does not answer for.

    Args:
        full: True for `TARGET.Memory`; False for the outermost name only (`TARGET`).
    """
    walk = _Walk(Scope(ad, None, None), follow_scopes=False, full=full)
    return _collected(walk, expr)


def external_names(expr: Expr, scope: Scope) -> list[str]:
    """As `external`, from within an evaluation; in the order that the reference prints them."""
    walk = _Walk(scope, follow_scopes=False)
    walk.node(expr.node, scope, 0)
    return sorted(walk.outside.values(), key=str.lower)


def _collected(walk: _Walk, expr: Expr) -> frozenset[str]:
    try:
        walk.node(expr.node, walk.top, 0)
    except (EvaluationFailed, RecursionError):
        pass
    finally:
        walk.top.leave()
    return frozenset((walk.inside if walk.follow_scopes else walk.outside).values())


class _Walk:
    """One walk through expressions, gathering names by their keys (the first spelling stays)."""

    __slots__ = ("follow_scopes", "full", "inside", "outside", "scope_only", "seen", "top")

    def __init__(self, top: Scope, *, follow_scopes: bool, full: bool = True) -> None:
        self.top = top
        self.follow_scopes = follow_scopes
        self.full = full
        self.inside: dict[str, str] = {}
        self.outside: dict[str, str] = {}
        self.seen: set[tuple[int, str, bool]] = set()
        self.scope_only = False

    def node(self, node: ExprNode, scope: Scope, depth: int) -> None:
        self.top.spend(1)
        if depth > _DEEPEST:
            raise EvaluationFailed("too deep")
        if isinstance(node, Ref):
            self.reference(node, scope, depth)
            return
        if self.scope_only and isinstance(node, AdNode):
            return
        for below in children(node):
            self.node(below, scope, depth + 1)

    def reference(self, node: Ref, scope: Scope, depth: int) -> None:
        start = outermost(scope) if node.absolute else scope
        if node.base is not None:
            if self.follow_scopes:
                before, self.scope_only = self.scope_only, True
                self.node(node.base, scope, depth + 1)
                self.scope_only = before
            value = _evaluated(node.base, scope)
            if value is UNDEFINED:
                self.beyond(node, scope, depth)
                return
            if type(value) is not Scope:
                return
            start = value
        self.named(node.name, start, depth)

    def beyond(self, node: Ref, scope: Scope, depth: int) -> None:
        """A selection from something that the ad does not know."""
        if self.follow_scopes or node.base is None:
            return
        if self.full:
            name = print_node(node.base) + "." + node.name
            self.outside.setdefault(name.lower(), name)
        else:
            self.node(node.base, scope, depth + 1)

    def named(self, name: str, start: Scope, depth: int) -> None:
        key = name.lower()
        current: Scope | None = start
        while current is not None:
            found = current.get(key)
            if found is not None:
                if current is self.top or current.ad is self.top.ad:
                    self.inside.setdefault(key, name)
                mark = (id(current.ad), key, self.scope_only)
                if type(found) is Expr and mark not in self.seen:
                    self.seen.add(mark)
                    self.node(found.node, current, depth + 1)
                return
            if key in ("my", "self", "parent", "root", "toplevel", "currenttime"):
                return
            current = current.outer
        self.outside.setdefault(key, name)


def _evaluated(node: ExprNode, scope: Scope) -> Any:
    from pool.classad.compiling import compile_node

    return compile_node(node)(scope)
