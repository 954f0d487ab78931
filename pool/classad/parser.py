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

from pool.classad import timetext
from pool.classad.errors import ParseError
from pool.classad.lexer import Token, tokens
from pool.classad.nodes import (
    AdNode,
    Call,
    Chain,
    Conditional,
    Elvis,
    ListNode,
    Literal,
    Node,
    Paren,
    Ref,
    Subscript,
    TimeLiteral,
    Unary,
)
from pool.classad.values import ERROR, UNDEFINED

MAX_NESTING = 150
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


def parse(text: str, *, old: bool = False) -> Node:
    """The tree of one expression.

    Raises:
        ParseError: naming what was expected and what was found.
    """
    reader = _Reader(text, old)
    try:
        node = reader.expression()
    except RecursionError:
        raise ParseError("the expression is nested too deeply") from None
    if not isinstance(node, Conditional):
        reader.expect("end", "an operator or the end of the expression")
    return node


def parse_beginning(text: str, *, old: bool = False) -> Node:
    """The tree of the expression that the text begins with; the rest is ignored (lines of the long form)."""
    try:
        return _Reader(text, old).expression()
    except RecursionError:
        raise ParseError("the expression is nested too deeply") from None


def parse_record(text: str) -> AdNode:
    """The tree of one ad written `[ Name = expression; ... ]`."""
    reader = _Reader(text, False)
    try:
        reader.expect("[", "'[' to begin an ad")
        node = reader.ad()
    except RecursionError:
        raise ParseError("the ad is nested too deeply") from None
    reader.expect("end", "the end of the ad")
    return node


class _Reader:
    __slots__ = ("at", "nesting", "tokens")

    def __init__(self, text: str, old: bool) -> None:
        self.tokens = tokens(text, old)
        self.at = 0
        self.nesting = 0

    def expect(self, kind: str, what: str = "") -> Token:
        token = self.tokens[self.at]
        if token.kind != kind:
            raise self.unexpected(what or f"'{kind}'")
        self.at += 1
        return token

    def unexpected(self, wanted: str) -> ParseError:
        token = self.tokens[self.at]
        found = "the end" if token.kind == "end" else f"{token.value!r}"
        return ParseError(f"expected {wanted} at column {token.position + 1}, found {found}", token.position)

    def deeper(self) -> None:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            position = self.tokens[self.at].position
            raise ParseError(f"more than {MAX_NESTING} brackets within brackets at column {position + 1}", position)

    def expression(self) -> Node:
        test = self.tighter(self.operand(), 0)
        if self.tokens[self.at].kind != "?":
            return test
        self.at += 1
        self.deeper()
        yes = self.expression()
        self.expect(":", "':' of a conditional")
        no = self.expression()
        self.nesting -= 1
        return Conditional(test, yes, no)

    def tighter(self, left: Node, loosest: int) -> Node:
        """Go on from an operand already read, with operators of at least this level."""
        kinds = self.tokens
        while True:
            level = _LEVEL.get(kinds[self.at].kind)
            if level is None or level < loosest:
                return left
            rest: list[tuple[str, Node]] = []
            while _LEVEL.get(kinds[self.at].kind) == level:
                sign = kinds[self.at].kind
                self.at += 1
                right = self.operand()
                following = _LEVEL.get(kinds[self.at].kind)
                if following is not None and following > level:
                    right = self.tighter(right, level + 1)
                rest.append((sign, right))
            left = Chain(left, tuple(rest))

    def operand(self) -> Node:
        """Prefix operators, then a postfix expression."""
        first = self.at
        while self.tokens[self.at].kind in _PREFIX:
            self.at += 1
        last = self.at
        node = self.postfix()
        for at in range(last - 1, first - 1, -1):
            node = Unary(self.tokens[at].kind, node)
        return node

    def postfix(self) -> Node:
        lefts: list[Node] = []
        while True:
            node = self.primary()
            while True:
                kind = self.tokens[self.at].kind
                if kind == ".":
                    self.at += 1
                    node = Ref(node, self.expect("name", "an attribute name after '.'").value)
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

    def primary(self) -> Node:
        token = self.tokens[self.at]
        kind = token.kind
        self.at += 1
        if kind == "name":
            if self.tokens[self.at].kind == "(":
                return self.call(token)
            return Ref(None, token.value)
        if kind in ("int", "real", "string"):
            return Literal(token.value)
        if kind in _CONSTANTS:
            return Literal(_CONSTANTS[kind])
        if kind == ".":
            return Ref(None, self.expect("name", "an attribute name after '.'").value, True)
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
        self.at -= 1
        raise self.unexpected("an operand")

    def call(self, name: Token) -> Node:
        self.at += 1
        arguments: list[Node] = []
        self.deeper()
        if self.tokens[self.at].kind != ")":
            while True:
                arguments.append(self.expression())
                if self.tokens[self.at].kind not in (",", ";"):
                    break
                self.at += 1
        self.expect(")", f"',' or ')' in the arguments of {name.value}")
        self.nesting -= 1
        if len(arguments) == 1 and isinstance(arguments[0], Literal) and isinstance(arguments[0].value, str):
            folded = timetext.FOLDED.get(name.value.lower())
            if folded is not None:
                value = folded(arguments[0].value)
                if value is None:
                    raise ParseError(
                        f"{name.value} cannot read {arguments[0].value!r} at column {name.position + 1}",
                        name.position,
                    )
                return TimeLiteral(value)
        return Call(name.value, tuple(arguments))

    def list(self) -> Node:
        items: list[Node] = []
        self.deeper()
        if self.tokens[self.at].kind != "}":
            while True:
                items.append(self.expression())
                if self.tokens[self.at].kind != ",":
                    break
                self.at += 1
        self.expect("}", "',' or '}' in a list")
        self.nesting -= 1
        return ListNode(tuple(items))

    def ad(self) -> AdNode:
        items: list[tuple[str, Node]] = []
        self.deeper()
        while True:
            separated = self.tokens[self.at].kind == ";"
            while self.tokens[self.at].kind == ";":
                self.at += 1
            if self.tokens[self.at].kind == "]" and (items or not separated):
                break
            name = self.expect("name", "an attribute name or ']'")
            self.expect("=", f"'=' after {name.value}")
            items.append((name.value, self.expression()))
            if self.tokens[self.at].kind not in (";", "]"):
                raise self.unexpected("';' or ']' in an ad")
        self.at += 1
        self.nesting -= 1
        return AdNode(tuple(items))
