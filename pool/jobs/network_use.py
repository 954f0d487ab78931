"""The packets that a job's own network has carried: as the machines of its parts report them, and as the job's ad and
its users' messages say it.

Each machine counts the bytes that its own parts have sent (IP packets, without headers of Ethernet). So the sum over
all parts is what the network has carried, and nothing is counted twice.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pool.jobs.network import MOST_ADDRESSES

#: Pairs of parts that a report and a job's ad name, those with the most bytes first; links that are down.
MOST_PAIRS, MOST_DOWN = 32, 8
#: Only the first parts of a large job are named in its pairs.
MOST_NAMED = 256
#: Letters of a machine's name.
MOST_NAME = 255
#: In reports and notes the number in place of a part: packets to all parts at once.
TO_ALL = -1
#: The job's note of what its earlier runs have carried: see `Carried`.
NOTE = "_network"
#: No count is larger.
_MOST = 2**62
Wire = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NetworkUse:
    """The report of one part's machine, since the part began there.

    Attributes:
        sent: bytes that the part has sent, by the number of the part they went to, or `TO_ALL`.
        to_outside, from_outside: bytes that it has sent to and got from addresses outside its network.
        dropped: packets of the whole machine for which a link or a part was too slow.
        rate: bytes a second that it has sent since the report before.
        down: the machines of other parts to which there is no link now, and for how many seconds.
    """

    sent: Mapping[int, int] = field(default_factory=dict)
    to_outside: int = 0
    from_outside: int = 0
    dropped: int = 0
    rate: float = 0.0
    down: Mapping[str, float] = field(default_factory=dict)

    def to_wire(self) -> Wire:
        """For a report: the largest pairs by themselves, and all others as one, to no part in particular."""
        largest = sorted(self.sent.items(), key=lambda item: -item[1])
        rest = sum(count for _, count in largest[MOST_PAIRS:])
        return {
            "sent": [*map(list, largest[:MOST_PAIRS]), *([[None, rest]] if rest else [])],
            "outside": [self.to_outside, self.from_outside],
            "dropped": self.dropped,
            "rate": self.rate,
            "down": [[name, seconds] for name, seconds in sorted(self.down.items())[:MOST_DOWN]],
        }


@dataclass(frozen=True, slots=True)
class Carried:
    """The bytes that a job's network has carried, in all its runs or in one.

    Attributes:
        among: between its parts. to_outside, from_outside: from its parts to addresses outside, and back.
        dropped: packets for which there was no room.
    """

    among: int = 0
    to_outside: int = 0
    from_outside: int = 0
    dropped: int = 0

    def __add__(self, other: Carried) -> Carried:
        return Carried(*(min(one + two, _MOST) for one, two in zip(self.counts(), other.counts(), strict=True)))

    def __sub__(self, other: Carried) -> Carried:
        return Carried(*(one - two for one, two in zip(self.counts(), other.counts(), strict=True)))

    def counts(self) -> tuple[int, int, int, int]:
        """The four numbers, for the job's note."""
        return self.among, self.to_outside, self.from_outside, self.dropped

    @classmethod
    def of_note(cls, note: Any) -> Carried:
        """The counts of a job's note; zeros without one."""
        return cls(*map(_count, note)) if isinstance(note, (list, tuple)) and len(note) == 4 else cls()


@dataclass(frozen=True, slots=True)
class _PartUse:
    """One part's report, as it was read."""

    carried: Carried = field(default_factory=Carried)
    pairs: tuple[tuple[int, int], ...] = ()
    rate: float = 0.0
    down: tuple[tuple[str, float], ...] = ()


