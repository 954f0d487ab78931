"""Replacing macros: defaults, nesting, the environment, what is left alone, and texts without end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.config.macros import Replacer, TooLong, closing, names_in


def replaced(text: str, **values: str) -> str:
    return Replacer(values.get, {"HOME": "/home/ada"}).replace(text)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain", "plain"),
        ("$(A)-$(A)", "1-1"),
        ("$(NOPE)x", "x"),
        ("$(NOPE:d)x", "dx"),
        ("$(NOPE:$(A)$(NOPE2:z(y)))", "1z(y)"),
        ("$(A:default)", "1"),
        ("$( A )", "$( A )"),
        ("$ENV(HOME)/x", "/home/ada/x"),
        ("$env(NOPE:/tmp)", "/tmp"),
        ("$$(A)", "$$(A)"),
        ("$(A", "$(A"),
        ("$(A-B)", "$(A-B)"),
        ("cost $5 (A)", "cost $5 (A)"),
        ("f($(A), (2))", "f(1, (2))"),
    ],
)
def test_replacing(text: str, result: str) -> None:
    assert replaced(text, A="1") == result


def test_what_stood_for_nothing_is_noted() -> None:
    replacer = Replacer({"A": "1"}.get, {})
    replacer.replace("$(A) $(B) $(C:x) $ENV(D) $(E:$(F))")
    assert replacer.missing == ["$(B)", "$ENV(D)", "$(F)"]


def test_a_text_without_end_is_given_up() -> None:
    with pytest.raises(TooLong):
        replaced("$(A)" * 11, A="x" * 10_000)


def test_names() -> None:
    assert names_in("$(a) $(B:$(c)) $ENV(D) $$(E) $(f") == {"A", "B", "C", "F"}


@given(st.text(alphabet="$(A):BEN x", max_size=40))
def test_any_text_is_replaced(text: str) -> None:
    assert isinstance(replaced(text, A="1"), str)


@given(st.text(alphabet="()x", max_size=30))
def test_closing_finds_the_matching_parenthesis(text: str) -> None:
    end = closing(text, 0)
    if end >= 0:
        assert text[end] == ")"
        assert text[:end].count("(") == text[:end].count(")")
