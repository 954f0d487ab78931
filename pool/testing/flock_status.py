"""The status of a flock at every instant: jobs that run, by their schedds, are busy machines (EV 8; F6).

    status = FlockStatus(flock)
    status.begin()        # from now on at each event of the clock
    ...
    assert status.broken == []

A schedd writes a start down before it orders it, and an end before it confirms it. So at every instant, whatever is
lost between pools:

1. A program that runs is one of a job that its schedd says runs.
2. A program that runs is on a busy slot, and no slot has two.

A job that runs by its schedd and has no busy slot, or a busy slot whose job runs no more by its schedd, is one whose
start or end is under way between the two. Two nodes that are a message apart cannot agree sooner, so this is measured:
`slowest` tells for how long it was so at most, `equal` at how many instants the sums were the same.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pool.policy.queue import QueuedJob
from pool.testing.keepers import home_of

if TYPE_CHECKING:
    from pool.testing.flock import SimFlock
    from pool.testing.loop import VirtualLoop

#: Faults that are kept in words.
MOST_BROKEN = 20


class FlockStatus:
    """Looks at all pools of a flock whenever all that happens at one time has happened.

    Attributes:
        broken: what did not hold, a line each.
        instants: how often it looked. equal: how often jobs that ran were busy machines, summed over the flock.
        slowest: seconds that a start or an end was under way at most.
        most_running, most_away: jobs that ran at a time, and those of them in a pool that is not theirs.
    """

    def __init__(self, flock: SimFlock) -> None:
        self._flock = flock
        self._since: dict[str, float] = {}
        self.broken: list[str] = []
        self.instants = self.equal = 0
        self.slowest = 0.0
        self.most_running = self.most_away = 0

    def begin(self, every: float = 0.0) -> None:
        """Check from now on, on a `VirtualLoop`.

        Args:
            every: seconds between two checks of a large flock; 0 checks at each event.
        """
        loop: VirtualLoop = asyncio.get_running_loop()  # type: ignore[assignment]
        next_ = loop.time()

        def check() -> None:
            nonlocal next_
            if loop.time() >= next_:
                next_ = loop.time() + every
                self.check_instant()

        loop.watch = check

    def check_instant(self) -> None:
        """Hold the flock to the rules now."""
        self.instants += 1
        programs = self._flock.witness.running
        by_schedd, down = self._by_schedd()
        self._compare_programs(programs, by_schedd, down)
        busy = self._busy_slots(programs)
        self.equal += by_schedd == busy
        self._time(by_schedd ^ busy)

    def _by_schedd(self) -> tuple[set[str], set[str]]:
        """The jobs that have a machine by the word of their schedds, and the pools whose schedd is down."""
        found, down = set(), set()
        for name, pool in self._flock.pools.items():
            schedd = next((node.running["schedd"] for node in pool.nodes.values() if "schedd" in node.running), None)
            if schedd is None:
                down.add(name)
                continue
            found |= {f"{name}:{_number(job)}" for job in schedd.queue.jobs() if job.status.has_machine}  # type: ignore[attr-defined]
        return found, down

    def _compare_programs(self, programs: dict[str, str], by_schedd: set[str], down: set[str]) -> None:
        away = 0
        for job, machine in programs.items():
            pool = job.partition(":")[0]
            away += not machine.startswith(f"{pool}-")
            if job not in by_schedd and pool not in down:
                self._report(f"{job} runs on {machine}, and its schedd does not say so")
        self.most_running = max(self.most_running, len(programs))
        self.most_away = max(self.most_away, away)

    def _busy_slots(self, programs: dict[str, str]) -> set[str]:
        """The jobs on slots, by the word of their startds; where one is down, the programs on its machine."""
        found = set()
        for name, pool in self._flock.pools.items():
            for node in pool.nodes.values():
                here = {job for job, machine in programs.items() if machine == node.name}
                if "startd" not in node.running:
                    found |= here
                    continue
                slots = node.running["startd"].table.claims.values()  # type: ignore[attr-defined]
                busy = {
                    f"{home_of(slot.claim.owner, slot.claim.submitter) or name}:{_plain(slot.claim.running.name)}"
                    for slot in slots
                    if slot.claim is not None and slot.claim.running is not None
                }
                if not here <= busy:
                    self._report(f"{sorted(here)} run on {node.name}, whose busy slots have {sorted(busy)}")
                found |= busy
        return found

    def _time(self, under_way: set[str]) -> None:
        now = asyncio.get_running_loop().time()
        for job in self._since.keys() - under_way:
            self.slowest = max(self.slowest, now - self._since.pop(job))
        for job in under_way:
            self._since.setdefault(job, now)

    def _report(self, what: str) -> None:
        if len(self.broken) < MOST_BROKEN:
            self.broken.append(f"{asyncio.get_running_loop().time():.6f} s: {what}")


def _number(job: QueuedJob) -> str:
    return f"{job.cluster.id}.{job.proc}"


def _plain(name: str) -> str:
    """CLUSTER.PROC of a start's name."""
    return ".".join(name.split(".")[:2])
