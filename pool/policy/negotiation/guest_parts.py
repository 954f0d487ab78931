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
from pool.policy.matching import Bits, SlotIndex, bits_of, members
from pool.policy.negotiation.capacity import Capacity, CarveRequest, slot_weight
from pool.policy.negotiation.guests import GuestSlots
from pool.policy.negotiation.ordering import divided, places_in
from pool.policy.slot_names import parent_of

#: Machines where several guests would have to leave, of which the best is chosen.
SEVERAL = 32


@dataclass(frozen=True, slots=True)
class GuestPart:
    """A part of a divided machine that a guest has.

    Attributes:
        amounts: its resources.
        loss: of its guest (`GuestSlots.loss`).
        rank: how much the machine likes its guest.
        leaves: whether the guest leaves now, and has not its minimum time.
    """

    place: int
    amounts: Mapping[str, float]
    loss: tuple[bool, float]
    rank: float = 0.0
    leaves: bool = True


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
        self._machines: dict[int, list[GuestPart]] = {}
        self._wholes: dict[int, Resources] = {}
        self._young: dict[int, Bits] = {}
        self._places: dict[int, int] = {}  # in the index: in the picture
        self._index: SlotIndex | None = None
        self.parts: Bits = 0
        if guests.leaving | guests.young:
            self._find_parts()

    def __del__(self) -> None:
        if self._index is not None:
            self._index.close()

    def _find_parts(self) -> None:
        picture, rooms, guests = self._picture, self._rooms, self._guests
        dynamic = picture.slots_where("DynamicSlot", lambda value: value is True)
        found = list(members((guests.leaving | guests.young) & dynamic))
        leaving = set(members(guests.leaving & dynamic))
        known = list[int]()
        for place in found:
            whole = picture.place_of(parent_of(picture.name(place)))
            if whole is None:
                continue
            known.append(place)
            if rooms.is_carved(whole):
                rank = picture.ad_at(place).value("CurrentRank", 0.0)
                part = GuestPart(place, rooms.amounts(place), guests.loss(place), rank, place in leaving)
                self._machines.setdefault(whole, []).append(part)
                if not part.leaves:
                    self._young[whole] = self._young.get(whole, 0) | 1 << place
        self.parts = bits_of(known, picture.size)
        for whole, parts in self._machines.items():
            self._wholes[whole] = rooms.rest(whole)
            parts.sort(key=lambda part: part.loss)

    @property
    def any(self) -> bool:
        """Whether there is a machine that guests may leave a part of."""
        return bool(self._machines)

    def plans(self, job: ClassAd, wish: CarveRequest, now: float) -> Iterator[GuestPlan]:
        """Room for a job, one plan after another: machines that it likes better first. Among equals those come first
        where one guest leaves, the one that loses the least; then some at a time where several do.

        A plan that was used is followed by another one of the same machine, if there is one.
        """
        index = self._undivided()
        pair = index.pair(job, now)
        matching, likes = index.matches(pair), index.machine_ranks(pair)
        for _, level in divided(matching, index.job_ranks(pair)) if matching else ():
            spots = {self._places[spot]: likes.number(spot) for spot in places_in(level)}
            waiting = [(self._least(place), place) for place in spots]
            heapq.heapify(waiting)
            several: list[tuple[tuple[int, int, float], int, GuestPlan]] = []
            while waiting or several:
                plan: GuestPlan | None = None
                while waiting and len(several) < SEVERAL:
                    _, place = heapq.heappop(waiting)
                    found = self._plan(place, wish, spots[place])
                    if found is not None and len(found.leaving) == 1:
                        plan = found
                        break
                    if found is not None:
                        heapq.heappush(several, (found.cost, place, found))
                if plan is None and several:
                    plan = heapq.heappop(several)[-1]
                if plan is None:
                    break
                if self.holds(plan):
                    yield plan
                if not self.holds(plan):
                    heapq.heappush(waiting, (self._least(plan.place), plan.place))  # there may be other guests

    def holds(self, plan: GuestPlan) -> bool:
        """Whether the guests of a plan have not been asked to leave for another job, and the rest is still there."""
        if any(self._rooms.is_taken(part) for part in plan.leaving):
            return False
        leaving = [part for part in self._machines[plan.place] if part.place in plan.leaving]
        return not _missing(self._rest(plan.place), leaving, plan.wanted)

    def leave_at(self, wish: CarveRequest) -> float | None:
        """When a guest will have had its minimum time on a machine that is large enough without its guests."""
        times: list[float] = []
        for whole, young in self._young.items():
            there = [part for part in self._machines[whole] if not self._rooms.is_taken(part.place)]
            if not _missing(self._rest(whole), there, wish.plain or {}):
                at = self._guests.leave_at(young)
                times += [at] if at is not None else []
        return min(times, default=None)

    def _rest(self, place: int) -> Resources:
        """The resources that a divided machine has left."""
        return self._rooms.rest(place) if self._rooms.is_touched(place) else self._wholes[place]

    def _least(self, place: int) -> tuple[bool, float]:
        """The least loss of a guest on a machine; of the parts of one machine those that lose less come first."""
        taken = self._rooms.is_taken
        return next((part.loss for part in self._machines[place] if not taken(part.place) and part.leaves), (True, 0.0))

    def _plan(self, place: int, wish: CarveRequest, likes: float) -> GuestPlan | None:
        """Room for a job on one machine, which likes the job so much."""
        whole, wanted = self._picture.ad_at(place), wish.plain
        if wanted is None or whole.held("MachineResources") is not None:
            found = demand(whole, wish.ad)
            if isinstance(found, CarveRefusal):
                return None
            wanted = found
        taken = self._rooms.is_taken
        there = [part for part in self._machines[place] if part.leaves and part.rank <= likes and not taken(part.place)]
        chosen = fewest(self._rest(place), there, wanted)
        if not chosen:
            return None
        cost = (len(chosen), sum(part.loss[0] for part in chosen), sum(part.loss[1] for part in chosen))
        leaving = tuple(sorted(part.place for part in chosen))
        return GuestPlan(place, leaving, wanted, slot_weight(whole, wanted), cost)

    def _undivided(self) -> SlotIndex:
        """The machines as they would be without those guests that leave now."""
        if self._index is None:
            self._index = SlotIndex()
            for whole, parts in self._machines.items():
                there = self._rest(whole)
                for part in parts:
                    if part.leaves:
                        there = add(there, part.amounts)
                name = self._picture.name(whole)
                self._index.set_ad(name, ClassAd(there, parent=self._picture.ad_at(whole)))
                spot = self._index.place_of(name)
                assert spot is not None
                self._places[spot] = whole
        return self._index


