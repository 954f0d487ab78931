"""An ad as the drop-ins show it: its attributes by name without regard to case, and their values.

Most values are scalars, and are taken as they came. Only an expression makes a ClassAd of the ad.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pool.classad.values import UNDEFINED

if TYPE_CHECKING:
    from pool.classad import ClassAd, Expr

_SCALARS = frozenset({str, int, float, bool})


class ShownAd:
    """One ad.

    Args:
        wire: names to scalars, or to a list of one expression's text.
        now: seconds since 1970, for time().
        exact: attributes are asked for as the ad spells them.
    """

    __slots__ = ("_ad", "_exact", "_folded", "now", "wire")

    def __init__(self, wire: Mapping[str, Any], now: float | None = None, *, exact: bool = False) -> None:
        self.wire = wire
        self._exact = exact
        self.now = now
        self._folded: dict[str, Any] | None = None
        self._ad: ClassAd | None = None

    def raw(self, name: str) -> Any:
        """The attribute as it came, None where there is none."""
        found = self.wire.get(name)
        if found is not None or self._exact:
            return found
        if self._folded is None:
            self._folded = {key.lower(): value for key, value in self.wire.items()}
        return self._folded.get(name.lower())

    def has(self, name: str) -> bool:
        return self.raw(name) is not None

    @property
    def ad(self) -> ClassAd:
        if self._ad is None:
            from pool.classad import ClassAd

            self._ad = ClassAd.from_wire(self.wire)
        return self._ad

    def value(self, name: str) -> Any:
        """The value of an attribute as the language has it; UNDEFINED where there is none."""
        found = self.wire.get(name)
        if type(found) in _SCALARS:
            return found
        if found is None and not self._exact:
            found = self.raw(name)
            if type(found) in _SCALARS:
                return found
        if found is None:
            return UNDEFINED
        return self.ad.eval(name, None, self.now)

    def evaluate(self, expression: Expr) -> Any:
        """The value of an expression in this ad."""
        from pool.classad import evaluate

        return evaluate(expression, self.ad, None, self.now)

    def integer(self, name: str, default: int = 0) -> int:
        """The value of a number, cut; the default where it is none."""
        found = self.wire.get(name)
        if type(found) is int:
            return found
        found = self.value(name)
        return int(found) if isinstance(found, int | float) else default

    def text(self, name: str) -> str | None:
        """The value of a text; None where it is none."""
        found = self.wire.get(name)
        if type(found) is str:
            return found
        found = self.value(name)
        return found if isinstance(found, str) else None


def byte_text(text: str) -> str:
    """A text with a character for each of its bytes, so that widths count bytes as C does."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")


def unparsed(found: Any) -> str:
    """An attribute as it came, or a value of the language, as text of the long form."""
    kind = type(found)
    if kind is str:
        return '"' + found.replace('"', '\\"') + '"' if '"' in found else f'"{found}"'
    if kind is int:
        return str(found)
    if kind is bool:
        return "true" if found else "false"
    if found is None:
        return "undefined"
    from pool.classad.expr import literal, parse_expr

    if kind in (list, tuple) and len(found) == 1 and isinstance(found[0], str):
        return parse_expr(found[0], syntax="old").long_text()
    return literal(found).long_text()


def references(expressions: Iterable[str]) -> list[str]:
    """The attributes that expressions mention, in their usual spelling and in that of the expressions.

    Raises:
        PoolError: a text is no expression; the message names it.
    """
    from pool.classad import ParseError, names, parse_expr
    from pool.errors import PoolError

    found: dict[str, None] = {}
    for text in expressions:
        if text.isidentifier() and text.isascii():
            mentioned: Iterable[str] = (text,)
        else:
            try:
                mentioned = sorted(parse_expr(text).references())
            except ParseError as error:
                raise PoolError(f"'{text}' is not an attribute or expression: {error}") from None
        for name in mentioned:
            found[names.usual_spelling(names.fold(name))] = None
            found[name] = None
    return list(found)
