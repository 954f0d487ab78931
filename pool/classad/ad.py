"""ClassAds: attributes with expressions, looked up without regard to case, chained to a parent, sent as they are.

An ad holds scalars as Python values and everything else as shared `Expr`s, so that a small ad is a dict and two
pointers. A chained ad (`parent`) answers for its parent's attributes where it has none of its own: a process's ad
over its cluster's costs what the process has beyond the cluster. Forms of text other than the wire's are in
`longform`, `jsonform`, `xmlform` and `printing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pool.classad import names
from pool.classad.compact import CompactAttributes, compact
from pool.classad.errors import EvaluationFailed, ParseError
from pool.classad.expr import SCALARS, Expr, from_wire, is_plain, literal, parse_expr
from pool.classad.names import fold
from pool.classad.nodes import AdNode, Literal
from pool.classad.printing import NEW, Style, print_node
from pool.classad.results import finished
from pool.classad.scope import Scope, reached
from pool.classad.values import ERROR, UNDEFINED, wrap

_RAW = SCALARS | {type(UNDEFINED), type(ERROR)}


def _stored(value: Any) -> Any:
    """The form in which an ad keeps a value: a scalar, UNDEFINED or ERROR as it is, anything else as an Expr."""
    if type(value) in _RAW:
        return wrap(value) if type(value) is int else value
    expression = literal(value)
    node = expression.node
    return node.value if type(node) is Literal and type(node.value) in _RAW else expression


def _received(value: Any) -> Any:
    """As `_stored` for what a stranger sent; what the language does not know is ERROR."""
    try:
        return _stored(value)
    except (TypeError, ParseError, RecursionError):
        return ERROR


class ClassAd:
    """One ad.

    Args:
        attributes: names to Python values (anything `literal` takes) or Exprs.
        parent: the ad that answers for what this one does not have.
    """

    __slots__ = ("_held", "_spelled", "parent")

    def __init__(self, attributes: Mapping[str, Any] | None = None, parent: ClassAd | None = None) -> None:
        self._held: dict[str, Any] | CompactAttributes = {}
        self._spelled: dict[str, str] | None = None
        self.parent = parent
        if attributes:
            for name, value in attributes.items():
                self[name] = value

    # --- attributes

    def _key(self, name: str) -> str:
        """The key of a name about to be set; notes its spelling when that is not the usual one."""
        key = fold(name)
        if key in names.SCOPE_NAMES:
            names.defined(key)
        if names.usual_spelling(key) != name:
            if self._spelled is None:
                self._spelled = {}
            self._spelled[key] = name
        elif self._spelled:
            self._spelled.pop(key, None)
        return key

    def __setitem__(self, name: str, value: Any) -> None:
        self._held[self._key(name)] = _stored(value)

    def set_parsed(self, name: str, expression: Expr) -> None:
        """As `ad[name] = expression`, for expressions fresh from the parser."""
        node = expression.node
        plain = type(node) is Literal and type(node.value) in _RAW
        self._held[self._key(name)] = node.value if plain else expression  # type: ignore[attr-defined]

    def hold(self, name: str, held: Any) -> None:
        """As `set_parsed`, for what another ad holds."""
        self._held[self._key(name)] = held

    def set_expr(self, name: str, text: str) -> None:
        """Set an attribute to an expression given in long form, as in a line `Name = text`.

        Raises:
            ParseError: the text is no expression.
        """
        try:
            expression = parse_expr(text, syntax="old")
        except ParseError as error:
            raise ParseError(f"cannot set {name}: {error.message}", error.position) from None
        self.set_parsed(name, expression)

    @property
    def own_getter(self) -> Callable[[str], Any]:
        return self._held.get

    @property
    def holdings(self) -> Mapping[str, Any]:
        """Folded names to what is held, of the ad's own attributes. Not to be changed."""
        return self._held

    def getter(self) -> Callable[[str], Any]:
        """A function from folded name to what is held: a scalar, an Expr, or None."""
        own = self._held.get
        if self.parent is None:
            return own
        above = self.parent.getter()

        def get(key: str) -> Any:
            found = own(key)
            return above(key) if found is None else found

        return get

    def held(self, name: str) -> Any:
        """The value that the ad or its parents hold for a name: a scalar, UNDEFINED, ERROR, an Expr; None when
        absent.
        """
        key = fold(name)
        ad: ClassAd | None = self
        while ad is not None:
            found = ad._held.get(key)
            if found is not None:
                return found
            ad = ad.parent
        return None

    def get(self, name: str) -> Expr | None:
        found = self.held(name)
        return None if found is None else literal(found)

    def __getitem__(self, name: str) -> Expr:
        found = self.held(name)
        if found is None:
            raise KeyError(name)
        return literal(found)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.held(name) is not None

    def __delitem__(self, name: str) -> None:
        """Take an attribute away; one that the parent has becomes UNDEFINED here."""
        if self.held(name) is None:
            raise KeyError(name)
        key = fold(name)
        self._held.pop(key, None)
        if self._spelled:
            self._spelled.pop(key, None)
        if self.parent is not None and self.parent.held(name) is not None:
            self[name] = UNDEFINED

    def discard(self, name: str) -> None:
        """Take an attribute away if it is there."""
        if name in self:
            del self[name]

    def own(self) -> Iterator[tuple[str, str, Any]]:
        """(spelling, key, what is held) of the ad's own attributes, in the order they were first set."""
        spelled = self._spelled
        for key, found in self._held.items():
            name = spelled.get(key) if spelled else None
            yield (name or names.usual_spelling(key)), key, found

    def all(self) -> Iterator[tuple[str, str, Any]]:
        """As `own`, then what the parents add."""
        if self.parent is None:
            yield from self.own()
            return
        seen: set[str] = set()
        ad: ClassAd | None = self
        while ad is not None:
            for name, key, found in ad.own():
                if key not in seen:
                    seen.add(key)
                    yield name, key, found
            ad = ad.parent

    def __iter__(self) -> Iterator[str]:
        return (name for name, _, _ in self.all())

    def keys(self) -> Iterable[str]:
        return iter(self)

    def items(self) -> Iterator[tuple[str, Expr]]:
        return ((name, literal(found)) for name, _, found in self.all())

    def __len__(self) -> int:
        return len(self._held) if self.parent is None else sum(1 for _ in self.all())

    def update(self, other: Mapping[str, Any] | ClassAd) -> None:
        """Set every attribute of the other; of a chained ad also its parents'."""
        if isinstance(other, ClassAd):
            for name, _, found in other.all():
                self[name] = found
        else:
            for name, value in other.items():
                self[name] = value

    def copy(self) -> ClassAd:
        """An ad with the same attributes and the same parent, to be changed by itself."""
        ad = ClassAd(None, self.parent)
        ad._held = self._held.copy()
        ad._spelled = self._spelled.copy() if self._spelled else None
        return ad

    def merged(self) -> ClassAd:
        """An ad without a parent that has all attributes, its own and inherited."""
        ad = ClassAd()
        ad.update(self)
        return ad

    def compacted(self, only: Iterable[str] | None = None) -> ClassAd:
        """As `merged` in little memory, for ads that are kept in great numbers. It is not to be changed; its copies
        may be.

        Args:
            only: folded names of all attributes in which this differs from an ad that was compact.
        """
        if self.parent is not None:
            return self.merged().compacted()
        ad = ClassAd()
        ad._spelled = self._spelled.copy() if self._spelled else None
        ad._held = compact(self._held, only)
        return ad

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<ClassAd of {len(self)} attributes>"

    # --- evaluation

    def eval(self, name: str, target: ClassAd | None = None, now: float | None = None) -> Any:
        """The value of an attribute; UNDEFINED when there is none. Arguments as for `evaluate`."""
        found = self.held(name)
        if found is None:
            return UNDEFINED
        if type(found) is not Expr:
            return found
        scope = scope_of(self, target, now)
        try:
            return finished(reached(scope, fold(name), found))
        except (EvaluationFailed, RecursionError, MemoryError):
            return ERROR
        finally:
            scope.leave()

    def value(self, name: str, default: Any = None, target: ClassAd | None = None, now: float | None = None) -> Any:
        """The value of an attribute, or the default when it is absent, undefined or an error."""
        value = self.eval(name, target, now)
        return default if value is UNDEFINED or value is ERROR else value

    # --- the wire

    def to_wire(self) -> dict[str, Any]:
        """Names to scalars, or to one-element lists with an expression's text in long form. Inherited attributes
        are included.
        """
        return {name: found if type(found) in SCALARS else [literal(found).text] for name, _, found in self.all()}

    def own_to_wire(self) -> dict[str, Any]:
        """As `to_wire`, without what the parents have."""
        return {name: found if type(found) in SCALARS else [literal(found).text] for name, _, found in self.own()}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any], parent: ClassAd | None = None) -> ClassAd:
        """The ad that was sent. Its expressions are parsed when they are first used; one that cannot be parsed
        has the value ERROR.

        Raises:
            ParseError: a name is no string.
        """
        ad = cls(None, parent)
        ad.update_from_wire(wire)
        return ad

    def update_from_wire(self, wire: Mapping[str, Any]) -> None:
        """Set attributes that were sent, as `from_wire` reads them.

        Raises:
            ParseError: a name is no string.
        """
        held, usual = self._held, names.USUAL.get
        for name, value in wire.items():
            kind = type(value)
            if kind is list and len(value) == 1 and type(value[0]) is str:
                value = from_wire(value[0])
            elif kind is int:
                value = wrap(value)
            elif kind not in SCALARS:
                value = _received(value)
            key = usual(name) if not self._spelled else None
            held[self._key(name) if key is None else key] = value

    # --- text

    @classmethod
    def from_node(cls, node: AdNode) -> ClassAd:
        """The ad that a tree `[ ... ]` stands for."""
        ad = cls()
        for name, below in node.items:
            ad._held[ad._key(name)] = below.value if is_plain(below) else Expr(below)  # type: ignore[attr-defined]
        return ad

    def node(self) -> AdNode:
        """The tree of the ad as `[ ... ]`, inherited attributes included."""
        return AdNode(tuple((name, literal(found).node) for name, _, found in self.all()))

    def to_new(self, style: Style = NEW) -> str:
        """`[ Name = expression; ... ]` on one line; with the style PRETTY on many."""
        return print_node(self.node(), style)

    def __str__(self) -> str:
        return self.to_new()

    def to_long(self) -> str:
        """Lines `Name = expression` in long form, by name."""
        from pool.classad.longform import to_long

        return to_long(self)

    @classmethod
    def from_long(cls, text: str) -> ClassAd:
        """The ad of such lines.

        Raises:
            ParseError: naming the line and the attribute.
        """
        from pool.classad.longform import from_long

        return from_long(text)

    def to_json(self) -> str:
        from pool.classad.jsonform import to_json

        return to_json(self)

    def to_xml(self) -> str:
        from pool.classad.xmlform import to_xml

        return to_xml(self)


