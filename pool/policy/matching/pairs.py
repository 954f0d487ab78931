"""One request beside machines of which only some attributes matter: what a question's answer is.

The scopes of an evaluation are made once for a request and kept, because most questions take less time than making
them does. The machine is a mapping that is filled with what the question looks at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pool.classad import UNDEFINED, ClassAd, Expr
from pool.classad.ad import scope_of
from pool.classad.errors import EvaluationFailed
from pool.classad.scope import STEPS, Scope
from pool.policy.matching.bits import Bits
from pool.policy.matching.clauses import Question, Side

WORK = 2_000_000
"""Steps beyond the usual that a request's expressions may take for all machines together, about a second's; what is
asked after that has no value. So nobody's Requirements hold the pool up, however many machines they are asked about."""
_USUAL = 200

FALSE, TRUE, UNKNOWN, WRONG = 0, 1, 2, 3
"""The classes of a value: false, true, undefined, error or no truth value."""

NOBODY = ClassAd()


class Pair:
    """A request and, one after another, machines.

    Args:
        request: the request's ad.
        now: wall time in seconds.

    Attributes:
        machine: the attributes of the machine that is asked about, to be set by whoever asks.
        whole: a whole ad stands on the machine's side instead.
        expressions: folded names for which the request holds an expression.
        spent: steps beyond the usual that the request's expressions have taken.
        answers: the sets of slots for each question that was asked already, of the picture's version.
        bound: where the answers come from, kept from cycle to cycle by the picture; see `SlotIndex.pair`.
    """

    __slots__ = (
        "_made",
        "_scopes",
        "_tokens",
        "answers",
        "bound",
        "expressions",
        "machine",
        "now",
        "request",
        "spent",
        "version",
        "whole",
    )

    def __init__(self, request: ClassAd, now: float) -> None:
        self.request = request
        self.now = now
        self.machine: dict[str, Any] = {}
        self.whole = False
        self.expressions = frozenset(key for _, key, held in request.all() if type(held) is Expr)
        self.answers: dict[Question, Mapping[int, Bits]] = {}
        self.bound: dict[Any, Any] = {}
        self.version = (-1, -1)
        self.spent = 0
        self._tokens: dict[str, Any] = {}
        self._made: dict[Any, Any] = {}
        self._scopes = self._new_scopes(NOBODY)

    def __del__(self) -> None:
        self._scopes[0].leave()  # scopes stand in a circle of references

    def remembered(self, what: Any, make: Callable[[ClassAd], Any]) -> Any:
        """The result of `make` for the request alone, made once."""
        found = self._made.get(what)
        if found is None:
            found = self._made[what] = make(self.request)
        return found

    def at_time(self, now: float) -> None:
        """The same request at another time."""
        self.now = now
        self.version = (-1, self.version[1])
        self.spent = 0
        self._fresh()

    def _fresh(self, machine: ClassAd = NOBODY) -> None:
        self._scopes[0].leave()
        self._scopes = self._new_scopes(machine)

    def _new_scopes(self, machine: ClassAd) -> tuple[Scope, Scope]:
        root = scope_of(self.request, machine, self.now)
        other = root.other
        assert other is not None
        if machine is NOBODY:
            other.get = self.machine.get
        return root, other

    def set_machine(self, machine: ClassAd | None) -> None:
        """Put a whole ad on the machine's side, or none again."""
        self.whole = machine is not None
        self._fresh(machine or NOBODY)

    def token(self, name: str) -> Any:
        """A key that tells the request's value of a folded name from every other."""
        found = self._tokens.get(name)
        if found is None:
            found = self._tokens[name] = token(self.request.held(name))
        return found

    def machine_holds(self, name: str) -> Any:
        """The value of a folded name on the machine's side; None when there is none."""
        return self._scopes[1].get(name)

    def value(self, expr: Expr, side: Side, through: Iterable[str] = ()) -> Any:
        """The value of an expression of one side; UNDEFINED, ERROR and ads as the evaluation has them."""
        root, other = self._scopes
        if side == "request":
            if self.spent > WORK:
                return None
            scope = root
        else:
            scope = other
        root.steps = STEPS
        root.draws = 0
        if through:
            root.active = {(id(scope.ad), key) for key in through}
        try:
            value = (expr.compiled or expr.compile())(scope)
        except (EvaluationFailed, RecursionError, MemoryError):
            if side == "request":
                self.spent += STEPS
            self._fresh()
            return None
        if scope is root and root.steps < STEPS - _USUAL:
            self.spent += STEPS - _USUAL - root.steps
        if through:
            root.active = None
        if root.lost is not None:
            self._fresh()
        return value

    def answer(self, question: Question) -> int:
        """The class of a question's value."""
        return class_of(self.value(question.expr, question.side, question.through))

    def answer_alone(self, question: Question) -> int:
        """As `answer`, for a question that no machine has a say in."""
        if self.whole:
            self.set_machine(None)
        self.machine.clear()
        return self.answer(question)


class Pairs:
    """Requests from one time to the next: what nobody asked about in between is forgotten."""

    def __init__(self) -> None:
        self._now: float | None = None
        self._present: dict[int, Pair] = {}
        self._before: dict[int, Pair] = {}

    def pair_of(self, request: ClassAd, now: float) -> Pair:
        """The same pair for the same ad."""
        if now != self._now:
            self._present, self._before, self._now = {}, self._present, now
        key = id(request)  # of an ad that its pair holds, so that no other comes to have it
        found = self._present.get(key)
        if found is None:
            found = self._before.pop(key, None)
            if found is None:
                found = Pair(request, now)
            else:
                found.at_time(now)
            self._present[key] = found
        return found


def token(value: Any) -> Any:
    """A key that tells a held value from every other: equal only for the same type and value."""
    kind = type(value)
    if kind is str or kind is int or kind is Expr or value is None:
        return value
    if kind is float:
        # 0.0 and -0.0 are equal, and nan is not equal to itself.
        return (float, value if value and value == value else value.hex())
    return (kind, value)


def class_of(value: Any) -> int:
    """The class of a value; None stands for an evaluation that went beyond its bounds."""
    if value is True:
        return TRUE
    if value is False:
        return FALSE
    if value is UNDEFINED:
        return UNKNOWN
    if type(value) is int or type(value) is float:
        return TRUE if value else FALSE
    return WRONG


def number_of(value: Any) -> float:
    """A rank: 0.0 when the value is no number."""
    if isinstance(value, (bool, int, float)) and not math.isnan(value):
        return float(value)
    return 0.0
