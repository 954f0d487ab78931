"""Comparisons that fill the pool's expressions, each as one function: an attribute with a literal, or with another
attribute, where what is held is plain.

Everything else (an expression that is held, a missing name, operands of other types) is left to the general form of the
same comparison, which is handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pool.classad import operations
from pool.classad.names import SCOPE_NAMES, SHADOWED, fold
from pool.classad.nodes import ExprNode, Ref
from pool.classad.scope import Scope

Compiled = Callable[[Scope], Any]
Native = Callable[[Any, Any], bool]
Place = tuple[str, str]


def place_of(node: ExprNode) -> Place | None:
    """Where an attribute is looked for first: (the name that means the other side, or nothing; folded name); None for
    any other tree. An ad in which that name is an attribute is left to the general form.
    """
    if not isinstance(node, Ref) or node.absolute:
        return None
    key, base = fold(node.name), node.base
    if key in SCOPE_NAMES:
        return None
    if base is None:
        return "", key
    if isinstance(base, Ref) and base.base is None and not base.absolute and base.name.lower() in ("target", "other"):
        return base.name.lower(), key
    return None


def with_string(place: Place, text: str, equal: bool, general: Compiled) -> Compiled:
    """`Name == "text"` and `!=`."""
    far, name = place
    string_key = operations.string_key
    key = string_key(text)

    def own(s: Scope) -> Any:
        value = s.get(name)
        if type(value) is str:
            return (value == text or string_key(value) == key) is equal
        return general(s)

    def others(s: Scope) -> Any:
        other = s.other
        if other is not None and not (SHADOWED and s.get(far) is not None):
            value = other.get(name)
            if type(value) is str:
                return (value == text or string_key(value) == key) is equal
        return general(s)

    return others if far else own


def with_integer(place: Place, number: int, native: Native, general: Compiled) -> Compiled:
    """`Name >= 5` and its like."""
    far, name = place

    def own(s: Scope) -> Any:
        value = s.get(name)
        return native(value, number) if type(value) is int else general(s)

    def others(s: Scope) -> Any:
        other = s.other
        if other is not None and not (SHADOWED and s.get(far) is not None):
            value = other.get(name)
            if type(value) is int:
                return native(value, number)
        return general(s)

    return others if far else own


def between(left: Place, right: Place, native: Native, general: Compiled) -> Compiled | None:
    """`TARGET.Memory >= RequestMemory` and its like; None where both are the other side's."""
    (left_far, left_name), (right_far, right_name) = left, right

    def own(s: Scope) -> Any:
        a, b = s.get(left_name), s.get(right_name)
        return native(a, b) if type(a) is int and type(b) is int else general(s)

    def left_others(s: Scope) -> Any:
        other = s.other
        if other is not None and not (SHADOWED and s.get(left_far) is not None):
            a, b = other.get(left_name), s.get(right_name)
            if type(a) is int and type(b) is int:
                return native(a, b)
        return general(s)

    def right_others(s: Scope) -> Any:
        other = s.other
        if other is not None and not (SHADOWED and s.get(right_far) is not None):
            a, b = s.get(left_name), other.get(right_name)
            if type(a) is int and type(b) is int:
                return native(a, b)
        return general(s)

    if left_far and right_far:
        return None
    return left_others if left_far else right_others if right_far else own
