"""The arguments of `queue`: how many processes of which items, and how an item fills the variables.

    queue [count] [variables] in [slice] (items)
    queue [count] [variables] matching [files|dirs|any] [slice] (patterns)
    queue [count] [variables] from [slice] [table (options)] file | command | | (lines)

Reading the items themselves, from the description or from elsewhere, is in `items`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from pool.decimals import clipped_number
from pool.jobs.description.expressions import boolean_of, integer_of

_KEYWORD = re.compile(r"(?<![^\s(])(in|from|matching)(?=[\s(])", re.IGNORECASE)
_WORD = re.compile(r"[^\s(]+(?=[\s(])")
_SLICE = re.compile(r"\[([-+]?[0-9]*)(?::([-+]?[0-9]*))?(?::([-+]?[0-9]*))?\]")
_ITEM_BREAK = re.compile(r"[\s,]+")
_LIMIT = 2**31 - 1
OLD_SEPARATOR = "\x1f"


class QueueError(Exception):
    """A queue statement that makes no sense; the message says what was expected."""


class ItemSource(StrEnum):
    """Where the items of a queue statement come from."""

    NONE = ""
    IN = "in"
    FROM = "from"
    MATCHING = "matching"


@dataclass(frozen=True, slots=True)
class Columns:
    """How a row of items is divided: separator, whether blanks separate too, header row and rows to skip."""

    separator: str = ","
    blanks: bool = True
    trim: bool = True
    header: int = -1
    skip: int = 0


@dataclass(slots=True)
class QueueArguments:
    """A queue statement that was understood.

    Attributes:
        count: processes for each item.
        inline: items are written in the description: the first ones are `items`, and when `open` more
            follow up to a line that begins with `)`.
        file: the file, or command with `|` at its end, that holds the items; empty when inline.
        kinds: what `matching` may find: `files`, `dirs` or `any`.
    """

    count: int = 1
    mode: ItemSource = ItemSource.NONE
    variables: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    open: bool = False
    file: str = ""
    kinds: str = "any"
    slice: tuple[int | None, int | None, int | None] | None = None
    columns: Columns = Columns()

    def selected(self, total: int) -> Iterator[int]:
        """The indices of the items that are queued, in order."""
        if self.mode is ItemSource.NONE:
            yield 0
            return
        start, stop, step = self.slice or (None, None, None)
        first = 0 if start is None else start + total if start < 0 else start
        last = total if stop is None else stop + total if stop < 0 else stop
        for index in range(first, min(last, total), step or 1):
            if index < 0:
                return
            yield index


def parse_queue(text: str) -> QueueArguments:
    """Understand the arguments of a queue statement whose macros were expanded. Raises QueueError."""
    found = QueueArguments()
    text = text.strip()
    keyword = _KEYWORD.search(text)
    if not keyword:
        found.count = _count(text)
        return found
    found.mode = ItemSource(keyword[1].lower())
    head = text[: keyword.start()]
    cut = _names_begin(head)
    found.count = _count(head[:cut])
    found.variables = split_list(head[cut:]) or ["Item"]
    _source(found, _qualifiers(found, text[keyword.end() :].lstrip()))
    return found


def split_list(text: str) -> list[str]:
    """Words between commas or blanks."""
    return [word for word in _ITEM_BREAK.split(text) if word]


def _count(text: str) -> int:
    text = text.strip()
    if not text:
        return 1
    count = integer_of(text)
    if count is None:
        raise QueueError(f"expected a number of processes, or variables with 'in', 'from' or 'matching', not {text!r}")
    if not 0 <= count < _LIMIT:
        raise QueueError(f"expected a number of processes from 0 to {_LIMIT - 1}, not {count}")
    return count


def _names_begin(head: str) -> int:
    """Where the names of variables begin, read from the end: a word of digits belongs to the count."""
    end = len(head)
    while end > 0:
        char = head[end - 1]
        if "0" <= char <= "9":
            begin = end
            while begin > 0 and "0" <= head[begin - 1] <= "9":
                begin -= 1
            if begin == 0 or not (head[begin - 1].isalpha() or head[begin - 1] == "_"):
                break
            end = begin
        elif char.isspace() or char.isalpha() or char in ",_.":
            end -= 1
        else:
            break
    return end


def _qualifiers(found: QueueArguments, rest: str) -> str:
    while not rest.startswith("(") and (word := _WORD.match(rest)):
        name = word[0].lower()
        if name.startswith("["):
            cut = _SLICE.match(rest)
            if not cut:
                raise QueueError(f"expected a slice such as [1:10:2], not {word[0]!r}")
            found.slice = _slice(cut)
            rest = rest[cut.end() :].lstrip()
        elif name in ("files", "dirs", "any"):
            if found.mode is not ItemSource.MATCHING:
                raise QueueError(f"'{name}' belongs to 'matching', not to '{found.mode}'")
            found.kinds = name
            rest = rest[word.end() :].lstrip()
        elif name == "table":
            if found.mode is not ItemSource.FROM:
                raise QueueError(f"'table' belongs to 'from', not to '{found.mode}'")
            found.columns, rest = _table(rest[word.end() :])
        else:
            break
    return rest


def _slice(cut: re.Match[str]) -> tuple[int | None, int | None, int | None]:
    numbers = [clipped_number(part) if part and part not in "+-" else None for part in cut.groups()]
    if numbers[2] is not None and numbers[2] < 1:
        raise QueueError(f"expected a step of at least 1 in the slice {cut[0]}")
    return numbers[0], numbers[1], numbers[2]


def _table(rest: str) -> tuple[Columns, str]:
    options = {"header": "0", "skip": "0", "trim": "true", "separator": ",", "blanks": "false"}
    if rest.startswith("("):
        end = rest.find(")")
        if end < 0:
            raise QueueError("expected ')' after the options of 'table'")
        for option in split_list(rest[1:end]):
            _table_option(options, option)
        rest = rest[end + 1 :]
    header, skip = integer_of(options["header"]), integer_of(options["skip"])
    if header is None or skip is None:
        raise QueueError("expected a row number for 'header' and 'skip'")
    columns = Columns(options["separator"], options["blanks"] == "true", options["trim"] == "true", header, skip)
    return columns, rest.lstrip()


def _table_option(options: dict[str, str], option: str) -> None:
    key, _, value = option.partition("=")
    key = key.strip().lower()
    if key == "standard":
        options.update(header="-1", separator=",", blanks="true")
    elif key == "csv":
        options.update(header="-1", separator=",", blanks="false")
    elif key == "header":
        options["header"] = "-1" if value.strip().lower() == "none" else value
    elif key == "skip":
        options["skip"] = value
    elif key == "trim":
        options["trim"] = "true" if boolean_of(value.strip()) else "false"
    elif key == "comma_sep":
        options["separator"] = "," if boolean_of(value.strip()) else ""
    elif key == "sep" and value:
        options["separator"] = value.strip()[:1]
    else:
        raise QueueError(f"expected header, skip, trim, sep, comma_sep, csv or standard, not {option!r}")


def _source(found: QueueArguments, rest: str) -> None:
    if rest.startswith("("):
        found.open = not rest.endswith(")")
        content = (rest[1:] if found.open else rest[1:-1]).lstrip()
        if found.mode is ItemSource.FROM:
            found.items = [content] if content or not found.open else []
        else:
            found.items = split_list(content)
    elif found.mode is ItemSource.FROM:
        if not rest:
            raise QueueError("expected a file name or a list in parentheses after 'from'")
        found.file = rest.strip()
    else:
        found.items = split_list(rest)


def split_item(item: str, count: int, columns: Columns) -> list[str]:
    """Divide a row into `count` values; the last takes what is left, missing ones are empty.

    An empty row gives no values: the variables then keep what they have.
    """
    item = item.rstrip("\r\n")
    separators = columns.separator + (" \t" if columns.blanks else "")
    if OLD_SEPARATOR in item and columns.header < 0:
        separators = OLD_SEPARATOR
    blanks = " \t" if columns.trim else ""
    item = item.strip(blanks) if blanks else item
    if not item:
        return []
    values = [item]
    finder = re.compile(f"[{re.escape(separators)}]")
    while len(values) < count:
        found = finder.search(values[-1])
        if not found:
            values.append("")
            continue
        rest = values[-1][found.end() :]
        values[-1] = values[-1][: found.start()]
        if blanks:
            values[-1], rest = values[-1].rstrip(blanks), rest.lstrip(blanks)
        values.append(rest)
    return values
