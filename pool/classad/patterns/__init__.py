"""Regular expressions that cannot stall a daemon: Perl-compatible patterns on bytes, with bounded work.

A pattern is read once into a tree (`syntax`). On a subject where backtracking is certainly short, Python's engine
matches (`backtracking`); elsewhere an automaton does, in time proportional to the subject (`automaton`); a pattern
that needs backtracking and might take forever raises `EvaluationFailed`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from pool.classad.errors import EvaluationFailed
from pool.classad.patterns import backtracking
from pool.classad.patterns.automaton import PatternProgram, Spans
from pool.classad.patterns.syntax import read
from pool.classad.patterns.tree import PatternError
from pool.classad.values import encoded

__all__ = ["Pattern", "PatternError", "Spans", "compiled_pattern"]

_EASY = 100_000
_LONGEST_PATTERN = 5_000


class Pattern:
    """A pattern ready to be matched."""

    __slots__ = ("_engine", "_parts", "_program", "_refused", "_ways", "anchored", "groups")

    def __init__(self, pattern: str, flags: str) -> None:
        """Raises PatternError when the text is no pattern."""
        if len(pattern) > _LONGEST_PATTERN:
            raise PatternError("pattern too long")
        self._parts, self.groups = read(encoded(pattern), flags)
        self.anchored = backtracking.anchored(self._parts)
        self._engine: re.Pattern[bytes] | None = None
        self._program: PatternProgram | None = None
        self._refused = False
        self._ways: tuple[int, int] | None = None

    def search(self, text: str | bytes, spend: Callable[[int], None], start: int = 0) -> Spans | None:
        """Begin and end of the leftmost match at or after `start` and of its groups (-1 where a group took no
        part), in bytes; None when nothing matches.
        """
        data = encoded(text) if isinstance(text, str) else text
        length = len(data) - start
        if self._ways is None or self._ways[0] != length:  # texts of one attribute are often of one length
            self._ways = length, backtracking.cost(self._parts, length) * (1 if self.anchored else length + 1)
        ways = self._ways[1]
        if ways <= _EASY:
            spend(ways // 20 + 1)
            return self._by_engine(data, start)
        program = self._automaton()
        if program is None:
            raise EvaluationFailed("pattern that may take forever")
        return program.search(data, start, spend)

    def match_nonempty(self, data: bytes, spend: Callable[[int], None], start: int) -> Spans | None:
        """The match that begins at `start` and is not empty, for going on after an empty match."""
        program = self._automaton()
        return None if program is None else program.search(data, start, spend, fixed=True, some=True)

    def _by_engine(self, data: bytes, start: int) -> Spans | None:
        if self._engine is None:
            self._engine = backtracking.compiled(self._parts)
        found = self._engine.search(data, start)
        if found is None:
            return None
        return tuple(edge for span in found.regs for edge in span)

    def _automaton(self) -> PatternProgram | None:
        if self._program is None and not self._refused:
            try:
                self._program = PatternProgram(self._parts, self.groups)
            except PatternError:
                self._refused = True
        return self._program


@lru_cache(maxsize=500)
def compiled_pattern(pattern: str, options: str = "") -> Pattern:
    """The pattern with these options (letters i, m, s, x; others are ignored).

    Raises:
        PatternError: the text is no pattern.
    """
    return Pattern(pattern, "".join(sorted(set(options) & set("imsx"))))
