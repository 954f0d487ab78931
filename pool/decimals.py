"""Numbers that people and other nodes write in digits.

Python's `str.isdigit`, `int()`, `float()` and `\\d` take more than 0 to 9: `²` is a digit that `int()` refuses, `٣` and
`1_0` are numbers, and `int()` of some thousand digits is an error. A text from outside is read here instead, or by a
pattern of `[0-9]`.
"""

from __future__ import annotations

import math
import re

#: The most digits of a whole number: each fits into 64 bits, as the wire and the queue need it.
MOST_DIGITS = 18
_WHOLE = re.compile(r"[0-9]+")
_REAL = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")


def has_digits_only(text: str) -> bool:
    """Whether the text is one or more of 0 to 9, and nothing else."""
    return _WHOLE.fullmatch(text) is not None


def whole_number(text: str) -> int | None:
    """The number that up to MOST_DIGITS digits are; None for any other text, also for one with a sign or blanks."""
    return int(text) if len(text) <= MOST_DIGITS and has_digits_only(text) else None


def clipped_number(text: str) -> int:
    """The number that an optional sign and digits are; beyond MOST_DIGITS digits the largest of so many.

    Raises:
        ValueError: the text is something else.
    """
    sign, digits = (text[0], text[1:]) if text[:1] in ("-", "+") and text else ("", text)
    if not has_digits_only(digits):
        raise ValueError(f"no whole number: {text[:40]!r}")
    shown = digits.lstrip("0") or "0"
    number = int(shown) if len(shown) <= MOST_DIGITS else 10**MOST_DIGITS - 1
    return -number if sign == "-" else number


def real_number(text: str) -> float | None:
    """The finite number that a text is in decimal notation, blanks around it aside; None for any other text."""
    stripped = text.strip()
    if not _REAL.fullmatch(stripped):
        return None
    number = float(stripped)
    return number if math.isfinite(number) else None
