"""Idle machines summed up by kind, for a pool that is shown many (EV 4.3.2).

A kind is a group of slots that no expression of the other pool can tell apart: they are equal in each attribute that
its jobs and its negotiator read, and in each that the slots' own expressions read. The other pool says which names its
expressions read. It is shown one ad for each kind, with the number of machines in it, and asks for so many; which of
them it gets the lending pool's own negotiator says.

Where that gives too many kinds (a rank by disk space tells every machine from every other), numbers are rounded down
to fewer and fewer binary digits, until there are few enough.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pool.classad import ClassAd, Expr
from pool.policy.autoclusters import closed, looked_at
from pool.policy.packed import pack

Wire = dict[str, Any]

#: In the ad of a kind: how many machines there are of it.
COUNT = "FlockCount"
#: In a negotiator's ad: the names that the expressions of its pool read in machines, with commas between them.
READ_IN_MACHINES = "ReadInMachines"
#: Names (lower case) by which machines are told apart whatever jobs read: a cycle and `status` read them.
ALWAYS = frozenset(
    {
        "requirements", "state", "activity", "arch", "opsys", "cpus", "memory", "disk", "gpus", "kflops",
        "partitionableslot", "slottype", "slotweight", "startdaddress", "machineresources",
        "flockidle",
    }
)  # fmt: skip
#: Names that each machine has for itself; a kind has none of them.
NEVER = frozenset({"name", "machine", "startdaddress", "slotid", "node", "utsnamenodename"})
#: Kinds of one pool that another is shown at the most.
MOST_KINDS = 1000
#: Binary digits of numbers, from one attempt to the next; none at all at last.
DIGITS = (None, 10, 6, 4, 3, 2, 1, 0)
#: Names that another pool's expressions may read, and the length of one.
MOST_NAMES, LONGEST_NAME = 1000, 100
#: Machines of one kind that are believed of another pool.
MOST_MACHINES = 1_000_000
#: Sets of expressions for which it is kept what they read.
KEPT = 1000


@dataclass(slots=True)
class _Kind:
    name: str
    ad: Wire
    count: int = 0


class MachineKinds:
    """Slots and their kinds, by difference.

    Args:
        references: names that the other pool's expressions read, in any case.
        most: kinds at the most.
    """

    def __init__(self, references: Iterable[str] = (), most: int = MOST_KINDS) -> None:
        self._read = names_read(references)
        self._most = most
        self._level = 0
        self._ads: dict[str, Wire] = {}
        self._kind_of: dict[str, bytes] = {}
        self._kinds: dict[bytes, _Kind] = {}
        self._changed: set[bytes] = set()
        self._gone: dict[bytes, str] = {}
        self._known: dict[tuple[tuple[str, str], ...], frozenset[str]] = {}

    def __len__(self) -> int:
        return len(self._kinds)

    @property
    def machines(self) -> int:
        """How many machines there are of all kinds."""
        return len(self._ads)

    @property
    def crowded(self) -> bool:
        """Whether there are too many kinds: `regroup` makes fewer."""
        return len(self._kinds) > self._most and self._level + 1 < len(DIGITS)

    def set_ad(self, slot: str, ad: Wire | None) -> None:
        """A slot has this ad now, or is gone."""
        self._leave(slot)
        if ad is None:
            self._ads.pop(slot, None)
            return
        self._ads[slot] = ad
        key, shown = self._kind(ad)
        kind = self._kinds.get(key)
        if kind is None:
            digest = hashlib.sha256(key).hexdigest()[:16]
            kind = self._kinds[key] = _Kind(f"like-{digest}@many", shown)
        kind.count += 1
        self._kind_of[slot] = key
        self._changed.add(key)

    def refer(self, references: Iterable[str]) -> bool:
        """The other pool's expressions read these names from now on; whether `regroup` is needed."""
        read = names_read(references)
        if read == self._read:
            return False
        self._read, self._level = read, 0
        self._known.clear()
        return True

    def regroup(self) -> Iterator[None]:
        """Divide all slots anew, with fewer digits of numbers while there are too many kinds; one in each step."""
        while True:
            if self.crowded:
                self._level += 1
            for slot, ad in list(self._ads.items()):
                self.set_ad(slot, ad)
                yield
            if not self.crowded:
                return

    def take_changes(self) -> dict[str, Wire | None]:
        """The kinds that have changed since the last call: the ad, with the number of machines, or None."""
        found: dict[str, Wire | None] = {}
        for key in self._changed:
            if (name := self._gone.pop(key, None)) is not None:
                found[name] = None
            if (kind := self._kinds.get(key)) is not None:
                found[kind.name] = {**kind.ad, COUNT: kind.count}
        self._changed.clear()
        return found

    def _leave(self, slot: str) -> None:
        key = self._kind_of.pop(slot, None)
        if key is None:
            return
        kind = self._kinds[key]
        kind.count -= 1
        self._changed.add(key)
        if not kind.count:
            self._gone[key] = kind.name
            del self._kinds[key]

    def _kind(self, ad: Wire) -> tuple[bytes, Wire]:
        """The key of an ad's kind, and the ad that stands for it."""
        significant = self._significant(ad)
        digits = DIGITS[self._level]
        shown = {
            name: _rounded(value, digits)
            for name, value in sorted(ad.items())
            if name.lower() in significant and name.lower() not in NEVER
        }
        return pack(list(shown.items())), shown

    def _significant(self, ad: Wire) -> frozenset[str]:
        expressions = tuple([(name, value[0]) for name, value in ad.items() if type(value) is list and value])
        found = self._known.get(expressions)
        if found is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            found = self._known[expressions] = looked_at(ALWAYS | self._read, ad)
        return found


