"""The slots that a cycle has left: which are given away, and how much of the partitionable ones (see `carve`).

A partitionable slot can answer several requests in one cycle. Each match lessens its free resources, and one match may
carry a count of jobs to be carved out of the slot. Requests are compared with the slot's ad with the rest of its
resources in it.

A lent slot may stand for many alike machines of another pool (`pool.policy.flock.kinds`). It answers requests until all
are given away. A partitionable one counts as so many machines of which each request takes its part: which machine a job
gets, and whether it fits there beside another, the other pool's negotiator says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pool.classad import ClassAd, Expr, symmetric_match
from pool.classad.references import external
from pool.policy.carve import STANDARD, CarveRefusal, Resources, demand, named_resources
from pool.policy.flock.kinds import COUNT
from pool.policy.matching import Bits, Pair, SlotIndex, bits_of, members
from pool.policy.negotiation.remainder import Remainder

#: A match gives at most this many jobs of one request to one partitionable slot.
MOST_FOR_ONE_SLOT = 4096
#: Activities of a claimed slot that is on its way out of its claim already.
_LEAVING = frozenset({"Retiring", "Vacating", "Killing"})


@dataclass(frozen=True, slots=True)
class CarveRequest:
    """The resources that a request asks of a partitionable slot.

    Attributes:
        plain: the same of every slot; None when it depends on the slot, or makes no sense.
        sound: false when it makes no sense for any slot.
    """

    ad: ClassAd
    plain: Resources | None
    sound: bool = True


def wish_of(request: ClassAd) -> CarveRequest:
    """The resources that a request asks for."""
    for name in STANDARD:
        held = request.held(f"Request{name}")
        if type(held) is Expr and external(held, request):
            return CarveRequest(request, None)
    wanted = demand(_NO_SLOT, request)
    return CarveRequest(request, None, False) if isinstance(wanted, CarveRefusal) else CarveRequest(request, wanted)


class SlotShare(NamedTuple):
    """The share of a slot that one job gets.

    Attributes:
        wanted: the resources to be carved; None for the whole slot.
        weight: what it counts for.
        fitting: how many such parts the slot has.
        each: of a slot that stands for many machines, how many such parts one of them has.
    """

    wanted: Resources | None
    weight: float
    fitting: int
    each: int = 0


class _Carving(NamedTuple):
    """The facts that hold for all parts of a partitionable slot.

    Attributes:
        standard: it names no resources of its own.
        by_processors: a part weighs as many as it has processors.
    """

    standard: bool
    by_processors: bool


_NO_SLOT = ClassAd()
#: Less than this part of a machine is nothing.
_TRIFLE = 1e-6


class Capacity:
    """The slots of one cycle.

    Args:
        withheld: names of slots that must not be given away, because they were a moment ago.

    Attributes:
        free: slots without a claim when the cycle began.
        claimed: slots with one, that may be asked to give way.
        taken: 1 for each place whose slot is given away. Not to be changed.
    """

    def __init__(self, picture: SlotIndex, now: float, withheld: Collection[str] = ()) -> None:
        self._picture = picture
        self._now = now
        allowed = picture.alive & ~picture.set_of(withheld)
        self.free: Bits = allowed & picture.slots_where("State", lambda state: state == "Unclaimed")
        claimed = allowed & picture.slots_where("State", lambda state: state == "Claimed")
        self.claimed: Bits = claimed & ~picture.slots_where("Activity", lambda activity: activity in _LEAVING)
        self.partitionable: Bits = self.free & picture.slots_where("PartitionableSlot", lambda value: value is True)
        self.taken = bytearray(picture.size)
        self._shares: dict[tuple[int, ClassAd], SlotShare] = {}
        self._left: dict[int, Resources] = {}
        self._ads: dict[int, ClassAd] = {}
        self._whole: dict[int, Resources] = {}
        self._carving: dict[int, _Carving] = {}
        self._remainders: dict[int, Remainder] = {}
        self._promised: dict[int, tuple[CarveRequest, int]] = {}
        self._available: Bits = self.free | self.claimed
        self._gone: list[int] = []
        self._carved = bytearray(picture.size)
        for place in members(self.partitionable):
            self._carved[place] = 1
        self._machines = self._alike_machines()
        self._cpus = _Steps(lambda amount: int(amount), picture.size)
        self._memory = _Steps(lambda amount: int(amount).bit_length(), picture.size)

    def _alike_machines(self) -> dict[int, float]:
        """How many machines are left of each slot that stands for many."""
        if not self._picture.vocabulary.holders[COUNT.lower()]:
            return {}
        many = self.free & self._picture.slots_where(COUNT, lambda count: isinstance(count, int) and count > 1)
        return {place: float(self._picture.ad_at(place).value(COUNT)) for place in members(many)}

    @property
    def available(self) -> Bits:
        """Those slots, free or claimed, that are not given away yet."""
        if self._gone:
            self._available &= ~bits_of(self._gone, self._picture.size)
            self._gone.clear()
        return self._available

    def is_taken(self, place: int) -> bool:
        return bool(self.taken[place])

    def is_there(self, place: int, wish: CarveRequest, remainder: Remainder) -> bool:
        """Whether a slot that matched a request when the cycle began still does."""
        if self.taken[place]:
            return False
        return place not in self._left or self.accepts_still(place, wish, remainder)

    def is_touched(self, place: int) -> bool:
        """Whether a part of it was given away."""
        return place in self._left

    def too_full(self, wish: CarveRequest) -> Bits:
        """Partitionable slots of which too little is left for a request, as far as can be said quickly."""
        if wish.plain is None:
            return 0
        return self._cpus.places_below(wish.plain["Cpus"]) | self._memory.places_below(wish.plain["Memory"])

    def remainder(self, pair: Pair) -> Remainder:
        """A request beside slots of which a part was given away. The pair is one that the picture keeps."""
        found = self._remainders.get(id(pair))
        if found is None:
            found = self._remainders[id(pair)] = Remainder(self._picture, pair)
        return found

    def accepts_still(self, place: int, wish: CarveRequest, remainder: Remainder) -> bool:
        """Whether a slot of which a part was given away still matches."""
        promise = self._promised.get(place)
        if promise is not None and promise[0] is wish:
            return promise[1] > 0
        left = self._left[place]
        if wish.plain is not None:
            for name, amount in wish.plain.items():
                if amount > left.get(name, 0):
                    return False
        found = remainder.matches(place, left)
        return symmetric_match(wish.ad, self._ad(place), self._now) if found is None else found

    def _ad(self, place: int) -> ClassAd:
        """The slot's ad with what it has left."""
        ad = self._ads.get(place)
        if ad is None:
            ad = self._ads[place] = ClassAd(self._left[place], parent=self._picture.ad_at(place))
        return ad

    # --- giving away

    def part(self, place: int, wish: CarveRequest) -> SlotShare | None:
        """The share of a slot that one job of a request would get; None when the slot has not so much."""
        alike = self._machines.get(place)
        if alike is not None:
            return self._part_of_alike(place, wish, alike)
        if not self._carved[place]:
            return SlotShare(None, self._weight(place), 1)
        return self._part_of_one(place, wish)

    def _part_of_alike(self, place: int, wish: CarveRequest, alike: float) -> SlotShare | None:
        """As `part` of a slot that stands for many machines, of which so many are left."""
        key = (place, wish.ad)
        found = self._shares.get(key)
        if found is None:
            if self._carved[place]:
                one = self._part_of_one(place, wish)
                if one is None:
                    return None
                found = one._replace(each=one.fitting)
            else:
                found = SlotShare(None, self._weight(place), 1, 1)
            self._shares[key] = found
        many = int(alike * found.each + (_TRIFLE if found.wanted is not None else 0))
        return SlotShare(found.wanted, found.weight, many, found.each) if many else None

    def _part_of_one(self, place: int, wish: CarveRequest) -> SlotShare | None:
        """As `part` of what is left of one partitionable slot."""
        left, wanted = self._left.get(place), wish.plain
        carving = self._carving.get(place)
        if carving is None:
            held = self._picture.attributes_at(place)
            carving = _Carving(held.get("machineresources") is None, _is_processors(held.get("slotweight")))
            self._carving[place] = carving
        if wanted is None or not carving.standard:
            found = demand(self._picture.ad_at(place) if left is None else self._ad(place), wish.ad)
            if isinstance(found, CarveRefusal):
                return None
            wanted = found
        fitting = _times(wanted, self._whole_amounts(place) if left is None else left)
        if not fitting:
            return None
        if carving.by_processors:
            return SlotShare(wanted, float(wanted["Cpus"]), fitting)
        slot = self._picture.ad_at(place) if left is None else self._ad(place)
        return SlotShare(wanted, slot_weight(slot, wanted), fitting)

    def _weight(self, place: int) -> float:
        """The weight of a whole slot."""
        held = self._picture.attributes_at(place)
        if _is_processors(held.get("slotweight")):
            cpus = held.get("cpus")
            if type(cpus) is int and cpus >= 0:
                return float(cpus)
        return slot_weight(self._picture.ad_at(place))

    def rest(self, place: int) -> Resources:
        """The resources that a partitionable slot has left."""
        left = self._left.get(place)
        return left if left is not None else self._whole_amounts(place)

    def amounts(self, place: int) -> Resources:
        """The resources of a slot."""
        return _amounts(self._picture.ad_at(place))

    def take_parts(self, place: int, parts: Iterable[int], wanted: Resources) -> None:
        """Give parts of a partitionable slot that have jobs, and what is missing of its rest, to one job."""
        missing = dict(wanted)
        for part in parts:
            for name, amount in self.amounts(part).items():
                missing[name] = max(0, missing.get(name, 0) - amount)
            self._exhaust(part)
        if any(missing.values()):
            self._set_left(place, _after(self.rest(place), missing, 1))

    def _whole_amounts(self, place: int) -> Resources:
        found = self._whole.get(place)
        if found is None:
            found = self._whole[place] = _amounts(self._picture.ad_at(place))
        return found

    def assign(self, place: int, wish: CarveRequest, part: SlotShare, most: int, remainder: Remainder) -> int:
        """Give a slot, or parts of a partitionable one, to so many jobs of a request at the most: to how many."""
        if part.each:
            count = min(most, part.fitting)
            left_alike = self._machines[place] = self._machines[place] - count / part.each
            if left_alike * part.each < 1 - _TRIFLE:
                self._exhaust(place)
            return count
        if part.wanted is None:
            self._exhaust(place)
            return 1
        left = self._left.get(place)
        if left is None:
            left = self._left[place] = self._whole_amounts(place)
        count = self._accepted(place, wish, part, min(most, part.fitting), remainder)
        self._set_left(place, _after(left, part.wanted, count))
        return count

    def is_carved(self, place: int) -> bool:
        """Whether the slot is divided among its jobs."""
        return bool(self._carved[place])

    def _accepted(self, place: int, wish: CarveRequest, part: SlotShare, count: int, remainder: Remainder) -> int:
        """How many of so many jobs the slot accepts one after another. Where the last that fits is accepted, those
        before it are, and so is the rest of them later if nobody else comes between.
        """
        promise = self._promised.get(place)
        if promise is not None and promise[0] is wish:
            count = min(count, promise[1])
            self._promised[place] = (wish, promise[1] - count)
            return count
        self._promised.pop(place, None)
        left, at, wanted = self._left[place], self._picture.ad_at(place), part.wanted or {}

        def accepts(before: int) -> bool:
            rest = _after(left, wanted, before)
            found = remainder.matches(place, rest)
            return symmetric_match(wish.ad, ClassAd(rest, parent=at), self._now) if found is None else found

        if part.fitting > 1 and accepts(part.fitting - 1):
            self._promised[place] = (wish, part.fitting - count)
            return count
        for before in range(1, count):
            if not accepts(before):
                return before
        return count

    def _set_left(self, place: int, left: Resources) -> None:
        self._left[place] = left
        self._ads.pop(place, None)
        cpus = left.get("Cpus", 0)
        if cpus < 1:
            self._exhaust(place)
        else:
            self._cpus.set_amount(place, cpus)
            self._memory.set_amount(place, left.get("Memory", 0))

    def _exhaust(self, place: int) -> None:
        self.taken[place] = 1
        self._gone.append(place)


