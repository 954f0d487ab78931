"""Concurrency limits: so many jobs at once that use the same licence or server, wherever they run.

A job says `ConcurrencyLimits = "matlab, db:3, farm.small"`: one unit of matlab, three of db, one of farm.small. Names
are compared without regard to case.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from pool.policy.negotiation.terms import NegotiationTerms

_ENTRY = re.compile(r"\s*([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?)\s*(?::\s*([0-9]+(?:\.[0-9]+)?)\s*)?")


def parse_limits(value: Any) -> dict[str, float] | None:
    """The units that a value of ConcurrencyLimits asks for, by name in lower case; None when it makes no sense. No text
    and no value ask for nothing.
    """
    if value is None or value == "":
        return {}
    if not isinstance(value, str):
        return None
    wanted: dict[str, float] = {}
    for entry in value.split(","):
        if not entry.strip():
            continue
        match = _ENTRY.fullmatch(entry)
        if match is None:
            return None
        name = match[1].lower()
        wanted[name] = wanted.get(name, 0.0) + (float(match[2]) if match[2] else 1.0)
    return wanted


class Limits:
    """How much of each limit is in use, as the cycle goes on."""

    def __init__(self, terms: NegotiationTerms, in_use: Mapping[str, float]) -> None:
        self._terms = terms
        self._in_use = dict(in_use)

    def remaining(self, wanted: Mapping[str, float]) -> tuple[float, str]:
        """How many more jobs that want so much there is room for, and the limit that says so."""
        most, binding = math.inf, ""
        for name, units in wanted.items():
            limit = self._terms.limits.get(name, self._terms.default_limit)
            if units <= 0 or limit == math.inf:
                continue
            jobs = (limit - self._in_use.get(name, 0.0)) // units
            if jobs < most:
                most, binding = max(0.0, jobs), name
        return most, binding

    def count_matches(self, wanted: Mapping[str, float], jobs: int) -> None:
        """Jobs that want so much were matched."""
        for name, units in wanted.items():
            self._in_use[name] = self._in_use.get(name, 0.0) + units * jobs
