"""The kinds of values that settings take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.config import kinds
from pool.config.kinds import Unfit


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0.002", 0.002),
        ("2 ms", 0.002),
        ("10 min", 600),
        ("10min", 600),
        ("1 h 30 min", 5400),
        ("1.5 hours", 5400),
        ("2d", 172800),
        ("1 week", 604800),
        ("15 * 60", 900),
        ("(60 * 60) / 2", 1800),
        (" 5 S ", 5),
    ],
)
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert kinds.duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "ten", "10 parsecs", "10 min later", "min", "1 / 0", "KeyboardIdle", "true", "inf"]
)
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(Unfit, match="a length of time such as 90, 10 min or 2 h"):
        kinds.duration(text)


def test_numbers_and_counts() -> None:
    assert kinds.number("1e3") == 1000
    assert kinds.number("2 * 3 + 0.5") == 6.5
    assert kinds.count("2 * 3") == 6
    for text in ("nan", "x", '"3"', "true", ""):
        with pytest.raises(Unfit, match="a number"):
            kinds.number(text)
    for text in ("1.5", "-1", "many"):
        with pytest.raises(Unfit, match="a whole number"):
            kinds.count(text)


def test_flags() -> None:
    assert all(kinds.flag(text) for text in ("true", "Yes", "ON", "1"))
    assert not any(kinds.flag(text) for text in ("no", "0", "off", " False "))
    with pytest.raises(Unfit, match="true or false"):
        kinds.flag("maybe")


@pytest.mark.parametrize("text", ["", "0.0.0.0:9618", "[::1]:0", "host.example:1", ":9618"])
def test_addresses(text: str) -> None:
    assert kinds.address(text) == text


@pytest.mark.parametrize("text", ["9618", "host", "host:port", "host:70000", "::1:22", "tcp://host:1", "a b:1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(Unfit, match="HOST:PORT"):
        kinds.address(text)


def test_expressions() -> None:
    assert kinds.expression("A && B") == "A && B"
    with pytest.raises(Unfit, match="an expression: "):
        kinds.expression("A &&")


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for reader in (kinds.number, kinds.count, kinds.duration, kinds.flag, kinds.address, kinds.expression):
        try:
            reader(text)
        except Unfit:
            pass