class _Steps:
    """Places by a step of an amount that they have left. Changes are gathered until somebody asks."""

    __slots__ = ("_at", "_bits", "_changed", "_size", "_step")

    def __init__(self, step: Callable[[float], int], size: int) -> None:
        self._step = step
        self._size = size
        self._bits: dict[int, Bits] = {}
        self._at: dict[int, int] = {}
        self._changed: dict[int, int | None] = {}

    def set_amount(self, place: int, amount: float) -> None:
        step, before = self._step(amount), self._at.get(place)
        if step != before:
            self._changed.setdefault(place, before)
            self._at[place] = step

    def places_below(self, amount: float) -> Bits:
        """The places that have certainly less than an amount."""
        if self._changed:
            self._gather()
        least, found = self._step(amount), 0
        for step, bits in self._bits.items():
            if step < least:
                found |= bits
        return found

    def _gather(self) -> None:
        left: dict[int, list[int]] = {}
        come: dict[int, list[int]] = {}
        for place, before in self._changed.items():
            if before is not None:
                left.setdefault(before, []).append(place)
            come.setdefault(self._at[place], []).append(place)
        for step, places in left.items():
            self._bits[step] &= ~bits_of(places, self._size)
        for step, places in come.items():
            self._bits[step] = self._bits.get(step, 0) | bits_of(places, self._size)
        self._changed.clear()


