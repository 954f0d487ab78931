"""The tree of a pattern, on bytes only.

    Bytes(members)                 one byte out of a set
    Sequence(parts), Either(parts)
    Repeat(part, least, most, greedy, possessive)      most None: any number
    Group(part, number)            capturing
    Assert(kind)                   "begin", "end", "line_begin", "line_end", "very_end", "word", "not_word"
    Look(part, ahead, negative), Atomic(part), Back(number, ignore_case)

It carries no flags: case, `.` and `$` are settled when a pattern is read.
"""

from __future__ import annotations

from typing import Final


class PatternError(Exception):
    """The text is no pattern, or one that is not supported."""


class PatternNode:
    __slots__ = ()


class Bytes(PatternNode):
    __slots__ = ("members",)

    def __init__(self, members: frozenset[int]) -> None:
        self.members = members


class Sequence(PatternNode):
    __slots__ = ("parts",)

    def __init__(self, parts: tuple[PatternNode, ...]) -> None:
        self.parts = parts


class Either(PatternNode):
    __slots__ = ("parts",)

    def __init__(self, parts: tuple[PatternNode, ...]) -> None:
        self.parts = parts


class Repeat(PatternNode):
    __slots__ = ("greedy", "least", "most", "part", "possessive")

    def __init__(self, part: PatternNode, least: int, most: int | None, greedy: bool, possessive: bool) -> None:
        self.part = part
        self.least = least
        self.most = most
        self.greedy = greedy
        self.possessive = possessive


class CaptureGroup(PatternNode):
    __slots__ = ("number", "part")

    def __init__(self, part: PatternNode, number: int) -> None:
        self.part = part
        self.number = number


class Assert(PatternNode):
    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind


class Lookaround(PatternNode):
    __slots__ = ("ahead", "negative", "part")

    def __init__(self, part: PatternNode, ahead: bool, negative: bool) -> None:
        self.part = part
        self.ahead = ahead
        self.negative = negative


class Atomic(PatternNode):
    __slots__ = ("part",)

    def __init__(self, part: PatternNode) -> None:
        self.part = part


class Back(PatternNode):
    __slots__ = ("ignore_case", "number")

    def __init__(self, number: int, ignore_case: bool) -> None:
        self.number = number
        self.ignore_case = ignore_case


ALL: Final = frozenset(range(256))
DIGITS: Final = frozenset(b"0123456789")
LOWER: Final = frozenset(range(ord("a"), ord("z") + 1))
UPPER: Final = frozenset(range(ord("A"), ord("Z") + 1))
WORD: Final = DIGITS | LOWER | UPPER | frozenset(b"_")
SPACE: Final = frozenset(b" \t\n\v\f\r")
BLANK: Final = frozenset(b" \t")
VERTICAL: Final = frozenset(b"\n\v\f\r")
PRINTED: Final = frozenset(range(32, 127))