def scope_of(my: ClassAd, target: ClassAd | None, now: float | None) -> Scope:
    """The scope that an evaluation begins in: this ad, with the other on the far side of a match."""
    scope = Scope(my, None, None)
    scope.now = now
    if target is not None:
        other = Scope(target, None, scope)
        other.other = scope
        scope.other = other
    return scope


def evaluate(expr: Expr, my: ClassAd, target: ClassAd | None = None, now: float | None = None) -> Any:
    """The value of an expression seen from an ad.

    Args:
        expr: the expression.
        my: the ad that its names are looked up in.
        target: the ad on the other side of a match, what TARGET means.
        now: wall time in seconds since 1970 for time(); without it the functions that need it are undefined.

    Returns:
        A value as pool.classad.values lists them. Evaluation never raises: what makes no sense, or exceeds the
        bounds on depth, steps and size, is ERROR.
    """
    scope = Scope(my, None, None)
    scope.now = now
    if target is not None:
        other = Scope(target, None, scope)
        other.other = scope
        scope.other = other
    try:
        value = (expr.compiled or expr.compile())(scope)
        return value if type(value) in _RAW else finished(value)
    except (EvaluationFailed, RecursionError, MemoryError):
        return ERROR
    finally:
        scope.leave()


def parse_ad(text: str) -> ClassAd:
    """The ad written `[ Name = expression; ... ]`.

    Raises:
        ParseError: the text is no such ad.
    """
    from pool.classad.parser import parse_record

    return ClassAd.from_node(parse_record(text))
