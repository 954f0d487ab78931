"""The text of a description from a dictionary of its commands, as a program hands it in.

    {"executable": "/bin/sim", "arguments": ["--name", "a b"], "environment": {"MODE": "fast"},
     "transfer_input_files": [Path("a.dat"), "b.dat"], "items": [{"seed": 1}, {"seed": 2}], "queue": 3}

Words, numbers, paths and truth values stand for themselves. Lists and dictionaries are taken where they make sense, and
written with the quotes that they need. Anything else is refused in one line that names the command.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pool.client.items import ItemLines, as_text, rows_of
from pool.decimals import has_digits_only
from pool.errors import PoolError

#: Commands that name files, or other things between commas.
LISTS = frozenset(
    {
        *("transfer_input_files", "transfer_output_files", "transfer_checkpoint_files", "transferinputfiles"),
        *("public_input_files", "remote_io_trees", "email_attributes", "concurrency_limits", "getenv"),
    }
)


def from_commands(commands: Mapping[str, Any]) -> str:
    """The text of a description; what is queued (`queue`, default 1, and `items`) comes last.

    Raises:
        PoolError: a value is none that the command takes; the message names the command.
    """
    items = items_of(commands)
    if items is None:
        return text_of(commands)
    rows = rows_of(items)
    if not isinstance(rows, Iterable):
        raise PoolError("'items' comes asynchronously", hint="give it to Pool.submit, which waits for each item")
    shape = ItemLines()
    return text_of(commands, shape, shape.lines(rows))


def items_of(commands: Mapping[str, Any]) -> Any:
    """The value of `items` among commands; None without."""
    return next((value for name, value in commands.items() if isinstance(name, str) and name.lower() == "items"), None)


def text_of(commands: Mapping[str, Any], items: ItemLines | None = None, lines: Sequence[str] = ()) -> str:
    """The text of a description whose items have been written already.

    Args:
        items: names the variables. lines: the items.

    Raises:
        PoolError: a value is none that the command takes; the message names the command.
    """
    text, count = [], ""
    for command, value in commands.items():
        if not isinstance(command, str):
            raise PoolError(f"{command!r} is not the name of a command", hint="a command is a text")
        name = command.lower()
        if name == "queue":
            count = _queued(value)
        elif name != "items":
            text.append(f"{_one_line(command, command)} = {_one_line(command, written(command, value))}")
    return "\n".join([*text, *_queue(count, items, lines), ""])


def written(command: str, value: Any) -> str:
    """A command's value as its text.

    Raises:
        PoolError: it takes no such value.
    """
    name = command.lower()
    if value is None:
        raise PoolError(f"the value of '{command}' is None", hint="leave the command out where it has no value")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if name in ("arguments", "args") and isinstance(value, (list, tuple)):
        return _quoted(as_text(command, word) for word in value)
    if name in ("environment", "env"):
        if isinstance(value, Mapping):
            return _quoted(f"{as_text(command, key)}={as_text(command, one)}" for key, one in value.items())
        if isinstance(value, (list, tuple)):
            return _quoted(as_text(command, word) for word in value)
    if name in LISTS and isinstance(value, (list, tuple, set, frozenset)):
        words = [as_text(command, word) for word in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
        for word in words:
            if "," in word:
                raise PoolError(f"'{word}' in '{command}' has a comma", hint="commas part the names there; rename it")
        return ", ".join(words)
    if name.startswith(("+", "my.")):
        from pool.classad import literal

        try:
            return literal(value).text
        except TypeError as error:
            raise PoolError(f"the value of '{command}' cannot be in a job's ad: {error}") from error
    from pool.classad import Expr

    if isinstance(value, Expr):
        return value.text
    kind = type(value).__name__
    raise PoolError(
        f"the value of '{command}' is a {kind}, which it does not take: {_short(value)}",
        hint="give it as text; lists go with arguments, environment, files and items",
    )


def _queued(value: Any) -> str:
    if value is None or isinstance(value, (bool, float)) or (isinstance(value, int) and value < 1):
        raise PoolError(f"cannot queue {value} jobs: 'queue' takes a number from 1 on", hint="or a queue statement")
    if isinstance(value, (int, str)):
        return _one_line("queue", str(value))
    raise PoolError(
        f"the value of 'queue' is a {type(value).__name__}: {_short(value)}",
        hint="give a number or the text of a queue statement, and what varies as 'items'",
    )


def _queue(count: str, items: ItemLines | None, lines: Sequence[str]) -> list[str]:
    """The queue statement: with items, their values row by row."""
    if items is None:
        return [f"queue {count}".rstrip()]
    if count and not has_digits_only(count):
        raise PoolError(f"'queue' is '{count}' and there are 'items', too", hint="with items, queue is a number")
    if not lines:
        raise PoolError("'items' is empty: it queues no jobs", hint="give at least one")
    return [f"queue {count} {','.join(items.names)} from (".replace("  ", " "), *lines, ")"]


def _quoted(words: Iterable[str]) -> str:
    """In the new style, which keeps blanks and quotes; what a macro stands for stays one word, too."""
    from pool.jobs.arguments import join_words

    quoted = ("'" + word.replace("'", "''") + "'" if "$" in word else join_words([word]) for word in words)
    return '"' + " ".join(quoted).replace('"', '""') + '"'


def _one_line(command: str, text: str) -> str:
    if "\n" in text:
        raise PoolError(f"the value of '{command}' spans several lines", hint="a command is one line")
    return text


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
