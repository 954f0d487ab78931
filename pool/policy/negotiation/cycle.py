"""The negotiation cycle as a pure function: submitters' requests and machines in, matches out (EV 3.5, RL 4.3).

`SubmitterTurns` gives RESCHEDULE's order of machines. SIMPLE NEGOTIATE is `_Submitter.match_up_to`. Within a submitter,
requests come in the order of the schedd (its PRIO), each until it is satisfied or nothing fits it any more; so the
first to come is served first. FIND SERVER is `Candidates`. Where priorities belong to machines, the jobs of all
submitters of one machine come in the order of their own priorities (EV 2.6).

The same picture, requests, turns and terms give the same outcome.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from pool.classad import UNDEFINED
from pool.policy.matching import Bits, SlotIndex
from pool.policy.negotiation.candidates import Candidates
from pool.policy.negotiation.capacity import MOST_FOR_ONE_SLOT, Capacity, SlotShare, wish_of
from pool.policy.negotiation.guest_parts import GuestParts
from pool.policy.negotiation.limits import Limits, parse_limits
from pool.policy.negotiation.plain import Match, Outcome, Preempts, Rejection, ResourceRequest, UnmatchedReason
from pool.policy.negotiation.preemption import Preemption
from pool.policy.negotiation.terms import NegotiationTerms
from pool.policy.negotiation.turns import SubmitterTurns

#: Slots that the turns refuse to a request before it is put aside.
_REFUSALS = 64
#: Folded names of what is read of every slot, whatever is asked for.
READ = ("state", "activity", "partitionableslot", "remoteuser", "currentrank", "rank")
#: More weight than any pool has; a turn without bound.
_BEYOND = 1e15
#: The place of a submitter's next job among those of its machine: its priority (negative), when the first such job was
#: submitted, the submitter.
_Key = tuple[float, float, str]
_LAST: _Key = (math.inf, 0.0, "")


def cycle(
    picture: SlotIndex,
    requests: Mapping[str, Sequence[ResourceRequest]],
    turns: SubmitterTurns,
    terms: NegotiationTerms,
    now: float,
    withheld: Collection[str] = (),
    together: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Outcome:
    """Match submitters' requests with machines.

    Args:
        picture: the machines; not changed.
        requests: for each submitter its requests in its own order.
        turns: the order of submitters, and how much each may take; notified of every match.
        now: wall time in seconds, for expressions that ask for it.
        withheld: names of slots that must not be given away, because they were a moment ago.
        together: for each submitter all whose jobs stand in one order with its own, by the jobs' priorities.
    """
    picture.read_ahead((request.ad for own in requests.values() for request in own), READ)
    whole = _Cycle(picture, terms, now, withheld)
    submitters = {name: _Submitter(name, own, whole, turns) for name, own in requests.items() if own}
    fruitless, finished = 0, set[str]()
    while fruitless <= 2 * len(submitters) + 2 and (turn := turns.next()) is not None:
        name, weight = turn
        until: _Key | None = None
        if others := together.get(name):
            name, until = _first_of(name, [one for one in others if one not in finished], submitters)
        submitter = submitters.get(name)
        if submitter is not None and submitter.match_up_to(weight, until):
            fruitless = 0
        else:
            fruitless += 1
            finished.add(name)
            turns.retire(name)
    outcome = Outcome(whole.matches(), machines=len(picture))
    for name, submitter in submitters.items():
        left = submitter.left()
        if left:
            outcome.unmatched[name] = left
            outcome.rejections[name] = submitter.rejections()
    if whole.preemption.guests.young:
        times = [at for one in submitters.values() if (at := one.guests_leave_at()) is not None]
        outcome.guests_leave_at = min(times, default=None)
    return outcome


def _first_of(name: str, others: Sequence[str], submitters: Mapping[str, _Submitter]) -> tuple[str, _Key | None]:
    """Of submitters whose jobs stand in one order the one whose job comes first, and the key of the next one's."""
    keys = sorted(key for one in others if one in submitters and (key := submitters[one].key()) is not None)
    if not keys:
        return name, None
    return keys[0][-1], keys[1] if len(keys) > 1 else _LAST


