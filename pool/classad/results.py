"""The values that an evaluation returns to its caller: lists as tuples, nested ads as ClassAds, everything evaluated.

An ad that exists outside the evaluation (what MY and TARGET mean) is handed out as itself. One that was written
in the expression is handed out as a new ClassAd of its attributes' values, so that it means the same without the
scope it was written in.
"""

from __future__ import annotations

from typing import Any

from pool.classad.errors import EvaluationFailed
from pool.classad.expr import literal
from pool.classad.scope import ListValue, Scope, valued

_DEEPEST = 40


def finished(value: Any, depth: int = 0) -> Any:
    """The value in the form that callers see.

    Raises:
        EvaluationFailed: the value is nested too deeply or has too many parts.
    """
    kind = type(value)
    if kind is ListValue:
        if depth > _DEEPEST:
            raise EvaluationFailed("the list is nested too deeply")
        if value.scope is not None:
            value.scope.spend(len(value))
        return tuple(finished(value.at(index), depth + 1) for index in range(len(value)))
    if kind is Scope:
        if value.outer is None:
            return value.ad
        from pool.classad.ad import ClassAd

        if depth > _DEEPEST:
            raise EvaluationFailed("the ad is nested too deeply")
        return ClassAd({name: literal(item) for name, item in evaluated(value, depth)})
    return value


def evaluated(scope: Scope, depth: int = 0) -> list[tuple[str, Any]]:
    """An ad's own attributes with their finished values."""
    pairs: list[tuple[str, Any]] = []
    for name, key, found in scope.ad.own():
        scope.spend(1)
        pairs.append((name, finished(valued(scope, key, found), depth + 1)))
    return pairs
