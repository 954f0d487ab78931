"""Idle machines summed up by kind, for a pool that is shown many (EV 4.3.2).

A kind is a group of slots that no expression of the other pool can tell apart: they are equal in each attribute that
its jobs and its negotiator read, and in each that the slots' own expressions read. The other pool says which names its
expressions read. It is shown one ad for each kind, with the number of machines in it, and asks for so many; which of
them it gets the lending pool's own negotiator says.

Parts of a slot's Requirements that the slot alone settles are answered before (`settled`).

Where that gives too many kinds (a rank by disk space tells every machine from every other), numbers are rounded down
to fewer and fewer binary digits. Where that does not suffice, names do not count any more, those with the most
different values first; a kind's ad has them where all of its machines agree. What a machine can be divided into is
never rounded to nothing: a kind without memory would suit no job.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pool.classad import ClassAd, Expr
from pool.policy.autoclusters import closed, looked_at
from pool.policy.flock.partial_evaluation import LETS_NOBODY_IN, partially_evaluated
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
#: Names (lower case) that the other pool does not believe of a lent machine; see `shown`.
NOT_LENT = frozenset(
    {
        "name", "machine", "startdaddress", "mytype", "flockpool", "flockmachine", "filesystemdomain", "uiddomain",
        "dedicatedscheduler", "dedicatedschedulers", "rank", "starturgent", "remoteuser", "remoteowner",
        "clientmachine", "flockcount", "flockvalue", "remoteguestof", "remoteguestleaves",
    }
)  # fmt: skip
#: Names that each machine has for itself, or that mean nothing in another pool; a kind has none of them.
NEVER = NOT_LENT | {"slotid", "node", "utsnamenodename"}
#: Names of amounts that jobs take a part of.
AMOUNTS = frozenset({"cpus", "memory", "disk", "gpus"})
#: Names that count however many kinds there are.
_KEPT_APART = AMOUNTS | {
    "requirements", "state", "activity", "arch", "opsys", "partitionableslot", "slottype", "slotweight",
    "machineresources",
}  # fmt: skip
#: Kinds of one pool that another is shown at the most.
MOST_KINDS = 1000
#: Binary digits of numbers, from one attempt to the next. Then one name after another does not count any more.
DIGITS = (None, 10, 6, 4, 3, 2, 1)
#: Of amounts that jobs take a part of: so many at least, and so many where no name is left that need not count.
LEAST_DIGITS, LAST_DIGITS = 2, 1
#: Names that another pool's expressions may read, and the length of one.
MOST_NAMES, LONGEST_NAME = 1000, 100
#: Machines of one kind that are believed of another pool.
MOST_MACHINES = 1_000_000
#: Sets of expressions for which it is kept what they read.
KEPT = 1000


@dataclass(slots=True)
class _Kind:
    """Machines that are told apart no further.

    Attributes:
        ad: in what they are equal.
        others: for names that do not count, the values that they have, by a key, and how many have each.
    """

    name: str
    ad: Wire
    count: int = 0
    others: dict[str, dict[bytes, tuple[Any, int]]] = field(default_factory=dict)

    def add(self, others: Wire, machines: int) -> None:
        """So many machines more, or fewer, with these values of names that do not count."""
        self.count += machines
        for name, value in others.items():
            values = self.others.setdefault(name, {})
            key = pack(value)
            many = values.get(key, (value, 0))[1] + machines
            if many:
                values[key] = value, many
            else:
                del values[key]

    def shown(self) -> Wire:
        """The ad of them all: of numbers the least, of other values those that all have."""
        found = {**self.ad, COUNT: self.count}
        for name, values in self.others.items():
            if sum(many for _, many in values.values()) < self.count:
                continue
            known = [value for value, _ in values.values()]
            if len(known) == 1:
                found[name] = known[0]
            elif all(_is_number(value) for value in known):
                found[name] = min(known)
        return found


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
        self._order: list[str] | None = None
        self._others: dict[str, Wire] = {}
        self._ads: dict[str, Wire] = {}
        self._kind_of: dict[str, bytes] = {}
        self._kinds: dict[bytes, _Kind] = {}
        self._changed: set[bytes] = set()
        self._gone: dict[bytes, str] = {}
        self._known: dict[tuple[tuple[str, str], ...], tuple[frozenset[str], frozenset[str]]] = {}

    def __len__(self) -> int:
        return len(self._kinds)

    @property
    def machines(self) -> int:
        """How many machines there are of all kinds."""
        return len(self._ads)

    @property
    def crowded(self) -> bool:
        """Whether there are too many kinds: `regroup` makes fewer."""
        last = None if self._order is None else len(DIGITS) + len(self._order)
        return len(self._kinds) > self._most and self._level != last

    def set_ad(self, slot: str, ad: Wire | None) -> None:
        """A slot has this ad now, or is gone."""
        self._leave(slot)
        if ad is None:
            self._ads.pop(slot, None)
            return
        settled = partially_evaluated(ad)
        if settled.get("Requirements") == LETS_NOBODY_IN:
            self._ads.pop(slot, None)
        else:
            self._set_settled(slot, settled)

    def _set_settled(self, slot: str, ad: Wire) -> None:
        self._leave(slot)
        self._ads[slot] = ad
        key, shown, others = self._kind(ad, self._level)
        kind = self._kinds.get(key)
        if kind is None:
            digest = hashlib.sha256(key).hexdigest()[:16]
            kind = self._kinds[key] = _Kind(f"like-{digest}@many", shown)
        kind.add(others, 1)
        self._kind_of[slot] = key
        if others:
            self._others[slot] = others
        self._changed.add(key)

    def refer(self, references: Iterable[str]) -> bool:
        """The other pool's expressions read these names from now on; whether `regroup` is needed."""
        read = names_read(references)
        if read == self._read:
            return False
        self._read, self._level, self._order = read, 0, None
        self._known.clear()
        return True

    def regroup(self) -> Iterator[None]:
        """Divide all slots anew, with fewer digits of numbers while there are too many kinds; one in each step."""
        if not (yield from self._are_few(self._level)):
            if self._order is None:
                self._order = yield from self._by_variety()
            lowest, highest = self._level, len(DIGITS) + len(self._order)
            while lowest < highest:  # halving, as each level has fewer kinds than the one before
                middle = (lowest + highest) // 2
                if (yield from self._are_few(middle)):
                    highest = middle
                else:
                    lowest = middle + 1
            self._level = lowest
        for slot, ad in list(self._ads.items()):
            if self._ads.get(slot) is ad:
                self._set_settled(slot, ad)
            yield

    def _are_few(self, level: int) -> Generator[None, None, bool]:
        """Whether a level has no more kinds than there may be; one machine in each step."""
        found = set[bytes]()
        for ad in list(self._ads.values()):
            found.add(self._kind(ad, level)[0])
            yield
            if len(found) > self._most:
                return False
        return True

    def _by_variety(self) -> Generator[None, None, list[str]]:
        """Names (lower case) that need not count, those with the most different values first."""
        values: dict[str, set[bytes]] = {}
        for ad in list(self._ads.values()):
            yield
            significant, required = self._significant(ad)
            for name, value in ad.items():
                if (key := name.lower()) in significant and key not in required:
                    values.setdefault(key, set()).add(pack(value))
        return sorted(values.keys() - NEVER - _KEPT_APART, key=lambda name: (-len(values[name]), name))

    def take_changes(self) -> dict[str, Wire | None]:
        """The kinds that have changed since the last call: the ad, with the number of machines, or None."""
        found: dict[str, Wire | None] = {}
        for key in self._changed:
            if (name := self._gone.pop(key, None)) is not None:
                found[name] = None
            if (kind := self._kinds.get(key)) is not None:
                found[kind.name] = kind.shown()
        self._changed.clear()
        return found

    def _leave(self, slot: str) -> None:
        key = self._kind_of.pop(slot, None)
        if key is None:
            return
        kind = self._kinds[key]
        kind.add(self._others.pop(slot, {}), -1)
        self._changed.add(key)
        if not kind.count:
            self._gone[key] = kind.name
            del self._kinds[key]

    def _kind(self, ad: Wire, level: int) -> tuple[bytes, Wire, Wire]:
        """At a level the key of an ad's kind, the ad that stands for it, and the values of names that do not count."""
        significant, required = self._significant(ad)
        order = self._order or []
        further = level - len(DIGITS) + 1
        digits = DIGITS[min(level, len(DIGITS) - 1)]
        amounts = LAST_DIGITS if further > len(order) else None if digits is None else max(digits, LEAST_DIGITS)
        uncounted = frozenset(order[: max(0, further)]) - required
        shown: Wire = {}
        others: Wire = {}
        for name, value in sorted(ad.items()):
            key = name.lower()
            if key not in significant or key in NEVER:
                continue
            if key in uncounted:
                others[name] = value
            else:
                shown[name] = _rounded(value, amounts if key in AMOUNTS else digits)
        return pack(list(shown.items())), shown, others

    def _significant(self, ad: Wire) -> tuple[frozenset[str], frozenset[str]]:
        """The names (lower case) that can matter, and those of them that the ad's Requirements read."""
        expressions = tuple([(name, value[0]) for name, value in ad.items() if type(value) is list and value])
        found = self._known.get(expressions)
        if found is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            found = looked_at(ALWAYS | self._read, ad), looked_at({"requirements"}, ad)
            self._known[expressions] = found
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
    if digits is None or not _is_number(value) or not math.isfinite(value):
        return value
    whole = math.floor(value)
    if abs(whole) < 1 << digits:
        return whole if isinstance(value, int) else math.floor(value * 4) / 4
    shift = abs(whole).bit_length() - digits
    return (whole >> shift) << shift


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
