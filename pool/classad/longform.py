"""The long form: one `Name = expression` a line, what job and machine ads are printed and stored in.

Values are printed as users know them (`1.5`, `=?=`); a string with a line feed, or that ends with a backslash
in the middle of an expression, does not survive the form. The wire does not use it.
"""

from __future__ import annotations

from typing import Any

from pool.classad.ad import ClassAd
from pool.classad.errors import ParseError
from pool.classad.expr import Expr, literal, parse_expr
from pool.classad.nodes import Literal
from pool.classad.parser import parse_beginning

_SPACE = " \t\v\f\r"


def to_long(ad: ClassAd) -> str:
    """The ad's lines, by name, with a line feed between them; inherited attributes included."""
    pairs = sorted((name, literal(found).long_text()) for name, _, found in ad.all())
    return "\n".join([f"{name} = {text}" for name, text in pairs])


def from_long(text: str) -> ClassAd:
    """The ad of such lines. Empty lines and lines that begin with `#` are skipped; what follows a complete
    expression on its line is ignored; of an attribute given twice the last counts.

    Raises:
        ParseError: naming the line and the attribute.
    """
    ad = ClassAd()
    known = _lines
    for number, line in enumerate(text.split("\n"), 1):
        found = known.get(line)
        if found is not None:
            ad.hold(*found)
            continue
        stripped = line.strip(_SPACE)
        if not stripped or stripped[0] == "#":
            continue
        left, equals, right = stripped.partition("=")
        name = left.rstrip(" ")
        if not equals or not name:
            raise ParseError(f"line {number} of an ad is no 'Name = expression': {stripped[:60]!r}", 0)
        ad.set_parsed(name, read_line(name, right.lstrip(" "), number))
        _remember(line, name, ad.held(name))
    return ad


#: Lines read before, with the name and what an ad holds for it: the ads of a pool have most lines in common.
_lines: dict[str, tuple[str, Any]] = {}
_REMEMBERED = 30_000
_LONGEST = 1000


def _remember(line: str, name: str, held: Any) -> None:
    if len(line) <= _LONGEST:
        if len(_lines) >= _REMEMBERED:
            _lines.clear()
        _lines[line] = (name, held)


def read_line(name: str, text: str, number: int) -> Expr:
    try:
        return parse_expr(text, syntax="old")
    except ParseError:
        pass
    try:
        node = parse_beginning(text, old=True)
    except ParseError as error:
        raise ParseError(f"line {number} of an ad, {name}: {error.message}", error.position) from None
    return literal(node.value) if type(node) is Literal else Expr(node)
