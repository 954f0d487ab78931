"""Ads as JSON: scalars, lists and ads as JSON has them, undefined as null, any other expression as the string
`\\/Expr(text)\\/` with the expression in new form.
"""

from __future__ import annotations

import math
from typing import Any

from pool.classad.ad import ClassAd
from pool.classad.errors import ParseError
from pool.classad.expr import Expr, literal
from pool.classad.nodes import AdNode, ExprNode, ListNode, Literal, TimeLiteral
from pool.classad.parser import parse
from pool.classad.printing import once_each, print_node, print_real
from pool.classad.values import ERROR, UNDEFINED

_SHORT = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
_ESCAPES = {code: _SHORT.get(code, f"\\u00{code:02X}") for code in (*range(1, 32), 34, 92)}


def _quoted(text: str) -> str:
    return '"' + text.translate(_ESCAPES) + '"'


def _quoted_expression(text: str) -> str:
    return '"\\/Expr(' + text.translate(_ESCAPES) + ')\\/"'


def to_json(ad: ClassAd) -> str:
    """The ad as one line of JSON."""
    return json_node(ad.node())


def json_node(node: ExprNode) -> str:
    if isinstance(node, AdNode):
        return "{" + ",".join([f"{_quoted(name)}: {json_node(below)}" for name, below in once_each(node.items)]) + "}"
    if isinstance(node, ListNode):
        return "[" + ",".join([json_node(below) for below in node.items]) + "]"
    if not isinstance(node, Literal) or isinstance(node, TimeLiteral):
        return _quoted_expression(print_node(node))
    value = node.value
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is UNDEFINED:
        return "null"
    if isinstance(value, float) and math.isfinite(value):
        return print_real(value, long=True)
    if isinstance(value, int):
        return str(value)
    return _quoted_expression(print_node(node))


def from_json(text: str) -> ClassAd:
    """The ad that JSON says.

    Raises:
        ParseError: it is no JSON object, or a quoted expression cannot be parsed.
    """
    import json

    try:
        found = json.loads(text.replace("\\/", "\\u0000/"))
        if not isinstance(found, dict):
            raise ParseError("the ad is no JSON object")
        return ClassAd({str(name): _read(value) for name, value in found.items()})
    except (ValueError, RecursionError) as error:
        raise ParseError(f"the ad is no JSON: {error}") from None


_OPEN, _CLOSE = "\0/Expr(", ")\0/"


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        return literal({str(name): _read(item) for name, item in value.items()})
    if isinstance(value, list):
        return literal([_read(item) for item in value])
    if value is None:
        return UNDEFINED
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
        return 0
    if isinstance(value, str):
        if value.startswith(_OPEN) and value.endswith(_CLOSE):
            text = value[len(_OPEN) : -len(_CLOSE)].replace("\0/", "/")
            return ERROR if text == "error" else Expr(parse(text))
        return value.replace("\0/", "/")
    return value
