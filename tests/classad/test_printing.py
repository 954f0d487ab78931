"""Trees back to text: what was written is printed, and what is printed can be read."""

from __future__ import annotations

import pytest

from pool.classad import parse_ad, parse_expr
from pool.classad.expr import from_wire
from pool.classad.printing import LONG, NEW, PRETTY
from tests.classad.expressions import Expressions


@pytest.mark.parametrize(
    ("text", "new", "long"),
    [
        ("a=?=b", "a is b", "a =?= b"),
        ("- -1", " --1", " --1"),
        ("!(a)", " !(a)", " !(a)"),
        ("1e3+0.1", "1.000000000000000E+03 + 1.000000000000000E-01", "1000.0 + 0.1"),
        ("1e16", "1.000000000000000E+16", "1E+16"),
        ("-0.0", "-0.0", "-0.0"),
        ("{}", "{  }", "{  }"),
        ("[bb=1;a={2,'x y'}]", "[ a = { 2,'x y' }; bb = 1 ]", "[ a = { 2,'x y' }; bb = 1 ]"),
        (r'"a\n\"\\é"', r'"a\n\"\\\303\251"', '"a\n\\"\\é"'),
        ("'is'.b[c ?: d]", "'is'.b[c ?: d]", "'is'.b[c ?: d]"),
        (
            'absTime("2021-03-04T05:06:07Z")',
            'absTime("2021-03-04T05:06:07-00:00")',
            'absTime("2021-03-04T05:06:07-00:00")',
        ),
        ('relTime("26:03:04.5")', 'relTime("1+02:03:4.5")', 'relTime("1+02:03:4.5")'),
        ("f ( a , b )", "f(a,b)", "f(a,b)"),
        (".a", ".a", ".a"),
    ],
)
def test_both_forms(text: str, new: str, long: str) -> None:
    expression = parse_expr(text)
    assert expression.print(NEW) == new
    assert expression.print(LONG) == long


def test_pretty_form() -> None:
    assert parse_expr("f({1,[a=2]})").print(PRETTY) == (
        "f(\n   {\n      1,\n      \n          [\n              a = 2\n          ]\n   })"
    )
    assert parse_ad("[]").to_new(PRETTY) == "\n    [\n    ]"


@pytest.mark.parametrize(
    "text", [r'f("ends\\", "b")', r'"\\"', "a.'b c'", '{"\\\\","q\\""}', 'relTime("5")', "'a\\'b'"]
)
def test_the_text_of_an_expression_says_the_same_when_it_is_read_again(text: str) -> None:
    expression = parse_expr(text)
    assert from_wire(expression.text).print(NEW) == expression.print(NEW)


def test_random_expressions_survive_being_printed() -> None:
    stream = Expressions(7)
    for _ in range(400):
        expression = parse_expr(stream.one())
        printed = expression.print(NEW)
        assert parse_expr(printed).print(NEW) == printed
        assert from_wire(expression.text).print(NEW) == printed
