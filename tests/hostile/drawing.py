"""Parameters that are nearly right: a real call again, one with one thing wrong, or what a method declares."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from types import UnionType
from typing import Any

from pool.wire.parameter_checks import Check, Kind, Takes
from tests.hostile.recording import Record

NUMBERS: tuple[Any, ...] = (
    *(-1, 0, 1, 2, 7, 2**31, 2**32, 2**53, 2**53 + 1, 10**17, 2**64 - 1, -(2**63), 0.0, 2.5, -1.5, 1e308),
    *(float("inf"), float("nan"), True, False),
)
TEXTS: tuple[Any, ...] = (
    *(
        "",
        "x",
        "1.0",
        "1.",
        "0",
        "-1.-1",
        "slot1@head",
        "slot1",
        "head",
        "alice",
        "root",
        "a" * 3000,
        "\x00",
        "é",
        "\u2028",
    ),
    *(
        "true",
        "false",
        "error",
        "(" * 300,
        "Environment",
        "env",
        "undefined",
        'regexp("(a+)+$", Cmd)',
        "a@b@c",
        "@",
        ".",
    ),
    *("..", "%s%n", "a\nb", "a b", "$(X)", "$$([Cpus])", "file:x", "http://127.0.0.1:1/x", "unix:///x", "mem://head"),
)
VALUES: tuple[Any, ...] = (
    *(None, b"", b"x" * 100, *NUMBERS, *TEXTS),
    *(
        [],
        [None],
        ["x"],
        [1, 0],
        [[1, 0]],
        [[]],
        [["x"]],
        [{}],
        {},
        {"x": 1},
        {"": None},
        [[1, 0]] * 50,
        [[[[[[[[1]]]]]]]],
    ),
)
#: Names that methods read without declaring them.
UNDECLARED = (
    *("again", "all", "by", "card", "data", "executable", "file", "follow", "generation", "graceful", "grants", "ids"),
    *("instance", "job", "lines", "name", "offset", "owner", "private", "reason", "request", "run", "secret", "value"),
)


class Drawing:
    """Draws calls.

    Args:
        place: a directory below which the paths that are drawn lie: `private/secret` there is nobody's to read.
    """

    def __init__(self, chance: random.Random, record: Record, place: Path) -> None:
        self.chance = chance
        self.record = record
        outside = f"{place}/private/secret"
        self.paths = (
            *(outside, f"{place}/home/../private/secret", "../private/secret", f"{place}/home/link", "link", "link/x"),
            *(f"{place}/private", f"{place}/private/new", "../private/new", "../../private/new", f"//{outside}", "./"),
            *(f"{place}/fifo", f"{place}/nowhere/x", "/dev/null", "x/" * 2000, "a" * 300, f"{place}/home/\x00"),
        )

    def params(self, name: str, takes: Takes) -> dict[str, Any]:
        """Parameters for a call of a method."""
        chance, said = self.chance, self.record.calls.get(name)
        kind = chance.random()
        if said and kind < 0.6:
            params: dict[str, Any] = copy.deepcopy(chance.choice(said))
            if kind < 0.1:
                return params
        elif kind < 0.9:
            params = self._declared(takes)
        else:
            params = {key: self._any(key) for key in (*takes, *chance.sample(UNDECLARED, 4)) if chance.random() < 0.9}
        for _ in range(chance.choice((0, 1, 1, 1, 1, 2, 3))):
            self._spoil(params)
        return params

    def item(self, name: str) -> Any:
        """Something to say in a stream of a method."""
        said = self.record.items.get(name)
        if not said or self.chance.random() < 0.2:
            return self._any("")
        item = copy.deepcopy(self.chance.choice(said))
        if not isinstance(item, (dict, list)):
            return item if self.chance.random() < 0.5 else self._any("")
        if self.chance.random() < 0.8:
            self._spoil(item)
        return item

    def _declared(self, takes: Takes) -> dict[str, Any]:
        params = {name: self._fitting(name, kind) for name, kind in takes.items()}
        for name in self.chance.sample(UNDECLARED, self.chance.randrange(4)):
            params.setdefault(name, self._any(name))
        return params

    def _fitting(self, name: str, kind: Kind) -> Any:
        """A value of a kind: one that was said under that name, where there is one."""
        known = [one for one in self.record.known.get(name, ()) if _fits(one, kind)]
        if known and self.chance.random() < 0.7:
            return copy.deepcopy(self.chance.choice(known))
        others = [one for one in (*VALUES, *self.paths) if _fits(one, kind)]
        return copy.deepcopy(self.chance.choice(others)) if others else None

    def _any(self, name: str) -> Any:
        known = self.record.known.get(name, ())
        if known and self.chance.random() < 0.5:
            return copy.deepcopy(self.chance.choice(known))
        return copy.deepcopy(self.chance.choice((*VALUES, *self.paths)))

    def _spoil(self, params: Any) -> None:
        """Make one thing wrong, at any depth."""
        chance, inside = self.chance, params
        while True:
            names = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
            if not names:
                if isinstance(inside, dict):
                    inside[chance.choice(UNDECLARED)] = self._any("")
                else:
                    inside.append(self._any(""))
                return
            name = chance.choice(names)
            if isinstance(inside[name], (dict, list)) and chance.random() < 0.75:
                inside = inside[name]
                continue
            break
        inside[name] = self._instead(name if isinstance(name, str) else "", inside[name])
        how = chance.random()
        if how < 0.08:
            del inside[name]
        elif how < 0.12 and isinstance(inside, dict):
            inside[chance.choice(TEXTS)] = inside.pop(name)
        elif how < 0.16 and isinstance(inside, list):
            inside += copy.deepcopy(inside) * chance.choice((1, 30))

    def _instead(self, name: str, value: Any) -> Any:
        """In place of a value: another's of that name, one of its kind that cannot be, or one of another kind."""
        chance, how = self.chance, self.chance.random()
        others = [one for one in self.record.known.get(name, ()) if one != value]
        if others and how < 0.35:
            return copy.deepcopy(chance.choice(others))
        if isinstance(value, str) and how < 0.7:
            if "/" in value or how < 0.5:
                return chance.choice(self.paths)
            return chance.choice((value + "x", value[:-1], value.upper(), chance.choice(TEXTS)))
        if isinstance(value, (int, float)) and not isinstance(value, bool) and how < 0.7:
            return chance.choice((value + 1, value - 1, -value, *NUMBERS))
        if isinstance(value, bytes) and how < 0.6:
            return chance.choice((value[:-1], value + b"x", bytes(len(value)), value * 2))
        return copy.deepcopy(chance.choice(VALUES))


def _fits(value: Any, kind: Kind) -> bool:
    if isinstance(kind, Check):
        return kind.fits(value)
    if isinstance(value, bool):
        return kind is bool or (isinstance(kind, UnionType) and bool in kind.__args__)
    return isinstance(value, kind)
