"""A job's argument vector and the two ways people and job ads write it.

Old style: arguments stand between blanks, nothing quotes a blank, and `\\"` is a double quote. New style: the
whole is in double quotes (a double quote inside is doubled) and single quotes group blanks (a single quote
inside them is doubled). A job ad keeps old style as `Args` and new style, without its outer quotes, as
`Arguments`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pool.errors import PoolError

_SPECIAL = re.compile(r"[ \t\r\n']+")
_WORD = re.compile(r"[^ \t\r\n]+")
_PIECE = re.compile(r"'((?:[^']|'')*)'|([^' \t\r\n]+)|([ \t\r\n]+)|(')")


class QuotingError(PoolError):
    """An argument or environment text whose quotes do not match."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """An argument vector, without the program's own name; `old` when it was written in old style."""

    words: tuple[str, ...]
    old: bool = False

    def attribute(self) -> tuple[str, str]:
        """The job attribute and text that keep these arguments."""
        return ("Args", " ".join(self.words)) if self.old else ("Arguments", join_words(self.words))


def is_quoted(text: str) -> bool:
    """Whether a text is in new style: its first character that is no blank is a double quote."""
    return text.lstrip().startswith('"')


def unquote(text: str) -> str:
    """Take the outer double quotes off a new-style text. Raises QuotingError."""
    body = text.strip()
    position = 1
    while (end := body.find('"', position)) >= 0:
        if body[end + 1 : end + 2] != '"':
            break
        position = end + 2
    if end < 0:
        raise QuotingError(f"the double quote that opens {text.strip()!r} is never closed", hint='end it with "')
    if end != len(body) - 1:
        raise QuotingError(
            f"unexpected text after the closing double quote: {body[end:]!r}",
            hint='write "" for a double quote inside the text',
        )
    return body[1:end].replace('""', '"')


def split_words(text: str) -> list[str]:
    """Split a new-style text without its outer quotes into words. Raises QuotingError."""
    words: list[str] = []
    word: str | None = None
    for found in _PIECE.finditer(text):
        quoted, plain, blank, lone = found.groups()
        if lone:
            raise QuotingError(
                f"the single quote before {text[found.end() : found.end() + 20]!r} is never closed",
                hint="write '' inside single quotes for a single quote",
            )
        if blank is None:
            word = (word or "") + (plain if quoted is None else quoted.replace("''", "'"))
        elif word is not None:
            words.append(word)
            word = None
    return words if word is None else [*words, word]


def join_words(words: Iterable[str]) -> str:
    """Write words in new style without its outer quotes; single quotes keep blanks and themselves."""
    return " ".join([_SPECIAL.sub(_quote, word) if word else "''" for word in words])


def _quote(found: re.Match[str]) -> str:
    return "'" + found[0].replace("'", "''") + "'"


def read_arguments(text: str) -> Arguments:
    """Read the `arguments` command in either style. Raises QuotingError."""
    if is_quoted(text):
        return Arguments(tuple(split_words(unquote(text))))
    if '"' not in text:
        return Arguments(tuple(_WORD.findall(text)), old=True)
    bare = re.search(r'(?<!\\)"', text)
    if bare:
        raise QuotingError(
            f"a double quote inside old-style arguments: {text[bare.start() :]!r}",
            hint='write \\" for it, or put the whole in double quotes',
        )
    return Arguments(tuple(_WORD.findall(text.replace('\\"', '"'))), old=True)


def arguments_of(attributes: Mapping[str, object]) -> list[str]:
    """The argument vector that a job's attributes `Arguments` or `Args` stand for. Raises QuotingError."""
    new = attributes.get("Arguments")
    if isinstance(new, str):
        return split_words(new)
    old = attributes.get("Args")
    return _WORD.findall(old) if isinstance(old, str) else []