def _amounts(slot: ClassAd) -> Resources:
    found: Resources = {}
    names = STANDARD if slot.held("MachineResources") is None else (*STANDARD, *named_resources(slot))
    for name in names:
        value = slot.held(name)
        if type(value) is not int:
            value = slot.value(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = value
    return found


def _times(wanted: Mapping[str, float], left: Mapping[str, float]) -> int:
    """How often so much fits into what is left."""
    times: float = MOST_FOR_ONE_SLOT
    for name, amount in wanted.items():
        if amount:
            times = min(times, left.get(name, 0) // amount)
    return int(times) if times > 0 else 0


def _after(left: Resources, wanted: Resources, count: int) -> Resources:
    return {name: amount - wanted.get(name, 0) * count for name, amount in left.items()}


def _is_processors(held: object) -> bool:
    """Whether a slot that holds this as its SlotWeight weighs as many as it has processors."""
    return held is None or (type(held) is Expr and held.text == "Cpus")


def slot_weight(slot: ClassAd, wanted: Resources | None = None) -> float:
    """The weight of a slot: its SlotWeight, else its Cpus, else 1. For a partitionable slot, the weight of a part that
    has the resources wanted.
    """
    held = slot.held("SlotWeight")
    if _is_processors(held):
        if wanted is not None:
            return float(wanted["Cpus"])
        cpus = slot.held("Cpus")
        if type(cpus) is int and cpus >= 0:
            return float(cpus)
    part = slot if wanted is None else ClassAd(wanted, parent=slot)
    value = part.eval("Cpus" if held is None else "SlotWeight")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        return 1.0
    return float(value)
