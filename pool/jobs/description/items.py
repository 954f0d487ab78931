"""Reading the items of a queue statement: from the description, a file, a command, or file patterns."""

from __future__ import annotations

import glob
from collections.abc import Callable

from pool.jobs.description.diagnostics import SourcePosition
from pool.jobs.description.facts import SubmitFacts
from pool.jobs.description.files import DescriptionFiles
from pool.jobs.description.queueing import ItemSource, QueueArguments, QueueError, split_item, split_list
from pool.jobs.description.source import Source

Say = Callable[[SourcePosition, str], None]


def read_items(
    statement: QueueArguments, source: Source, files: DescriptionFiles, folder: str, facts: SubmitFacts, warn: Say
) -> list[str]:
    """All items of the statement, before its slice is applied. Raises QueueError."""
    where = source.location
    items = list(statement.items)
    if statement.open:
        items += _inline(statement, source)
    elif statement.file:
        items += _external(statement.file, files, folder, facts)
    if statement.mode is ItemSource.MATCHING:
        items = _matching(items, statement.kinds, files, folder, lambda text: warn(where, text))
    if statement.columns.header >= 0:
        _parse_header(statement, items)
    return items


def _inline(statement: QueueArguments, source: Source) -> list[str]:
    begin = source.location
    items: list[str] = []
    while (line := source.next()) is not None:
        if line.text.startswith("#"):
            continue
        if line.text.startswith(")"):
            return items
        items += [line.text] if statement.mode is ItemSource.FROM else split_list(line.text)
    raise QueueError(f"expected a line that begins with ')' to end the list of line {begin.line}")


def _external(name: str, files: DescriptionFiles, folder: str, facts: SubmitFacts) -> list[str]:
    try:
        if not name.endswith("|"):
            path = name if name.startswith("/") else f"{folder}/{name}"
            return Source(files.read_text(path), name).lines()
        if not facts.allow_commands:
            raise QueueError(
                f"the items come from the command {name[:-1].strip()!r}, and commands are not allowed here"
            )
        return Source(files.run(name[:-1].strip(), folder), name).lines()
    except OSError as trouble:
        raise QueueError(f"cannot read the items from {name!r}: {trouble.strerror or trouble}") from None


def _matching(
    items: list[str], kinds: str, files: DescriptionFiles, folder: str, warn: Callable[[str], None]
) -> list[str]:
    found: dict[str, None] = {}
    inside = glob.escape(folder) + "/"
    for pattern in items:
        absolute = pattern.startswith("/")
        paths = files.matching(pattern if absolute else inside + pattern)
        if kinds != "any":
            paths = [path for path in paths if path.endswith("/") == (kinds == "dirs")]
        if not paths:
            warn(f"'{pattern}' matches nothing")
        for path in paths:
            short = path if absolute else path.removeprefix(f"{folder}/")
            if short in found:
                warn(f"'{short}' is matched again by '{pattern}' and queued only once")
            found[short] = None
    return list(found)


def _parse_header(statement: QueueArguments, items: list[str]) -> None:
    columns = statement.columns
    if columns.header >= len(items):
        raise QueueError(f"row {columns.header} with the headings is beyond the end of the table")
    width = max(items[columns.header].count(columns.separator or ",") + 1, 1)
    statement.variables = [name for name in split_item(items[columns.header], width, columns) if name]
    for name in statement.variables:
        if not name.replace("_", "").replace(".", "").isalnum():
            raise QueueError(f"the heading {name!r} cannot be the name of a variable")
    del items[: columns.header + 1 + max(columns.skip, 0)]
