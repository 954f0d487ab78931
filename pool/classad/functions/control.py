"""ifThenElse, eval, debug, unparse, unresolved: functions about expressions rather than values."""

from __future__ import annotations

from typing import Any

from pool.classad import operations
from pool.classad.errors import EvaluationFailed, ParseError
from pool.classad.expr import Expr, literal, parse_expr
from pool.classad.functions.convert import to_string
from pool.classad.functions.registry import Compiled, Family
from pool.classad.nodes import ExprNode, Ref
from pool.classad.patterns import PatternError, compiled_pattern
from pool.classad.printing import PRETTY, print_node
from pool.classad.references import external_names
from pool.classad.scope import Scope
from pool.classad.values import ERROR, UNDEFINED

FUNCTIONS = Family()


@FUNCTIONS.lazy("ifThenElse", 3)
def _if_then_else(nodes: tuple[ExprNode, ...], arguments: tuple[Compiled, ...]) -> Compiled:
    test, yes, no = arguments

    def run(s: Scope) -> Any:
        value = test(s)
        if type(value) in operations.NUMBERS:
            return yes(s) if value else no(s)
        return UNDEFINED if value is UNDEFINED else ERROR

    return run


@FUNCTIONS.strict("eval", 1)
def evaluate_text(scope: Scope, value: Any) -> Any:
    """The value of the expression that a string says, in the scope of the call."""
    text = to_string(value)
    if type(text) is not str:
        return ERROR
    scope.spend(len(text) // 8 + 10)
    try:
        expression = parse_expr(text)
    except ParseError:
        return ERROR
    compiled = expression.compiled or expression.compile()
    root = scope.root
    scope.spend(expression.weight)
    root.room -= expression.height
    if root.room < 0:
        raise EvaluationFailed("too deep")
    result = compiled(scope)
    root.room += expression.height
    return result


@FUNCTIONS.strict("debug", 1)
def debug(scope: Scope, value: Any) -> Any:
    """Its argument; nothing is logged, since a user's expression has no say over the daemon's log."""
    return value


@FUNCTIONS.lazy("unparse", 1)
def _unparse(nodes: tuple[ExprNode, ...], arguments: tuple[Compiled, ...]) -> Compiled:
    node = nodes[0]
    if not isinstance(node, Ref):
        return lambda s: ERROR
    key = print_node(node).lower()

    def run(s: Scope) -> Any:
        found = s.get(key)
        if found is None:
            return ""
        s.spend(100)
        return print_node(literal(found).node, PRETTY)

    return run


@FUNCTIONS.lazy("unresolved", 1, 2)
def _unresolved(nodes: tuple[ExprNode, ...], arguments: tuple[Compiled, ...]) -> Compiled:
    """unresolved(Name): names that Name's expression needs and the ad has not, with commas between;
    unresolved(Name, pattern): whether one of them matches, without regard to case.
    """
    node = nodes[0]
    if not isinstance(node, Ref) or node.base is not None:
        return lambda s: ERROR
    key = node.name.lower()
    pattern = arguments[1] if len(arguments) == 2 else None

    def run(s: Scope) -> Any:
        found = s.get(key)
        if found is None:
            return UNDEFINED
        wanted = pattern(s) if pattern is not None else None
        if pattern is not None and type(wanted) is not str:
            raise EvaluationFailed("unresolved needs a pattern")
        s.spend(100)
        needed = external_names(found if type(found) is Expr else literal(found), s)
        bare = [name[7:] if name.lower().startswith("target.") else name for name in needed]
        if wanted is None:
            return ",".join(bare)
        try:
            matcher = compiled_pattern(wanted, "i")
        except PatternError:
            return ERROR
        return any(matcher.search(name, s.spend) is not None for name in bare)

    return run
