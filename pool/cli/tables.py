"""Plain text columns: what every listing is laid out with.

A table is a list of columns and rows of text. On a terminal the last column is cut at the edge and columns
marked `wide` are left out when the terminal is narrow; into a pipe every column goes whole, so that what a
script reads does not depend on somebody's window. No colour, no box: `| sort`, `| awk` and mail keep working.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Any

from pool.cli.formats import WireAd

NARROW = 110  # below this many characters a terminal gets the papers' columns only


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        title: the heading.
        cell: text from one ad.
        right: aligned to the right.
        wide: shown only where there is room.
        needs: attributes that `cell` reads, so that a query asks for no others.
    """

    title: str
    cell: Callable[[WireAd], str]
    needs: tuple[str, ...] = ()
    right: bool = False
    wide: bool = False


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
    return [column for column in columns if not column.wide]


def needs(columns: Iterable[Column]) -> list[str]:
    """Every attribute that these columns read, once, in order."""
    return list(dict.fromkeys(name for column in columns for name in column.needs))


def render(columns: Sequence[Column], ads: Iterable[WireAd], width: int | None = None) -> list[str]:
    """Lines of a table, heading first. With `width` no line is longer than that."""
    return layout(
        [column.title for column in columns],
        [[column.cell(ad) for column in columns] for ad in ads],
        right=[column.right for column in columns],
        width=width,
    )


def layout(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[bool],
    width: int | None = None,
) -> list[str]:
    """Lines of a table from cells of text. The last column is not padded, and is what gets cut."""
    if not titles:
        return []
    sizes = (
        [
            max(len(title), *map(len, cells))
            for title, cells in zip(titles, zip(*rows, strict=True), strict=True)
        ]
        if rows
        else [len(title) for title in titles]
    )
    parts = [f"{{:{'>' if to_right else '<'}{size}}}" for size, to_right in zip(sizes, right, strict=True)]
    if not right[-1]:
        parts[-1] = "{}"
    form = " ".join(parts).format
    lines = [form(*titles).rstrip()]
    lines += [form(*row).rstrip() for row in rows]
    if width is not None:
        lines = [line if len(line) <= width else line[: max(1, width - 1)] + "…" for line in lines]
    return lines
