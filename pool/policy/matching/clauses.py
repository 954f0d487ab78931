"""Requirements taken apart: into the clauses of their conjunction, and each clause into logic over small questions.

A value is in one of four *classes*: true (a number other than 0), false, undefined, error (anything else, strings
included). The results of `&&`, `||`, `!`, `?:` and ifThenElse follow from classes alone. So an expression can be
answered for a whole pool at once by sets: for each *question* (the smallest part that is not logic) the set of slots
for each class, then `&` and `|` over sets. A question reads few attributes, so it is evaluated once for each distinct
combination of them and not once for each slot.

An attribute of the ad's own that stands for a clause (START, WithinResourceLimits) is taken apart in its place. Such a
part is asked as if the evaluation had come through that attribute, so that one which refers back to itself is
undefined, as it is when the whole is evaluated.

A pair is accepted where `pool.classad.symmetric_match` accepts it, with one difference: the bounds on steps and depth
hold for each question by itself. Two kinds of expressions are not taken apart: those that draw numbers, and those that
ask for the contexts of a list by a name that its ad does not have (which makes the reference forget names from there
on).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from pool.classad import Expr, literal
from pool.classad.names import SCOPE_NAMES
from pool.classad.nodes import Chain, Conditional, ExprNode, FunctionCall, Paren, Ref, Unary, children
from pool.policy.matching.looking import ExprReferences, references_of

Side = Literal["request", "machine"]
Held = Callable[[str], Any]

#: Functions that evaluate an expression in other ads.
CONTEXTS = frozenset({"evalineachcontext", "countmatches"})
_REMEMBERED = 20_000
#: Most questions of one tree; what has more is asked as a whole.
_MOST = 400


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A part without logic of its own. The same question is the same object: see `question_of`.

    Attributes:
        through: attributes of the same ad, folded, by way of which it was found.
    """

    side: Side
    expr: Expr
    through: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return self.expr.text


@dataclass(frozen=True, slots=True)
class NumberedPart:
    """A part whose class is known: one of those that `pairs` numbers."""

    code: int


@dataclass(frozen=True, slots=True)
class AllOf:
    """`&&`."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """`||`."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Opposite:
    """`!`."""

    part: Tree


@dataclass(frozen=True, slots=True)
class Choice:
    """`test ? yes : no` and ifThenElse."""

    test: Tree
    yes: Tree
    no: Tree


@dataclass(frozen=True, slots=True)
class OwnAttribute:
    """An attribute of the ad's own that may be taken apart in its place.

    Attributes:
        scope: the word before it that means the ad, `my` or `self`, unless the ad has an attribute of that name.
    """

    name: str
    expr: Expr
    scope: str | None = None


Tree = Question | NumberedPart | AllOf | AnyOf | Opposite | Choice | OwnAttribute

_questions: dict[tuple[Side, str, tuple[str, ...]], Question] = {}


def question_of(side: Side, expr: Expr, through: tuple[str, ...] = ()) -> Question:
    """The question that asks for an expression of one side."""
    key = (side, expr.text, through)
    found = _questions.get(key)
    if found is None:
        if len(_questions) >= _REMEMBERED:
            _questions.clear()
        found = _questions[key] = Question(side, expr, through)
    return found


@dataclass(frozen=True, slots=True)
class Clause:
    """One of the conditions that must all be true.

    Attributes:
        side: whose Requirements it is from.
        text: as it was written.
        through: attributes of the same ad that it stands in, outermost first; empty when it stands in Requirements.
        tree: its logic.
    """

    side: Side
    text: str
    through: tuple[str, ...]
    tree: Tree = field(compare=False, repr=False)

    @property
    def references(self) -> frozenset[str]:
        """Folded names of the attributes that its text mentions, of either ad."""
        names: frozenset[str] = frozenset()
        for question in questions(self.tree):
            names |= references_of(question.expr).names
        return names


def split(requirements: Any, side: Side = "request", held: Held | None = None) -> tuple[Clause, ...]:
    """The clauses of Requirements: it accepts when every one of them is true, and only then.

    Args:
        requirements: what an ad holds: an expression or a plain value.
        side: whose they are.
        held: looks an attribute of the same ad up, by its folded name; without it none is taken apart.
    """
    return tuple(clauses_of(resolved(requirements, side, held), side))


