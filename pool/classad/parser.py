"""Tokens to syntax tree: operator precedence over a token list, one frame or two for each bracket.

Grammar, loosest first; each line's operators group from the left unless said otherwise:

    test ? yes : no          groups from the right
    ||    &&    |    ^    &    == != =?= =!= (is, isnt)    < <= > >=    << >> >>>    + -    * / %
    - + ! ~                  prefix
    a.b  a[i]  a ?: b        postfix; the right side of ?: is a postfix expression too, so `a ?: -b` is refused

Whatever follows a complete conditional at the top level is ignored, as the reference does in its daemons.
`absTime("...")` and `relTime("...")` of one literal string become literals here.
"""

from __future__ import annotations

from typing import Any

from pool.classad import timetext
from pool.classad.errors import ParseError
from pool.classad.lexer import tokens
from pool.classad.nodes import (
    AdNode,
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
)
from pool.classad.values import ERROR, UNDEFINED

MAX_NESTING = 110
"""Most brackets within brackets that are read."""

_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!=", "=?=", "=!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>", ">>>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_LEVEL = {sign: level for level, signs in enumerate(_LEVELS) for sign in signs}
_PREFIX = frozenset("-+!~")
_CONSTANTS = {"true": True, "false": False, "undefined": UNDEFINED, "error": ERROR}


def parse(text: str, *, old: bool = False) -> ExprNode:
    """The tree of one expression.

    Raises:
        ParseError: naming what was expected and what was found.
    """
    reader = _ExprReader(text, old)
    try:
        node = reader.expression()
    except RecursionError:
        raise ParseError("the expression is nested too deeply") from None
    if not isinstance(node, Conditional):
        reader.expect("end", "an operator or the end of the expression")
    return node


def parse_beginning(text: str, *, old: bool = False) -> ExprNode:
    """The tree of the expression that the text begins with; the rest is ignored (lines of the long form)."""
    try:
        return _ExprReader(text, old).expression()
    except RecursionError:
        raise ParseError("the expression is nested too deeply") from None


def parse_record(text: str) -> AdNode:
    """The tree of one ad written `[ Name = expression; ... ]`."""
    reader = _ExprReader(text, False)
    try:
        reader.expect("[", "'[' to begin an ad")
        node = reader.ad()
    except RecursionError:
        raise ParseError("the ad is nested too deeply") from None
    reader.expect("end", "the end of the ad")
    return node


