"""The values that machines have where a job's condition asks for others: those that would let some in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pool.classad import ClassAd, Expr, evaluate
from pool.classad.nodes import Chain, ExprNode, Paren, Ref
from pool.classad.references import external
from pool.policy.why import crowd
from pool.policy.why.findings import JobCondition, ValueCount
from pool.policy.why.holding import PIECE, Piecemeal
from pool.policy.why.wording import Wording, amount

if TYPE_CHECKING:
    from pool.policy.why.job import Census

#: Values shown of one attribute.
FEW = 4
#: A comparison whose left side is the machine's, and which end of the machines' values it wants.
_WANTS = {">=": "largest", ">": "largest", "<=": "smallest", "<": "smallest"}
_TURNED = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}
_STANDARD = {"cpus": "Cpus", "memory": "Memory", "disk": "Disk", "gpus": "GPUs"}


def condition(
    named: Wording, clauses: Sequence[Expr], fails: int, census: Census, job: ClassAd, now: float
) -> Piecemeal[JobCondition]:
    """A condition of the job's with what the machines have instead."""
    alone = fails & census.once
    attribute, want = asked_of(named, clauses, job)
    if not attribute:
        several = yield from _common_values(clauses, census, job, now)
        return JobCondition(named.text, fails.bit_count(), alone.bit_count(), "", several)
    values = []
    for number, place in enumerate(census.places):
        if number % PIECE == PIECE - 1:
            yield
        values.append(value_of(place.whole, attribute, job, now))
    counted = Counter(amount(attribute, value) for value in values if value is not None)
    best = _best(values, want)
    fitting = _best([values[number] for number in crowd.numbers(alone | census.matching)], want)
    return JobCondition(
        named.text,
        fails.bit_count(),
        alone.bit_count(),
        attribute,
        tuple(ValueCount(value, count) for value, count in counted.most_common(FEW)),
        values.count(None),
        "" if best is None else amount(attribute, best),
        "" if fitting is None or fitting == best else amount(attribute, fitting),
        want if best is not None else "",
    )


def _common_values(
    clauses: Sequence[Expr], census: Census, job: ClassAd, now: float
) -> Piecemeal[tuple[ValueCount, ...]]:
    """The commonest values of each attribute that a clause asks for, where it asks for a few: `OpSys LINUX` on 40."""
    names = _attributes(clauses, job) if len(clauses) == 1 else []
    found: list[ValueCount] = []
    for attribute in names if len(names) <= FEW else ():
        counted: Counter[str] = Counter()
        for number, place in enumerate(census.places):
            if number % PIECE == PIECE - 1:
                yield
            value = value_of(place.whole, attribute, job, now)
            counted[f"no {attribute}" if value is None else f"{attribute} {amount(attribute, value)}"] += 1
        found += [ValueCount(text, count) for text, count in counted.most_common(2)]
    return tuple(found)


def _attributes(clauses: Sequence[Expr], job: ClassAd) -> list[str]:
    """The machines' attributes that a clause asks for, each once, as they are spelled."""
    names = sorted(external(clauses[0], job), key=str.lower)
    return list({name.rpartition(".")[2].lower(): name.rpartition(".")[2] for name in names}.values())


def asked_of(named: Wording, clauses: Sequence[Expr], job: ClassAd) -> tuple[str, str]:
    """The one attribute of machines that a condition asks for, and which end of its values is wanted; both may be
    empty.
    """
    if named.resource:
        return _STANDARD.get(named.resource, named.resource), "largest"
    if len(clauses) != 1:
        return "", ""
    names = _attributes(clauses, job)
    if len(names) != 1:
        return "", ""
    attribute = names[0]
    return attribute, _end(_inner(clauses[0].node), attribute)


def _end(node: ExprNode, attribute: str) -> str:
    if not isinstance(node, Chain) or len(node.rest) != 1:
        return ""
    operator, right = node.rest[0]
    if _is(node.first, attribute):
        return _WANTS.get(operator, "")
    return _WANTS.get(_TURNED.get(operator, ""), "") if _is(right, attribute) else ""


def _inner(node: ExprNode) -> ExprNode:
    while isinstance(node, Paren):
        node = node.inner
    return node


def _is(node: ExprNode, attribute: str) -> bool:
    node = _inner(node)
    return isinstance(node, Ref) and node.name.lower() == attribute.lower()


def value_of(machine: ClassAd, attribute: str, job: ClassAd, now: float) -> Any:
    """A machine's value for people to read; None where it says nothing (or nothing readable)."""
    held = machine.held(attribute)
    if isinstance(held, Expr):
        held = evaluate(held, machine, job, now)
    return held if isinstance(held, (bool, int, float, str)) else None


def _best(values: Sequence[Any], want: str) -> int | float | None:
    if not want:
        return None
    numbers = [
        value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    ]
    if not numbers:
        return None
    return max(numbers) if want == "largest" else min(numbers)
