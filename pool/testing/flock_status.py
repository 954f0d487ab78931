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

Where nothing goes wrong, `exact` holds the flock to more:

3. Summed over the flock, jobs that run are busy machines at every instant, but for those whose start is being written
   down, or of which the call that tells the other side of a start or an end has no answer yet. Each is looked up by
   its claim.
4. Each pool's collector says whose jobs of other pools have machines there, and which of its own users have machines
   elsewhere. An ad is a message, too: `slowest_shown` is the longest time for which one was wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pool.policy.flock.shown import LENDER
from pool.policy.queue import QueuedJob
from pool.roles.world.relay import BETWEEN
from pool.testing.flock import SimFlock, head
from pool.testing.keepers import home_of

if TYPE_CHECKING:
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
        under_way: jobs that were on their way between the two at a time, at most.
        slowest_shown: seconds for which a collector was wrong about a machine across a border at most.
        most_shown: machines across a border that collectors showed at a time.
    """

    def __init__(self, flock: SimFlock) -> None:
        self._flock = flock
        self._since: dict[str, float] = {}
        self.broken: list[str] = []
        self.instants = self.equal = 0
        self.slowest = 0.0
        self.most_running = self.most_away = self.under_way = self.most_shown = 0
        self._exact = False
        self._shown_since: dict[tuple[str, str, str], float] = {}
        self.slowest_shown = 0.0

    def begin(self, every: float = 0.0, *, exact: bool = False) -> None:
        """Check from now on, on a `VirtualLoop`.

        Args:
            every: seconds between two checks of a large flock; 0 checks at each event.
            exact: nothing goes wrong, and all that differs must be under way.
        """
        self._exact = exact
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
        if self._exact:
            self._explain(by_schedd, busy)
            self._compare_collectors()
        self._time(by_schedd ^ busy)

    def _explain(self, by_schedd: set[str], busy: set[str]) -> None:
        """Jobs that run are busy machines, but for those whose start or end is under way."""
        differ = by_schedd ^ busy
        self.under_way = max(self.under_way, len(differ))
        if not differ:
            return
        known = {_plain_claim(claim) for claim in self._flock.network.under_way} | set(self._starting())
        claims = dict(self._claims())
        for job in differ:
            if known.isdisjoint(claims.get(job, ())):
                where = "its schedd says that it runs" if job in by_schedd else "its machine is busy"
                self._report(f"{job}: {where}, and nothing of it is under way")

    def _starting(self) -> Iterator[str]:
        """The claims of which a start is being written down, or is written down and has no answer yet."""
        for name in self._flock.pools:
            for claim in self._flock.pool(name).role(head(name), "schedd").context.claims.values():
                if claim.writing or (claim.job is not None and not claim.going):
                    yield _plain_claim(claim.id)

    def _claims(self) -> Iterator[tuple[str, set[str]]]:
        """Each job and its claims, by the word of schedds and of startds."""
        found: dict[str, set[str]] = {}
        for name, pool in self._flock.pools.items():
            for job in pool.role(head(name), "schedd").queue.jobs():
                if job.run is not None:
                    found.setdefault(f"{name}:{_number(job)}", set()).add(_plain_claim(job.run.id))
            for _, slot in self._slots(name):
                if slot.claim is not None and slot.claim.running is not None:
                    found.setdefault(_job_on(slot.claim, name), set()).add(slot.claim.id)
        yield from found.items()

    def _slots(self, name: str) -> Iterator[tuple[str, Any]]:
        """The claimed slots of a pool, by its startds, each with its machine."""
        for node in self._flock.pools[name].nodes.values():
            if "startd" in node.running:
                for slot in node.running["startd"].table.claims.values():  # type: ignore[attr-defined]
                    yield node.name, slot

    def _compare_collectors(self) -> None:
        """Compare the users of machines across a border, by the startds and by each side's collector."""
        real: set[tuple[str, str, str]] = set()
        for name in self._flock.pools:
            for machine, slot in self._slots(name):
                if slot.claim is not None and (home := home_of(slot.claim.owner, slot.claim.submitter)):
                    owner, place = slot.claim.owner.partition("@")[0], f"{slot.name}@{machine}@{name}"
                    real |= {(name, place, f"{owner}@{home}"), (home, place, f"{owner}@{home}")}
        shown: set[tuple[str, str, str]] = set()
        for name, pool in self._flock.pools.items():
            for (kind, slot), entry in pool.role(head(name), "collector")._registry.entries.items():
                ad = entry.ad
                if kind != "Machine" or ad.get("State") != "Claimed":
                    continue
                owner = str(ad.get("RemoteOwner"))
                if LENDER in ad:
                    shown.add((name, slot.rpartition("@")[0], f"{owner}@{name}"))
                elif "@" in owner:
                    shown.add((name, f"{slot}@{name}", owner))
        self.most_shown = max(self.most_shown, len(shown & real))
        now = asyncio.get_running_loop().time()
        for wrong in self._shown_since.keys() - (real ^ shown):
            self.slowest_shown = max(self.slowest_shown, now - self._shown_since.pop(wrong))
        for wrong in real ^ shown:
            self._shown_since.setdefault(wrong, now)

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
                    _job_on(slot.claim, name)
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


def _job_on(claim: Any, pool: str) -> str:
    """The job that runs on a claim of a pool's machine."""
    return f"{home_of(claim.owner, claim.submitter) or pool}:{_plain(claim.running.name)}"


def _plain_claim(number: str) -> str:
    """The id that the startd gave a claim: its schedd's has the way to it in front, where it is in another pool."""
    return number.split(BETWEEN, 2)[-1]


def _plain(name: str) -> str:
    """CLUSTER.PROC of a start's name."""
    return ".".join(name.split(".")[:2])
