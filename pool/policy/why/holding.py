"""Which machines a clause holds for: each clause asked once for machines that it cannot tell apart.

Works in pieces, so that whoever asks can do other things in between; an answer is a whole number whose bits are
machines (`crowd`). A clause is one of those that `pool.policy.matching` splits Requirements into: Requirements accept
where every one of them does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from pool.classad import ClassAd, Expr, accepts, evaluate

T = TypeVar("T")
#: Work that is done in pieces: yields between them, and returns what was found.
Piecemeal = Generator[None, None, T]
#: Machines looked at in one piece, and evaluations: of evil expressions, which come to their bound in each, a few
#: take as long as a thousand others.
PIECE, EVALUATIONS = 1000, 16

_SCALARS = frozenset({bool, int, float, str})


def run_all(work: Piecemeal[T]) -> T:
    """Do all of it at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: T = end.value
            return found


def held_by(clause: Expr, job: ClassAd, machines: Sequence[ClassAd], now: float) -> Piecemeal[int]:
    """The machines for which a clause of the job's Requirements holds."""
    return _evaluate_once(names_in(clause, job), machines, lambda machine: accepts(evaluate(clause, job, machine, now)))


def held_for(clause: Expr, job: ClassAd, machines: Sequence[ClassAd], now: float) -> Piecemeal[int]:
    """The machines whose clause, one of their own Requirements, holds for the job."""
    return _evaluate_once(names_in(clause, job), machines, lambda machine: accepts(evaluate(clause, machine, job, now)))


def names_in(clause: Expr, job: ClassAd) -> frozenset[str]:
    """Names (lower case) that a clause mentions, directly or through expressions of the job's."""
    found: set[str] = set()
    waiting = [clause]
    while waiting:
        for name in waiting.pop().references():
            lowered = name.lower()
            if lowered not in found:
                found.add(lowered)
                held = job.held(lowered)
                if isinstance(held, Expr):
                    waiting.append(held)
    return frozenset(found)


def _evaluate_once(
    names: frozenset[str], machines: Sequence[ClassAd], holds: Callable[[ClassAd], bool]
) -> Piecemeal[int]:
    """Ask once for machines that hold the same plain values; an expression among them may depend on anything."""
    known: dict[tuple[Any, ...], str] = {}
    order = sorted(names)
    found: list[str] = []
    evaluated = 0
    for number, machine in enumerate(machines):
        if number % PIECE == PIECE - 1 or evaluated >= EVALUATIONS:
            evaluated = 0
            yield
        values = [machine.held(name) for name in order]
        kinds = [type(value) for value in values]
        if any(value is not None and kind not in _SCALARS for value, kind in zip(values, kinds, strict=True)):
            evaluated += 1
            found.append("1" if holds(machine) else "0")
            continue
        key = (*values, *kinds)
        answer = known.get(key)
        if answer is None:
            evaluated += 1
            answer = known[key] = "1" if holds(machine) else "0"
        found.append(answer)
    return int("".join(found)[::-1] or "0", 2)