def names_read(references: Iterable[object]) -> frozenset[str]:
    """Names as another pool tells them: lower case, those that can be names, and not too many."""
    found = {name.lower() for name in references if isinstance(name, str) and 0 < len(name) <= LONGEST_NAME}
    return frozenset(sorted(found)[:MOST_NAMES])


def count_of(ad: Mapping[str, Any]) -> int:
    """How many machines an offer of another pool stands for; 1 where it makes no sense."""
    count = ad.get(COUNT)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        return 1
    return min(count, MOST_MACHINES)


def _rounded(value: Any, digits: int | None) -> Any:
    """A number with so many binary digits, rounded down: of nothing there is less than said. Others as they are."""
    if digits is None or isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return value
    if digits == 0:
        return min(value, 0)
    whole = math.floor(value)
    if abs(whole) < 1 << digits:
        return whole if isinstance(value, int) else math.floor(value * 4) / 4
    shift = abs(whole).bit_length() - digits
    return (whole >> shift) << shift


class NamesRead:
    """The names that the expressions of a pool's requests read in machines.

    A name stays until the negotiator is started again: jobs of a kind come back.
    """

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self._requests: dict[int, ClassAd] = {}
        self._known: set[tuple[tuple[str, str], ...]] = set()

    def read(self, requests: Iterable[ClassAd], ranks: Iterable[Expr]) -> Iterator[None]:
        """Add the names that requests and the administrator's ranks read; one request in each step."""
        found = {name.lower() for rank in ranks for name in rank.references()}
        present = {id(request): request for request in requests}
        for place, request in present.items():
            if place in self._requests:
                continue
            wire = request.to_wire()
            texts = tuple([(name.lower(), value[0]) for name, value in wire.items() if type(value) is list and value])
            if texts not in self._known:
                if len(self._known) >= KEPT:
                    self._known.clear()
                self._known.add(texts)
                found |= closed(dict(texts), ("requirements", "rank"))
            yield
        self._requests = present
        if not found <= self.names:
            self.names = names_read(self.names | found)
