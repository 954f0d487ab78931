"""A pattern's tree for Python's own engine, and how long that engine could take at worst.

The engine backtracks: on `(a+)+b` it takes exponential time. `cost` bounds the number of ways a pattern can be
tried on a subject of a given length; only when that is small is the engine used.
"""

from __future__ import annotations

import re

from pool.classad.patterns.tree import (
    ALL,
    Assert,
    Atomic,
    Back,
    Bytes,
    CaptureGroup,
    Either,
    Lookaround,
    PatternError,
    PatternNode,
    Repeat,
    Sequence,
)

_ASSERTS = {
    "begin": rb"\A",
    "very_end": rb"\Z",
    "end": rb"(?=\n?\Z)",
    "line_begin": rb"(?:\A|(?<=\n)(?!\Z))",
    "line_end": rb"(?=\n|\Z)",
    "word": rb"\b",
    "not_word": rb"\B",
}
NEVER = 10**18


def compiled(part: PatternNode) -> re.Pattern[bytes]:
    """The pattern for Python's engine.

    Raises:
        PatternError: the engine cannot express it (a look behind of varying length).
    """
    try:
        return re.compile(_source(part))
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(str(error)) from None


def _source(part: PatternNode) -> bytes:
    if isinstance(part, Bytes):
        return _members(part.members)
    if isinstance(part, Sequence):
        return b"".join([_source(inner) for inner in part.parts])
    if isinstance(part, Either):
        return b"(?:" + b"|".join([_source(inner) for inner in part.parts]) + b")"
    if isinstance(part, Repeat):
        most = b"" if part.most is None else b"%d" % part.most
        mode = b"+" if part.possessive else b"" if part.greedy else b"?"
        return b"(?:" + _source(part.part) + b"){%d,%s}" % (part.least, most) + mode
    if isinstance(part, CaptureGroup):
        return b"(" + _source(part.part) + b")"
    if isinstance(part, Assert):
        return _ASSERTS[part.kind]
    if isinstance(part, Lookaround):
        return _lookaround(part)
    if isinstance(part, Atomic):
        return b"(?>" + _source(part.part) + b")"
    if isinstance(part, Back):
        return (b"(?i:\\%d)" if part.ignore_case else b"(?:\\%d)") % part.number
    raise PatternError("unknown part")


def _members(members: frozenset[int]) -> bytes:
    if len(members) == 1:
        return re.escape(bytes(members))
    if not members:
        return rb"(?!)"
    if members == ALL:
        return rb"[\x00-\xff]"
    return b"[" + b"".join([b"\\x%02x" % byte for byte in sorted(members)]) + b"]"


def _lookaround(part: Lookaround) -> bytes:
    sign = (b"?" if part.ahead else b"?<") + (b"!" if part.negative else b"=")
    if part.ahead or not isinstance(part.part, Either):
        return b"(" + sign + _source(part.part) + b")"
    each = [b"(" + sign + _source(inner) + b")" for inner in part.part.parts]
    return b"(?:" + (b"" if part.negative else b"|").join(each) + b")"


def cost(part: PatternNode, length: int) -> int:
    """A bound on the ways to try the pattern from one place of a subject; NEVER when there is none."""
    if isinstance(part, Sequence):
        total = 1
        for inner in part.parts:
            total = min(NEVER, total * cost(inner, length))
        return total
    if isinstance(part, Either):
        return min(NEVER, sum(cost(inner, length) for inner in part.parts))
    if isinstance(part, (CaptureGroup, Atomic, Lookaround)):
        return cost(part.part, length)
    if isinstance(part, Repeat):
        return _repeat_cost(part, length)
    return 1


def _repeat_cost(part: Repeat, length: int) -> int:
    inner = cost(part.part, length)
    most = length + 1 if part.most is None else min(part.most, length + 1)
    if inner == 1:
        return max(1, most - min(part.least, most) + 1)
    if most > 12:
        return NEVER
    return int(min(NEVER, inner**most * (most + 1)))


def anchored(part: PatternNode) -> bool:
    """Whether the pattern can match at the beginning of the subject only."""
    while isinstance(part, (Sequence, CaptureGroup, Atomic)):
        if isinstance(part, Sequence):
            if not part.parts:
                return False
            part = part.parts[0]
        else:
            part = part.part
    return isinstance(part, Assert) and part.kind == "begin"
