"""Which names machines hold, and by which expressions: how far a question can look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pool.classad import ClassAd, Expr
from pool.classad.compact import CompactAttributes
from pool.policy.matching.looking import NOTHING, ExprReferences, attributes, references_of, references_of_all


class Vocabulary:
    """The names that machines hold, and the different expressions they hold for them.

    Attributes:
        holders: for each folded name how many machines hold it.
    """

    def __init__(self) -> None:
        self.holders: Counter[str] = Counter()
        self._expressions: dict[str, Counter[Expr]] = {}
        self._looks: dict[str, ExprReferences] = {}

    def change(self, name: str, before: Any, after: Any) -> bool:
        """One machine holds something else for a name; whether questions now may look further than they did."""
        wider = False
        if before is None:
            self.holders[name] += 1
            wider = self.holders[name] == 1
        elif after is None:
            self.holders[name] -= 1
        if type(before) is Expr:
            known = self._expressions[name]
            known[before] -= 1
            if not known[before]:
                del known[before]
        if type(after) is Expr and self._add_expression(name, after):
            wider = True
        return wider

    def add(self, held: CompactAttributes) -> list[str]:
        """A machine is new; the names by which questions now may look further than they did."""
        holders, wider = self.holders, list[str]()
        for name, value in held.pairs():
            count = holders[name] = holders.get(name, 0) + 1
            if (type(value) is Expr and self._add_expression(name, value)) or count == 1:
                wider.append(name)
        return wider

    def _add_expression(self, name: str, held: Expr) -> bool:
        known = self._expressions.setdefault(name, Counter())
        known[held] += 1
        looks = self._looks.get(name)
        if known[held] > 1 or looks is None or looks | references_of(held) == looks:
            return False
        del self._looks[name]
        return True

    def references_of(self, name: str) -> ExprReferences:
        """The references of the machines' expressions for a name; those of machines that are gone may be among them."""
        found = self._looks.get(name)
        if found is None:
            known = self._expressions.get(name)
            found = self._looks[name] = references_of_all(known) if known else NOTHING
        return found

    def closure(self, begin: ExprReferences, request: ClassAd | None = None) -> ExprReferences:
        """All that can matter to a question: what it looks at, and what that looks at in either ad."""
        found = begin
        names = set(attributes(begin.names))
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            further = [self.references_of(name)]
            if request is not None:
                further.append(references_of(request.held(name)))
            for more in further:
                if more is not NOTHING:
                    found = found | more
                    new = attributes(more.names) - names
                    names |= new
                    waiting.extend(new)
        return found

    def held(self, names: frozenset[str]) -> tuple[str, ...]:
        """Those of the names that any machine holds, in order."""
        return tuple(sorted(name for name in names if self.holders[name] > 0))


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(name, before, after) of what two ads hold differently; None is nothing."""
    if type(before) is type(after) is CompactAttributes and before.layout is after.layout:
        rows = zip(after.layout, before.row, after.row, strict=False)
        return [(name, old, value) for name, old, value in rows if old is not value and not _is_same(old, value)]
    found: list[tuple[str, Any, Any]] = []
    for name, value in after.items():
        old = before.get(name)
        if old is not value and not _is_same(old, value):
            found.append((name, old, value))
    if len(before) + len(found) != len(after) or len(found):
        found.extend((name, value, None) for name, value in before.items() if name not in after)
    return found


def changes_among(
    names: Iterable[str], before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[tuple[str, Any, Any]]:
    """As `changes`, where no other name is held differently."""
    both = ((name, before.get(name), after.get(name)) for name in names)
    return [(name, old, value) for name, old, value in both if old is not value and not _is_same(old, value)]


def _is_same(old: Any, value: Any) -> bool:
    return (
        old is not None and type(old) is type(value) and bool(old == value) and (value != 0 or type(value) is not float)
    )
