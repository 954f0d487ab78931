"""The reference engine of the language, when it is installed: the same questions, answers made comparable.

Its module hands lists out unevaluated and times as Python's; values that look alike there are not compared.
"""

from __future__ import annotations

import datetime
import importlib
import math
from typing import Any

from pool.classad import ERROR, UNDEFINED, AbsTime, ClassAd, RelTime


def load() -> Any | None:
    """The reference's module in the mode that pools use, or None when it is not installed."""
    try:
        importlib.import_module("htcondor2")
        return importlib.import_module("classad2")
    except ImportError:
        return None


class Reference:
    """The reference with one pair of ads."""

    def __init__(self, module: Any, my: dict[str, str], target: dict[str, str] | None) -> None:
        self._module = module
        self._my = module.ClassAd("[" + ";".join(f"{name} = {text}" for name, text in my.items()) + "]")
        self._target = None
        if target is not None:
            self._target = module.ClassAd("[" + ";".join(f"{name} = {text}" for name, text in target.items()) + "]")

    def value(self, text: str) -> Any:
        """The value of an expression; "refused" when the reference cannot parse it."""
        try:
            expression = self._module.ExprTree(text)
        except self._module.ClassAdException:
            return "refused"
        try:
            return expression.eval(self._my, self._target)
        except self._module.ClassAdException:
            return self._module.Value.Error

    def agrees(self, theirs: Any, ours: Any) -> bool:
        """Whether the reference's value and ours are the same as far as one can see."""
        values = self._module.Value
        if isinstance(theirs, str) and theirs == "refused":
            return isinstance(ours, str) and ours == "refused"
        if theirs == values.Undefined and isinstance(theirs, values):
            return ours is UNDEFINED
        if theirs == values.Error and isinstance(theirs, values):
            return ours is ERROR
        if isinstance(ours, AbsTime):
            return isinstance(theirs, datetime.datetime)
        if isinstance(ours, RelTime):
            return isinstance(theirs, float) and _close(theirs, ours.seconds)
        if isinstance(theirs, list):
            return isinstance(ours, tuple) and len(theirs) == len(ours)
        if isinstance(theirs, self._module.ClassAd):
            return isinstance(ours, ClassAd)
        if isinstance(theirs, float):
            return isinstance(ours, float) and _close(theirs, ours)
        if isinstance(theirs, str) and isinstance(ours, str):
            return theirs == ours.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
        return type(theirs) is type(ours) and bool(theirs == ours)


def _close(a: float, b: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-300)
