"""An evaluation frees what it made at once: it leaves no circles of references to a collection of garbage."""

from __future__ import annotations

import gc

import pytest

from pool.classad import evaluate, parse_ad, parse_expr, rank, requirements_accept, symmetric_match
from pool.classad.references import external, internal

MACHINE = parse_ad('[ Requirements = TARGET.RequestMemory < Memory; Memory = 100; Arch = "X86_64"; Inner = [ a = 1 ] ]')
JOB = parse_ad("[ Requirements = TARGET.Memory >= RequestMemory; RequestMemory = 10; Rank = TARGET.Memory ]")


pytestmark = pytest.mark.usefixtures("no_collection")


@pytest.mark.parametrize(
    "text",
    [
        "Memory + 1",
        "TARGET.RequestMemory",
        "TARGET.TARGET.Memory",
        "Inner",
        "Inner.a",
        "{ Memory, Inner, [ b = Memory ] }",
        "[ b = Memory; c = b ].c",
        'eval("Memory")',
        "1 / 0",
        "Inner.a + NoSuchName",
    ],
)
def test_an_evaluation_leaves_no_circle(text: str) -> None:
    expression = parse_expr(text)
    evaluate(expression, MACHINE, JOB)  # compiled once, kept
    gc.collect()
    evaluate(expression, MACHINE, JOB)
    evaluate(expression, MACHINE)
    assert gc.collect() == 0


def test_a_match_leaves_no_circle() -> None:
    assert symmetric_match(JOB, MACHINE)
    gc.collect()
    assert symmetric_match(JOB, MACHINE)
    assert requirements_accept(JOB, MACHINE)
    assert rank(JOB, MACHINE) == 100
    assert MACHINE.eval("Requirements", JOB) is True
    assert gc.collect() == 0


def test_an_evaluation_that_is_stopped_leaves_no_circle() -> None:
    endless = parse_ad("[ a = b + 1; b = c + c; c = d + d; d = a ]")
    endless.eval("a")
    gc.collect()
    endless.eval("a")
    assert gc.collect() == 0


def test_the_names_that_an_expression_needs_leave_no_circle() -> None:
    needed = parse_expr("Memory + TARGET.RequestMemory + Inner.a + eval(NoSuchName)")
    external(needed, MACHINE)
    gc.collect()
    assert {name.lower() for name in external(needed, MACHINE)} == {"target.requestmemory", "nosuchname"}
    assert {name.lower() for name in internal(needed, MACHINE)} >= {"memory", "inner"}
    assert gc.collect() == 0
