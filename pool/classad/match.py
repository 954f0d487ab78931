"""Two ads and whether they suit each other.

Both ads' `Requirements` are evaluated with the other as TARGET; `Rank` says how much one likes the other. Only a
value that counts as true accepts: undefined, error and strings do not.
"""

from __future__ import annotations

import math
from typing import Any

from pool.classad.ad import ClassAd, evaluate, scope_of
from pool.classad.errors import EvaluationFailed
from pool.classad.expr import Expr
from pool.classad.scope import STEPS, Scope


def accepts(value: Any) -> bool:
    """Whether a value of Requirements (or of any control expression) counts as true."""
    return bool(value) if isinstance(value, (bool, int, float)) else False


def requirements_accept(my: ClassAd, target: ClassAd, now: float | None = None) -> bool:
    """Whether `my` accepts `target`: its Requirements are true. Without Requirements it does not."""
    found = my.held("Requirements")
    return accepts(evaluate(found, my, target, now) if type(found) is Expr else found)


def symmetric_match(a: ClassAd, b: ClassAd, now: float | None = None) -> bool:
    """Whether each ad's Requirements accept the other."""
    first, second = a.held("Requirements"), b.held("Requirements")
    if first is None or second is None:
        return False
    scope = scope_of(a, b, now)
    try:
        return _accepted(scope, first) and scope.other is not None and _accepted(scope.other, second)
    finally:
        scope.leave()


def _accepted(scope: Scope, found: Any) -> bool:
    if type(found) is not Expr:
        return accepts(found)
    scope.root.steps = STEPS
    try:
        return accepts((found.compiled or found.compile())(scope))
    except (EvaluationFailed, RecursionError, MemoryError):
        return False


def rank(my: ClassAd, target: ClassAd, now: float | None = None) -> float:
    """How much `my` prefers `target`; 0.0 when Rank is no number, or nan. An ad without Rank has the other's, as
    unscoped names fall through to the other ad (0.0 when there is none either).
    """
    found = my.held("Rank")
    if found is None:
        my, target, found = target, my, target.held("Rank")
    value = evaluate(found, my, target, now) if type(found) is Expr else found
    if not isinstance(value, (bool, int, float)) or math.isnan(value):
        return 0.0
    return float(value)
