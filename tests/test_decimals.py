"""Numbers that come from outside: digits from 0 to 9, bounded, and nothing that Python takes beside them."""

from __future__ import annotations

import pytest

from pool.decimals import clipped_number, has_digits_only, real_number, whole_number

NOT_DIGITS = ("", "²", "٣", "１２", "1_0", " 1", "1\n", "+1", "-1", "1.0", "x")


@pytest.mark.parametrize("text", NOT_DIGITS)
def test_only_digits_are_a_whole_number(text: str) -> None:
    assert not has_digits_only(text)
    assert whole_number(text) is None


def test_a_whole_number_fits_into_64_bits() -> None:
    assert (whole_number("0"), whole_number("007"), whole_number("9" * 18)) == (0, 7, 10**18 - 1)
    assert whole_number("9" * 19) is None
    assert whole_number("9" * 5000) is None


def test_a_clipped_number_is_never_too_long_to_read() -> None:
    assert (clipped_number("12"), clipped_number("-12"), clipped_number("+0")) == (12, -12, 0)
    assert (clipped_number("9" * 5000), clipped_number("-" + "9" * 5000)) == (10**18 - 1, 1 - 10**18)
    assert clipped_number("0" * 5000 + "7") == 7


@pytest.mark.parametrize("text", ["", "-", "+-1", "--1", "²", "٣", "1_0", "1 "])
def test_other_texts_are_no_clipped_number(text: str) -> None:
    with pytest.raises(ValueError, match="no whole number"):
        clipped_number(text)


def test_a_real_number_is_decimal_and_finite() -> None:
    assert [real_number(text) for text in (" 1.5 ", ".5", "5.", "-1e3", "+2E-1")] == [1.5, 0.5, 5.0, -1000.0, 0.2]
    for text in ("nan", "inf", "-Infinity", "1e999", "1_0", "٣", "²", "0x1", "", ".", "1e"):
        assert real_number(text) is None, text
