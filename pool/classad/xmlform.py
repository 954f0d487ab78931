"""Ads as XML: `<c>` an ad, `<a n="Name">` an attribute, `<i>`, `<r>`, `<s>`, `<b v="t"/>`, `<un/>`, `<er/>`, `<at>` and
`<rt>` scalars and times, `<l>` a list, `<e>` any other expression in new form.

Written without spaces between elements; read with or without them, and with the reference's header and `<classads>`
around. Strings keep the escapes of the new form, as the reference writes them.
"""

from __future__ import annotations

import math
import re

from pool.classad import timetext
from pool.classad.ad import ClassAd
from pool.classad.errors import ParseError
from pool.classad.nodes import AdNode, ExprNode, ListNode, Literal, TimeLiteral
from pool.classad.parser import parse
from pool.classad.printing import escape, once_each, print_node
from pool.classad.values import ERROR, UNDEFINED, AbsTime, RelTime, decoded, encoded


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def to_xml(ad: ClassAd) -> str:
    """The ad as one XML element `<c>`."""
    return xml_node(ad.node())


def xml_node(node: ExprNode) -> str:
    if isinstance(node, AdNode):
        parts = [
            f'<a n="{_text(escape(name)).replace(chr(34), "&quot;")}">{xml_node(below)}</a>'
            for name, below in once_each(node.items)
        ]
        return "<c>" + "".join(parts) + "</c>"
    if isinstance(node, ListNode):
        return "<l>" + "".join([xml_node(below) for below in node.items]) + "</l>"
    if not isinstance(node, Literal):
        return "<e>" + _text(print_node(node)) + "</e>"
    value = node.value
    if isinstance(value, bool):
        return '<b v="t"/>' if value else '<b v="f"/>'
    if isinstance(value, int):
        return f"<i>{value}</i>"
    if isinstance(value, float):
        return f"<r>{_real(value)}</r>"
    if isinstance(value, str):
        return f"<s>{_text(escape(value))}</s>"
    if isinstance(value, AbsTime):
        return f"<at>{timetext.print_abstime(value)}</at>"
    if isinstance(value, RelTime):
        return f"<rt>{timetext.print_reltime(value.seconds)}</rt>"
    return "<un/>" if value is UNDEFINED else "<er/>"


def _real(number: float) -> str:
    if number == 0.0:
        return "0.0"
    if math.isfinite(number):
        return f"{number:.15E}"
    return "NaN" if math.isnan(number) else "INF" if number > 0 else "-INF"


_TAG = re.compile(r'<(/?)([a-z]+)(?:\s+([a-z]+)\s*=\s*"([^"]*)")?\s*(/?)>|<[?!][^>]*>', re.DOTALL)
_ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'"}
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos);")
_DEEPEST = 60


def _plain(text: str) -> str:
    return _ENTITY.sub(lambda got: _ENTITIES[got.group()], text)


def _string(text: str) -> str:
    """A string as it was before it was written: entities, then the new form's escapes."""
    plain = _plain(text)
    if "\\" not in plain:
        return plain
    node = parse('"' + re.sub(r'(?<!\\)((?:\\\\)*)"', r'\1\\"', plain) + '"')
    return str(node.value) if isinstance(node, Literal) else plain


def from_xml(text: str) -> ClassAd:
    """The ad of the first `<c>` element.

    Raises:
        ParseError: the text has none, or it is not well formed.
    """
    return ClassAd.from_node(_XmlReader(text).first())


class _XmlReader:
    __slots__ = ("at", "text")

    def __init__(self, text: str) -> None:
        self.text = decoded(encoded(text))
        self.at = 0

    def tag(self) -> tuple[str, str, str]:
        """The next tag: ("<", name, attribute), ("/", name, "") or ("<>", name, attribute); text before it is
        skipped.
        """
        while True:
            got = _TAG.search(self.text, self.at)
            if got is None:
                raise ParseError("the XML ends in the middle of an ad", self.at)
            self.at = got.end()
            if got[2] is not None:
                return ("/" if got[1] else "<>" if got[5] else "<"), got[2], got[4] or ""

    def first(self) -> AdNode:
        while True:
            kind, name, _ = self.tag()
            if name == "c" and kind != "/":
                return self.ad(0) if kind == "<" else AdNode(())

    def ad(self, depth: int) -> AdNode:
        items: list[tuple[str, ExprNode]] = []
        while True:
            kind, name, attribute = self.tag()
            if kind == "/" and name == "c":
                return AdNode(tuple(items))
            if kind != "<" or name != "a":
                raise ParseError(f"unexpected <{name}> in an ad", self.at)
            items.append((_string(attribute), self.value(depth + 1)))
            if self.tag()[:2] != ("/", "a"):
                raise ParseError("missing </a> in an ad", self.at)

    def value(self, depth: int) -> ExprNode:
        kind, name, attribute = self.tag()
        return self.element(kind, name, attribute, depth)

    def element(self, kind: str, name: str, attribute: str, depth: int) -> ExprNode:
        if depth > _DEEPEST:
            raise ParseError("the XML is nested too deeply", self.at)
        if name in ("un", "er", "b") and kind == "<>":
            return Literal(UNDEFINED if name == "un" else ERROR if name == "er" else attribute.lower() == "t")
        if name == "c":
            return self.ad(depth) if kind == "<" else AdNode(())
        if name == "l":
            return self.list(depth) if kind == "<" else ListNode(())
        inside = "" if kind == "<>" else self.inside(name)
        return _scalar(name, inside)

    def list(self, depth: int) -> ExprNode:
        items: list[ExprNode] = []
        while True:
            kind, name, attribute = self.tag()
            if kind == "/" and name == "l":
                return ListNode(tuple(items))
            items.append(self.element(kind, name, attribute, depth + 1))

    def inside(self, name: str) -> str:
        stop = self.text.find(f"</{name}>", self.at)
        if stop < 0:
            raise ParseError(f"missing </{name}> in an ad", self.at)
        found = self.text[self.at : stop]
        self.at = stop + len(name) + 3
        return found


def _scalar(name: str, inside: str) -> ExprNode:
    if name == "s":
        return Literal(_string(inside))
    plain = _plain(inside).strip()
    try:
        if name == "i":
            return Literal(int(plain) if -(2**63) <= int(plain) < 2**63 else 0)
        if name == "r":
            return Literal(float(plain))
    except ValueError:
        raise ParseError(f"<{name}>{plain}</{name}> is no number") from None
    if name == "at" and (moment := timetext.read_abstime(plain)) is not None:
        return TimeLiteral(moment)
    if name == "rt" and (span := timetext.read_reltime(plain)) is not None:
        return TimeLiteral(span)
    if name == "e":
        return parse(plain)
    raise ParseError(f"unexpected <{name}> in an ad")
