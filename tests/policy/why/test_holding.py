"""Clauses asked of many machines: once for those that look alike, and in pieces."""

from __future__ import annotations

import pytest

from pool.classad import ClassAd, accepts, evaluate, parse_expr
from pool.policy.why.holding import EVALUATIONS, held_by, held_for, names_in, run_all
from tests.policy.why.support import NOW, job, slot

MACHINES = [slot(f"slot1@m{number}", Memory=1024 * (number % 3), Load=number / 2) for number in range(50)]


@pytest.mark.parametrize(
    "clause",
    [
        "Memory > 1000",
        "TARGET.Memory >= RequestMemory",
        "RequestDisk > 5",
        "Load > 3.0 && Memory == 1024",
        "Wanted",
        "undefined",
        "time() > 5",
    ],
)
def test_it_is_what_evaluating_each_says(clause: str) -> None:
    request = job(RequestDisk=["TARGET.Load"], Wanted=["TARGET.Load > 7"])
    expression = parse_expr(clause)
    mask = run_all(held_by(expression, request, MACHINES, NOW))
    assert [bool(mask >> number & 1) for number in range(50)] == [
        accepts(evaluate(expression, request, machine, NOW)) for machine in MACHINES
    ]
    mask = run_all(held_for(expression, request, MACHINES, NOW))
    assert [bool(mask >> number & 1) for number in range(50)] == [
        accepts(evaluate(expression, machine, request, NOW)) for machine in MACHINES
    ]


def test_true_one_and_a_text_are_told_apart() -> None:
    values = [True, 1, 1.0, "1", ["Y"], None]
    machines = [slot(f"slot1@m{number}", X=value, Y=True) for number, value in enumerate(values)]
    mask = run_all(held_by(parse_expr("X =?= true"), job(), machines, NOW))
    assert mask == 0b010001


def test_what_a_clause_needs_through_the_job() -> None:
    request = job(A=["TARGET.B + C"], C=["TARGET.D"])
    assert names_in(parse_expr("A > 1"), request) == {"a", "b", "c", "d"}


def test_an_evil_clause_is_asked_in_small_pieces() -> None:
    """Every evaluation may come to its bound; whoever asks gets the loop back after a few of them."""
    deep = "Load"
    for _ in range(10):
        deep = f"({deep} + {deep})"
    work = held_by(parse_expr(f"{deep} > 1"), job(), MACHINES, NOW)
    assert sum(1 for _ in work) >= len(MACHINES) // EVALUATIONS - 1
    assert run_all(held_by(parse_expr("error"), ClassAd({}), [], NOW)) == 0