def fewest(rest: Mapping[str, float], parts: Sequence[GuestPart], wanted: Mapping[str, float]) -> list[GuestPart]:
    """Few parts that give a job enough, together with the rest; none where the rest is enough, or all are too little.

    One part is enough if any is. Else the part comes first that has most of what is still missing.
    """
    missing = _missing(rest, (), wanted)
    if not missing or _missing(rest, parts, wanted):
        return []
    alone = [part for part in parts if not _missing(rest, (part,), wanted)]
    if alone:
        return [min(alone, key=lambda part: (part.loss, part.place))]
    chosen, left = list[GuestPart](), list(parts)
    while missing:
        need = missing

        def share(part: GuestPart, need: Mapping[str, float] = need) -> float:
            return sum(min(part.amounts.get(name, 0), amount) / amount for name, amount in need.items())

        best = min(left, key=lambda part: (-share(part), part.loss, part.place))
        left.remove(best)
        chosen.append(best)
        missing = _missing(rest, chosen, wanted)
    for part in sorted(chosen, key=lambda part: part.loss, reverse=True):
        others = [other for other in chosen if other is not part]
        if not _missing(rest, others, wanted):
            chosen = others
    return chosen


def _missing(rest: Mapping[str, float], parts: Sequence[GuestPart], wanted: Mapping[str, float]) -> dict[str, float]:
    """The resources that a job wants and would not have."""
    found: dict[str, float] = {}
    for name, amount in wanted.items():
        there = rest.get(name, 0) + sum(part.amounts.get(name, 0) for part in parts)
        if amount > there:
            found[name] = amount - there
    return found