class _Cycle:
    """The state that all submitters of one cycle share."""

    def __init__(self, picture: SlotIndex, terms: NegotiationTerms, now: float, withheld: Collection[str]) -> None:
        self.picture = picture
        self.terms = terms
        self.now = now
        self.rooms = Capacity(picture, now, withheld)
        self.preemption = Preemption(picture, self.rooms, terms, now)
        self.guest_parts = GuestParts(picture, self.rooms, self.preemption.guests)
        in_use = terms.limits_in_use if terms.limits_in_use is not None else _limits_in_use(picture)
        self.limits = Limits(terms, in_use)
        self._counts: dict[tuple[str, int, int, Preempts | None, tuple[int, ...]], int] = {}

    def matched(
        self,
        submitter: str,
        request: int,
        place: int,
        count: int,
        preempts: Preempts | None,
        leaving: tuple[int, ...] = (),
    ) -> None:
        key = (submitter, request, place, preempts, leaving)
        self._counts[key] = self._counts.get(key, 0) + count

    def matches(self) -> list[Match]:
        """The matches in the order in which they began; parts of one slot that went to one request are one match."""
        name = self.picture.name
        return [
            Match(submitter, request, name(place), some, preempts, tuple(map(name, leaving)) if leaving else ())
            for (submitter, request, place, preempts, leaving), count in self._counts.items()
            for some in ((count,) if count <= MOST_FOR_ONE_SLOT else _portions(count))
        ]


def _portions(count: int) -> list[int]:
    whole, rest = divmod(count, MOST_FOR_ONE_SLOT)
    return [MOST_FOR_ONE_SLOT] * whole + [rest] * bool(rest)


def _limits_in_use(picture: SlotIndex) -> dict[str, float]:
    """The limits of the claimed slots' jobs, by the slots' ads."""
    found: dict[str, float] = {}
    texts = picture.values("ConcurrencyLimits") if picture.vocabulary.holders["concurrencylimits"] else {}
    for text, slots in texts.items():
        for name, units in (parse_limits(text) or {}).items() if isinstance(text, str) else ():
            found[name] = found.get(name, 0.0) + units * slots
    return found


class _Wanted:
    """A request within a cycle."""

    __slots__ = ("held_back", "left", "limits", "matching", "request", "seen", "why")

    def __init__(self, request: ResourceRequest) -> None:
        self.request = request
        self.left = max(0, request.count)
        self.limits = parse_limits(_limits_text(request))
        self.seen = False
        self.held_back = False
        self.matching: Bits = 0
        self.why: tuple[UnmatchedReason, str] = (UnmatchedReason.SHARE, "")

    def run(self) -> tuple[float, int]:
        """The priority of its next job, and how many have it."""
        taken, priority = max(0, self.request.count) - self.left, 0.0
        for priority, count in self.request.runs:
            if taken < count:
                return priority, count - taken
            taken -= count
        return priority, self.left

    def refused(self, why: UnmatchedReason, limit: str = "") -> float | None:
        """Note why no more of it can be matched."""
        self.why = (why, limit)
        return None


def _limits_text(request: ResourceRequest) -> object:
    value = request.ad.eval("ConcurrencyLimits")
    return None if value is UNDEFINED else value