class _ExprReader:
    __slots__ = ("at", "kinds", "nesting", "positions", "values")

    def __init__(self, text: str, old: bool) -> None:
        self.kinds, self.values, self.positions = tokens(text, old)
        self.at = 0
        self.nesting = 0

    def expect(self, kind: str, what: str) -> Any:
        """Step over a token of this kind and return its value."""
        at = self.at
        if self.kinds[at] != kind:
            raise self.unexpected(what)
        self.at = at + 1
        return self.values[at]

    def unexpected(self, wanted: str) -> ParseError:
        position = self.positions[self.at]
        found = "the end" if self.kinds[self.at] == "end" else repr(self.values[self.at])
        return ParseError(f"expected {wanted} at column {position + 1}, found {found}", position)

    def deeper(self) -> None:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            position = self.positions[self.at]
            raise ParseError(f"more than {MAX_NESTING} brackets within brackets at column {position + 1}", position)

    def expression(self) -> ExprNode:
        test = self.tighter(self.operand(), 0)
        if self.kinds[self.at] != "?":
            return test
        self.at += 1
        self.deeper()
        yes = self.expression()
        self.expect(":", "':' of a conditional")
        no = self.expression()
        self.nesting -= 1
        return Conditional(test, yes, no)

    def tighter(self, left: ExprNode, loosest: int) -> ExprNode:
        """Go on from an operand already read, with operators of at least this level."""
        kinds = self.kinds
        while True:
            level = _LEVEL.get(kinds[self.at])
            if level is None or level < loosest:
                return left
            rest: list[tuple[str, ExprNode]] = []
            while _LEVEL.get(kinds[self.at]) == level:
                sign = kinds[self.at]
                self.at += 1
                right = self.operand()
                following = _LEVEL.get(kinds[self.at])
                if following is not None and following > level:
                    right = self.tighter(right, level + 1)
                rest.append((sign, right))
            left = Chain(left, tuple(rest))

    def operand(self) -> ExprNode:
        """Prefix operators, then a postfix expression."""
        first = self.at
        while self.kinds[self.at] in _PREFIX:
            self.at += 1
        last = self.at
        node = self.postfix()
        for at in range(last - 1, first - 1, -1):
            node = Unary(self.kinds[at], node)
        return node

    def postfix(self) -> ExprNode:
        lefts: list[ExprNode] = []
        while True:
            node = self.primary()
            while True:
                kind = self.kinds[self.at]
                if kind == ".":
                    self.at += 1
                    node = Ref(node, self.expect("name", "an attribute name after '.'"))
                elif kind == "[":
                    self.at += 1
                    self.deeper()
                    node = Subscript(node, self.expression())
                    self.expect("]", "']' after a subscript")
                    self.nesting -= 1
                else:
                    break
            if kind != "?:":
                break
            self.at += 1
            lefts.append(node)
        for left in reversed(lefts):
            node = Elvis(left, node)
        return node

    def primary(self) -> ExprNode:
        at = self.at
        kind = self.kinds[at]
        self.at = at + 1
        if kind == "name":
            if self.kinds[self.at] == "(":
                return self.call(self.values[at], self.positions[at])
            return Ref(None, self.values[at])
        if kind in ("int", "real", "string"):
            return Literal(self.values[at])
        if kind in _CONSTANTS:
            return Literal(_CONSTANTS[kind])
        if kind == ".":
            return Ref(None, self.expect("name", "an attribute name after '.'"), True)
        if kind == "(":
            self.deeper()
            inner = self.expression()
            self.expect(")", "an operator or ')'")
            self.nesting -= 1
            return Paren(inner)
        if kind == "{":
            return self.list()
        if kind == "[":
            return self.ad()
        self.at = at
        raise self.unexpected("an operand")

    def call(self, name: str, position: int) -> ExprNode:
        self.at += 1
        arguments: list[ExprNode] = []
        self.deeper()
        if self.kinds[self.at] != ")":
            while True:
                arguments.append(self.expression())
                if self.kinds[self.at] not in (",", ";"):
                    break
                self.at += 1
        self.expect(")", f"',' or ')' in the arguments of {name}")
        self.nesting -= 1
        if len(arguments) == 1 and isinstance(arguments[0], Literal) and isinstance(arguments[0].value, str):
            folded = timetext.FOLDED.get(name.lower())
            if folded is not None:
                value = folded(arguments[0].value)
                if value is None:
                    unread = arguments[0].value
                    raise ParseError(f"{name} cannot read {unread!r} at column {position + 1}", position)
                return TimeLiteral(value)
        return FunctionCall(name, tuple(arguments))

    def list(self) -> ExprNode:
        items: list[ExprNode] = []
        self.deeper()
        if self.kinds[self.at] != "}":
            while True:
                items.append(self.expression())
                if self.kinds[self.at] != ",":
                    break
                self.at += 1
        self.expect("}", "',' or '}' in a list")
        self.nesting -= 1
        return ListNode(tuple(items))

    def ad(self) -> AdNode:
        items: list[tuple[str, ExprNode]] = []
        self.deeper()
        while True:
            separated = self.kinds[self.at] == ";"
            while self.kinds[self.at] == ";":
                self.at += 1
            if self.kinds[self.at] == "]" and (items or not separated):
                break
            name = self.expect("name", "an attribute name or ']'")
            self.expect("=", f"'=' after {name}")
            items.append((name, self.expression()))
            if self.kinds[self.at] not in (";", "]"):
                raise self.unexpected("';' or ']' in an ad")
        self.at += 1
        self.nesting -= 1
        return AdNode(tuple(items))
