"""The items of a submit: what varies from job to job, as lines of a queue statement.

Items are rows: dictionaries with the same keys, or single values. They come as a list, as any iterable or asynchronous
iterable (a generator, rows of a database), or as a data frame of pandas or polars, whose columns are the variables.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.results import Result

#: The separator between the values of one item; no text of a user has it.
_BETWEEN = "\x1f"
#: Lists that are longer are read and sent in pieces, too, as what has no length is.
LONG = 20_000
#: Rows in one piece.
PIECE = 2000
#: The columns of results.
COLUMNS = ("job", "state", "ok", "exit_code", "signal", "wall", "cpu", "host", "output", "reason")


class ItemLines:
    """Rows as lines of a queue statement. The first row names the variables.

    Attributes:
        names: of the variables; empty before the first row.
        written: how many rows have been.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.written = 0

    def lines(self, rows: Iterable[Any]) -> list[str]:
        """The lines of the next rows.

        Raises:
            PoolError: a row has other variables than the first, or values that cannot stand in a line.
        """
        return [self._line(row) for row in rows]

    def _line(self, row: Any) -> str:
        values = row if isinstance(row, Mapping) else {"item": row}
        if not self.names:
            self.names = [_name(one) for one in values]
        if len(values) != len(self.names) or any(name not in values for name in self.names):
            there = ", ".join(map(str, values))
            raise PoolError(f"item {self.written} has {there}, the first {', '.join(self.names)}")
        words = [_word(self.written, name, values[name]) for name in self.names]
        line = _BETWEEN.join(words)
        if not line.strip(" \t" + _BETWEEN) or line.lstrip().startswith(("#", ")")) or line.endswith("\\"):
            raise PoolError(
                f"item {self.written} cannot be a line of a queue statement: {_short(row)}",
                hint="its first value is no '#' or ')', its last ends with no backslash, and one of them is not empty",
            )
        self.written += 1
        return line


def _name(name: Any) -> str:
    if isinstance(name, str) and name.replace("_", "a").replace(".", "a").isalnum():
        return name
    raise PoolError(f"{name!r} cannot be the name of a queue variable", hint="use letters, digits, '_' and '.' alone")


def _word(number: int, name: str, value: Any) -> str:
    word = as_text(f"item {number}: {name}", value)
    if "\n" in word or _BETWEEN in word:
        raise PoolError(f"item {number}: the value of '{name}' spans several lines", hint="an item is one line")
    return word


def as_text(whose: str, value: Any) -> str:
    """A path, a text or a number (also one of numpy's) as text.

    Args:
        whose: names it in errors.
    """
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, (str, int, float)):
        return str(value)
    if callable(getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:
        return as_text(whose, value.item())
    raise PoolError(f"'{whose}' has a {type(value).__name__} in it: {_short(value)}", hint="give texts and numbers")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def is_frame(items: Any) -> bool:
    """Whether these are a data frame of pandas or polars."""
    return _library(items) in ("pandas", "polars") and type(items).__name__ == "DataFrame"


def _library(items: Any) -> str:
    return type(items).__module__.partition(".")[0]


def frame_of(results: Sequence[Result], parameters: Any, library: str | None) -> Any:
    """Results as a data frame; see `Cluster.frame`."""
    name = library or (_library(parameters) if parameters is not None else "pandas")
    if name not in ("pandas", "polars"):
        raise PoolError(f"'{name}' is no library of data frames that is known here", hint="pandas or polars")
    try:
        frames = importlib.import_module(name)
    except ImportError as error:
        raise PoolError(f"{name} is not installed here", hint=f"pip install {name}") from error
    ordered = sorted(results, key=lambda one: one.proc)
    columns: dict[str, list[Any]] = {}
    if parameters is not None:
        total = len(parameters)
        each = max(1, (ordered[-1].proc + 1) // total) if ordered and total else 1
        rows = list(rows_of(parameters))  # type: ignore[arg-type]
        columns = {name: [rows[one.proc // each][name] for one in ordered] for name in parameters.columns}
    for column in COLUMNS:
        values = [getattr(one, column) for one in ordered]
        columns[column if column not in columns else f"job_{column}"] = values
    return frames.DataFrame(columns)


def rows_of(items: Any) -> Iterable[Any] | AsyncIterable[Any]:
    """The rows of any kind of items.

    Raises:
        PoolError: these are no items.
    """
    if is_frame(items):
        if _library(items) == "polars":
            rows: Iterable[Any] = items.iter_rows(named=True)
            return rows
        names = [_name(one) for one in items.columns]
        return (dict(zip(names, row, strict=True)) for row in items.itertuples(index=False, name=None))
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, (Iterable, AsyncIterable)):
        raise PoolError(f"'items' is no list: {_short(items)}", hint="give a list of dictionaries, or of values")
    return items


def comes_in_pieces(items: Any) -> bool:
    """Whether these items are better read and sent piece by piece: there are many, or nobody knows how many."""
    if isinstance(items, (list, tuple, set, frozenset)) or is_frame(items):
        return len(items) > LONG
    return isinstance(items, (Iterable, AsyncIterable)) and not isinstance(items, (str, bytes, Mapping))


async def pieces_of(items: Any, size: int = PIECE) -> AsyncGenerator[list[Any], None]:
    """The rows in lists of at most that many."""
    rows = rows_of(items)
    if isinstance(rows, AsyncIterable):
        piece: list[Any] = []
        async for row in rows:
            piece.append(row)
            if len(piece) == size:
                yield piece
                piece = []
        if piece:
            yield piece
        return
    left: Iterator[Any] = iter(rows)
    while found := list(islice(left, size)):
        yield found
