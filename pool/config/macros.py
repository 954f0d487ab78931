"""Replacing macros: `$(NAME)`, `$(NAME:default)`, `$ENV(NAME)`, `$ENV(NAME:default)`.

A default may hold macros itself. `$$(...)` is for the match of a job and stays as it is. The caller gives the value of
each name. A name without a value is replaced by its default, or by nothing; the latter is noted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

_START = re.compile(r"\$\$|\$(ENV)?\((?=[A-Za-z_])", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
#: Characters that one value grows to at most.
LONGEST = 100_000

#: The value of a name: its replaced text, or None.
Lookup = Callable[[str], str | None]


class TooLong(Exception):
    """Replacing makes the value longer than any value is."""


@dataclass(slots=True)
class Replacer:
    """Replaces the macros of one text.

    Attributes:
        missing: names that stood for nothing and had no default.
    """

    lookup: Lookup
    environ: Mapping[str, str]
    missing: list[str] = field(default_factory=list)

    def replace(self, text: str) -> str:
        """The text without macros.

        Raises:
            TooLong: there is no end to it.
        """
        if "$" not in text:
            return text
        parts: list[str] = []
        position = length = 0
        while (found := _START.search(text, position)) is not None:
            parts.append(text[position : found.start()])
            if found[0] == "$$":
                parts.append("$$")
                position = found.end()
                continue
            end = closing(text, found.end())
            if end < 0:
                parts.append(text[found.start() : found.end()])
                position = found.end()
                continue
            parts.append(self._value(text[found.end() : end], environment=found[1] is not None, whole=text))
            position = end + 1
            length += len(parts[-1])
            if length > LONGEST:
                raise TooLong
        parts.append(text[position:])
        return "".join(parts)

    def _value(self, inner: str, *, environment: bool, whole: str) -> str:
        name, colon, default = inner.partition(":")
        if not _NAME.fullmatch(name.strip()):
            return f"$({inner})"
        name = name.strip()
        value = self.environ.get(name) if environment else self.lookup(name)
        if value is not None:
            return value
        if not colon:
            self.missing.append(f"$ENV({name})" if environment else f"$({name})")
        return self.replace(default)


def closing(text: str, start: int) -> int:
    """Where the parenthesis that was opened just before `start` is closed; -1 if nowhere."""
    depth = 1
    for position in range(start, len(text)):
        if text[position] == "(":
            depth += 1
        elif text[position] == ")":
            depth -= 1
            if not depth:
                return position
    return -1


def names_in(text: str) -> set[str]:
    """Names (upper case) that a text's macros refer to."""
    return {match.upper() for match in re.findall(r"(?<!\$)\$\(\s*([A-Za-z_][A-Za-z0-9_.]*)", text)}
