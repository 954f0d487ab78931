"""Matching in time proportional to subject times pattern, whatever the pattern: the threads of a nondeterministic
automaton run in step (Thompson's construction; captures and priorities as R. Cox describes Pike's machine in
"Regular Expression Matching: the Virtual Machine Approach", 2009).

Slower than a backtracking engine on easy patterns, and the only safe one on evil ones. It knows no back
references, look-around or possessive quantifiers.
"""

from __future__ import annotations

from collections.abc import Callable

from pool.classad.patterns.tree import (
    WORD,
    Assert,
    Bytes,
    CaptureGroup,
    Either,
    PatternError,
    PatternNode,
    Repeat,
    Sequence,
)

_LARGEST = 4_000

CONSUME, SPLIT, JUMP, SAVE, CHECK, DONE = range(6)

Spans = tuple[int, ...]


class PatternProgram:
    """The instructions of one pattern: (what, argument, argument)."""

    __slots__ = ("code", "slots")

    def __init__(self, part: PatternNode, groups: int) -> None:
        """Raises PatternError when the pattern is not regular or its program would be too large."""
        self.code: list[tuple[int, object, int]] = []
        self.slots = 2 * (groups + 1)
        self._emit(part)
        self._add(DONE)

    def _add(self, what: int, argument: object = None, second: int = 0) -> int:
        if len(self.code) >= _LARGEST:
            raise PatternError("pattern too large")
        self.code.append((what, argument, second))
        return len(self.code) - 1

    def _emit(self, part: PatternNode) -> None:
        if isinstance(part, Bytes):
            self._add(CONSUME, part.members)
        elif isinstance(part, Sequence):
            for inner in part.parts:
                self._emit(inner)
        elif isinstance(part, Either):
            self._either(part)
        elif isinstance(part, CaptureGroup):
            self._add(SAVE, 2 * part.number)
            self._emit(part.part)
            self._add(SAVE, 2 * part.number + 1)
        elif isinstance(part, Assert):
            self._add(CHECK, part.kind)
        elif isinstance(part, Repeat) and not part.possessive:
            self._repeat(part)
        else:
            raise PatternError("not a regular pattern")

    def _either(self, part: Either) -> None:
        ends: list[int] = []
        for inner in part.parts[:-1]:
            split = self._add(SPLIT)
            self._emit(inner)
            ends.append(self._add(JUMP))
            self.code[split] = (SPLIT, split + 1, len(self.code))
        self._emit(part.parts[-1])
        for end in ends:
            self.code[end] = (JUMP, len(self.code), 0)

    def _repeat(self, part: Repeat) -> None:
        for _ in range(part.least):
            self._emit(part.part)
        if part.most is None:
            split = self._add(SPLIT)
            self._emit(part.part)
            self._add(JUMP, split)
            self._branch(split, part.greedy)
            return
        splits: list[int] = []
        for _ in range(part.most - part.least):
            splits.append(self._add(SPLIT))
            self._emit(part.part)
        for split in splits:
            self._branch(split, part.greedy)

    def _branch(self, split: int, greedy: bool) -> None:
        into, past = split + 1, len(self.code)
        self.code[split] = (SPLIT, into, past) if greedy else (SPLIT, past, into)

    def search(
        self, data: bytes, start: int, spend: Callable[[int], None], *, fixed: bool = False, some: bool = False
    ) -> Spans | None:
        """Begin and end of the leftmost match and of its groups, -1 where a group took no part.

        Args:
            data: the subject.
            start: where to begin.
            spend: called with the work done; may raise.
            fixed: match at `start` only.
            some: do not accept an empty match at `start`.
        """
        code = self.code
        best: Spans | None = None
        threads: list[tuple[int, Spans]] = []
        empty: Spans = (-1,) * self.slots
        for at in range(start, len(data) + 1):
            ready: list[tuple[int, Spans]] = []
            seen: set[int] = set()
            byte = data[at] if at < len(data) else -1
            for counter, spans in threads:
                self._follow(counter, spans, data, at, ready, seen)
            if best is None and (at == start or not fixed):
                self._follow(0, (at, *empty[1:]), data, at, ready, seen)
            spend((len(seen) >> 1) + 2)
            threads = []
            for counter, spans in ready:
                what, argument, _ = code[counter]
                if what == DONE:
                    if some and at == spans[0] == start:
                        continue
                    best = (spans[0], at, *spans[2:])
                    break
                if byte in argument:  # type: ignore[operator]
                    threads.append((counter + 1, spans))
            if not threads and (best is not None or fixed):
                break
        return best

    def _follow(
        self, counter: int, spans: Spans, data: bytes, at: int, ready: list[tuple[int, Spans]], seen: set[int]
    ) -> None:
        """Add the thread and all it reaches without consuming anything, in order of priority."""
        code = self.code
        waiting = [(counter, spans)]
        while waiting:
            counter, spans = waiting.pop()
            if counter in seen:
                continue
            seen.add(counter)
            what, argument, second = code[counter]
            if what in (CONSUME, DONE):
                ready.append((counter, spans))
            elif what == SPLIT:
                waiting.append((second, spans))
                waiting.append((argument, spans))  # type: ignore[arg-type]
            elif what == JUMP:
                waiting.append((argument, spans))  # type: ignore[arg-type]
            elif what == SAVE:
                slot: int = argument  # type: ignore[assignment]
                waiting.append((counter + 1, (*spans[:slot], at, *spans[slot + 1 :])))
            elif _holds(str(argument), data, at):
                waiting.append((counter + 1, spans))


def _holds(kind: str, data: bytes, at: int) -> bool:
    size = len(data)
    if kind == "begin":
        return at == 0
    if kind == "very_end":
        return at == size
    if kind == "end":
        return at == size or (at == size - 1 and data[at] == 10)
    if kind == "line_begin":
        return at == 0 or (at < size and data[at - 1] == 10)
    if kind == "line_end":
        return at == size or data[at] == 10
    boundary = (at > 0 and data[at - 1] in WORD) != (at < size and data[at] in WORD)
    return boundary if kind == "word" else not boundary
