"""The rest of a tree when some of its questions have been answered."""

from __future__ import annotations

from collections.abc import Callable

from pool.policy.matching.clauses import AllOf, AnyOf, Choice, NumberedPart, Opposite, Question, Tree
from pool.policy.matching.pairs import FALSE, TRUE, UNKNOWN, WRONG

Answered = Callable[[Question], int | None]
"""The class of a question's value where it is known."""

ALWAYS, NEVER = NumberedPart(TRUE), NumberedPart(FALSE)


def acceptance(tree: Tree, answered: Answered) -> Tree:
    """The rest of Requirements, where only the values true and not true count."""
    found = reduced(tree, answered)
    parts = found.parts if isinstance(found, AllOf) else (found,)
    if any(isinstance(part, NumberedPart) and part.code != TRUE for part in parts):
        return NEVER
    return found


def reduced(tree: Tree, answered: Answered) -> Tree:
    """A tree of the same class as the given one, with fewer questions."""
    if isinstance(tree, Question):
        code = answered(tree)
        return tree if code is None else NumberedPart(code)
    if isinstance(tree, Opposite):
        part = reduced(tree.part, answered)
        if isinstance(part, NumberedPart):
            return NumberedPart({TRUE: FALSE, FALSE: TRUE}.get(part.code, part.code))
        return Opposite(part)
    if isinstance(tree, Choice):
        test = reduced(tree.test, answered)
        if isinstance(test, NumberedPart):
            if test.code in (UNKNOWN, WRONG):
                return test
            return reduced(tree.yes if test.code == TRUE else tree.no, answered)
        return Choice(test, reduced(tree.yes, answered), reduced(tree.no, answered))
    if isinstance(tree, (AllOf, AnyOf)):
        return _chain(tree, answered)
    return tree


def _chain(tree: AllOf | AnyOf, answered: Answered) -> Tree:
    passing, deciding = (TRUE, FALSE) if isinstance(tree, AllOf) else (FALSE, TRUE)
    parts: list[Tree] = []
    for part in tree.parts:
        found = reduced(part, answered)
        if isinstance(found, NumberedPart):
            if found.code == passing:
                continue
            parts.append(found)
            if found.code in (deciding, WRONG):
                break
        else:
            parts.append(found)
    if not parts:
        return NumberedPart(passing)
    if len(parts) == 1:
        return parts[0]
    return AllOf(tuple(parts)) if isinstance(tree, AllOf) else AnyOf(tuple(parts))
