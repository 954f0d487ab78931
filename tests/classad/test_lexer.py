"""Tokens of both lexings."""

from __future__ import annotations

from typing import Any

import pytest

from pool.classad import ParseError
from pool.classad.lexer import MAX_TOKENS, tokens


def kinds(text: str, old: bool = False) -> list[str]:
    return tokens(text, old)[0]


def first(text: str, old: bool = False) -> Any:
    return tokens(text, old)[1][0]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a<=b<<c>>>d", ["name", "<=", "name", "<<", "name", ">>>", "name", "end"]),
        ("a is b ISNT c", ["name", "=?=", "name", "=!=", "name", "end"]),
        ("a=?=b=!=c=d", ["name", "=?=", "name", "=!=", "name", "=", "name", "end"]),
        ("TRUE False unDefined ERROR truer", ["true", "false", "undefined", "error", "name", "end"]),
        ("a ? : b ?\t: c ? d : e", ["name", "?:", "name", "?:", "name", "?", "name", ":", "name", "end"]),
        ("1 -1 - 1 (-1) -.5", ["int", "-", "int", "-", "int", "(", "int", ")", "-", "real", "end"]),
        ("a..b .c", ["name", ".", "name", ".", "name", "end"]),
        ("/* a */ 1 // b\n + 2", ["int", "+", "int", "end"]),
        ("'a b'.'c\\'d'", ["name", ".", "name", "end"]),
        ("1\0 2", ["int", "end"]),
    ],
)
def test_kinds(text: str, wanted: list[str]) -> None:
    assert kinds(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0", 0),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", 0),
        ("1" * 5000, 0),
        ("1.5e-3", 0.0015),
        (".5", 0.5),
        ("1E3", 1000.0),
        ("09.5", 9.5),
    ],
)
def test_numbers(text: str, wanted: float) -> None:
    assert first(text) == wanted
    assert type(first(text)) is type(wanted)


@pytest.mark.parametrize("text", ["1.", "1.a", "1e", "1e+", "1.5e", "0x1F", "010", "08", "=?x", "#", "$(a)", "\\", "é"])
def test_what_is_no_token(text: str) -> None:
    with pytest.raises(ParseError):
        tokens(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (r'"a\tb\n\\\""', 'a\tb\n\\"'),
        (r'"\101\7"', "A\7"),
        (r'"\303\251"', "é"),
        (r'"\q"', "q"),
        ('"a" "b"\n"c"', "abc"),
        (r'"\377"', "\udcff"),
    ],
)
def test_new_strings(text: str, wanted: str) -> None:
    assert first(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (r'"a\nb"', r"a\nb"),
        (r'"say \"hi\""', 'say "hi"'),
        (r'"C:\dir\\"', "C:\\dir\\\\"),
        ('"a\\"\n + 1', "a\\"),
        (r'"\""', '"'),
    ],
)
def test_old_strings(text: str, wanted: str) -> None:
    assert first(text, old=True) == wanted


@pytest.mark.parametrize("text", ['"a', "'a", '"a\\"', '"\\0"', "/* a"])
def test_what_is_never_closed_or_not_allowed(text: str) -> None:
    with pytest.raises(ParseError):
        tokens(text)


def test_an_endless_text_is_refused_early() -> None:
    with pytest.raises(ParseError, match=str(MAX_TOKENS)):
        tokens("+" * 1_000_000)