class _Submitter:
    """One submitter within a cycle: what it still wants, and what was found not to fit anywhere."""

    def __init__(self, name: str, requests: Sequence[ResourceRequest], whole: _Cycle, turns: SubmitterTurns) -> None:
        self._name = name
        self._whole = whole
        self._turns = turns
        self._all = [_Wanted(request) for request in requests]
        self._waiting = [wanted for wanted in reversed(self._all) if wanted.left]
        self._aside: list[_Wanted] = []
        self._walk: Candidates | None = None

    def key(self) -> _Key | None:
        """The place of its next job among those of its machine; None where it has none."""
        keys = [(-one.run()[0], one.request.oldest) for one in self._waiting or self._aside if one.left]
        return (*min(keys), self._name) if keys else None

    def _rotate(self) -> None:
        """Have the request tried next, which is the last of the stack, whose next job comes first."""
        keys = [(-one.run()[0], one.request.oldest, place) for place, one in enumerate(self._waiting)]
        place = min(keys)[-1]
        if place != len(self._waiting) - 1:
            self._waiting.append(self._waiting.pop(place))
            self._walk = None

    def match_up_to(self, weight: float, until: _Key | None = None) -> bool:
        """Match jobs up to a weight; whether there was any to be matched.

        Args:
            until: jobs are matched in the order of their priorities, and none that comes after this.
        """
        weight = min(weight, _BEYOND)
        spent, any_taken = 0.0, False
        if not self._waiting:
            self._waiting, self._aside = self._aside[::-1], []
        while self._waiting and (spent < weight or not any_taken):
            most = MOST_FOR_ONE_SLOT
            if until is not None:
                if any_taken and ((key := self.key()) is None or key > until):
                    break
                self._rotate()
                most = max(1, self._waiting[-1].run()[1])
            taken = self._match_once(self._waiting[-1], weight - spent, most)
            if taken is None:
                self._waiting.pop()
                self._walk = None
            else:
                spent += taken
                any_taken = True
        return any_taken

    def _match_once(self, wanted: _Wanted, weight_left: float, jobs: int) -> float | None:
        """Make one match for a request, of so many jobs at most: its weight, or None when there is none to be made."""
        whole = self._whole
        if not wanted.left:
            return None
        if wanted.limits is None:
            return wanted.refused(UnmatchedReason.MALFORMED)
        most = min(wanted.left, jobs, MOST_FOR_ONE_SLOT)
        if wanted.limits:
            room, binding = whole.limits.remaining(wanted.limits)
            if room < 1:
                return wanted.refused(UnmatchedReason.LIMIT, binding)
            most = int(min(most, room))
        if self._walk is None:
            self._walk = self._candidates(wanted)
        walk = self._walk
        if not walk.wish.sound:
            return wanted.refused(UnmatchedReason.MALFORMED)
        refused, rooms, allows, name = 0, whole.rooms, self._turns.allows, self._name
        while refused < _REFUSALS and (best := walk.best()) is not None:
            place, preempts, plan = best
            part = rooms.part(place, walk.wish) if plan is None else SlotShare(plan.wanted, plan.weight, 1)
            if part is None:
                walk.pass_over()
                continue
            holder = whole.preemption.holder(place) if preempts is not None else ""
            weight = part.weight
            if not allows(name, weight, preempting=preempts == "priority", holder=holder):
                refused += 1
                walk.pass_over()
                continue
            leaving: tuple[int, ...] = ()
            if plan is not None:
                count, leaving = 1, plan.leaving
                rooms.take_parts(place, leaving, plan.wanted)
                walk.pass_over()
            else:
                if most > 1 and part.fitting > 1:
                    most = min(most, self._most_jobs(part, preempts, weight_left, holder))
                else:
                    most = 1
                count = rooms.assign(place, walk.wish, part, most, walk.remainder)
            self._match(wanted, place, count, weight, preempts, holder, leaving)
            return weight * count
        if refused or wanted.held_back:
            self._aside.append(wanted)
            return wanted.refused(UnmatchedReason.SHARE)
        return wanted.refused(self._why_not(wanted))

    def _most_jobs(self, part: SlotShare, preempts: Preempts | None, weight_left: float, holder: str) -> int:
        """How many jobs one slot may be given at once, by weight; one at least."""
        bound = part.fitting
        if part.weight > 0:
            bound = min(bound, int(max(1.0, weight_left // part.weight)))
        most = 1
        allows, name, preempting = self._turns.allows, self._name, preempts == "priority"
        while most * 2 <= bound and allows(name, part.weight * most * 2, preempting=preempting, holder=holder):
            most *= 2
        return most

    def _match(
        self,
        wanted: _Wanted,
        place: int,
        count: int,
        each: float,
        preempts: Preempts | None,
        holder: str,
        leaving: tuple[int, ...],
    ) -> None:
        self._whole.matched(self._name, wanted.request.number, place, count, preempts, leaving)
        if wanted.limits:
            self._whole.limits.count_matches(wanted.limits, count)
        self._turns.charge(self._name, each * count, holder)
        wanted.left -= count

    def _candidates(self, wanted: _Wanted) -> Candidates:
        whole = self._whole
        by_priority = self._turns.allows(self._name, 0.0, preempting=True)
        walk = Candidates(
            self._name,
            wanted.request,
            whole.picture,
            whole.rooms,
            whole.preemption,
            whole.guest_parts,
            whole.terms,
            whole.now,
            by_priority,
        )
        wanted.held_back = not by_priority and bool(walk.matching & whole.preemption.slots_of_worse(self._name))
        wanted.seen, wanted.matching = True, walk.matching
        return walk

    def _why_not(self, wanted: _Wanted) -> UnmatchedReason:
        if not wanted.matching:
            return UnmatchedReason.NO_MACHINE
        if wanted.matching & self._whole.rooms.free:
            return UnmatchedReason.NO_GAIN if wanted.request.moving else UnmatchedReason.TAKEN
        return UnmatchedReason.CLAIMED

    # --- what is left

    def guests_leave_at(self) -> float | None:
        """When a guest will have had its minimum time whose machine one of the jobs left over could have."""
        whole, guests, times = self._whole, self._whole.preemption.guests, list[float]()
        for one in self._all:
            pair = whole.picture.pair(one.request.ad, whole.now)
            if one.left and one.seen and not one.request.moving and guests.takes(pair):
                found = (guests.leave_at(one.matching), whole.guest_parts.leave_at(wish_of(one.request.ad)))
                times += [at for at in found if at is not None]
        return min(times, default=None)

    def left(self) -> dict[int, int]:
        return {wanted.request.number: wanted.left for wanted in self._all if wanted.left}

    def rejections(self) -> dict[int, Rejection]:
        rooms = self._whole.rooms
        found: dict[int, Rejection] = {}
        for wanted in self._all:
            if wanted.left:
                why, limit = wanted.why
                bits = wanted.matching
                found[wanted.request.number] = Rejection(
                    why,
                    wanted.left,
                    bits.bit_count() if wanted.seen else None,
                    (bits & rooms.free).bit_count(),
                    (bits & rooms.claimed).bit_count(),
                    limit,
                )
        return found
