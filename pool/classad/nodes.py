"""The syntax tree: immutable by convention, small, and never deeper than MAX_HEIGHT.

    Literal(value)                     a number, string, boolean, undefined, error, or folded time
    TimeLiteral(value)                 absTime("...") and relTime("...") of a literal string
    Ref(base, name, absolute)          Name, .Name, base.Name
    Unary(sign, operand)               - + ! ~
    Paren(inner)                       kept, because expressions are printed as they were written
    Chain(first, rest)                 first op b op c ...: operators of one precedence, from the left
    Conditional(test, yes, no)         test ? yes : no
    Elvis(left, right)                 left ?: right
    Subscript(base, index)             base[index]
    Call(name, arguments)
    ListNode(items)                    { ... }
    AdNode(items)                      [ Name = ...; ... ], in the order written

A chain is one node however long it is, so that ten thousand `||` clauses are no deeper than two.
"""

from __future__ import annotations

from typing import Any

from pool.classad.errors import ParseError

MAX_HEIGHT = 300
"""Deepest tree that is accepted; recursion over a tree therefore always ends before the interpreter's limit."""


class ExprNode:
    __slots__ = ("height",)
    height: int


def _above(*heights: int) -> int:
    height = 1 + max(heights, default=0)
    if height > MAX_HEIGHT:
        raise ParseError(f"the expression is nested more than {MAX_HEIGHT} levels deep")
    return height


class Literal(ExprNode):
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.height = 1
        self.value = value


class TimeLiteral(Literal):
    """absTime("...") or relTime("...") folded by the parser. A relative time written so counts as a real number,
    though it is printed as a time: the reference's way, on which expressions in the field rely.
    """

    __slots__ = ()


class Ref(ExprNode):
    __slots__ = ("absolute", "base", "name")

    def __init__(self, base: ExprNode | None, name: str, absolute: bool = False) -> None:
        self.height = 1 if base is None else _above(base.height)
        self.base = base
        self.name = name
        self.absolute = absolute


class Unary(ExprNode):
    __slots__ = ("operand", "sign")

    def __init__(self, sign: str, operand: ExprNode) -> None:
        self.height = _above(operand.height)
        self.sign = sign
        self.operand = operand


class Paren(ExprNode):
    __slots__ = ("inner",)

    def __init__(self, inner: ExprNode) -> None:
        self.height = _above(inner.height)
        self.inner = inner


class Chain(ExprNode):
    __slots__ = ("first", "rest")

    def __init__(self, first: ExprNode, rest: tuple[tuple[str, ExprNode], ...]) -> None:
        self.height = _above(first.height, *[node.height for _, node in rest])
        self.first = first
        self.rest = rest


class Conditional(ExprNode):
    __slots__ = ("no", "test", "yes")

    def __init__(self, test: ExprNode, yes: ExprNode, no: ExprNode) -> None:
        self.height = _above(test.height, yes.height, no.height)
        self.test = test
        self.yes = yes
        self.no = no


class Elvis(ExprNode):
    __slots__ = ("left", "right")

    def __init__(self, left: ExprNode, right: ExprNode) -> None:
        self.height = _above(left.height, right.height)
        self.left = left
        self.right = right


class Subscript(ExprNode):
    __slots__ = ("base", "index")

    def __init__(self, base: ExprNode, index: ExprNode) -> None:
        self.height = _above(base.height, index.height)
        self.base = base
        self.index = index


class FunctionCall(ExprNode):
    __slots__ = ("arguments", "name")

    def __init__(self, name: str, arguments: tuple[ExprNode, ...]) -> None:
        self.height = _above(*[node.height for node in arguments])
        self.name = name
        self.arguments = arguments


class ListNode(ExprNode):
    __slots__ = ("items",)

    def __init__(self, items: tuple[ExprNode, ...]) -> None:
        self.height = _above(*[node.height for node in items])
        self.items = items


class AdNode(ExprNode):
    __slots__ = ("items",)

    def __init__(self, items: tuple[tuple[str, ExprNode], ...]) -> None:
        self.height = _above(*[node.height for _, node in items])
        self.items = items


def children(node: ExprNode) -> tuple[ExprNode, ...]:
    """The nodes directly below, in the order they are written."""
    if isinstance(node, Ref):
        return () if node.base is None else (node.base,)
    if isinstance(node, Chain):
        return (node.first, *[below for _, below in node.rest])
    if isinstance(node, Unary):
        return (node.operand,)
    if isinstance(node, Paren):
        return (node.inner,)
    if isinstance(node, Conditional):
        return (node.test, node.yes, node.no)
    if isinstance(node, Elvis):
        return (node.left, node.right)
    if isinstance(node, Subscript):
        return (node.base, node.index)
    if isinstance(node, FunctionCall):
        return node.arguments
    if isinstance(node, ListNode):
        return node.items
    if isinstance(node, AdNode):
        return tuple(below for _, below in node.items)
    return ()


def weight(node: ExprNode) -> int:
    """How many nodes the tree has: what evaluating it once costs."""
    total, waiting = 0, [node]
    while waiting:
        total += 1
        waiting.extend(children(waiting.pop()))
    return total
