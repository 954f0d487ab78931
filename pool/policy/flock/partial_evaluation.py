"""A machine's Requirements, with the parts evaluated that depend on the machine alone.

A machine's owner asks for an idle keyboard and a low load. The answer is the same for every job, so another pool
need not know how long the keyboard has been idle, and machines that differ only in that are of one kind to it. The
owner of another pool's job is USER@POOL. So a comparison of the job's owner with a local user has a known answer, too.
"""

from __future__ import annotations

from typing import Any

from pool.classad import ClassAd, Expr
from pool.classad.names import SHADOWED
from pool.classad.nodes import AdNode, Chain, ExprNode, FunctionCall, Literal, Paren, Ref, children
from pool.policy.matching.clauses import (
    CONTEXTS,
    AllOf,
    AnyOf,
    Choice,
    NumberedPart,
    Opposite,
    Question,
    Tree,
    own_name,
    resolved,
    text_of,
)
from pool.policy.matching.looking import references_of
from pool.policy.matching.pairs import FALSE, TRUE, Pair, class_of
from pool.policy.matching.reducing import acceptance

Wire = dict[str, Any]
#: The Requirements of a machine that accepts no job of another pool.
LETS_NOBODY_IN = ["false"]
_NOBODY = ClassAd()
#: Expressions whose names are remembered.
_REMEMBERED = 20_000


def partially_evaluated(wire: Wire) -> Wire:
    """The same ad. Parts of its Requirements that read neither a job nor the time are evaluated, and comparisons of
    the job's owner with a local user.
    """
    requirements = next((value for name, value in wire.items() if name.lower() == "requirements"), None)
    if not isinstance(requirements, list):
        return wire
    ad = ClassAd.from_wire(wire)
    held = ad.held("Requirements")
    if type(held) is not Expr:
        return wire
    tree = resolved(held, "machine", ad.held)
    pair = Pair(_NOBODY, 0.0)
    pair.set_machine(ad)

    def answered(question: Question) -> int | None:
        expr = question.expr
        if (code := _answer_for_guests(expr.node, ad)) is not None:
            return code
        if not _reads_machine_alone(expr, ad, question.through):
            return None
        return class_of(pair.value(expr, "machine", question.through))

    text = _written(acceptance(tree, answered))  # `false` where the machine lets no such job in
    others = {name: value for name, value in wire.items() if name.lower() != "requirements"}
    return {**others, "Requirements": [text]}


def _written(tree: Tree) -> str:
    """A tree as an expression. Each part is in brackets, since it may hold any operator."""
    if isinstance(tree, NumberedPart):
        return text_of(tree)
    if isinstance(tree, (AllOf, AnyOf)):
        return (" && " if isinstance(tree, AllOf) else " || ").join(f"({_written(part)})" for part in tree.parts)
    if isinstance(tree, Opposite):
        return f"!({_written(tree.part)})"
    if isinstance(tree, Choice):
        return " : ".join((f"({_written(tree.test)}) ? ({_written(tree.yes)})", f"({_written(tree.no)})"))
    return tree.expr.text


def _answer_for_guests(node: ExprNode, ad: ClassAd) -> int | None:
    """The value for guests of a comparison of a job's owner with a local user, as a class; None for anything else."""
    while isinstance(node, Paren):
        node = node.inner
    if not isinstance(node, Chain) or len(node.rest) != 1 or ad.held("target") is not None:
        return None
    ((sign, right),) = node.rest
    for one, other in ((node.first, right), (right, node.first)):
        if (
            isinstance(one, Ref)
            and one.name.lower() in ("owner", "user")
            and isinstance(one.base, Ref)
            and one.base.base is None
            and one.base.name.lower() == "target"
            and isinstance(other, Literal)
            and isinstance(other.value, str)
            and "@" not in other.value
        ):
            return {"==": FALSE, "=?=": FALSE, "!=": TRUE, "=!=": TRUE}.get(sign)
    return None


def _reads_machine_alone(expr: Expr, ad: ClassAd, through: tuple[str, ...]) -> bool:
    """Whether an expression reads nothing but plain attributes of the ad."""
    names = None if any(ad.held(word) is not None for word in SHADOWED) else _own_names(expr)
    return names is not None and not any(
        name in through or (value := ad.held(name)) is None or type(value) is Expr for name in names
    )


_names: dict[Expr, frozenset[str] | None] = {}


def _own_names(expr: Expr) -> frozenset[str] | None:
    """The folded names that an expression reads from its own ad; None if it reads anything else."""
    if expr not in _names:
        if len(_names) >= _REMEMBERED:
            _names.clear()
        _names[expr] = _read_names(expr)
    return _names[expr]


def _read_names(expr: Expr) -> frozenset[str] | None:
    reads = references_of(expr)
    if reads.timed or reads.chance or reads.hidden:
        return None
    found: set[str] = set()
    waiting = [expr.node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, AdNode) or (isinstance(node, FunctionCall) and node.name.lower() in CONTEXTS):
            return None
        if isinstance(node, Ref):
            name = own_name(node)
            if name is None:
                return None
            found.add(name)
        else:
            waiting.extend(children(node))
    return frozenset(found)
