"""Plain text columns: what every listing is laid out with.

A table is a list of columns and rows of text. On a terminal the last column is cut at the edge, and columns marked
`wide` are left out when the terminal is narrow. Into a pipe every column goes whole, so that a script's input does not
depend on a window. No colour, no box: `| sort`, `| awk` and mail keep working.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

from pool.cli.formats import WireAd, one_line

NARROW = 110  # below this many characters a terminal gets the papers' columns only


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        title: the heading.
        cell: text from one ad.
        right: aligned to the right.
        needs: attributes that `cell` reads, so that a query asks for no others.
        wide: shown only where there is room.
        short: used instead of `cell` on a narrow terminal.
    """

    title: str
    cell: Callable[[WireAd], str]
    needs: tuple[str, ...] = ()
    right: bool = False
    wide: bool = False
    short: Callable[[WireAd], str] | None = None


def terminal_width(stream: IO[Any] | None = None) -> int | None:
    """Characters in a line, or None when the output is not a terminal and nothing is to be cut."""
    out = sys.stdout if stream is None else stream
    try:
        if not out.isatty():
            return None
        return int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(out.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def choose(columns: Sequence[Column], width: int | None) -> list[Column]:
    """The columns for this width: all of them into a pipe or on a wide terminal."""
    if width is None or width >= NARROW:
        return list(columns)
    return [replace(column, cell=column.short) if column.short else column for column in columns if not column.wide]


def attributes_of(columns: Iterable[Column]) -> list[str]:
    """Every attribute that these columns read, once, in order."""
    return list(dict.fromkeys(name for column in columns for name in column.needs))


def render(columns: Sequence[Column], ads: Sequence[WireAd], width: int | None = None) -> list[str]:
    """Lines of a table, heading first. With `width` no line is longer than that."""
    titles, right = [column.title for column in columns], [column.right for column in columns]
    return _lines(titles, [list(map(column.cell, ads)) for column in columns], right, width)


def layout(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[bool],
    width: int | None = None,
) -> list[str]:
    """Lines of a table from rows of text."""
    cells = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in titles]
    return _lines(titles, cells, right, width)


def _lines(
    titles: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool], width: int | None
) -> list[str]:
    """Lines from columns of text: by columns, because that is several times as fast for ten thousand rows.

    The last column is not padded, and is what gets cut.
    """
    if not titles:
        return []
    padded = [_padded(*column) for column in zip(titles, cells, right, strict=True)]
    if not right[-1]:
        padded[-1] = (titles[-1], *cells[-1])
    return _joined(padded, width)


def _padded(title: str, cells: Sequence[str], right: bool) -> Iterable[str]:
    """A column's heading and cells, of one length."""
    size = max(len(title), max(map(len, cells), default=0))
    return map(f"{{:{'>' if right else '<'}{size}}}".format, (title, *cells))


def _joined(columns: Sequence[Iterable[str]], width: int | None) -> list[str]:
    return finished(map(" ".join, zip(*columns, strict=True)), width)


def finished(lines: Iterable[str], width: int | None) -> list[str]:
    """Lines without control characters and spaces at the end, cut to the width."""
    lines = [one_line(line).rstrip() for line in lines]
    if width is not None:
        lines = [line if len(line) <= width else line[: max(1, width - 1)] + "…" for line in lines]
    return lines
