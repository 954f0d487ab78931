r"""Reading configuration text into assignments (EV 2.5, TS 8).

    # a comment, on a line of its own
    NAME = value                    a macro
    NAME : expression               a control expression
    NAME = a long value \           a backslash at the end goes on with the next line
           that goes on
    NAME @=end                      a value of several lines, up to
    @end                            this one
    include : other.conf            read another file here; its path is relative to this file's
    include ifexist : other.conf    the same, if it is there

A definition that names itself, `START : $(START) && Extra`, means the value that it had before, so that a local file
can add to the pool-wide one. This module does not know which settings exist or what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pool.errors import PoolError

Opener = Callable[[Path], str]
_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)\s*([=:])\s*(.*)", re.DOTALL)
_BLOCK = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)\s*@=\s*(\S+)")
_INCLUDE = re.compile(r"include(?:\s+(?P<word>\w+))?\s*:\s*(?P<path>.*)", re.IGNORECASE | re.DOTALL)
#: Characters of one file, and files within files, that a configuration has at most.
LONGEST = 1_000_000
DEEPEST = 20


class ConfigError(PoolError):
    """The configuration cannot be used; the message names file and line."""


@dataclass(frozen=True, slots=True)
class SettingDefinition:
    """One definition.

    Attributes:
        name: as it was written.
        text: what it stands for, before macros are replaced.
        where: file and line, or what else set it.
        control: whether it was written as a control expression, with a colon.
        before: what the name stood for until then; None if for nothing.
    """

    name: str
    text: str
    where: str
    control: bool = False
    before: SettingDefinition | None = None


@dataclass(frozen=True, slots=True)
class Include:
    """A line that asks for another file."""

    path: str
    where: str
    needed: bool


def parse(text: str, name: str) -> Iterator[SettingDefinition | Include]:
    """The definitions of one file, in order.

    Args:
        name: the file's, for messages.

    Raises:
        ConfigError: a line that is none.
    """
    for number, line in joined(text):
        where = f"{name}:{number}"
        include = _INCLUDE.fullmatch(line)
        if include is not None:
            yield _included(include, where)
            continue
        match = _LINE.fullmatch(line)
        if match is None and (block := _BLOCK.fullmatch(line)) is not None:
            raise ConfigError(f"{where}: {block[1]} has no end", hint=f"a line that is @{block[2]} ends it")
        if match is None:
            raise ConfigError(
                f"{where}: expected NAME = value or NAME : expression, found `{_short(line)}`",
                hint="a comment begins with #; a value goes on in the next line after a \\ at the end",
            )
        yield SettingDefinition(match[1], match[3].strip(), where, match[2] == ":")


def joined(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) of each line that says something, with those joined that go on."""
    lines = iter(enumerate(text.replace("\r\n", "\n").split("\n"), 1))
    for number, line in lines:
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if (block := _BLOCK.fullmatch(line)) is not None:
            inner: list[str] = []
            for _, following_line in lines:
                if following_line.strip() == f"@{block[2]}":
                    line = "\n".join([f"{block[1]} =", *inner])
                    break
                inner.append(following_line.strip())
            yield number, line
            continue
        while line.endswith("\\"):
            line = line[:-1].rstrip()
            following = next(lines, None)
            if following is None:
                break
            part = following[1].strip()
            line = f"{line} \\" if part.startswith("#") else f"{line} {part}".strip()
        if line:
            yield number, line


def open_file(path: Path) -> str:
    """A configuration file's text.

    Raises:
        ConfigError: it cannot be read, or is no text.
    """
    try:
        if path.stat().st_size > LONGEST:
            raise ConfigError(f"cannot read {path}: too long for a configuration file")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror or error}", hint="give another with --config"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {path}: byte {error.start} is not UTF-8 text") from error


def _included(match: re.Match[str], where: str) -> Include:
    word, path = match["word"], match["path"].strip()
    if word is not None and word.lower() != "ifexist":
        raise ConfigError(f"{where}: expected `include : FILE` or `include ifexist : FILE`, found `{_short(match[0])}`")
    if not path:
        raise ConfigError(f"{where}: include names no file")
    return Include(path, where, word is None)


def _short(line: str) -> str:
    return line if len(line) <= 40 else f"{line[:37]}..."
