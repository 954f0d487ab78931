"""Whole ads as `-long`, `-json` and `-xml` print them, byte for byte: attributes by name, one a line.

Scalars are printed as they came; only an expression is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pool.compat.shown_ad import unparsed

if TYPE_CHECKING:
    from pool.classad.nodes import ExprNode

WireAd = Mapping[str, Any]
_XML_HEADER = '<?xml version="1.0"?>\n<!DOCTYPE classads SYSTEM "classads.dtd">\n<classads>\n'


def long_form(ads: Iterable[WireAd]) -> Iterator[str]:
    """`Name = expression` lines, and an empty line after each ad."""
    for ad in ads:
        yield "".join([f"{name} = {_long_value(value)}\n" for name, value in _by_name(ad)]) + "\n"


def _long_value(value: Any) -> str:
    return unparsed(value)


def json_form(ads: Iterable[WireAd]) -> Iterator[str]:
    """One list of objects; nothing at all where there is no ad."""
    found = False
    for ad in ads:
        yield (",\n" if found else "[\n") + _json_lines(_by_name(ad), 0, _json_wire) + "\n"
        found = True
    if found:
        yield "]\n"


def xml_form(ads: Iterable[WireAd], *, after: str = "", before: str = "", end: str = "") -> Iterator[str]:
    """A document; its frame also where there is no ad.

    Args:
        after, before: what a tool puts around each ad. end: what it puts behind the document.
    """
    yield _XML_HEADER
    for ad in ads:
        yield before + "<c>\n" + _xml_lines(_by_name(ad), 0, _xml_wire) + "</c>\n" + after
    yield before + "</classads>\n" + end


def status_xml(ads: Iterable[WireAd]) -> Iterator[str]:
    """As condor_status prints it: an empty line after each ad."""
    return xml_form(ads, after="\n")


def history_xml(ads: Iterable[WireAd]) -> Iterator[str]:
    """As condor_history prints it: an empty line before each ad, and at the end."""
    return xml_form(ads, before="\n", end="\n")


FORMS: dict[str, Callable[[Iterable[WireAd]], Iterator[str]]] = {"json": json_form, "long": long_form, "xml": xml_form}


def project(ad: WireAd, wanted: Sequence[str] | None) -> WireAd:
    """The attributes that were asked for, without regard to case; all of them for None."""
    if wanted is None:
        return ad
    keys = {name.lower() for name in wanted}
    return {name: value for name, value in ad.items() if name.lower() in keys}


def _by_name(ad: WireAd) -> list[tuple[str, Any]]:
    return [(name, ad[name]) for name in _in_order(tuple(ad))]


@lru_cache(maxsize=256)
def _in_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names by their letters; ten thousand ads of one kind have them sorted once."""
    return tuple(sorted(names, key=str.lower))


def _node_of(value: Any) -> ExprNode:
    from pool.classad.expr import literal, parse_expr

    if type(value) in (list, tuple) and len(value) == 1 and isinstance(value[0], str):
        return parse_expr(value[0], syntax="old").node
    return literal(value).node


def _json_wire(value: Any, depth: int) -> str:
    kind = type(value)
    if kind is int:
        return str(value)
    if value is None:
        return "null"
    if kind is str or kind is bool or kind is float:
        return _json_scalar(value, kind.__name__)
    if kind in (list, tuple) and len(value) == 1 and isinstance(value[0], str):
        return _json_text(value[0], depth)
    return _json_node(_node_of(value), depth)


@lru_cache(maxsize=4096)
def _json_scalar(value: Any, kind: str) -> str:
    """The kind is part of the key: 1.0 and true are equal."""
    return _json_node(_node_of(value), 0)


@lru_cache(maxsize=4096)
def _json_text(text: str, depth: int) -> str:
    """Jobs share most of their expressions."""
    return _json_node(_node_of([text]), depth)


def _json_node(node: ExprNode, depth: int) -> str:
    from pool.classad.jsonform import json_node
    from pool.classad.nodes import AdNode, ListNode
    from pool.classad.printing import once_each

    if isinstance(node, AdNode):
        return _json_lines(once_each(node.items), depth, _json_node)
    if isinstance(node, ListNode):
        margin = "  " * (depth + 1)
        lines = ",\n".join(margin + _json_node(below, depth + 1) for below in node.items)
        return "[\n" + (lines + "\n" if lines else "") + "  " * depth + "]"
    return json_node(node)


def _json_lines(items: Sequence[tuple[str, Any]], depth: int, shown: Callable[[Any, int], str]) -> str:
    margin = "  " * (depth + 1)
    lines = ",\n".join([f'{margin}"{name}": {shown(value, depth + 1)}' for name, value in items])
    return "{\n" + (lines + "\n" if lines else "") + "  " * depth + "}"


def _xml_wire(value: Any, depth: int) -> str:
    kind = type(value)
    if kind is int:
        return f"<i>{value}</i>"
    if value is None:
        return "<un/>"
    if kind is str or kind is bool or kind is float:
        return _xml_scalar(value, kind.__name__)
    if kind in (list, tuple) and len(value) == 1 and isinstance(value[0], str):
        return _xml_text(value[0], depth)
    return _xml_node(_node_of(value), depth)


@lru_cache(maxsize=4096)
def _xml_scalar(value: Any, kind: str) -> str:
    """The kind is part of the key: 1.0 and true are equal."""
    return _xml_node(_node_of(value), 0)


@lru_cache(maxsize=4096)
def _xml_text(text: str, depth: int) -> str:
    return _xml_node(_node_of([text]), depth)


def _xml_node(node: ExprNode, depth: int) -> str:
    from pool.classad.nodes import AdNode, ListNode
    from pool.classad.printing import once_each
    from pool.classad.xmlform import xml_node

    if isinstance(node, AdNode):
        return "<c>\n" + _xml_lines(once_each(node.items), depth, _xml_node) + "    " * depth + "</c>"
    if isinstance(node, ListNode):
        return "<l>" + "".join(_xml_node(below, depth) for below in node.items) + "</l>"
    return xml_node(node)


def _xml_lines(items: Sequence[tuple[str, Any]], depth: int, shown: Callable[[Any, int], str]) -> str:
    margin = "    " * (depth + 1)
    return "".join([f'{margin}<a n="{name}">{shown(value, depth + 1)}</a>\n' for name, value in items])
