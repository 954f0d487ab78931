"""How long a negotiation cycle takes over a mixed pool (see `mixed_pool`), beside matching pair by pair.

A cycle is measured with everything it does: rank and priority preemption under an administrator's requirements, equal
turns of fifty submitters, reasons for what is left over. "First" is on a picture that was only just put together; "the
same again" has all its answers; "after 1 %" has had a hundredth of the slots and of the requests replaced. Garbage
is collected as in a node.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pool.classad import ClassAd, parse_expr, symmetric_match
from pool.policy.matching import SlotIndex
from pool.policy.negotiation import EqualTurns, NegotiationTerms, Outcome, ResourceRequest, cycle
from pool.roles.garbage import GarbageCollection
from tests.benchmarks.language import reference
from tests.benchmarks.mixed_pool import NOW, SUBMITTERS, MixedPool, Wire, submitter
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

REQUESTS = 1000
SMALL, LARGE = 10_000, 100_000
TERMS = NegotiationTerms(
    preemption_requirements=parse_expr(
        "(time() - EnteredCurrentState > 3600) && RemoteUserPrio > SubmitterUserPrio * 1.2"
    ),
    preemption_rank=parse_expr("-TARGET.ImageSize"),
    priorities={submitter(number): 1.0 + number for number in range(SUBMITTERS)},
)


@contextlib.contextmanager
def garbage_as_in_a_node() -> Iterator[None]:
    """Python's collection of garbage as a node has it: ads that stay are not looked at again in each cycle."""
    collection = GarbageCollection(time.process_time)
    try:
        yield
    finally:
        collection.close()


class Measured:
    """A pool of so many slots and ten times as many idle jobs, through its cycles."""

    def __init__(self, slots: int) -> None:
        gc.collect()
        self._before = resident()
        self.mixed = MixedPool(slots, REQUESTS, 10 * slots)
        self.slots = slots
        self.picture = SlotIndex()
        self.requests: dict[str, list[ResourceRequest]] = {}
        self.now = float(NOW)
        for number in range(slots):
            self._put(number)
        for number in range(REQUESTS):
            self._ask(number)

    def _put(self, number: int) -> None:
        name, wire = self.mixed.slot(number)
        self.picture.set_ad(name, ClassAd.from_wire(wire))

    def _ask(self, number: int) -> None:
        name, request = self.mixed.request(number)
        own = self.requests.setdefault(name, [])
        place = next((place for place, other in enumerate(own) if other.number == number), len(own))
        own[place : place + 1] = [request]

    def cycle(self) -> tuple[float, float, Outcome]:
        """One cycle: seconds by the clock, seconds of processor time, and what it came to."""
        oldest = {name: min(request.oldest for request in own) for name, own in self.requests.items()}
        turns = EqualTurns(dict.fromkeys(self.requests, 0.0), oldest, 2.0 * self.slots, self.slots / 2500)
        self.now += 20.0
        gc.collect()
        began, worked = time.perf_counter(), time.process_time()
        outcome = cycle(self.picture, self.requests, turns, TERMS, self.now)
        return time.perf_counter() - began, time.process_time() - worked, outcome

    def change(self) -> None:
        """Replace a hundredth of the slots and of the requests."""
        for number in range(0, self.slots, 100):
            self._put(number)
        for number in range(0, REQUESTS, 100):
            self._ask(number)

    def memory(self) -> float:
        """Gigabytes that all of this has added to the process."""
        return (resident() - self._before) / 1e9


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def measure(slots: int, goal: float, memory: float | None) -> list[Row]:
    pool = Measured(slots)
    first, first_work, outcome = pool.cycle()
    again, _, _ = pool.cycle()
    pool.change()
    changed, changed_work, _ = pool.cycle()
    jobs = sum(match.count for match in outcome.matches)
    what = f"{slots:,} slots, {REQUESTS:,} autoclusters, {10 * slots:,} idle jobs"
    rows = [
        Row(f"cycle: {what}: first", first, "s", Goal("at most", goal), note=f"{first_work:.1f} s of processor"),
        Row(f"cycle: {what}: the same again", again, "s", note=f"{jobs:,} jobs matched each time"),
        Row("the next cycle after 1 %, as many jobs to match", changed, "s", note=f"{changed_work:.1f} s of processor"),
    ]
    rows.append(steady(pool, outcome, goal / 10))
    if memory is not None:
        rows.append(Row(f"memory: {what}", pool.memory(), "GB", Goal("at most", memory)))
    return rows


