"""HTCondor's options: one dash, any unambiguous beginning from a minimum on, values, and `:` with letters.

`-const`, `-constraint` and `--constraint` are the same; with two dashes the whole name is asked for. An option that is
not in the table, or that the pool cannot do, is refused in one line. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pool.errors import PoolError

#: As many values as there are words up to the next option.
ALL = -1


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a tool.

    Attributes:
        name: as it is written in full, without the dash.
        least: letters that an abbreviation has at least.
        values: how many words follow it; `ALL` for those up to the next option.
        colon: whether `-name:letters` is allowed.
        key: what it is called in the result; its name by default.
        refused: why it is refused, and the way out.
    """

    name: str
    least: int = 1
    values: int = 0
    colon: bool = False
    key: str = ""
    refused: str = ""

    def matches(self, word: str) -> bool:
        """Whether a word of the command line, without `:letters`, is this option."""
        if word.startswith("--"):
            return word[2:] == self.name
        given = word[1:]
        return len(given) >= self.least and self.name.startswith(given)


@dataclass(frozen=True, slots=True)
class Given:
    """An option as it was given.

    Attributes:
        key: which option.
        letters: after its colon; None without one.
        values: the words that follow it.
    """

    key: str
    letters: str | None
    values: tuple[str, ...]


@dataclass(slots=True)
class Parsed:
    """A command line.

    Attributes:
        options: in the order in which they were given.
        words: all others.
    """

    options: list[Given] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def has(self, key: str) -> bool:
        return any(one.key == key for one in self.options)

    def value(self, key: str) -> str | None:
        """The value of an option; that of the last if it was given more than once."""
        found = [one.values[0] for one in self.options if one.key == key]
        return found[-1] if found else None

    def all_of(self, key: str) -> list[str]:
        return [one.values[0] for one in self.options if one.key == key]

    def letters(self, key: str) -> str | None:
        """The letters after the colon of an option that was given; an empty text without a colon."""
        found = [one.letters or "" for one in self.options if one.key == key]
        return found[-1] if found else None


def parse(table: Sequence[Option], words: Sequence[str]) -> Parsed:
    """Read a command line. Of several options that a beginning fits, the first of the table is meant.

    Raises:
        PoolError: an unknown option, one that the pool cannot do, or one without its value.
    """
    result = Parsed()
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-") or word == "-":
            result.words.append(word)
            continue
        name, colon, letters = word.partition(":")
        option = next((one for one in table if one.matches(name) and (one.colon or not colon)), None)
        if option is None:
            raise PoolError(f"unrecognized argument {word}", hint="-help lists the options")
        if option.refused:
            raise PoolError(f"{word} is not possible here", hint=option.refused)
        count = option.values
        if count == ALL:
            end = next((i for i in range(at, len(words)) if words[i].startswith("-")), len(words))
            count = end - at
            if not count:
                raise PoolError(f"{word} requires at least one attribute")
        values = tuple(words[at : at + count])
        if len(values) < count:
            raise PoolError(f"{word} requires {'an argument' if count == 1 else f'{count} arguments'}")
        at += count
        result.options.append(Given(option.key or option.name, letters if colon else None, values))
    return result


def usage(tool: str, table: Sequence[Option], words: str = "") -> str:
    """A page of help: a line for each option that is possible here."""
    lines = [f"Usage: {tool} [options] {words}".rstrip()]
    for one in table:
        if not one.refused:
            value = " <value>" * max(one.values, 0) + (" <attr> ..." if one.values == ALL else "")
            lines.append(f"    -{one.name}{'[:letters]' if one.colon else ''}{value}")
    return "\n".join(lines) + "\n"
