"""Evil expressions: deep, huge, exponential. Each ends soon, and with ERROR or a plain refusal."""

from __future__ import annotations

import pytest

from pool.classad import ERROR, ClassAd, evaluate, parse_expr
from tests.classad.helpers import ad, ending


def doubling(form: str, last: str) -> ClassAd:
    """Sixty attributes, each made twice of the next."""
    return ad({f"a{number}": form.format(f"a{number + 1}") for number in range(60)} | {"a60": last})


@pytest.mark.parametrize(
    ("form", "last"),
    [
        ("{0} + {0}", "1"),
        ("strcat({0}, {0})", '"0123456789"'),
        ("{{{0}, {0}}}", "1"),
        ("[x = {0}; y = {0}]", "1"),
        ("max({{{0}, {0}}})", "1"),
        ("ifThenElse({0} > 0, {0}, {0})", "1"),
        ('eval("{0} + {0}")', "1"),
        ("{0} is {0}", "1"),
    ],
)
def test_exponential_trees_of_attributes(form: str, last: str) -> None:
    with ending():
        assert doubling(form, last).eval("a0") is ERROR


@pytest.mark.parametrize(
    "text",
    [
        "evalInEachContext(" * 8 + "1" + ", L)" * 8,
        'join(",", L).x',
        'eval("eval(s)")',
        "string(L)",
        'replaceall("", big, big)',
        "strcat(big, big, big, big)",
        'formatTime(1, strcat(big, "%c"))',
        'split(big, "x")',
        "{L,L,L,L}.v.v.v.v.v",
    ],
)
def test_loops_over_lists_and_long_strings(text: str) -> None:
    holder = ClassAd({"L": [{"v": 1}] * 300, "s": "eval(s) + eval(s)", "big": "x" * 400_000})
    with ending():
        evaluate(parse_expr(text), holder)


def test_chains_of_attributes_are_followed_some_way_and_not_forever() -> None:
    chain = ad({f"a{number}": f"a{number + 1} + 1" for number in range(1000)} | {"a1000": "0"})
    assert chain.value("a900") == 100
    assert chain.eval("a0") is ERROR


def test_a_caller_deep_in_its_own_stack_gets_an_answer() -> None:
    chain = ad({f"a{number}": f"(((a{number + 1})))" for number in range(200)} | {"a200": "1"})

    def deep(levels: int) -> object:
        return deep(levels - 1) if levels else chain.eval("a0")

    assert deep(600) in (1, ERROR)


def test_one_evaluation_does_not_pay_for_another() -> None:
    holder = doubling("{0} + {0}", "1")
    assert holder.eval("a0") is ERROR
    assert holder.value("a52") == 256
    assert holder.value("a52") == 256


def test_a_large_honest_requirement_is_evaluated() -> None:
    text = " || ".join(f'TARGET.Machine == "node{number}.example.org"' for number in range(3000))
    job = ad({"Requirements": text})
    assert job.eval("Requirements", ClassAd({"Machine": "NODE2999.example.org"})) is True


def test_names_that_nobody_needs_do_not_fill_the_memory() -> None:
    from pool.classad import names

    before = len(names._folded)
    long_name = "x" * 300
    assert ClassAd({long_name: 1}).value(long_name.upper()) == 1
    assert len(names._folded) == before
