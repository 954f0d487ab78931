"""The attributes of ads that are kept by the hundred thousand and are not changed.

A dict of sixty attributes takes 1.6 KB beside its values. A row of the values takes 0.5 KB; the places of names in it
are one dict for all ads that have the same names in the same order. Equal texts and whole numbers are one object where
they come often, or soon after each other as those of one machine's slots do. The tables behind this belong to the
process. They are bounded, so that strangers' ads cannot fill its memory.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence
from operator import itemgetter
from typing import Any, NoReturn

#: Lists of names, and in each of two tables values, that are remembered.
_LAYOUTS, _VALUES = 4096, 20_000
#: Longer texts are not remembered.
_LONGEST = 200
#: Ads whose values are read together.
_TOGETHER = 4096

_SHARED = frozenset({str, int})
_layouts: dict[tuple[str, ...], dict[str, int]] = {}


class CompactAttributes(Mapping[str, Any]):
    """An ad's attributes by folded name, as a dict has them, but not to be changed.

    Attributes:
        layout: for each name its place in the row; other ads have the same dict.
        row: the values, and None behind them.
    """

    __slots__ = ("layout", "row")

    def __init__(self, layout: dict[str, int], row: tuple[Any, ...]) -> None:
        self.layout = layout
        self.row = row

    def get(self, key: str, default: Any = None) -> Any:
        place = self.layout.get(key)
        return default if place is None else self.row[place]

    def __getitem__(self, key: str) -> Any:
        return self.row[self.layout[key]]

    def __contains__(self, key: object) -> bool:
        return key in self.layout

    def __iter__(self) -> Iterator[str]:
        return iter(self.layout)

    def __len__(self) -> int:
        return len(self.layout)

    def keys(self) -> KeysView[str]:
        return self.layout.keys()

    def items(self) -> ItemsView[str, Any]:
        return self.copy().items()

    def pairs(self) -> Iterator[tuple[str, Any]]:
        """As `items`, which makes a dict."""
        return zip(self.layout, self.row, strict=False)

    def copy(self) -> dict[str, Any]:
        """The same in a dict, to be changed."""
        return dict(zip(self.layout, self.row, strict=False))

    def __setitem__(self, key: str, value: Any) -> NoReturn:
        raise TypeError("a compact ad is not changed; change a copy")

    def pop(self, key: str, default: Any = None) -> NoReturn:
        raise TypeError("a compact ad is not changed; change a copy")


def compact(held: Mapping[str, Any], only: Iterable[str] | None = None) -> CompactAttributes:
    """The same attributes in little memory.

    Args:
        only: names of all values that may be new; the others are of attributes that were compact before.
    """
    if type(held) is CompactAttributes:
        return held
    names = tuple(held)
    layout = _layouts.get(names)
    if layout is None:
        if len(_layouts) >= _LAYOUTS:
            _layouts.clear()
        layout = _layouts[names] = {name: place for place, name in enumerate(names)}
    shared = _recent
    if only is None:
        row = [shared[value] if type(value) in _SHARED else value for value in held.values()]
    else:
        row = list(held.values())
        for name in only:
            place = layout.get(name)
            if place is not None and type(row[place]) in _SHARED:
                row[place] = shared[row[place]]
    row.append(None)
    return CompactAttributes(layout, tuple(row))


def columns(ads: Sequence[CompactAttributes | None], names: Sequence[str]) -> list[list[Any]]:
    """For each folded name what the ads hold, None for nothing. Each ad is read once, which is quicker than once for
    each name: most of the time goes into fetching its row from memory.
    """
    if not names:
        return []
    getters: dict[int, Callable[[tuple[Any, ...]], Any]] = {}
    for held in ads:
        if held is not None and id(held.layout) not in getters:
            getters[id(held.layout)] = itemgetter(*[held.layout.get(name, -1) for name in names])
    nothing = None if len(names) == 1 else (None,) * len(names)
    found: list[list[Any]] = [[] for _ in names]
    for begin in range(0, len(ads), _TOGETHER):
        some = ads[begin : begin + _TOGETHER]
        picked = [nothing if held is None else getters[id(held.layout)](held.row) for held in some]
        if len(names) == 1:
            found[0].extend(picked)
        else:
            for column, values in zip(found, zip(*picked, strict=True), strict=True):
                column.extend(values)
    return found


class _Recent(dict[Any, Any]):
    """Values that came lately, each by itself; those that came before them in a second table of the same size."""

    __slots__ = ("before",)

    def __init__(self) -> None:
        self.before: dict[Any, Any] = {}

    def __missing__(self, value: Any) -> Any:
        if type(value) is str and len(value) > _LONGEST:
            return value
        if len(self) >= _VALUES:
            self.before = dict(self)
            self.clear()
        found = self[value] = self.before.get(value, value)
        return found


_recent = _Recent()
