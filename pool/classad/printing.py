"""Trees and values to text: one line in new form, in long form, and spread over lines.

`NEW` is the form of new ads and of string(). `LONG` is the form in which job and machine ads are printed and sent.
`SAFE` is the long form in which every string and name can be read back: the plain long form cannot express a string
that ends with a backslash in the middle of an expression. `PRETTY` is the new form with lists and ads on lines of their
own. JSON and XML are in modules of their own.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from pool.classad import timetext
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
    Unary,
)
from pool.classad.values import ERROR, UNDEFINED, AbsTime, RelTime, decoded, encoded

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
RESERVED = frozenset({"true", "false", "undefined", "error", "is", "isnt", "parent"})
_SHORT = {7: b"\\a", 8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 92: b"\\\\"}
_ESCAPED = [_SHORT.get(code) or (bytes([code]) if 32 <= code < 127 else b"\\%03o" % code) for code in range(256)]
_NEEDS_ESCAPE = re.compile(r"[^ -\[\]-~]")


class Style(NamedTuple):
    long: bool = False
    pretty: bool = False
    safe: bool = False


NEW = Style()
LONG = Style(long=True)
SAFE = Style(long=True, safe=True)
PRETTY = Style(pretty=True)


def print_real(number: float, *, long: bool) -> str:
    if number == 0.0:
        return "-0.0" if math.copysign(1.0, number) < 0 else "0.0"
    if math.isnan(number):
        return 'real("NaN")'
    if math.isinf(number):
        return 'real("INF")' if number > 0 else 'real("-INF")'
    if not long:
        return f"{number:.15E}"
    text = f"{number:.16G}"
    return text if "." in text or "E" in text else text + ".0"


def escape(text: str) -> str:
    """The inside of a new-form string, save for the delimiter."""
    if _NEEDS_ESCAPE.search(text) is None:
        return text
    return decoded(b"".join([_ESCAPED[code] for code in encoded(text)]))


def print_string(text: str, *, long: bool) -> str:
    if long:
        return '"' + text.replace('"', '\\"') + '"'
    return '"' + escape(text).replace('"', '\\"') + '"'


def print_name(name: str) -> str:
    """An attribute name, quoted unless it is a plain identifier."""
    if _IDENTIFIER.match(name) and name.lower() not in RESERVED:
        return name
    return "'" + escape(name).replace("'", "\\'") + "'"


def print_value(value: Any, style: Style = NEW) -> str:
    """A value that is no list and no ad."""
    kind = type(value)
    if kind is str:
        text = print_string(value, long=style.long)
        return text + "\n" if style.safe and value.endswith("\\") else text
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value)
    if kind is float:
        return print_real(value, long=style.long)
    if value is UNDEFINED:
        return "undefined"
    if value is ERROR:
        return "error"
    if kind is AbsTime:
        return f'absTime("{timetext.print_abstime(value)}")'
    if kind is RelTime:
        return f'relTime("{timetext.print_reltime(value.seconds)}")'
    raise TypeError(f"no value of the language: {value!r}")


def print_node(node: ExprNode, style: Style = NEW) -> str:
    """The expression as text; what was parsed from it prints the same again."""
    parts: list[str] = []
    _Printer(style, parts.append).node(node, 0)
    text = "".join(parts)
    return text[:-1] if style.safe and text.endswith('\\"\n') else text


def print_order(name: str) -> tuple[int, str]:
    """Attributes of an ad are printed short names first, then without regard to case."""
    return len(encoded(name)), name.lower()


def once_each(items: tuple[tuple[str, ExprNode], ...]) -> list[tuple[str, ExprNode]]:
    """An ad's attributes in the order they are printed; of one written twice the last expression counts."""
    kept: dict[str, tuple[str, ExprNode]] = {}
    for name, node in items:
        key = name.lower()
        kept[key] = (kept[key][0] if key in kept else name, node)
    return sorted(kept.values(), key=lambda item: print_order(item[0]))


class _Printer:
    __slots__ = ("put", "style")

    def __init__(self, style: Style, put: Any) -> None:
        self.style = style
        self.put = put

    def node(self, node: ExprNode, indent: int) -> None:
        put = self.put
        if isinstance(node, Literal):
            put(print_value(node.value, self.style))
        elif isinstance(node, Ref):
            if node.base is not None:
                self.node(node.base, indent)
                put("." + (print_name(node.name) if self.style.safe else node.name))
            else:
                put(("." if node.absolute else "") + print_name(node.name))
        elif isinstance(node, Chain):
            self.node(node.first, indent)
            for sign, below in node.rest:
                put(f" {self.sign(sign)} ")
                self.node(below, indent)
        elif isinstance(node, Paren):
            put("(")
            self.node(node.inner, indent)
            put(")")
        elif isinstance(node, Unary):
            put(" " + node.sign)
            self.node(node.operand, indent)
        elif isinstance(node, FunctionCall):
            put(node.name + "(")
            self.separated(node.arguments, indent)
            put(")")
        elif isinstance(node, Conditional):
            self.node(node.test, indent)
            put(" ? ")
            self.node(node.yes, indent)
            put(" : ")
            self.node(node.no, indent)
        elif isinstance(node, Elvis):
            self.node(node.left, indent)
            put(" ?: ")
            self.node(node.right, indent)
        elif isinstance(node, Subscript):
            self.node(node.base, indent)
            put("[")
            self.node(node.index, indent)
            put("]")
        elif isinstance(node, ListNode):
            self.list(node, indent)
        elif isinstance(node, AdNode):
            self.ad(node, indent)
        else:
            raise TypeError(f"no node of the language: {node!r}")

    def sign(self, sign: str) -> str:
        if self.style.long:
            return sign
        return "is" if sign == "=?=" else "isnt" if sign == "=!=" else sign

    def separated(self, nodes: tuple[ExprNode, ...], indent: int) -> None:
        for index, below in enumerate(nodes):
            if index:
                self.put(",")
            self.node(below, indent)

    def list(self, node: ListNode, indent: int) -> None:
        if not self.style.pretty:
            self.put("{ ")
            self.separated(node.items, indent)
            self.put(" }")
            return
        margin = "\n" + " " * (indent + 3)
        self.put(margin + "{")
        for index, below in enumerate(node.items):
            self.put(",\n" if index else "\n")
            self.put(" " * (indent + 6))
            self.node(below, indent + 6)
        self.put(margin + "}")

    def ad(self, node: AdNode, indent: int) -> None:
        items = once_each(node.items)
        if not self.style.pretty:
            self.put("[ ")
            for index, (name, below) in enumerate(items):
                self.put(("; " if index else "") + print_name(name) + " = ")
                self.node(below, indent)
            self.put(" ]")
            return
        margin = "\n" + " " * (indent + 4)
        self.put(margin + "[")
        for index, (name, below) in enumerate(items):
            self.put("; \n" if index else "\n")
            self.put(" " * (indent + 8) + print_name(name) + " = ")
            self.node(below, indent + 8)
        self.put(margin + "]")
