"""Reads command lines that are plain, by a command's declaration alone.

Plain are options that the command has, each with its value in the next word, and words that are none. Whatever else a
line has (help, bundled letters, a value that begins with a dash, a mistake of any kind) is left to typer, which reads
plain lines the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pool.cli.options import CommandArgument, CommandOption
from pool.decimals import whole_number

#: The type of a parameter beside None, by its annotation.
_KINDS: dict[Any, Any] = {kind: base for base in (bool, str, int, Path, list[str]) for kind in (base, base | None)}


class _NotPlain(Exception):
    """The line is for typer."""


def read_plain(function: Callable[..., Any], words: Sequence[str]) -> dict[str, Any] | None:
    """The arguments with which a line calls a command; None where the line is not plain."""
    try:
        return _Line(function).read(words)
    except _NotPlain:
        return None


class _Line:
    """Reads one line for one command."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._options: dict[str, tuple[str, Any, CommandOption]] = {}
        #: The parameters that take words, in their order; only the last may take several.
        self._places: list[tuple[str, Any]] = []
        self._needed = _without_default(function)
        for name, hint in get_type_hints(function, include_extras=True).items():
            if get_origin(hint) is not Annotated:
                continue  # what it returns
            base, declared = get_args(hint)[:2]
            kind = _KINDS.get(base)
            if isinstance(declared, CommandArgument):
                if kind not in (str, list[str]) or (self._places and self._places[-1][1] is not str):
                    raise _NotPlain
                self._places.append((name, kind))
            elif kind is not None and not any("/" in written for written in declared.names):
                self._options.update(dict.fromkeys(declared.names, (name, kind, declared)))

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        rest: list[str] = []
        left = iter(words)
        for word in left:
            if not word:
                raise _NotPlain
            if _is_no_option(word):
                rest.append(word)
                continue
            if word not in self._options:
                raise _NotPlain
            name, kind, declared = self._options[word]
            if name in given and kind != list[str]:
                raise _NotPlain
            if kind is bool:
                given[name] = True
                continue
            value = next(left, "")
            if not value or not _is_no_option(value):
                raise _NotPlain
            if kind == list[str]:
                given.setdefault(name, []).append(value)
            else:
                given[name] = _value(value, kind, declared)
        self._place(rest, given)
        if not self._needed <= given.keys():
            raise _NotPlain
        return given

    def _place(self, words: list[str], given: dict[str, Any]) -> None:
        """Give words to the parameters that take them, in their order; a list takes all that are left."""
        for name, kind in self._places:
            if not words:
                return
            if kind is str:
                given[name] = words.pop(0)
            else:
                given[name], words = words, []
        if words:
            raise _NotPlain


def _is_no_option(word: str) -> bool:
    """Whether a word that is not empty does not begin like an option; a dash alone is standard input."""
    return word[0] != "-" or word == "-"


def _without_default(function: Callable[..., Any]) -> frozenset[str]:
    """The parameters that a line has to give."""
    code = function.__code__
    return frozenset(code.co_varnames[: code.co_argcount - len(function.__defaults__ or ())])


def _value(word: str, kind: Any, declared: CommandOption) -> Any:
    if kind is not int:
        return kind(word)
    number = whole_number(word)
    if number is None or (declared.min is not None and number < declared.min):
        raise _NotPlain
    if declared.max is not None and number > declared.max:
        raise _NotPlain
    return number
