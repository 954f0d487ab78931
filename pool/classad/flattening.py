"""Partial evaluation: what an ad by itself decides about an expression is worked out, what the other side of a match
must say stays.

`flatten(Requirements, job)` is an expression over TARGET's attributes only, where that is possible. Two jobs whose
flattened requirements are the same text want the same machines. The value is that of the original for every target,
with two differences, which are the reference's. A clause `true` disappears from a conjunction (so `true && TARGET.x` is
`TARGET.x`). And `TARGET.x && false` is false even where TARGET.x would be an error.
"""

from __future__ import annotations

from pool.classad import operations
from pool.classad.ad import ClassAd, evaluate
from pool.classad.expr import Expr
from pool.classad.functions import TABLE, Strict
from pool.classad.names import SCOPE_NAMES
from pool.classad.nodes import (
    Chain,
    Conditional,
    Elvis,
    ExprNode,
    FunctionCall,
    ListNode,
    Literal,
    Paren,
    Ref,
    Subscript,
    TimeLiteral,
    Unary,
    children,
)
from pool.classad.references import external
from pool.classad.values import ERROR, UNDEFINED, Error, Undefined

_SCALARS = (bool, int, float, str, Undefined, Error)
_VOLATILE = frozenset(
    {"time", "currenttime", "daytime", "timezoneoffset", "random", "abstime", "formattime", "eval", "debug", "userhome"}
)
_DEEPEST = 50


def flatten(expr: Expr, ad: ClassAd, *, inline: bool = False) -> Expr:
    """The expression with everything worked out that the ad decides.

    Args:
        inline: put an attribute's own flattened expression in place of its name where it has no value yet.
    """
    return Expr(_Flattening(ad, inline).node(expr.node))


def _known(node: ExprNode) -> bool:
    return type(node) is Literal and isinstance(node.value, _SCALARS)


def _value(node: ExprNode) -> object:
    assert isinstance(node, Literal)
    return node.value


class _Flattening:
    __slots__ = ("active", "ad", "inline")

    def __init__(self, ad: ClassAd, inline: bool) -> None:
        self.ad = ad
        self.inline = inline
        self.active: set[str] = set()

    def node(self, node: ExprNode) -> ExprNode:
        if isinstance(node, Ref):
            return self.reference(node)
        if isinstance(node, Chain):
            return self.logic(node) if node.rest[0][0] in ("&&", "||") else self.chain(node)
        if isinstance(node, Paren):
            inner = self.node(node.inner)
            return inner if _known(inner) else Paren(inner)
        if isinstance(node, Unary):
            operand = self.node(node.operand)
            if _known(operand):
                return Literal(operations.UNARY[node.sign](_value(operand)))
            return Unary(node.sign, operand)
        if isinstance(node, Conditional):
            return self.conditional(node)
        if isinstance(node, Elvis):
            left, right = self.node(node.left), self.node(node.right)
            if _known(left):
                return right if _value(left) is UNDEFINED else left
            return Elvis(left, right)
        if isinstance(node, FunctionCall):
            return self.call(node)
        if isinstance(node, ListNode):
            return ListNode(tuple(self.node(item) for item in node.items))
        if isinstance(node, Subscript):
            return self.worked_out(node, Subscript(self.node(node.base), self.node(node.index)))
        return node

    def worked_out(self, original: ExprNode, flattened: ExprNode) -> ExprNode:
        """The value of an expression that needs nothing from outside the ad; otherwise what was made of it."""
        expression = Expr(original)
        if external(expression, self.ad) or _unsettled(original):
            return flattened
        value = evaluate(expression, self.ad)
        return Literal(value) if isinstance(value, _SCALARS) else flattened

    def reference(self, node: Ref) -> ExprNode:
        base = node.base
        if base is None and not node.absolute:
            return self.attribute(node, node.name)
        if isinstance(base, Ref) and base.base is None and not base.absolute:
            word = base.name.lower()
            if word in ("my", "self") and word not in self.ad:
                return self.attribute(node, node.name)
            if word in ("target", "other") and word not in self.ad:
                return node
        return self.worked_out(node, node)

    def attribute(self, node: Ref, name: str) -> ExprNode:
        key = name.lower()
        found = self.ad.held(name)
        if found is None or key in SCOPE_NAMES or key in self.active or len(self.active) > _DEEPEST:
            return node
        if not isinstance(found, Expr):
            return Literal(found)
        self.active.add(key)
        flattened = self.node(found.node)
        self.active.discard(key)
        if _known(flattened):
            return flattened
        return Paren(flattened) if self.inline else node

    def conditional(self, node: Conditional) -> ExprNode:
        test = self.node(node.test)
        if not _known(test):
            return Conditional(test, self.node(node.yes), self.node(node.no))
        value = _value(test)
        if isinstance(value, (bool, int, float)):
            return self.node(node.yes if value else node.no)
        return Literal(UNDEFINED if value is UNDEFINED else ERROR)

    def chain(self, node: Chain) -> ExprNode:
        first = self.node(node.first)
        rest = [(sign, self.node(below)) for sign, below in node.rest]
        while rest and _known(first) and _known(rest[0][1]):
            sign, below = rest.pop(0)
            value = operations.binary(sign)(_value(first), _value(below))
            first = Literal(value)
        return Chain(first, tuple(rest)) if rest else first

    def logic(self, node: Chain) -> ExprNode:
        sign = node.rest[0][0]
        decisive = sign == "||"
        kept: list[ExprNode] = []
        for part in (node.first, *[below for _, below in node.rest]):
            flattened = self.node(part)
            if _known(flattened):
                value = _value(flattened)
                if isinstance(value, (bool, int, float)):
                    if bool(value) is decisive:
                        return Literal(decisive)
                    continue
                if not kept and value is not UNDEFINED:
                    return Literal(ERROR)
            kept.append(flattened)
        if not kept:
            return Literal(not decisive)
        if all(_known(part) for part in kept):
            return Literal(UNDEFINED if all(_value(part) is UNDEFINED for part in kept) else ERROR)
        return kept[0] if len(kept) == 1 else Chain(kept[0], tuple((sign, part) for part in kept[1:]))

    def call(self, node: FunctionCall) -> ExprNode:
        entry = TABLE.get(node.name.lower())
        if entry is None:
            return Literal(ERROR)
        if node.name.lower() == "ifthenelse" and len(node.arguments) == 3:
            return self.if_then_else(node)
        if not isinstance(entry, Strict) or node.name.lower() in _VOLATILE:
            return node
        arguments = tuple(self.node(argument) for argument in node.arguments)
        flattened = FunctionCall(node.name, arguments)
        if not all(_known(argument) or isinstance(argument, TimeLiteral) for argument in arguments):
            return self.worked_out(node, flattened)
        value = evaluate(Expr(flattened), self.ad)
        return Literal(value) if isinstance(value, _SCALARS) else flattened

    def if_then_else(self, node: FunctionCall) -> ExprNode:
        test, yes, no = node.arguments
        chosen = self.conditional(Conditional(test, yes, no))
        if isinstance(chosen, Conditional):
            return FunctionCall(node.name, (chosen.test, chosen.yes, chosen.no))
        return chosen


def _unsettled(node: ExprNode) -> bool:
    """Whether the value depends on more than attributes: the time, chance, or whether there is a match (`.Name`)."""
    waiting = [node]
    while waiting:
        below = waiting.pop()
        if isinstance(below, FunctionCall) and below.name.lower() in _VOLATILE:
            return True
        if isinstance(below, Ref) and below.absolute:
            return True
        waiting.extend(children(below))
    return False
