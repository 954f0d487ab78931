"""Syntax trees to closures: one Python function of a Scope for each node, made once for each expression.

The forms that fill the pool's expressions are specialised: names, MY.x and TARGET.x, comparison of anything with
a literal, arithmetic on two numbers, and `&&`, `||` chains, which run as one loop. Every special case falls back
to the general operator in `operations` for operands it does not expect, so there is one definition of each.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from pool.classad import operations, shortcuts
from pool.classad import scope as scopes
from pool.classad.expr import Expr, is_plain
from pool.classad.functions import TABLE, Lazy, Strict
from pool.classad.names import SCOPE_NAMES, SHADOWED, fold
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
    TimeLiteral,
    Unary,
)
from pool.classad.scope import ListValue, Scope, bare, reached, selected
from pool.classad.values import ERROR, INT_MAX, INT_MIN, UNDEFINED, RelTime, wrap

Compiled = Callable[[Scope], Any]


def compile_node(node: ExprNode) -> Compiled:
    return _COMPILERS[type(node)](node)


def constant(value: Any) -> Compiled:
    def run(s: Scope) -> Any:
        return value

    return run


def _literal(node: Literal) -> Compiled:
    return constant(node.value)


def _time_literal(node: TimeLiteral) -> Compiled:
    return constant(node.value.seconds if type(node.value) is RelTime else node.value)


def _paren(node: Paren) -> Compiled:
    return compile_node(node.inner)


def _ref(node: Ref) -> Compiled:
    key = fold(node.name)
    if node.base is None:
        if node.absolute:
            return lambda s: scopes.absolute(s, key)
        return _bare_scope(key) if key in SCOPE_NAMES else _bare(key)
    base = node.base
    while type(base) is Paren:
        base = base.inner
    if type(base) is Ref and base.base is None and not base.absolute:
        word = base.name.lower()
        if word in ("target", "other"):
            return _of_target(key, word)
        if word in ("my", "self"):
            return _of_my(key, word)
    if type(base) is Subscript:
        return _of_subscript(base, key)
    inner = compile_node(base)

    def run(s: Scope) -> Any:
        return selected(inner(s), key, s)

    return run


def _of_subscript(node: Subscript, key: str) -> Compiled:
    """`list[n].Name`; and `ad["Nested"].Name`, which is undefined: the reference loses an ad that was taken out of
    another by a subscript (`ad.Nested.Name` and `ad["Nested"]["Name"]` work).
    """
    outer, index = compile_node(node.base), compile_node(node.index)

    def run(s: Scope) -> Any:
        holder = outer(s)
        base = operations.subscript(holder, index(s))
        if type(base) is Scope and type(holder) is Scope:
            return UNDEFINED
        return selected(base, key, s)

    return run


def _bare(key: str) -> Compiled:
    def run(s: Scope) -> Any:
        found = s.get(key)
        if type(found) is Expr:
            return reached(s, key, found)
        return bare(s, key) if found is None else found

    return run


def _bare_scope(key: str) -> Compiled:
    return lambda s: bare(s, key)


def _of_my(key: str, word: str) -> Compiled:
    def run(s: Scope) -> Any:
        if SHADOWED and s.get(word) is not None:
            return selected(bare(s, word), key, s)
        found = s.get(key)
        if type(found) is Expr:
            return reached(s, key, found)
        return selected(s, key, s) if found is None else found

    return run


def _of_target(key: str, word: str) -> Compiled:
    def run(s: Scope) -> Any:
        other = s.other
        if other is None or (SHADOWED and s.get(word) is not None):
            return selected(bare(s, word), key, s)
        found = other.get(key)
        if type(found) is Expr:
            return reached(other, key, found)
        return selected(other, key, s) if found is None else found

    return run


def _unary(node: Unary) -> Compiled:
    inner, apply = compile_node(node.operand), operations.UNARY[node.sign]
    return lambda s: apply(inner(s))


def _conditional(node: Conditional) -> Compiled:
    test, yes, no = compile_node(node.test), compile_node(node.yes), compile_node(node.no)

    def run(s: Scope) -> Any:
        value = test(s)
        if type(value) in operations.NUMBERS:
            return yes(s) if value else no(s)
        return UNDEFINED if value is UNDEFINED else ERROR

    return run


def _elvis(node: Elvis) -> Compiled:
    left, right = compile_node(node.left), compile_node(node.right)

    def run(s: Scope) -> Any:
        value = left(s)
        return right(s) if value is UNDEFINED else value

    return run


def _subscript(node: Subscript) -> Compiled:
    base, index = compile_node(node.base), compile_node(node.index)
    return lambda s: operations.subscript(base(s), index(s))


def _list(node: ListNode) -> Compiled:
    nodes = node.items
    compiled = tuple(compile_node(item) for item in nodes)
    if all(is_plain(item) for item in nodes):
        fixed = ListValue(tuple(item.value for item in nodes))  # type: ignore[attr-defined]
        return constant(fixed)
    return lambda s: ListValue(None, nodes, compiled, s)


def _ad(node: AdNode) -> Compiled:
    from pool.classad.ad import ClassAd

    ad = ClassAd.from_node(node)
    return lambda s: Scope(ad, s, s.root)


def _call(node: FunctionCall) -> Compiled:
    entry = TABLE.get(node.name.lower())
    if entry is None:
        return constant(ERROR)
    arguments = tuple(compile_node(argument) for argument in node.arguments)
    if not entry.least <= len(arguments) <= entry.most:
        return constant(ERROR)
    if isinstance(entry, Lazy):
        return entry.bind(node.arguments, arguments)
    assert isinstance(entry, Strict)
    apply = entry.apply
    if len(arguments) == 1:
        only = arguments[0]
        return lambda s: apply(s, only(s))
    if len(arguments) == 2:
        first, second = arguments
        return lambda s: apply(s, first(s), second(s))
    return lambda s: apply(s, *[argument(s) for argument in arguments])


def _chain(node: Chain) -> Compiled:
    sign = node.rest[0][0]
    if sign in ("&&", "||"):
        parts = (compile_node(node.first), *[compile_node(below) for _, below in node.rest])
        return _all_of(parts) if sign == "&&" else _any_of(parts)
    run = compile_node(node.first)
    if len(node.rest) <= 4:
        first: ExprNode | None = node.first
        for sign, below in node.rest:
            run, first = _binary(sign, run, first, below), None
        return run
    rest = tuple((operations.binary(sign), compile_node(below)) for sign, below in node.rest)

    def fold_left(s: Scope) -> Any:
        value = run(s)
        for apply, part in rest:
            value = apply(value, part(s))
        return value

    return fold_left


def _all_of(parts: tuple[Compiled, ...]) -> Compiled:
    def run(s: Scope) -> Any:
        unknown = False
        for part in parts:
            value = part(s)
            if value is True:
                continue
            if value is False:
                return False
            if value is UNDEFINED:
                unknown = True
            elif type(value) is int or type(value) is float:
                if not value:
                    return False
            else:
                return ERROR
        return UNDEFINED if unknown else True

    return run


def _any_of(parts: tuple[Compiled, ...]) -> Compiled:
    def run(s: Scope) -> Any:
        unknown = False
        for part in parts:
            value = part(s)
            if value is False:
                continue
            if value is True:
                return True
            if value is UNDEFINED:
                unknown = True
            elif type(value) is int or type(value) is float:
                if value:
                    return True
            else:
                return ERROR
        return UNDEFINED if unknown else False

    return run


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _binary(sign: str, left: Compiled, left_node: ExprNode | None, right_node: ExprNode) -> Compiled:
    """
    Args:
        left_node: the tree of the left side, where it is one attribute or the like.
    """
    if sign in _COMPARISONS:
        return _compared(sign, left, left_node, right_node)
    right = compile_node(right_node)
    if sign in ("=?=", "=!="):
        if type(right_node) is Literal and (right_node.value is UNDEFINED or right_node.value is ERROR):
            return _is_constant(sign == "=?=", left, right_node.value)
        apply = operations.binary(sign)
        return lambda s: apply(left(s), right(s))
    if sign in ("+", "-", "*"):
        return _sum(sign, left, right)
    general = operations.binary(sign)
    return lambda s: general(left(s), right(s))


def _compared(sign: str, left: Compiled, left_node: ExprNode | None, right_node: ExprNode) -> Compiled:
    place = shortcuts.place_of(left_node) if left_node is not None else None
    native = _COMPARISONS[sign]
    if type(right_node) is Literal and type(right_node.value) is str and sign in ("==", "!="):
        general = _with_string(sign, left, right_node.value)
        return shortcuts.with_string(place, right_node.value, sign == "==", general) if place else general
    if type(right_node) is Literal and type(right_node.value) is int:
        general = _with_integer(sign, left, right_node.value)
        return shortcuts.with_integer(place, right_node.value, native, general) if place else general
    general = _comparison(sign, left, compile_node(right_node))
    other = shortcuts.place_of(right_node)
    return (shortcuts.between(place, other, native, general) if place and other else None) or general


def _is_constant(wanted: bool, left: Compiled, value: Any) -> Compiled:
    if wanted:
        return lambda s: left(s) is value
    return lambda s: left(s) is not value


def _with_string(sign: str, left: Compiled, text: str) -> Compiled:
    """Equality with a literal string, whose folded form is made once."""
    key = operations.string_key(text)
    string_key, compare = operations.string_key, operations.compare
    equal = sign == "=="

    def run(s: Scope) -> Any:
        value = left(s)
        if type(value) is str:
            return (value == text or string_key(value) == key) is equal
        return compare(sign, value, text)

    return run


def _with_integer(sign: str, left: Compiled, number: int) -> Compiled:
    native, compare = _COMPARISONS[sign], operations.compare

    def run(s: Scope) -> Any:
        value = left(s)
        if type(value) is int:
            return native(value, number)
        return compare(sign, value, number)

    return run


def _comparison(sign: str, left: Compiled, right: Compiled) -> Compiled:
    native, compare = _COMPARISONS[sign], operations.compare

    def run(s: Scope) -> Any:
        a = left(s)
        b = right(s)
        if type(a) is int and type(b) is int:
            return native(a, b)
        return compare(sign, a, b)

    return run


_SUMS: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _sum(sign: str, left: Compiled, right: Compiled) -> Compiled:
    native, arithmetic = _SUMS[sign], operations.arithmetic

    def run(s: Scope) -> Any:
        a = left(s)
        b = right(s)
        if type(a) is int and type(b) is int:
            result = native(a, b)
            return result if INT_MIN <= result <= INT_MAX else wrap(result)
        return arithmetic(sign, a, b)

    return run


_COMPILERS: dict[type[ExprNode], Callable[[Any], Compiled]] = {
    Literal: _literal,
    TimeLiteral: _time_literal,
    Paren: _paren,
    Ref: _ref,
    Unary: _unary,
    Conditional: _conditional,
    Elvis: _elvis,
    Subscript: _subscript,
    ListNode: _list,
    AdNode: _ad,
    FunctionCall: _call,
    Chain: _chain,
}