def steady(pool: Measured, outcome: Outcome, goal: float) -> Row:
    """The next cycle when the first one's matches were taken up: its slots are claimed, its jobs run; then 1 % of all
    changes.
    """
    for match in outcome.matches:
        ad = pool.picture.ad(match.slot)
        if ad is not None and ad.value("PartitionableSlot") is not True:
            pool.picture.set_ad(match.slot, claimed(ad, match.submitter, pool.now))
        elif ad is not None:
            used = ad.copy()
            used["Cpus"] = 0
            pool.picture.set_ad(match.slot, used)
    left = outcome.unmatched
    pool.requests = {
        name: [replace(request, count=left.get(name, {}).get(request.number, 0)) for request in own]
        for name, own in pool.requests.items()
    }
    pool.cycle()
    pool.change()
    seconds, worked, after = pool.cycle()
    jobs = sum(match.count for match in after.matches)
    note = f"{jobs:,} jobs matched, {worked:.2f} s of processor"
    return Row("the next cycle after 1 %, the rest in use", seconds, "s", Goal("at most", goal), note=note)


def claimed(ad: ClassAd, user: str, now: float) -> ClassAd:
    ad = ad.copy()
    taken = {"State": "Claimed", "Activity": "Busy", "RemoteUser": user, "CurrentRank": 10.0, "JobStart": int(now)}
    ad.update(taken | {"EnteredCurrentState": int(now)})
    return ad


@benchmark("cycle")
async def small_cycle(effort: Effort) -> list[Row]:
    """A negotiation cycle over 10,000 slots, beside matching pair by pair here and in the reference engine."""
    slots = effort.of(SMALL, least=500)
    with garbage_as_in_a_node():
        rows = measure(slots, 2.0, None)
    return [*rows, *pairs()]


@benchmark("largecycle")
async def large_cycle(effort: Effort) -> list[Row]:
    """A negotiation cycle over 100,000 slots; two minutes."""
    with garbage_as_in_a_node():
        return measure(effort.of(LARGE, least=1000), 4.0, 0.5)


def pairs() -> list[Row]:
    """The cost of one pair where each is asked by itself: ours, and the reference's in its Python module."""
    mixed = MixedPool(400, 100, 100)
    slots = [mixed.slot(number)[1] for number in range(400)]
    requests = [mixed.request(number)[1].ad.to_wire() for number in range(40)]
    ours, expected = rate(
        [ClassAd.from_wire(wire) for wire in requests],
        [ClassAd.from_wire(wire) for wire in slots],
        lambda job, machine: symmetric_match(job, machine, NOW),
    )
    module = reference()
    if module is None:
        return [Row("pairs asked one by one", ours, "1/s")]
    theirs, found = rate(
        [in_reference(module, wire) for wire in requests],
        [in_reference(module, wire) for wire in slots],
        lambda job, machine: job.symmetricMatch(machine),
    )
    note = "" if found == expected else f"{expected} of ours match, {found} of theirs"
    return [Row("pairs asked one by one", ours, "1/s", None, "the reference's Python module", theirs, note)]


def rate(jobs: list[Any], machines: list[Any], ask: Any) -> tuple[float, int]:
    matching = 0
    began = time.perf_counter()
    for job in jobs:
        for machine in machines:
            matching += bool(ask(job, machine))
    return len(jobs) * len(machines) / (time.perf_counter() - began), matching


def in_reference(module: Any, wire: Wire) -> Any:
    ad = module.ClassAd()
    for name, value in wire.items():
        ad[name] = (
            module.ExprTree(value[0])
            if isinstance(value, list) and isinstance(value[0], str)
            else (value[0] if isinstance(value, list) else value)
        )
    return ad
