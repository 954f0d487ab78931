"""The values of the language, and the few that Python has no type for.

    undefined, error     UNDEFINED, ERROR (the only instances of their types; compare with `is`)
    boolean              bool
    integer              int, always within 64 bits
    real                 float
    string               str; bytes that are not UTF-8 are kept as lone surrogates (surrogateescape)
    absolute time        AbsTime
    relative time        RelTime
    list                 tuple of values
    ad                   pool.classad.ClassAd

Inside an evaluation lists and ads stand unevaluated with the scope they were met in, as `scope.ListValue` and
`scope.Scope`; the two forms meet in `results`. Nothing here computes.
"""

from __future__ import annotations

from typing import Final

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
_SPAN: Final = 2**64


class Undefined:
    """The type of UNDEFINED: a name that nobody defines, and what comes of using one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "undefined"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "UNDEFINED"


class Error:
    """The type of ERROR: an operation that makes no sense on these operands."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "error"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "ERROR"


UNDEFINED: Final = Undefined()
ERROR: Final = Error()


class AbsTime:
    """A moment.

    Args:
        seconds: since 1970-01-01 UTC.
        offset: seconds east of Greenwich that it is shown in.
    """

    __slots__ = ("offset", "seconds")

    def __init__(self, seconds: int, offset: int = 0) -> None:
        self.seconds = seconds
        self.offset = offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbsTime) and (self.seconds, self.offset) == (other.seconds, other.offset)

    def __hash__(self) -> int:
        return hash((self.seconds, self.offset))

    def __repr__(self) -> str:
        return f"AbsTime({self.seconds}, {self.offset})"


class RelTime:
    """A span of time in seconds; may be negative and have a fraction."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RelTime) and self.seconds == other.seconds

    def __hash__(self) -> int:
        return hash(self.seconds)

    def __repr__(self) -> str:
        return f"RelTime({self.seconds})"


def wrap(number: int) -> int:
    """The number as 64-bit two's complement arithmetic leaves it."""
    if INT_MIN <= number <= INT_MAX:
        return number
    return (number - INT_MIN) % _SPAN + INT_MIN


def truncated(number: float) -> int:
    """A real as an integer, toward zero; what 64 bits cannot hold (and nan) is the smallest integer."""
    if -9.223372036854775808e18 <= number < 9.223372036854775808e18:
        return int(number)
    return INT_MIN


def int32(number: int) -> int:
    """The integer as 32 bits leave it; some functions count in no more."""
    return (number + 2**31) % 2**32 - 2**31


def truncated32(number: float) -> int:
    """A real as a 32-bit integer, toward zero; what does not fit (and nan) is the smallest: spans of time."""
    return int(number) if -2147483649.0 < number < 2147483648.0 else -(2**31)


def encoded(text: str) -> bytes:
    """The bytes that a string stands for; its length is the language's idea of a string's size."""
    return text.encode("utf-8", "surrogateescape")


def decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def lowered(text: str) -> str:
    """Lower case of the letters A to Z only, as the C library has it in the locale C."""
    return text.lower() if text.isascii() else text.translate(_LOWER)


def raised(text: str) -> str:
    """Upper case of the letters a to z only."""
    return text.upper() if text.isascii() else text.translate(_UPPER)
