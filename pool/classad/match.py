"""Two ads and whether they suit each other.

Both ads' `Requirements` are evaluated with the other as TARGET; `Rank` says how much one likes the other. Only a
value that counts as true accepts: undefined, error and strings do not.
"""

from __future__ import annotations

import math
from typing import Any

from pool.classad.ad import ClassAd, evaluate
from pool.classad.expr import Expr


def accepts(value: Any) -> bool:
    """Whether a value of Requirements (or of any control expression) counts as true."""
    return bool(value) if isinstance(value, (bool, int, float)) else False


def _attribute(name: str, my: ClassAd, target: ClassAd, now: float | None) -> Any:
    found = my.held(name)
    return evaluate(found, my, target, now) if type(found) is Expr else found


def requirements_accept(my: ClassAd, target: ClassAd, now: float | None = None) -> bool:
    """Whether `my` accepts `target`: its Requirements are true. Without Requirements it does not."""
    return accepts(_attribute("Requirements", my, target, now))


def symmetric_match(a: ClassAd, b: ClassAd, now: float | None = None) -> bool:
    """Whether each ad's Requirements accept the other."""
    return requirements_accept(a, b, now) and requirements_accept(b, a, now)


def rank(my: ClassAd, target: ClassAd, now: float | None = None) -> float:
    """How much `my` prefers `target`; 0.0 when Rank is absent, no number, or nan."""
    value = _attribute("Rank", my, target, now)
    if not isinstance(value, (bool, int, float)) or math.isnan(value):
        return 0.0
    return float(value)
