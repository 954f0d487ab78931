"""Which statement a line is: assignment, condition, include, queue and so on.

Only the form is looked at; macros are not expanded and nothing is executed here. Theory: the first word ends
at a blank, `=` or `:`. `name = text` is an assignment, `name += text` appends, `name @= tag` begins a text of
several lines that ends with `@tag`. `include :`, `use ...:`, `error :` and `warning :` are marked by their
colon. Whatever has another word before its operator can only be a queue statement.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_WORD = re.compile(r"[^\s=:]*")
_CONDITION = re.compile(r":?(if|elif|else|endif)(?:\s+(.*))?$", re.IGNORECASE | re.DOTALL)
_QUEUE = re.compile(r"(?:queue|iter(?:a(?:t(?:e)?)?)?)(?:\s+(.*))?$", re.IGNORECASE | re.DOTALL)
_SEPARATORS = ",;|&*"
_DIRECTIVES = frozenset({"include", "use", "error", "warning"})


@dataclass(frozen=True, slots=True)
class Assignment:
    """`name = text`. `name` may begin with `+` (or `-`, which takes an attribute away again)."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Append:
    """`name += text`, or with a separator `name +,= text`."""

    name: str
    text: str
    separator: str


@dataclass(frozen=True, slots=True)
class TextBlock:
    """`name @= tag`: the following lines up to `@tag` are the text."""

    name: str
    tag: str


@dataclass(frozen=True, slots=True)
class IfStatement:
    """`if`, `elif`, `else`, `endif`; `text` is the condition."""

    keyword: str
    text: str


@dataclass(frozen=True, slots=True)
class Directive:
    """`include`, `use`, `error`, `warning`: words between keyword and colon, and the text after it."""

    keyword: str
    words: str
    text: str


@dataclass(frozen=True, slots=True)
class QueueStatement:
    """`queue` with its arguments as written."""

    arguments: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """No statement of this language; `word` is the first word of the line."""

    word: str
    line: str


Statement = Assignment | Append | TextBlock | IfStatement | Directive | QueueStatement | Unclear


def condition_of(line: str) -> IfStatement | None:
    """The line as a condition, looked at even where other statements are passed over."""
    found = _CONDITION.match(line)
    return IfStatement(found[1].lower(), (found[2] or "").strip()) if found else None


def statement_of(line: str) -> Statement:
    """Tell which statement a line that is neither empty nor a comment is."""
    if found := condition_of(line):
        return found
    word = _WORD.match(line)[0]  # type: ignore[index]  # the pattern matches the empty string too
    rest = line[len(word) :].lstrip()
    keyword = word.lstrip("@").lower()
    if keyword in _DIRECTIVES and ":" in rest and (directive := _directive(keyword, rest)):
        return directive
    if rest.startswith("=") and keyword != "queue":
        return Assignment(word, rest[1:].strip())
    if rest.startswith("@=") and word:
        return TextBlock(word, rest[2:].strip())
    if rest.startswith("+") and word and (append := _append(word, rest)):
        return append
    if found_queue := _QUEUE.match(line):
        return QueueStatement((found_queue[1] or "").strip())
    return Unclear(word or line.split()[0], line)


def _directive(keyword: str, rest: str) -> Directive | None:
    words, _, text = rest.partition(":")
    return None if "=" in words else Directive(keyword, words.strip(), text.strip())


def _append(word: str, rest: str) -> Append | None:
    separator, position = "", 1
    if rest[1:2] and rest[1] in _SEPARATORS:
        separator, position = rest[1], 2
        if rest[2:3] == separator:
            separator, position = separator * 2, 3
    if rest[position : position + 1] != "=":
        return None
    return Append(word, rest[position + 1 :].strip(), separator)
