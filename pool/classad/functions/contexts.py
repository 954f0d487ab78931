"""evalInEachContext(expression, ads) and countMatches(expression, ads): an expression seen from each ad of a list.

A first argument that names an attribute stands for that attribute's expression, looked up where the call is; otherwise
the argument itself is the expression. In each ad, a name that the ad lacks is looked up in the ad's surroundings and
then on the other side of the match. So a job's RequireGPUs is tried against each GPU of a machine.
"""

from __future__ import annotations

from typing import Any

from pool.classad import operations
from pool.classad.expr import Expr
from pool.classad.functions.registry import Compiled, Family
from pool.classad.nodes import ExprNode, Ref
from pool.classad.scope import ListValue, Scope, made, outermost
from pool.classad.values import ERROR, UNDEFINED

FUNCTIONS = Family()


def _expression(node: ExprNode, compiled: Compiled, scope: Scope) -> tuple[Compiled, int, Scope | None]:
    """The expression to evaluate in each ad, the cost of one evaluation, and the scope to find the list in; None when
    no list will be found.
    """
    if not isinstance(node, Ref):
        return compiled, node.height, scope
    found, where = dereferenced(node, scope)
    if found is None:
        return compiled, node.height, where
    if type(found) is Expr:
        return found.compiled or found.compile(), found.weight, where
    return (lambda s: found), 1, where


def dereferenced(node: Ref, scope: Scope) -> tuple[Any, Scope | None]:
    """The value held for a reference, unevaluated (a scalar or an Expr; None when it is found nowhere), and the scope
    in which the search ended, where the reference goes on. During a match, when neither ad has the name, that is the
    match itself, which has no names: None.
    """
    key = node.name.lower()
    if node.base is not None:
        base = _base_scope(node.base, scope)
        if base is None:
            return None, scope
        starts = [base]
    elif node.absolute:
        if outermost(scope).other is not None:
            return None, None
        starts = [outermost(scope)]
    else:
        starts = [scope] if scope.other is None else [scope, scope.other]
    for start in starts:
        current: Scope | None = start
        while current is not None:
            found = current.get(key)
            if found is not None:
                return found, current
            current = current.outer
    end = outermost(starts[-1])
    return None, end if end.other is None else None


def _base_scope(node: ExprNode, scope: Scope) -> Scope | None:
    from pool.classad.compiling import compile_node

    value = compile_node(node)(scope)
    return value if type(value) is Scope else None


def _in_context(run: Compiled, cost: int, item: Any, caller: Scope) -> Any:
    if type(item) is not Scope:
        return UNDEFINED if item is UNDEFINED else ERROR
    caller.spend(cost)
    inner = Scope(item.ad, item.outer, caller.root)
    top = outermost(item)
    inner.other = item.other if item.outer is None else top.other
    return run(inner)


def _each(nodes: tuple[ExprNode, ...], arguments: tuple[Compiled, ...], scope: Scope) -> list[Any] | Any:
    run, cost, where = _expression(nodes[0], arguments[0], scope)
    if where is None:
        scope.lose()
    else:
        scope = where
    items = arguments[1](scope)
    if type(items) is not ListValue:
        return items
    return [_in_context(run, cost, item, scope) for item in items.items(scope)]


@FUNCTIONS.lazy("evalInEachContext", 2)
def _eval_in_each_context(nodes: tuple[ExprNode, ...], arguments: tuple[Compiled, ...]) -> Compiled:
    def run(s: Scope) -> Any:
        values = _each(nodes, arguments, s)
        if type(values) is list:
            return made(values)
        return UNDEFINED if values is UNDEFINED else ERROR

    return run


@FUNCTIONS.lazy("countMatches", 2)
def _count_matches(nodes: tuple[ExprNode, ...], arguments: tuple[Compiled, ...]) -> Compiled:
    def run(s: Scope) -> Any:
        values = _each(nodes, arguments, s)
        if type(values) is list:
            return sum(1 for value in values if type(value) in operations.NUMBERS and value)
        return 0 if values is UNDEFINED else ERROR

    return run
