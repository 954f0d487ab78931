"""The logic of clauses over sets of slots: from the sets of each question's classes to those of a whole tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pool.policy.matching.bits import Bits
from pool.policy.matching.clauses import AllOf, AnyOf, Choice, NumberedPart, Opposite, Question, Tree
from pool.policy.matching.pairs import FALSE, TRUE, WRONG

Ask = Callable[[Question], Mapping[int, Bits]]
"""The slots by the class of a question's value; a class that does not occur may be missing."""

Classes = tuple[Bits, Bits, Bits]
"""Where a tree is true, false, an error; elsewhere it is undefined."""


def where_true(tree: Tree, ask: Ask, among: Bits) -> Bits:
    """The slots of a set for which a tree is true."""
    if isinstance(tree, AllOf):
        for part in tree.parts:
            if not among:
                return 0
            among = where_true(part, ask, among)
        return among
    if isinstance(tree, Question):
        return among & ask(tree).get(TRUE, 0)
    return among & classes(tree, ask, among)[0]


def classes(tree: Tree, ask: Ask, among: Bits) -> Classes:
    """Where among these slots the tree is true, false, an error. `&&` and `||` stop at what decides them, as the
    evaluator does, so that an error behind that is none.
    """
    if isinstance(tree, Question):
        found = ask(tree)
        return among & found.get(TRUE, 0), among & found.get(FALSE, 0), among & found.get(WRONG, 0)
    if isinstance(tree, NumberedPart):
        return (
            among if tree.code == TRUE else 0,
            among if tree.code == FALSE else 0,
            among if tree.code == WRONG else 0,
        )
    if isinstance(tree, Opposite):
        true, false, wrong = classes(tree.part, ask, among)
        return false, true, wrong
    if isinstance(tree, Choice):
        return _choice(tree, ask, among)
    if isinstance(tree, (AllOf, AnyOf)):
        return _chain(tree, ask, among)
    raise TypeError(f"{tree!r} has not been put in its place")


def _choice(tree: Choice, ask: Ask, among: Bits) -> Classes:
    chosen, not_chosen, wrong = classes(tree.test, ask, among)
    yes = classes(tree.yes, ask, chosen) if chosen else (0, 0, 0)
    no = classes(tree.no, ask, not_chosen) if not_chosen else (0, 0, 0)
    return yes[0] | no[0], yes[1] | no[1], wrong | yes[2] | no[2]


def _chain(tree: AllOf | AnyOf, ask: Ask, among: Bits) -> Classes:
    decided = wrong = 0
    neutral = left = among
    for part in tree.parts:
        if not left:
            break
        true, false, bad = classes(part, ask, left)
        deciding, passing = (false, true) if isinstance(tree, AllOf) else (true, false)
        decided |= deciding
        wrong |= bad
        neutral &= passing
        left &= ~(deciding | bad)
    return (neutral, decided, wrong) if isinstance(tree, AllOf) else (decided, neutral, wrong)
