"""Operators on every type of value."""

from __future__ import annotations

import pytest

from tests.classad.helpers import value


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        *(("7 / 2", "3"), ("-7 / 2", "-3"), ("-7 % 3", "-1"), ("7 % -3", "1"), ("7 / 2.0", "3.5"), ("1 / 0", "error")),
        *(("5 % 0", "error"), ("5.0 % 2", "error"), ("1.0 / 0", "error"), ("-1.0 / 0", 'real("-INF")')),
        *(("0.0 / 0.0", 'real("NaN")'), ("true + 1", "2"), ("true + true", "2"), ("1e308 * 10", "error")),
        *(("9223372036854775807 + 1", "-9223372036854775808"), ("-9223372036854775808 - 1", "9223372036854775807")),
        *(("4611686018427387904 * 2", "-9223372036854775808"), ("-9223372036854775808 / -1", "9223372036854775807")),
        *(("-9223372036854775808 % -1", "0"), ("--9223372036854775808", "-9223372036854775808")),
        *(('"a" + "b"', "error"), ('"1" + 1', "error"), ("{} + 1", "error"), ("undefined + 1", "undefined")),
        *(("error + undefined", "error"), ("undefined + error", "error"), ("-true", "error"), ("+true", "error")),
        *(("-undefined", "undefined"), ('-"a"', "error"), ("+2.5", "2.5"), ("-(2.5)", "-2.5")),
    ],
)
def test_arithmetic(expression: str, wanted: str) -> None:
    assert value(expression) == wanted


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        *(('"ABC" == "abc"', "true"), ('"a" < "B"', "true"), ('"É" == "é"', "false"), ("1 == 1.0", "true")),
        *(
            ("true == 1", "true"),
            ("false < true", "true"),
            ('1 == "1"', "error"),
            ("undefined == undefined", "undefined"),
        ),
        *(
            ("error == 1", "error"),
            ("{1} == {1}", "error"),
            ("2 > 1.5", "true"),
            ('real("nan") == real("nan")', "false"),
        ),
        *(('real("nan") != 1', "true"), ("relTime(5) < relTime(6)", "true"), ("relTime(5) < 6", "error")),
        *(("absTime(5, 0) == absTime(5, 60)", "true"), ("absTime(5, 0) is absTime(5, 60)", "false")),
    ],
)
def test_comparison(expression: str, wanted: str) -> None:
    assert value(expression) == wanted


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        *(("1 is 1.0", "false"), ("1 is true", "false"), ('"a" is "A"', "false"), ('"a" is "a"', "true")),
        *(("undefined is undefined", "true"), ("error is error", "true"), ("undefined isnt 1", "true")),
        *(("{1} is {1}", "error"), ("[a=1] is [a=1]", "error"), ("{1} is 1", "false"), ("0.0 is -0.0", "true")),
        *(('{"a"} is split("a")', "false"), ('real("nan") is real("nan")', "false")),
    ],
)
def test_identity(expression: str, wanted: str) -> None:
    assert value(expression) == wanted


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        *(
            ("true || error", "true"),
            ("error || true", "error"),
            ("false && error", "false"),
            ("error && false", "error"),
        ),
        *(("undefined || true", "true"), ("undefined || false", "undefined"), ("undefined && false", "false")),
        *(("undefined && error", "error"), ("false || undefined", "undefined"), ('true && "a"', "error")),
        *(("1 && 2.5", "true"), ("0 || 0.0", "false"), ('"a" || true', "error"), ("undefined && 1 && 0", "false")),
        *(("!0", "true"), ("!undefined", "undefined"), ('!"a"', "error"), ("!error", "error")),
        *(
            ("1 ? 2 : error", "2"),
            ("0.0 ? error : 3", "3"),
            ("undefined ? 1 : 2", "undefined"),
            ('"a" ? 1 : 2', "error"),
        ),
        *(("undefined ?: 3", "3"), ("error ?: 3", "error"), ("0 ?: 3", "0"), ("nosuch ?: nosuch ?: 4", "4")),
    ],
)
def test_logic_and_choice(expression: str, wanted: str) -> None:
    assert value(expression) == wanted


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        *(
            ("6 & 3", "2"),
            ("6 | 3", "7"),
            ("6 ^ 3", "5"),
            ("~0", "-1"),
            ("1 << 63", "-9223372036854775808"),
            ("1 << 64", "1"),
        ),
        *(("-8 >> 1", "-4"), ("-8 >> 100", "-1"), ("-8 >> -1", "-8"), ("-1 >>> 60", "15"), ("8 >>> 65", "4")),
        *(("true & true", "error"), ("1.0 | 1", "error"), ("undefined ^ 1", "undefined"), ('~"a"', "error")),
    ],
)
def test_bits(expression: str, wanted: str) -> None:
    assert value(expression) == wanted


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ('absTime("2021-03-04T05:06:07Z") + relTime(60)', 'absTime("2021-03-04T05:07:07-00:00")'),
        ('relTime(60) + absTime("2021-03-04T05:06:07Z")', 'absTime("2021-03-04T05:07:07-00:00")'),
        ('absTime("2021-03-04T05:06:07Z") - absTime("2021-03-04T05:06:00Z")', "relTime(7.0)"),
        ("relTime(60) * 1.5", "relTime(90.0)"),
        ("2 * relTime(60)", "relTime(120.0)"),
        ("relTime(60) / 0", 'relTime(real("INF"))'),
        ("relTime(60) - relTime(90)", "relTime(-30.0)"),
        ("1 + relTime(60)", "error"),
        ("absTime(5, 0) + 1", "error"),
        ("-relTime(5)", "relTime(-5.0)"),
        ('relTime("60") + 1', "61.0"),
    ],
)
def test_times(expression: str, wanted: str) -> None:
    assert value(expression) == wanted


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        *(
            ("{1,2,3}[1]", "2"),
            ("{1}[1]", "error"),
            ("{1}[-1]", "error"),
            ('{1}["0"]', "error"),
            ("{1}[undefined]", "undefined"),
        ),
        *(
            ('[a=1]["A"]', "1"),
            ('[a=1]["b"]', "undefined"),
            ("[a=1][0]", "error"),
            ("5[0]", "error"),
            ("nosuch[0]", "undefined"),
        ),
    ],
)
def test_subscripts(expression: str, wanted: str) -> None:
    assert value(expression) == wanted