def clauses_of(tree: Tree, side: Side) -> Iterator[Clause]:
    """The clauses of a tree."""
    if isinstance(tree, AllOf):
        for part in tree.parts:
            yield from clauses_of(part, side)
    else:
        yield Clause(side, text_of(tree), _shared_way([question.through for question in questions(tree)]), tree)


def _shared_way(ways: list[tuple[str, ...]]) -> tuple[str, ...]:
    shared = 0
    while all(len(way) > shared and way[shared] == ways[0][shared] for way in ways):
        shared += 1
    return ways[0][:shared]


def questions(tree: Tree) -> Iterator[Question]:
    """All questions of a tree, from the left."""
    if isinstance(tree, Question):
        yield tree
    elif isinstance(tree, (AllOf, AnyOf)):
        for part in tree.parts:
            yield from questions(part)
    elif isinstance(tree, Opposite):
        yield from questions(tree.part)
    elif isinstance(tree, Choice):
        for part in (tree.test, tree.yes, tree.no):
            yield from questions(part)


def text_of(tree: Tree) -> str:
    """The tree as an expression."""
    if isinstance(tree, (Question, OwnAttribute)):
        return tree.expr.text
    if isinstance(tree, NumberedPart):
        return ("false", "true", "undefined", "error")[tree.code]
    if isinstance(tree, AllOf):
        return " && ".join(_closed(part) for part in tree.parts)
    if isinstance(tree, AnyOf):
        return " || ".join(_closed(part) for part in tree.parts)
    if isinstance(tree, Opposite):
        return f"!{_closed(tree.part)}"
    return f"{_closed(tree.test)} ? {_closed(tree.yes)} : {_closed(tree.no)}"


def _closed(tree: Tree) -> str:
    text = text_of(tree)
    return f"({text})" if isinstance(tree, (AllOf, AnyOf, Choice)) else text


# --- taking apart


def resolved(requirements: Any, side: Side, held: Held | None = None) -> Tree:
    """The logic of Requirements, with own attributes in their places. Arguments as for `split`."""
    if type(requirements) is not Expr:
        return question_of(side, literal(requirements))
    if _divisible(requirements, held, set()):
        try:
            return _Placing(side, held).placed(taken_apart(requirements).tree, ())
        except _TooMany:
            pass
    return question_of(side, requirements)


def deciding_attributes(requirements: Any, held: Held) -> list[tuple[str, Any]]:
    """The attributes that decide how Requirements are taken apart, with what the ad holds for them: two ads for which
    this is the same have the same tree.
    """
    found: list[tuple[str, Any]] = []
    waiting = [requirements] if type(requirements) is Expr else []
    seen: set[str] = set()
    while waiting:
        apart = taken_apart(waiting.pop())
        for name in (*apart.owns, *apart.words, *_context_names(apart)):
            if name not in seen:
                seen.add(name)
                value = held(name)
                value = value if type(value) is Expr else value is not None
                found.append((name, value))
                if type(value) is Expr:
                    waiting.append(value)
    return found


@dataclass(frozen=True, slots=True)
class _Apart:
    """An expression taken apart by its text alone.

    Attributes:
        words: names that mean the ad itself before own attributes.
        contexts: own attributes by which contexts of lists are asked for; None when such a name is another's.
    """

    tree: Tree
    owns: tuple[str, ...]
    words: tuple[str, ...]
    contexts: tuple[str, ...] | None
    look: ExprReferences


_apart: dict[Expr, _Apart] = {}
_parts: dict[str, Expr] = {}


def taken_apart(expr: Expr) -> _Apart:
    """The logic of one expression by its text alone."""
    found = _apart.get(expr)
    if found is None:
        if len(_apart) >= _REMEMBERED:
            _apart.clear()
            _parts.clear()
        tree = _logic(expr.node)
        leaves = [leaf for leaf in _leaf_nodes(tree) if isinstance(leaf, OwnAttribute)]
        owns = tuple(dict.fromkeys(leaf.name for leaf in leaves))
        words = tuple(dict.fromkeys(leaf.scope for leaf in leaves if leaf.scope is not None))
        found = _apart[expr] = _Apart(tree, owns, words, _asked_contexts(expr.node), references_of(expr))
    return found


def _context_names(apart: _Apart) -> tuple[str, ...]:
    return apart.contexts or ()


