"""An expression: immutable, shared between all ads that have the same text, parsed and compiled when first needed.

The cache makes the thousands of ads of a pool share a few hundred expressions; it is bounded, and what falls out
of it lives on in the ads that hold it. An expression that came over the wire and cannot be parsed has the value
ERROR.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pool.classad.errors import ParseError
from pool.classad.nodes import AdNode, ExprNode, FunctionCall, ListNode, Literal, TimeLiteral, weight
from pool.classad.parser import parse
from pool.classad.printing import LONG, NEW, SAFE, Style, print_node
from pool.classad.values import ERROR, INT_MAX, INT_MIN, UNDEFINED, AbsTime, RelTime

if TYPE_CHECKING:
    from pool.classad.scope import Scope

_CACHED = 30_000
_CACHED_LENGTH = 5_000

SCALARS = frozenset({bool, int, float, str})
"""Types that an ad holds as they are; everything else is an Expr."""


class Expr:
    """One expression.

    Attributes:
        text: the expression in long form, such that reading it back gives the same expression.
        compiled: the function of a Scope that evaluates it, once `compile` was called.
        height, weight: depth in interpreter frames and size in nodes, once compiled.
    """

    __slots__ = ("_hash", "_node", "_references", "_text", "compiled", "height", "weight")

    def __init__(self, node: ExprNode | None, text: str | None = None) -> None:
        self._node = node
        self._text = text
        self._hash: int | None = None
        self._references: frozenset[str] | None = None
        self.compiled: Callable[[Scope], Any] | None = None
        self.height = 1
        self.weight = 1

    @property
    def node(self) -> ExprNode:
        """The syntax tree; that of `error` when the text it came with cannot be parsed."""
        node = self._node
        if node is None:
            assert self._text is not None
            try:
                node = parse(self._text, old=True)
            except ParseError:
                node = Literal(ERROR)
            self._node = node
        return node

    @property
    def text(self) -> str:
        if self._text is None:
            self._text = print_node(self.node, SAFE)
        return self._text

    def print(self, style: Style = NEW) -> str:
        """The expression in another form than `text` is: NEW, LONG or PRETTY of pool.classad.printing."""
        return print_node(self.node, style)

    def long_text(self) -> str:
        """The expression as the long form prints it, which for some strings cannot be read back."""
        return print_node(self.node, LONG)

    def references(self) -> frozenset[str]:
        """Names of attributes that the expression itself mentions, of either ad, as they are spelled; scopes
        (MY, TARGET) left out. `pool.classad.references` follows them through an ad.
        """
        if self._references is None:
            from pool.classad.references import mentioned

            self._references = frozenset(mentioned(self.node))
        return self._references

    @property
    def value(self) -> Any:
        """The value of an expression that is only a scalar, undefined or error; None for any other."""
        node = self.node
        return node.value if type(node) is Literal else None

    def compile(self) -> Callable[[Scope], Any]:
        """The function that evaluates it, made on the first call."""
        if self.compiled is None:
            from pool.classad.compiling import compile_node

            node = self.node
            self.height = node.height + 1
            self.weight = weight(node) + 2
            self.compiled = compile_node(node)
        return self.compiled

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Expr):
            return self.text == other.text
        return type(other) in SCALARS and type(self.value) in SCALARS and bool(self.value == other)

    def __hash__(self) -> int:
        found = self._hash
        if found is None:
            value = self.value
            found = self._hash = hash(value) if type(value) in SCALARS else hash(self.text)
        return found

    # A scalar in an ad compares with, and becomes, the Python value that it is. An expression does not.

    def __lt__(self, other: Any) -> bool:
        return bool(self._scalar() < _scalar_of(other))

    def __le__(self, other: Any) -> bool:
        return bool(self._scalar() <= _scalar_of(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self._scalar() > _scalar_of(other))

    def __ge__(self, other: Any) -> bool:
        return bool(self._scalar() >= _scalar_of(other))

    def __int__(self) -> int:
        return int(self._scalar())

    def __float__(self) -> float:
        return float(self._scalar())

    def _scalar(self) -> Any:
        value = self.value
        if type(value) not in SCALARS:
            raise TypeError(f"{self.text} is an expression, which an ad gives a value: ad.value('NAME')")
        return value

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Expr({self.text})"

    def __reduce__(self) -> tuple[Any, ...]:
        return from_wire, (self.text,)


def _scalar_of(other: Any) -> Any:
    return other._scalar() if isinstance(other, Expr) else other


_parsed: dict[tuple[str, str], Expr] = {}
_wired: dict[str, Expr] = {}


def parse_expr(text: str, syntax: str = "new") -> Expr:
    """The expression that the text says; the same object for the same text.

    Args:
        text: one expression.
        syntax: "new", or "old" for the long form's lexing, in which a backslash only escapes a quote.

    Raises:
        ParseError: the text is no expression; the message names what was expected and where.
    """
    key = (syntax, text)
    found = _parsed.get(key)
    if found is None:
        found = Expr(parse(text, old=syntax == "old"))
        if len(text) <= _CACHED_LENGTH:
            if len(_parsed) >= _CACHED:
                _parsed.clear()
            _parsed[key] = found
    return found


def from_wire(text: str) -> Expr:
    """The expression of a text in long form, parsed when it is first needed."""
    found = _wired.get(text)
    if found is None:
        found = Expr(None, text)
        if len(text) <= _CACHED_LENGTH:
            if len(_wired) >= _CACHED:
                _wired.clear()
            _wired[text] = found
    return found


def literal(value: Any) -> Expr:
    """The expression that stands for a value: a Python scalar, UNDEFINED, ERROR, AbsTime, RelTime, a list or
    tuple of such, a mapping or ClassAd, or an Expr (returned as it is).
    """
    return value if isinstance(value, Expr) else Expr(literal_node(value))


def literal_node(value: Any) -> ExprNode:
    """The tree that stands for a value.

    Raises:
        TypeError: Python value without counterpart in the language.
    """
    if isinstance(value, Expr):
        return value.node
    if isinstance(value, bool):
        return Literal(value)
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            raise TypeError(f"integer {value} does not fit in 64 bits")
        return Literal(int(value))
    if isinstance(value, float):
        return Literal(float(value))
    if isinstance(value, str):
        return Literal(str(value))
    if value is UNDEFINED or value is ERROR:
        return Literal(value)
    if isinstance(value, AbsTime):
        return TimeLiteral(value)
    if isinstance(value, RelTime):
        return FunctionCall("relTime", (Literal(value.seconds),))
    if value is None:
        return Literal(UNDEFINED)
    if isinstance(value, (list, tuple)):
        return ListNode(tuple(literal_node(item) for item in value))
    if hasattr(value, "items"):
        return AdNode(tuple((str(name), literal_node(item)) for name, item in value.items()))
    raise TypeError(f"a {type(value).__name__} has no counterpart in the ClassAd language")


def is_plain(node: ExprNode) -> bool:
    """Whether a tree is one scalar that an ad can hold as it is."""
    return type(node) is Literal and type(node.value) in SCALARS
