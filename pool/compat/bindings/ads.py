"""The look-alike `classad2`: ads as Python mappings, expressions as objects, over the language of `pool.classad`."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from pool.classad import ERROR, UNDEFINED, ClassAd, Expr, ParseError, evaluate, literal, parse_ad, parse_expr
from pool.classad.printing import NEW, PRETTY


class LookAdProblem(Exception):
    """Each error of the module; `ClassAdException`."""


class LookParseProblem(LookAdProblem, ValueError, SyntaxError):
    """A text that is no ad or no expression; `ClassAdParseError` of the older module."""


class LookValue(enum.IntEnum):
    """Values that Python has no word for."""

    Error = 1
    Undefined = 2


class LookParserType(enum.IntEnum):
    Auto = -1
    Old = 0
    XML = 1
    JSON = 2
    New = 3
    FileAuto = 4


def to_python(value: Any) -> Any:
    """A value of the language as programs see it."""
    if value is UNDEFINED:
        return LookValue.Undefined
    if value is ERROR:
        return LookValue.Error
    if isinstance(value, ClassAd):
        return LookAd(value)
    if isinstance(value, list | tuple):
        return [to_python(item) for item in value]
    if isinstance(value, Expr):
        return _expression(value)
    return value


def _expression(found: Expr) -> Any:
    from pool.classad.nodes import AdNode, ListNode, Literal

    node = found.node
    if isinstance(node, Literal):
        return to_python(node.value)
    if isinstance(node, AdNode):
        return LookAd(ClassAd.from_node(node))
    if isinstance(node, ListNode):
        return [_expression(Expr(item)) for item in node.items]
    return LookExpr(found)


def from_python(value: Any) -> Any:
    """A value of a program, as an ad holds it.

    Raises:
        TypeError: the language has no such value.
    """
    if isinstance(value, LookExpr):
        return value.expr
    if isinstance(value, LookAd):
        return value.ad
    if value is None or value is LookValue.Undefined:
        return UNDEFINED
    if value is LookValue.Error:
        return ERROR
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return ClassAd({str(name): from_python(item) for name, item in value.items()})
    if isinstance(value, list | tuple | set | frozenset):
        return [from_python(item) for item in value]
    return value


class LookExpr:
    """An expression; `ExprTree`. Operators make larger expressions, as in the older module."""

    def __init__(self, expr: Any = None) -> None:
        if isinstance(expr, Expr):
            self.expr = expr
        elif isinstance(expr, LookExpr):
            self.expr = expr.expr
        elif isinstance(expr, str):
            try:
                self.expr = parse_expr(expr)
            except ParseError as error:
                raise LookParseProblem(f"Unable to parse string into a ClassAd expression: {error}") from None
        else:
            raise TypeError("an expression is made of a text")

    def eval(self, scope: Any = None, target: Any = None) -> Any:
        """The value in an ad."""
        return to_python(evaluate(self.expr, _ad(scope), _ad(target) if target is not None else None, _now()))

    def simplify(self, scope: Any = None, target: Any = None) -> Any:
        """The expression without what the ad decides."""
        value = evaluate(self.expr, _ad(scope), _ad(target) if target is not None else None, _now())
        return LookExpr(literal(value))

    flatten = simplify

    def sameAs(self, other: Any) -> bool:
        return isinstance(other, LookExpr) and self.expr.text == other.expr.text

    def __repr__(self) -> str:
        return self.expr.print(NEW)

    def __str__(self) -> str:
        return self.expr.print(PRETTY)

    def __int__(self) -> int:
        return int(self.eval())

    def __float__(self) -> float:
        return float(self.eval())

    def __bool__(self) -> bool:
        return bool(self.eval())

    def __hash__(self) -> int:
        return hash(self.expr.text)

    def _with(self, sign: str, other: Any) -> LookExpr:
        return LookExpr(f"({self!r}) {sign} ({LookExpr(literal(from_python(other)))!r})")

    def __eq__(self, other: object) -> bool:
        return self.sameAs(other)

    def and_(self, other: Any) -> LookExpr:
        return self._with("&&", other)

    def or_(self, other: Any) -> LookExpr:
        return self._with("||", other)

    def is_(self, other: Any) -> LookExpr:
        return self._with("=?=", other)

    def isnt_(self, other: Any) -> LookExpr:
        return self._with("=!=", other)


class LookAd(MutableMapping[str, Any]):
    """An ad; `ClassAd`. Attributes are found without regard to case."""

    def __init__(self, input: Any = None) -> None:
        if isinstance(input, ClassAd):
            self.ad = input
        elif isinstance(input, LookAd):
            self.ad = input.ad.copy()
        elif isinstance(input, str):
            self.ad = _parse(input)
        elif input is None:
            self.ad = ClassAd()
        else:
            self.ad = ClassAd()
            self.update(input)

    @classmethod
    def of_wire(cls, wire: Mapping[str, Any]) -> LookAd:
        """The ad that a query brought."""
        return cls(ClassAd.from_wire(wire))

    def __getitem__(self, key: str) -> Any:
        found = self.ad.held(key)
        if found is None:
            raise KeyError(key)
        return to_python(found)

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise TypeError("ClassAd keys are strings")
        self.ad[key] = from_python(value)

    def __delitem__(self, key: str) -> None:
        del self.ad[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.ad)

    def __len__(self) -> int:
        return len(self.ad)

    def __contains__(self, key: object) -> bool:
        return key in self.ad

    def eval(self, attr: str) -> Any:
        """The value of an attribute.

        Raises:
            KeyError: there is none.
        """
        if attr not in self.ad:
            raise KeyError(attr)
        return to_python(self.ad.eval(attr, None, _now()))

    def lookup(self, attr: str) -> LookExpr:
        """The expression of an attribute.

        Raises:
            KeyError: there is none.
        """
        return LookExpr(self.ad[attr])

    def flatten(self, expr: Any) -> Any:
        """The expression without what this ad decides."""
        from pool.classad.flattening import flatten

        found = expr.expr if isinstance(expr, LookExpr) else literal(from_python(expr))
        return to_python(flatten(found, self.ad))

    def matches(self, ad: LookAd) -> bool:
        """Whether this ad accepts the other."""
        from pool.classad import requirements_accept

        return requirements_accept(self.ad, ad.ad)

    def symmetricMatch(self, ad: LookAd) -> bool:
        """Whether each accepts the other."""
        from pool.classad import symmetric_match

        return symmetric_match(self.ad, ad.ad)

    def internalRefs(self, expr: Any) -> list[str]:
        from pool.classad.references import internal

        return sorted(internal(LookExpr(expr).expr, self.ad))

    def externalRefs(self, expr: Any) -> list[str]:
        from pool.classad.references import external

        return sorted(external(LookExpr(expr).expr, self.ad))

    def printOld(self) -> str:
        return "".join(f"{name} = {found.long_text()}\n" for name, found in self._sorted())

    def printJson(self) -> str:
        from pool.compat.ad_forms import json_form

        return "".join(json_form([self.ad.to_wire()]))[2:-2]

    def __repr__(self) -> str:
        return "[ " + "; ".join(f"{name} = {found.print(NEW)}" for name, found in self._sorted()) + " ]"

    def __str__(self) -> str:
        return self.ad.to_new(PRETTY)

    def _sorted(self) -> list[tuple[str, Expr]]:
        return sorted(self.ad.items(), key=lambda pair: pair[0].lower())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LookAd) and self.printOld() == other.printOld()

    __hash__ = None  # type: ignore[assignment]


def _ad(scope: Any) -> ClassAd:
    if scope is None:
        return ClassAd()
    return scope.ad if isinstance(scope, LookAd) else LookAd(scope).ad


def _now() -> float:
    from pool.outside import OutsideWorld

    return OutsideWorld().wall()


def _parse(text: str, kind: int = LookParserType.Auto) -> ClassAd:
    from pool.classad.jsonform import from_json
    from pool.classad.xmlform import from_xml

    bare = text.strip()
    try:
        if kind == LookParserType.XML or (kind == LookParserType.Auto and bare.startswith("<")):
            return from_xml(text)
        if kind == LookParserType.JSON or (kind == LookParserType.Auto and bare.startswith("{")):
            return from_json(text)
        if kind == LookParserType.New or bare.startswith("["):
            return parse_ad(bare)
        return ClassAd.from_long(text)
    except ParseError as error:
        raise LookParseProblem(f"Unable to parse string into a ClassAd: {error}") from None


def parse_one(input: Any, parser: int = LookParserType.Auto) -> LookAd:
    """`parseOne`: the ad of a text or of lines; several in long form become one."""
    text = input if isinstance(input, str) else "".join(input)
    return LookAd(_parse(text, parser))


def parse_ads(input: Any, parser: int = LookParserType.Auto) -> Iterator[LookAd]:
    """`parseAds`: the ads of a text or of lines, in long form with an empty line after each."""
    text = input if isinstance(input, str) else "".join(input)
    if parser in (LookParserType.Auto, LookParserType.Old) and text.lstrip()[:1] not in ("[", "{", "<"):
        for part in text.split("\n\n"):
            if part.strip():
                yield LookAd(_parse(part, LookParserType.Old))
        return
    yield LookAd(_parse(text, parser))


def parse_next(input: Any, parser: int = LookParserType.Auto) -> LookAd:
    """`parseNext`: the next ad of lines.

    Raises:
        StopIteration: there is none.
    """
    lines: list[str] = []
    for line in input if not isinstance(input, str) else input.splitlines(True):
        if line.strip():
            lines.append(line)
        elif lines:
            break
    if not lines:
        raise StopIteration
    return LookAd(_parse("".join(lines), parser))


def quote(input: str) -> str:
    """The text as a string of the language."""
    return literal(input).print(NEW)


def unquote(input: str) -> str:
    """The text that a string of the language stands for."""
    value = parse_expr(input).value
    if not isinstance(value, str):
        raise LookParseProblem(f"{input} is no string")
    return value


def attribute(name: str) -> LookExpr:
    """`Attribute`: the expression that is an attribute's name."""
    return LookExpr(name)


def function(name: str, *arguments: Any) -> LookExpr:
    """`Function`: the expression that calls a function."""
    return LookExpr(f"{name}({', '.join(repr(LookExpr(literal(from_python(one)))) for one in arguments)})")


def make_literal(value: Any) -> LookExpr:
    """`Literal`: the expression that is a value."""
    return LookExpr(literal(from_python(value)))


def names_of(projection: Iterable[Any]) -> list[str]:
    """A projection as a list of names."""
    return [projection] if isinstance(projection, str) else [str(one) for one in projection]