def _leaf_nodes(tree: Tree) -> Iterator[Tree]:
    if isinstance(tree, (AllOf, AnyOf)):
        for part in tree.parts:
            yield from _leaf_nodes(part)
    elif isinstance(tree, Opposite):
        yield from _leaf_nodes(tree.part)
    elif isinstance(tree, Choice):
        for part in (tree.test, tree.yes, tree.no):
            yield from _leaf_nodes(part)
    else:
        yield tree


def _logic(node: ExprNode) -> Tree:
    if isinstance(node, Paren):
        return _logic(node.inner)
    if isinstance(node, Chain) and node.rest[0][0] in ("&&", "||"):
        parts = tuple(_logic(part) for part in (node.first, *[below for _, below in node.rest]))
        return AllOf(parts) if node.rest[0][0] == "&&" else AnyOf(parts)
    if isinstance(node, Unary) and node.sign == "!":
        return Opposite(_logic(node.operand))
    if isinstance(node, Conditional):
        return Choice(_logic(node.test), _logic(node.yes), _logic(node.no))
    if isinstance(node, FunctionCall) and node.name.lower() == "ifthenelse" and len(node.arguments) == 3:
        return Choice(*[_logic(argument) for argument in node.arguments])
    if (name := own_name(node)) is not None:
        base = node.base if isinstance(node, Ref) else None
        return OwnAttribute(name, _shared(node), base.name.lower() if isinstance(base, Ref) else None)
    return Question("request", _shared(node))


def own_name(node: ExprNode) -> str | None:
    """The folded name of an attribute that the same ad answers for, if it has it: `START`, `MY.START`."""
    if not isinstance(node, Ref) or node.absolute or node.name.lower() in SCOPE_NAMES:
        return None
    base = node.base
    if base is None:
        return node.name.lower()
    own = isinstance(base, Ref) and base.base is None and not base.absolute and base.name.lower() in ("my", "self")
    return node.name.lower() if own else None


def _shared(node: ExprNode) -> Expr:
    """The expression of a part, the same object for the same text, so that it is compiled once."""
    expr = Expr(node)
    return _parts.setdefault(expr.text, expr)


def _asked_contexts(node: ExprNode) -> tuple[str, ...] | None:
    found: list[str] = []
    waiting = [node]
    while waiting:
        below = waiting.pop()
        if isinstance(below, FunctionCall) and below.name.lower() in CONTEXTS and below.arguments:
            first = below.arguments[0]
            if isinstance(first, Ref):
                name = own_name(first)
                if name is None:
                    return None
                found.append(name)
        waiting.extend(children(below))
    return tuple(found)


def _divisible(expr: Expr, held: Held | None, seen: set[str]) -> bool:
    """Whether the parts of an expression, and of what stands in it, may be asked one by one."""
    apart = taken_apart(expr)
    if apart.look.chance or apart.contexts is None:
        return False
    if held is None:
        return True
    if any(held(name) is None for name in apart.contexts):
        return False
    for name in apart.owns:
        below = held(name)
        if name not in seen and type(below) is Expr:
            seen.add(name)
            if not _divisible(below, held, seen):
                return False
    return True


class _TooMany(Exception):
    """The tree has more questions than are worth asking one by one."""


class _Placing:
    """Puts own attributes in their places."""

    __slots__ = ("held", "left", "side")

    def __init__(self, side: Side, held: Held | None) -> None:
        self.side = side
        self.held = held
        self.left = _MOST

    def placed(self, tree: Tree, through: tuple[str, ...]) -> Tree:
        if isinstance(tree, AllOf):
            parts: list[Tree] = []
            for part in (self.placed(part, through) for part in tree.parts):
                parts.extend(part.parts if isinstance(part, AllOf) else (part,))
            return AllOf(tuple(parts))
        if isinstance(tree, AnyOf):
            return AnyOf(tuple(self.placed(part, through) for part in tree.parts))
        if isinstance(tree, Opposite):
            return Opposite(self.placed(tree.part, through))
        if isinstance(tree, Choice):
            return Choice(*[self.placed(part, through) for part in (tree.test, tree.yes, tree.no)])
        self.left -= 1
        if self.left < 0:
            raise _TooMany
        if isinstance(tree, NumberedPart):
            return tree
        if isinstance(tree, OwnAttribute) and self.held is not None:
            below = self.held(tree.name)
            is_own = tree.scope is None or self.held(tree.scope) is None
            if type(below) is Expr and tree.name not in through and is_own:
                return self.placed(taken_apart(below).tree, (*through, tree.name))
        return question_of(self.side, tree.expr, through)
