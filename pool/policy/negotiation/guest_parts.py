"""Guests on divided machines: which parts of a partitionable slot are left for one job of this pool.

A part has what its guest asked for, and the waiting job asks for something else. So a machine is compared with the job
as it would be without its guests. As few guests leave as give the job enough, together with the rest of the machine
that is free; among as many, those that lose the least. Nobody else is given what they leave.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pool.classad import ClassAd
from pool.policy.carve import CarveRefusal, Resources, add, demand
from pool.policy.matching import Bits, SlotIndex, members
from pool.policy.negotiation.capacity import Capacity, CarveRequest, slot_weight
from pool.policy.negotiation.guests import GuestSlots
from pool.policy.negotiation.ordering import divided, places_in
from pool.policy.slot_names import parent_of

#: A guest's part: its place, what it has, and what its guest would lose.
Part = tuple[int, Mapping[str, float], tuple[bool, float]]


@dataclass(frozen=True, slots=True)
class GuestPlan:
    """Room for one job on a divided machine.

    Attributes:
        place: of the partitionable slot.
        leaving: the places of the parts that guests leave.
        wanted: what the job is given.
        weight: what that counts for.
        cost: what the guests lose: how many there are, how many cannot be saved, and seconds of work.
    """

    place: int
    leaving: tuple[int, ...]
    wanted: Resources
    weight: float
    cost: tuple[int, int, float]


class GuestParts:
    """The parts of divided machines that guests would leave in one cycle.

    Attributes:
        parts: all such parts, of those also that have their minimum time.
    """

    def __init__(self, picture: SlotIndex, rooms: Capacity, guests: GuestSlots) -> None:
        self._picture = picture
        self._rooms = rooms
        self._guests = guests
        self._machines: dict[int, list[int]] = {}
        self._index: SlotIndex | None = None
        self.parts: Bits = 0
        if not guests.leaving | guests.young:
            return
        dynamic = picture.slots_where("DynamicSlot", lambda value: value is True)
        for part in members((guests.leaving | guests.young) & dynamic):
            whole = picture.place_of(parent_of(picture.name(part)))
            if whole is not None:
                self.parts |= 1 << part
                if rooms.is_carved(whole):
                    self._machines.setdefault(whole, []).append(part)

    @property
    def any(self) -> bool:
        """Whether there is a machine that guests may leave a part of."""
        return bool(self._machines)

    def plans(self, job: ClassAd, now: float) -> Iterator[GuestPlan]:
        """Room for a job, one plan after another: machines that it likes better first, then those where guests lose
        less. A plan that does not hold any more is made anew."""
        index = self._undivided()
        pair = index.pair(job, now)
        likes = index.machine_ranks(pair)
        for _, level in divided(index.matches(pair), index.job_ranks(pair)):
            heap: list[tuple[tuple[int, int, float], int, int, GuestPlan]] = []

            def push(spot: int, queue: list[tuple[tuple[int, int, float], int, int, GuestPlan]] = heap) -> None:
                place = self._picture.place_of(index.name(spot))
                plan = self._plan(place, job, likes.number(spot)) if place is not None else None
                if plan is not None:
                    heapq.heappush(queue, (plan.cost, plan.place, spot, plan))

            for spot in places_in(level):
                push(spot)
            while heap:
                _, _, spot, plan = heapq.heappop(heap)
                if self.holds(plan):
                    yield plan
                if not self.holds(plan):
                    push(spot)  # there may be other guests

    def holds(self, plan: GuestPlan) -> bool:
        """Whether the guests of a plan have not been asked to leave for another job, and the rest is still there."""
        if any(self._rooms.is_taken(part) for part in plan.leaving):
            return False
        there = self._rooms.rest(plan.place)
        for part in plan.leaving:
            there = add(there, self._rooms.amounts(part))
        return all(amount <= there.get(name, 0) for name, amount in plan.wanted.items())

    def leave_at(self, wish: CarveRequest) -> float | None:
        """When a guest will have had its minimum time on a machine that is large enough without its guests."""
        times: list[float] = []
        for whole, parts in self._machines.items():
            young = sum(1 << part for part in parts if self._guests.young >> part & 1)
            there = self._rooms.rest(whole)
            for part in parts:
                there = add(there, self._rooms.amounts(part))
            wanted = wish.plain or {}
            if young and all(amount <= there.get(name, 0) for name, amount in wanted.items()):
                at = self._guests.leave_at(young)
                times += [at] if at is not None else []
        return min(times, default=None)

    def _plan(self, place: int, job: ClassAd, likes: float) -> GuestPlan | None:
        """Room for a job on one machine, which likes the job so much."""
        wanted = demand(self._picture.ad_at(place), job)
        if isinstance(wanted, CarveRefusal):
            return None
        at, rooms = self._picture.ad_at, self._rooms
        there: list[Part] = [
            (part, rooms.amounts(part), self._guests.loss(part))
            for part in self._machines[place]
            if self._guests.leaving >> part & 1
            and not rooms.is_taken(part)
            and at(part).value("CurrentRank", 0.0) <= likes
        ]
        chosen = fewest(rooms.rest(place), there, wanted)
        if not chosen:
            return None
        losses = [loss for _, _, loss in chosen]
        cost = (len(chosen), sum(unsaved for unsaved, _ in losses), sum(lost for _, lost in losses))
        leaving = tuple(sorted(part for part, _, _ in chosen))
        return GuestPlan(place, leaving, wanted, slot_weight(at(place), wanted), cost)

    def _undivided(self) -> SlotIndex:
        """The machines as they would be without those guests that leave now."""
        if self._index is None:
            self._index = SlotIndex()
            for whole, parts in self._machines.items():
                there, ad = self._rooms.rest(whole), self._picture.ad_at(whole)
                for part in parts:
                    if self._guests.leaving >> part & 1:
                        there = add(there, self._rooms.amounts(part))
                self._index.set_ad(self._picture.name(whole), ClassAd(there, parent=ad))
        return self._index


def fewest(rest: Mapping[str, float], parts: Sequence[Part], wanted: Mapping[str, float]) -> list[Part]:
    """Few parts that give a job enough, together with the rest; none where the rest is enough, or all are too little.

    One part is enough if any is. Else the part comes first that has most of what is still missing.
    """
    missing = _missing(rest, (), wanted)
    if not missing or _missing(rest, parts, wanted):
        return []
    alone = [part for part in parts if not _missing(rest, (part,), wanted)]
    if alone:
        return [min(alone, key=lambda part: (part[2], part[0]))]
    chosen, left = list[Part](), list(parts)
    while missing:
        need = missing

        def share(part: Part, need: Mapping[str, float] = need) -> float:
            return sum(min(part[1].get(name, 0), amount) / amount for name, amount in need.items())

        best = min(left, key=lambda part: (-share(part), part[2], part[0]))
        left.remove(best)
        chosen.append(best)
        missing = _missing(rest, chosen, wanted)
    for part in sorted(chosen, key=lambda part: part[2], reverse=True):
        others = [other for other in chosen if other is not part]
        if not _missing(rest, others, wanted):
            chosen = others
    return chosen


def _missing(rest: Mapping[str, float], parts: Sequence[Part], wanted: Mapping[str, float]) -> dict[str, float]:
    """The resources that a job wants and would not have."""
    found: dict[str, float] = {}
    for name, amount in wanted.items():
        there = rest.get(name, 0) + sum(part[1].get(name, 0) for part in parts)
        if amount > there:
            found[name] = amount - there
    return found
