"""Texts to trees, and what is said of texts that are none."""

from __future__ import annotations

import pytest

from pool.classad import ParseError, parse_ad, parse_expr
from pool.classad.printing import NEW


def grouped(text: str) -> str:
    """The expression with a parenthesis around every chain, to see how it groups."""
    from pool.classad.nodes import Chain, Conditional, Elvis, ExprNode, Unary
    from pool.classad.printing import print_node

    def show(node: ExprNode) -> str:
        if isinstance(node, Chain):
            shown = show(node.first)
            for sign, below in node.rest:
                shown = f"({shown} {sign} {show(below)})"
            return shown
        if isinstance(node, Conditional):
            return f"({show(node.test)} ? {show(node.yes)} : {show(node.no)})"
        if isinstance(node, Elvis):
            return f"({show(node.left)} ?: {show(node.right)})"
        if isinstance(node, Unary):
            return f"{node.sign}{show(node.operand)}"
        return print_node(node)

    return show(parse_expr(text).node)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a + b * c - d", "((a + (b * c)) - d)"),
        ("a || b && c | d ^ e & f", "(a || (b && (c | (d ^ (e & f)))))"),
        ("a == b < c << d + e", "(a == (b < (c << (d + e))))"),
        ("a - b - c", "((a - b) - c)"),
        ("a ? b : c ? d : e", "(a ? b : (c ? d : e))"),
        ("a ?: b ?: c", "(a ?: (b ?: c))"),
        ("1 ?: 2 + 3", "((1 ?: 2) + 3)"),
        ("!a && -b < c", "(!a && (-b < c))"),
        ("-a.b[0]", "-a.b[0]"),
        ("a is b == c", "((a =?= b) == c)"),
    ],
)
def test_grouping(text: str, wanted: str) -> None:
    assert grouped(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "1 +",
            "1 2",
            "(1",
            "1)",
            "{1,}",
            "{,1}",
            "f(1,)",
            "f(,1)",
            "a.",
            "a.[b]",
            "x ?: -y",
            "a.true",
            "is",
        ),
        *(
            "[a=1;;",
            "[;]",
            "[a]",
            "[a=]",
            "[is=1]",
            "a === b",
            "a = b",
            "1,2",
            "a or b",
            'absTime("12")',
            'relTime("x")',
        ),
    ],
)
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(ParseError):
        parse_expr(text)


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("Memory >= ", "expected an operand at column 11, found the end", 10),
        ("Memory > > 3", "expected an operand at column 10, found '>'", 9),
        ("f(1 2)", "expected ',' or ')' in the arguments of f at column 5, found 2", 4),
        ("a[1", "expected ']' after a subscript at column 4, found the end", 3),
        ('"abc', "string opened at column 1 is never closed", 0),
        ("a # b", "unexpected character '#' at column 3", 2),
    ],
)
def test_an_error_says_what_was_expected_and_where(text: str, message: str, position: int) -> None:
    with pytest.raises(ParseError) as caught:
        parse_expr(text)
    assert caught.value.message == message
    assert caught.value.position == position


def test_semicolons_separate_arguments_too_and_follow_a_conditional_anything() -> None:
    assert parse_expr("f(1;2)").text == "f(1,2)"
    assert parse_expr("x ? y : z : w").text == "x ? y : z"


def test_ads() -> None:
    assert parse_ad("[;a = 1;; 'b c' = [d = {2}];]").to_new() == "[ a = 1; 'b c' = [ d = { 2 } ] ]"
    assert parse_ad("[x=1;X=2]").to_new() == "[ X = 2 ]"
    with pytest.raises(ParseError, match="end of the ad"):
        parse_ad("[a=1] b")
    with pytest.raises(ParseError, match="begin an ad"):
        parse_ad("a=1")


@pytest.mark.parametrize("opening", ["(", "{", "[a=", "f(", "a[", "-", "a ?: ", "a ? 1 : ", "!-"])
def test_nesting_is_bounded(opening: str) -> None:
    with pytest.raises(ParseError, match=r"deep|brackets|more than"):
        parse_expr(opening * 3000 + "1")


@pytest.mark.parametrize("link", [" || a", " + 1", " - b.c"])
def test_long_chains_are_not_deep(link: str) -> None:
    expression = parse_expr("a" + link * 4000)
    assert expression.node.height <= 4
    assert expression.print(NEW) == "a" + link * 4000
