"""Plain command lines are read as typer reads them, and no others are."""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from pool.cli import app, queue, starting
from pool.cli.commands import COMMAND_MODULES
from pool.cli.options import CommandArgument, CommandOption
from pool.cli.plain_lines import read_plain

#: A value that an option or argument of each type takes.
VALUES: dict[Any, str] = {str: "some", int: "7", Path: "a/file", list[str]: "one"}
LINES = 6


def declared(function: Callable[..., Any]) -> list[tuple[Any, CommandOption | CommandArgument]]:
    hints = get_type_hints(function, include_extras=True).values()
    return [get_args(hint)[:2] for hint in hints if get_origin(hint) is Annotated]


def plain_kind(base: Any) -> Any:
    return next((kind for kind in (bool, str, int, Path, list[str]) if base in (kind, kind | None)), None)


def a_line(function: Callable[..., Any], chance: random.Random) -> list[str]:
    """A plain line of a command: some of its options, in any order, between all words that it takes."""
    words: list[list[str]] = []
    places: list[str] = []
    for base, one in declared(function):
        kind = plain_kind(base)
        if isinstance(one, CommandArgument):
            places += [f"word{len(places)}"] + (["more"] if kind == list[str] else [])
        elif kind is not None and not any("/" in name for name in one.names) and chance.random() < 0.5:
            again = 2 if kind == list[str] else 1
            words += [[chance.choice(one.names), *([] if kind is bool else [VALUES[kind]])] for _ in range(again)]
    chance.shuffle(words)
    for place in reversed(places):
        words.insert(chance.randint(0, len(words)), [place])
    in_order = iter(places)
    names = set(places)
    return [word if word not in names else next(in_order) for some in words for word in some]


def with_defaults(function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """All arguments of a call; no words at all are None for the one and an empty list for the other."""
    bound = inspect.signature(function).bind(**given)
    bound.apply_defaults()
    return {
        name: None if isinstance(value, list | tuple) and not value else value
        for name, value in bound.arguments.items()
    }


@pytest.mark.parametrize("command", sorted(COMMAND_MODULES))
def test_a_plain_line_is_read_as_typer_reads_it(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, _ = COMMAND_MODULES[command]
    function = getattr(import_module(module), name)
    called: list[dict[str, Any]] = []

    @functools.wraps(function)
    def recorded(**given: Any) -> None:
        called.append(given)

    monkeypatch.setattr(f"{module}.{name}", recorded)
    by_typer = app._load(command)
    chance, read = random.Random(command), 0
    for _ in range(LINES):
        line = a_line(function, chance)
        plain = read_plain(function, line)
        if plain is None:
            continue
        read += 1
        by_typer(line, standalone_mode=False)
        assert with_defaults(function, plain) == with_defaults(function, called.pop()), line
    words = [plain_kind(base) for base, one in declared(function) if isinstance(one, CommandArgument)]
    assert read or not all(kind in (str, list[str]) for kind in words)


def test_the_line_of_a_node_is_read_as_typer_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[dict[str, Any]] = []
    names = list(inspect.signature(starting.start_node).parameters)
    monkeypatch.setattr(app, "start_node", lambda *given: called.append(dict(zip(names, given, strict=True))))
    chance = random.Random(1)
    for _ in range(4 * LINES):
        line = ["--roles", "schedd", *a_line(starting.start_node, chance)]
        plain = read_plain(starting.start_node, line)
        if plain is None:
            assert {"--roles", "-r"} & set(line[2:])
            continue
        app.run_app(line)
        assert with_defaults(starting.start_node, plain) == with_defaults(starting.start_node, called.pop()), line


@pytest.mark.parametrize(
    "line",
    [
        ["--help"],
        ["--bogus"],
        ["-lx"],
        ["--limit", "0"],
        ["--limit", "x"],
        ["--limit", "9" * 30],
        ["--limit=3"],
        ["--limit"],
        ["-c"],
        ["-c", "-x"],
        ["-c", ""],
        ["--json", "--json"],
        ["--", "12"],
        ["", "12"],
    ],
)
def test_what_is_not_plain_is_left_to_typer(line: list[str]) -> None:
    assert read_plain(queue.q, line) is None


def test_words_that_lack_or_are_too_many_are_left_to_typer() -> None:
    from pool.cli.startds import undrain

    assert read_plain(undrain, ["--json"]) is None
    assert read_plain(undrain, ["a", "b"]) is None
    assert read_plain(undrain, ["a", "--json"]) == {"machine": "a", "as_json": True}
