"""Which machines another pool may have, and when: `kinds` and `hours` of an agreement.

    kinds = 'Memory <= 64000 && !HasGpu'      an expression of a machine; others are not lent
    hours = "18:00-08:00"                      by the machines' own clocks; at other times no job begins
    hours = ["mon-fri 20:00-06:00", "sat-sun"] on these days, or those nights that begin on them

Both are conditions of a machine: they stand in its Requirements as the other pool sees it, and in the other pool's
requests as our negotiator and startds see them, whatever that pool makes of what it is shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pool.classad import ClassAd, Expr, parse_expr, requirements_accept
from pool.classad.nodes import (
    AdNode,
    Chain,
    Conditional,
    Elvis,
    ExprNode,
    FunctionCall,
    ListNode,
    Paren,
    Ref,
    Subscript,
    Unary,
    children,
)
from pool.errors import PoolError
from pool.policy.matching.clauses import CONTEXTS

DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
DAY = 24 * 60
_SPAN = re.compile(
    r"(?:(?P<first>[a-z]{3})(?:-(?P<last>[a-z]{3}))?)?\s*"
    r"(?:(?P<from>[0-9]{1,2}):(?P<from_minute>[0-9]{2})-(?P<to>[0-9]{1,2}):(?P<to_minute>[0-9]{2}))?"
)
#: Functions that read names that are not in the expression.
_HIDDEN = CONTEXTS | {"eval"}
_NOBODY = ClassAd()


class BadLimit(PoolError):
    """A limit that cannot be understood."""


@dataclass(frozen=True)
class MachineLimits:
    """Conditions of the machines that another pool may have.

    Attributes:
        hours: spans of time, as they are written; none for any time.
        kinds: an expression of a machine; empty for any machine.
    """

    hours: tuple[str, ...] = ()
    kinds: str = ""

    @cached_property
    def of_machine(self) -> str:
        """The condition as a machine's own Requirements have it; empty for none. `kinds` is not in it, since machines
        of other kinds are not shown."""
        return " || ".join(map(_span, self.hours))

    @cached_property
    def of_request(self) -> str:
        """The condition as a request's Requirements have it; empty for none."""
        parts = [text for text in (self.of_machine, self.kinds) if text]
        return " && ".join(f"({Expr(_about_target(parse_expr(text).node)).text})" for text in parts)

    def lends(self, machine: Mapping[str, Any]) -> bool:
        """Whether a machine, in wire form, is of the kinds that are lent."""
        if not self.kinds:
            return True
        return _holds(machine, parse_expr(self.kinds).text)

    def is_open(self, machine: Mapping[str, Any]) -> bool:
        """Whether a machine, in wire form, is lent at the time that its clock shows."""
        return not self.hours or _holds(machine, self.of_machine)


#: No limits.
ANY_MACHINE = MachineLimits()


def _holds(machine: Mapping[str, Any], condition: str) -> bool:
    own = {name: value for name, value in machine.items() if name.lower() != "requirements"}
    return requirements_accept(ClassAd.from_wire({**own, "Requirements": [condition]}), _NOBODY)


def check_limits(hours: tuple[str, ...], kinds: str) -> MachineLimits:
    """Limits as an administrator writes them.

    Raises:
        BadLimit: they make no sense.
    """
    for text in hours:
        _span(text)
    if kinds:
        try:
            node = parse_expr(kinds).node
        except PoolError as error:
            raise BadLimit(f"kinds is no expression: {error.message}") from error
        waiting = [node]
        while waiting:
            one = waiting.pop()
            hidden = isinstance(one, AdNode) or (isinstance(one, FunctionCall) and one.name.lower() in _HIDDEN)
            if hidden or (isinstance(one, Ref) and one.base is None and one.name.lower() == "target"):
                raise BadLimit("kinds says which machines are lent, and cannot ask what a job is like")
            waiting.extend(children(one))
    return MachineLimits(hours, kinds)


def _span(text: str) -> str:
    """A span of time as an expression of a machine's clock (`ClockMin`, `ClockDay`).

    Raises:
        BadLimit: it is none.
    """
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None or not text.strip():
        raise BadLimit(f"hours has '{text[:60]}', which is no span of time", hint='as "18:00-08:00" or "sat-sun"')
    days = _days(text, found["first"], found["last"] or found["first"])
    if found["from"] is None:
        return _on(days, 0)
    begin = _minute(text, found["from"], found["from_minute"])
    end = _minute(text, found["to"], found["to_minute"])
    if begin == end:
        raise BadLimit(f"hours has '{text[:60]}', which is no time at all", hint='"00:00-24:00" is all day')
    if begin < end:
        return _both(_on(days, 0), f"ClockMin >= {begin} && ClockMin < {end}")
    evening = _both(_on(days, 0), f"ClockMin >= {begin}")
    return f"{evening} || {_both(_on(days, 1), f'ClockMin < {end}')}"


def _both(one: str, other: str) -> str:
    return f"(({one}) && {other})" if one else f"({other})"


def _days(text: str, first: str | None, last: str | None) -> frozenset[int]:
    if first is None or last is None:
        return frozenset()
    if first not in DAYS or last not in DAYS:
        raise BadLimit(f"hours has '{text[:60]}', whose day is none of {', '.join(DAYS)}")
    begin = DAYS.index(first)
    return frozenset((begin + more) % 7 for more in range((DAYS.index(last) - begin) % 7 + 1))


def _on(days: frozenset[int], later: int) -> str:
    """The clock shows one of these days, or the day so many days later; empty for any day."""
    return " || ".join(f"ClockDay == {(day + later) % 7}" for day in sorted(days))


def _minute(text: str, hour: str, minute: str) -> int:
    found = int(hour) * 60 + int(minute)
    if int(minute) > 59 or found > DAY:
        raise BadLimit(f"hours has '{text[:60]}', which is no time of day", hint="from 00:00 to 24:00")
    return found


def _about_target(node: ExprNode) -> ExprNode:
    """An expression of a machine as a job says it: each name is of the target."""
    if isinstance(node, Ref):
        if node.base is None or (isinstance(node.base, Ref) and node.base.base is None and _is_my(node.base)):
            return Ref(Ref(None, "TARGET"), node.name)
        return Ref(_about_target(node.base), node.name)
    below = [_about_target(one) for one in children(node)]
    if isinstance(node, Chain):
        signs = [sign for sign, _ in node.rest]
        return Chain(below[0], tuple(zip(signs, below[1:], strict=True)))
    if isinstance(node, Unary):
        return Unary(node.sign, below[0])
    if isinstance(node, FunctionCall):
        return FunctionCall(node.name, tuple(below))
    if isinstance(node, ListNode):
        return ListNode(tuple(below))
    for kind in (Paren, Conditional, Elvis, Subscript):
        if isinstance(node, kind):
            return kind(*below)
    return node


def _is_my(node: Ref) -> bool:
    return node.name.lower() == "my"
