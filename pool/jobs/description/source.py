"""The lines of a job description file as its author meant them: trimmed, continued, numbered.

A line that ends with a backslash goes on in the next one. A comment line (its first character is `#`) never continues.
Inside a continued line it is skipped, so that one line of a long command can be commented out. `statements` decides
what the lines mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pool.jobs.description.diagnostics import SourcePosition


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One logical line: its text without surrounding blanks, and where its last physical line stands."""

    text: str
    location: SourcePosition


class Source:
    """A text being read line by line; whoever reads an inline item list takes its lines from here too."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._lines = text.split("\n")
        if self._lines and not self._lines[-1]:
            self._lines.pop()
        self._next = 0

    @property
    def location(self) -> SourcePosition:
        """The line that was read last."""
        return SourcePosition(self.name, self._next)

    def next(self) -> SourceLine | None:
        """The next logical line, comments and empty lines included; None at the end."""
        if self._next >= len(self._lines):
            return None
        text = self._physical()
        if text.startswith("#"):
            return SourceLine(text, self.location)
        while text.endswith("\\") and self._next < len(self._lines):
            text = text[:-1] + self._continued()
        return SourceLine(text.removesuffix("\\"), self.location)

    def next_if(self, wanted: Callable[[str], bool]) -> SourceLine | None:
        """The next line that is neither empty nor a comment, if it is wanted; otherwise nothing has been read."""
        before = self._next
        while (line := self.next()) is not None and (not line.text or line.text.startswith("#")):
            pass
        if line is None or not wanted(line.text):
            self._next = before
            return None
        return line

    def _physical(self) -> str:
        text = self._lines[self._next].strip()
        self._next += 1
        return text

    def _continued(self) -> str:
        text = self._physical()
        if not text.startswith("#"):
            return text
        return "\\" if text.endswith("\\") else ""

    def lines(self) -> list[str]:
        """All lines that are left, as an item file is read: continued, but `#` is no comment there."""
        found = []
        while (line := self.next()) is not None:
            found.append(line.text)
        return found
