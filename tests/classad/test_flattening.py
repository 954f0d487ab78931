"""Partial evaluation."""

from __future__ import annotations

import pytest

from pool.classad import ParseError, evaluate, parse_expr
from pool.classad.flattening import flatten
from tests.classad.expressions import MY, TARGET, Expressions
from tests.classad.helpers import NOW, ad, text_of

AD = ad({"a": "1", "b": "a + TARGET.x", "c": "a * 2", "d": "foo", "n": "[p = a; q = TARGET.z]", "s": "s + a"})


@pytest.mark.parametrize(
    ("text", "flat", "inlined"),
    [
        ("a + c", "3", "3"),
        ("b + 1", "b + 1", "(1 + TARGET.x) + 1"),
        ("TARGET.Memory >= c && a == 1", "TARGET.Memory >= 2", "TARGET.Memory >= 2"),
        ("false && TARGET.x", "false", "false"),
        ("TARGET.x || c", "true", "true"),
        ("1 + 2 + TARGET.x", "3 + TARGET.x", "3 + TARGET.x"),
        ("n.p", "1", "1"),
        ("n.q", "n.q", "n.q"),
        ("ifThenElse(a == 1, TARGET.x, 3)", "TARGET.x", "TARGET.x"),
        ("TARGET.x ? a : c", "TARGET.x ? 1 : 2", "TARGET.x ? 1 : 2"),
        ('strcat("a", c)', '"a2"', '"a2"'),
        ("nosuchf(a)", "error", "error"),
        ("time() + a", "time() + 1", "time() + 1"),
        ("undefined ?: TARGET.x", "TARGET.x", "TARGET.x"),
        ("d =?= undefined", "d =?= undefined", "(foo) =?= undefined"),
        ("{a, foo}", "{ 1,foo }", "{ 1,foo }"),
        ("MY.a + TARGET.a", "1 + TARGET.a", "1 + TARGET.a"),
        (".a", ".a", ".a"),
        ("s", "s", "(s + 1)"),
    ],
)
def test_flattened(text: str, flat: str, inlined: str) -> None:
    assert flatten(parse_expr(text), AD).text == flat
    assert flatten(parse_expr(text), AD, inline=True).text == inlined


def test_a_flattened_expression_has_the_same_value() -> None:
    my, target = ad(MY), ad(TARGET)
    stream = Expressions(11)
    for _ in range(600):
        text = stream.one()
        if "&&" in text or "||" in text:
            continue
        try:
            expression = parse_expr(text)
        except ParseError:
            continue
        flattened = flatten(expression, my)
        for other in (target, None):
            before, after = evaluate(expression, my, other, NOW), evaluate(flattened, my, other, NOW)
            assert text_of(before) == text_of(after), text