class PartsUse:
    """The reports of a job's parts in its present run, taken together. Taking one takes as long as that one is, however
    many parts the job has.

    Attributes:
        carried: the sum of all parts. rate: bytes a second, of all parts.
    """

    def __init__(self) -> None:
        self._parts: dict[int, _PartUse] = {}
        #: Parts of which machines are out of reach.
        self._cut_off: set[int] = set()
        self.carried = Carried()
        self.rate = 0.0

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add_report(self, part: int, said: Any) -> None:
        """A part's machine has reported: another node's word. What is no report counts as nothing."""
        if not isinstance(said, dict):
            return
        use, before = _read(said), self._parts.get(part, _PartUse())
        self.carried += use.carried - before.carried
        self.rate += use.rate - before.rate
        self._parts[part] = use
        self._cut_off.discard(part)
        if use.down:
            self._cut_off.add(part)

    def attributes(self, before: Carried, *, running: bool) -> Wire:
        """The attributes of a job's ad; None takes one away.

        Args:
            before: of its earlier runs.
            running: whether the run goes on: else there is no rate, and no link that is down.
        """
        total = before + self.carried
        return {
            "NetworkBytes": total.among,
            "NetworkPairs": self.pairs_in_words() or None,
            "NetworkBytesToOutside": total.to_outside or None,
            "NetworkBytesFromOutside": total.from_outside or None,
            "NetworkPacketsDropped": total.dropped or None,
            "NetworkRate": round(max(0.0, self.rate)) if running else None,
            "NetworkLinksDown": (self.down_in_words() or None) if running else None,
        }

    def pairs_in_words(self) -> str:
        """`0>1 5200, 1>0 80`: bytes from part to part, the most first; `0>all` for packets to all parts."""
        named = [part for part in self._parts if part < MOST_NAMED]
        pairs = [(-size, part, to) for part in named for to, size in self._parts[part].pairs]
        largest = heapq.nsmallest(MOST_PAIRS, pairs)
        rest = self.carried.among + sum(size for size, _, _ in largest)
        texts = [f"{part}>{'all' if to == TO_ALL else to} {-size}" for size, part, to in largest]
        return ", ".join([*texts, *([f"others {rest}"] if rest > 0 else [])])

    def down_in_words(self) -> str:
        """`part 0 has no link to donder (for 12 s)`."""
        cut_off = heapq.nsmallest(MOST_DOWN, self._cut_off)
        found = [(part, name, seconds) for part in cut_off for name, seconds in self._parts[part].down]
        return ", ".join(f"part {part} has no link to {name} (for {s:.0f} s)" for part, name, s in found[:MOST_DOWN])


def _read(said: Wire) -> _PartUse:
    among, pairs = 0, []
    for to, count in _rows(said.get("sent"), MOST_PAIRS + 1):
        among += (size := _count(count))
        if type(to) is int and TO_ALL <= to < MOST_ADDRESSES:
            pairs.append((to, size))
    out = said.get("outside")
    to_outside, from_outside = map(_count, out) if isinstance(out, (list, tuple)) and len(out) == 2 else (0, 0)
    down = tuple(
        (name, _seconds(seconds))
        for name, seconds in _rows(said.get("down"), MOST_DOWN)
        if isinstance(name, str) and 0 < len(name) <= MOST_NAME and name.isprintable()
    )
    carried = Carried(min(among, _MOST), to_outside, from_outside, _count(said.get("dropped")))
    return _PartUse(carried, tuple(pairs), _seconds(said.get("rate")), down)


def size_in_words(count: float) -> str:
    """`5.2 MB`."""
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def in_words(value: Any) -> str:
    """One line about a job's network by the values of its ad; empty where it has carried nothing.

    Args:
        value: gives an attribute's value, or None.
    """
    among, out, back, dropped = (
        number if type(number := value(name)) is int else 0
        for name in ("NetworkBytes", "NetworkBytesToOutside", "NetworkBytesFromOutside", "NetworkPacketsDropped")
    )
    said = [f"{size_in_words(among)} between its parts"] if among else []
    if out or back:
        said.append(f"{size_in_words(out)} to outside, {size_in_words(back)} from there")
    if dropped:
        said.append(f"{dropped:,} packets dropped")
    return ", ".join(said)


def _rows(value: Any, most: int) -> list[tuple[Any, Any]]:
    if not isinstance(value, (list, tuple)):
        return []
    return [(row[0], row[1]) for row in value[:most] if isinstance(row, (list, tuple)) and len(row) == 2]


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value <= _MOST else 0


def _seconds(value: Any) -> float:
    return float(value) if type(value) in (int, float) and 0 <= value <= 2**53 else 0.0
