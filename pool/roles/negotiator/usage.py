"""The holders of slots, counted from the slots' ads: by submitter, and by concurrency limit.

A slot that was given away a moment ago counts as held already, until its ad says more or the time for taking it is
over; so two cycles in a row do not give the same quota twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pool.classad import ClassAd
from pool.policy.charges import Charge, charge
from pool.policy.managed import is_dedicated
from pool.policy.negotiation.limits import parse_limits
from pool.policy.priorities import GroupQuota, group_of
from pool.policy.priorities.names import grouped

#: A slot counts for so much where its ad says nothing that makes sense.
PLAIN = 1.0
#: Less than this is nothing.
TRIFLE = 1e-9


@dataclass(frozen=True, slots=True)
class SlotUsage:
    """The weight of one slot, and its submitter.

    Attributes:
        submitter: as cycles name it, its group in front; see `pool.policy.priorities.names`.
        weight: slot weight.
    """

    submitter: str
    weight: float
    limits: Mapping[str, float]


@dataclass(slots=True)
class Use:
    """The slots that one submitter holds, and has held since the last look."""

    weight: float = 0.0
    slots: int = 0
    integral: float = 0.0
    since: float = 0.0

    def add(self, weight: float, slots: int, now: float) -> None:
        self.integral += self.weight * (now - self.since)
        self.since = now
        self.weight += weight
        self.slots += slots


class PoolUsage:
    """The slots that are held in the pool.

    Attributes:
        uses: what each submitter holds, as cycles name it.
        limits: how much of each concurrency limit is held.
    """

    def __init__(self) -> None:
        self.uses: dict[str, Use] = {}
        self.limits: dict[str, float] = {}
        self._held: dict[str, SlotUsage] = {}
        self._on_the_way: dict[str, list[SlotUsage]] = {}

    def slot(self, name: str, after: SlotUsage | None, *, leaving: bool = False) -> None:
        """A slot's ad has changed: who holds it now, and whether he is making room there for whom it was given to."""
        if not leaving or after is None:
            self.lapsed(name)
        before = self._held.get(name)
        if after == before:
            return
        if before is not None:
            del self._held[name]
            self._count(before, -1)
        if after is not None:
            self._held[name] = after
            self._count(after, 1)

    def slot_stays(self, name: str, *, leaving: bool) -> None:
        """As `slot`, where the slot is held by the same as before, or by nobody as before."""
        if not leaving or name not in self._held:
            self.lapsed(name)

    def given(self, slot: str, held: SlotUsage) -> None:
        """A slot was given to somebody: it is theirs already, until its ad says more."""
        self._on_the_way.setdefault(slot, []).append(held)
        self._count(held, 1)

    def lapsed(self, slot: str) -> None:
        """Nobody took what was given."""
        for held in self._on_the_way.pop(slot, ()):
            self._count(held, -1)

    def _count(self, held: SlotUsage, sign: int) -> None:
        now = asyncio.get_running_loop().time()
        use = self.uses.setdefault(held.submitter, Use(since=now))
        use.add(sign * held.weight, sign, now)
        for name, units in held.limits.items():
            left = self.limits.get(name, 0.0) + sign * units
            if left > TRIFLE:
                self.limits[name] = left
            else:
                self.limits.pop(name, None)

    def clear(self) -> None:
        """Nothing is known any more."""
        for name in [*self._held, *self._on_the_way]:
            self.slot(name, None)

    def held_by(self, submitter: str) -> float:
        """Slot weight that a submitter holds."""
        use = self.uses.get(submitter)
        return use.weight if use is not None else 0.0

    @property
    def holders(self) -> set[str]:
        """Submitters that hold slots."""
        return {submitter for submitter, use in self.uses.items() if use.slots}

    def by_group(self, paying: Callable[[str], str | None]) -> dict[str, float]:
        """Slot weight that each group's own users hold, "" for those of no group; `paying` names a user's group."""
        found: dict[str, float] = {}
        for submitter, use in self.uses.items():
            if (group := paying(submitter)) is not None:
                found[group] = found.get(group, 0.0) + use.weight
        return found


def held_by(ad: ClassAd, quotas: Iterable[GroupQuota] = ()) -> SlotUsage | None:
    """The holder of a slot by its ad; None where nobody holds it."""
    user = ad.value("RemoteUser", None)
    if not isinstance(user, str) or not user or ad.value("State", None) not in ("Claimed", "Preempting"):
        return None
    charged = charge(ClassAd({"AcctGroup": ad.value("RemoteGroup", ""), "NiceUser": ad.value("RemoteNiceUser", False)}))
    stopped = ad.value("Activity", None) == "Yielding"  # for an urgent job, to whose user the machine counts meanwhile
    idle = is_dedicated(user)  # a claim of a dedicated scheduler counts to the users whose jobs run on it
    return SlotUsage(named(user, charged, quotas), 0.0 if stopped or idle else weight_of(ad), limits_of(ad))


def named(submitter: str, charged: Charge, quotas: Iterable[GroupQuota]) -> str:
    """A submitter as cycles name it, for jobs that are charged like that."""
    return grouped(submitter, group_of(charged.group, quotas), charged.nice)


def limits_of(ad: ClassAd) -> dict[str, float]:
    """The concurrency limits that a job, or a slot for it, holds."""
    return parse_limits(ad.value("ConcurrencyLimits", None)) or {}


def weight_of(ad: ClassAd) -> float:
    """The weight of a slot: its SlotWeight, else its processors, else one. A partitionable slot with nothing left
    weighs nothing: its parts do.
    """
    carved = ad.held("PartitionableSlot") is True
    for name in ("SlotWeight", "Cpus"):
        value = ad.value(name, None)
        weight = number(value)
        if 0 < weight < 1e9 or (carved and weight == 0 and isinstance(value, (int, float))):
            return weight
    return PLAIN


def number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
