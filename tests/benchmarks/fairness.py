"""How long a light user waits while a heavy one's queue is always full: the experiment behind the up-down algorithm.

The whole pool is simulated on a virtual clock (`pool.testing`): real negotiator, schedds and startds, machines that do
not exist. The heavy user keeps as many jobs in the queue as a multiple of what the pool can run at once; the light user
comes with a few jobs now and then, at the same moments whatever the heavy one does. Beside each policy stands the naive
peer, first come, first served: the same jobs through a plain queue, worked out by a model of it. It measures no real
time: every run gives the same figures.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import statistics
from collections import deque
from dataclasses import dataclass

from pool.starter.spec import KeeperSpec
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

POLICIES = ("updown", "fairshare", "equal")
#: The heavy user's jobs in the queue, in multiples of what the pool runs at once.
LOADS = (1, 2, 5, 20)
#: The bound of the light user's wait, in multiples of that beside the least load.
MOST_GROWTH = 1.2
#: Seconds between two looks of the heavy user at the queue.
LOOK = 2.0
#: Times of policies are a tenth of the usual ones, as those of jobs are: what a node tells every minute is the smaller
#: part of the work then. Everything that only keeps a pool alive is rare: nothing fails here.
SETTINGS = {
    "CLAIM_LIFE": "120",
    "PRIORITY_INTERVAL": "30",
    "PRIORITY_HALF_LIFE": "8640",
    "NEGOTIATION_INTERVAL": "30",
    "CLAIM_LEASE": "100000",
    "CLAIM_LEASE_MAX": "100000",
    "UPDATE_INTERVAL": "3600",
    "AD_LIFETIME": "14400",
    "EVALUATE_INTERVAL": "3600",
    "PERIODIC_INTERVAL": "3600",
}


@dataclass(frozen=True)
class Experiment:
    """One set-up; times in seconds.

    Attributes:
        shortest, longest: a job takes something between the two.
        warm: how long the heavy user is alone before waits count.
        lasts: how long after that the light user goes on submitting.
        pause: mean time between two submits of the light user's.
        few: the light user's jobs in one submit, at most.
    """

    slots: int = 5
    shortest: float = 30.0
    longest: float = 90.0
    warm: float = 400.0
    lasts: float = 3600.0
    pause: float = 180.0
    few: int = 3

    def arrivals(self) -> list[tuple[float, int]]:
        """When the light user submits, and how many jobs."""
        chance = random.Random(7)
        found, now = [], self.warm
        while (now := now + chance.expovariate(1 / self.pause)) < self.warm + self.lasts:
            found.append((now, chance.randint(1, self.few)))
        return found

    def lengths(self) -> random.Random:
        """Where the lengths of jobs come from."""
        return random.Random(11)

    def length(self, chance: random.Random) -> float:
        """How long the next job takes."""
        return chance.uniform(self.shortest, self.longest)


@dataclass(frozen=True)
class Waits:
    """The light user's waiting times, from the submit to the start, seconds."""

    all: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.all)

    @property
    def most(self) -> float:
        """The longest wait of 95 % of the jobs."""
        return sorted(self.all)[max(0, round(0.95 * len(self.all)) - 1)]


def simulated(experiment: Experiment, policy: str, load: int, settings: dict[str, str] | None = None) -> Waits:
    """The experiment in a simulated pool."""
    return run_virtual(_simulated(experiment, load, {**SETTINGS, "PRIORITY_POLICY": policy, **(settings or {})}))


async def _simulated(experiment: Experiment, load: int, settings: dict[str, str]) -> Waits:
    loop = asyncio.get_running_loop()
    chance = experiment.lengths()

    def behave(spec: KeeperSpec) -> Behaviour:
        return Behaviour(experiment.length(chance))

    async with SimPool(5, settings=settings) as pool:
        await pool.add("head", "collector,negotiator,schedd")
        await pool.add("machine", "startd", behave=behave, settings={"SLOTS": str(experiment.slots)})
        await asyncio.sleep(1)
        queue = pool.role("head", "schedd").queue
        began = loop.time()
        submitted: dict[str, float] = {}

        async def heavy() -> None:
            while True:
                missing = load * experiment.slots - queue.count("heavy", 1, 2)
                if missing > 0:
                    await pool.submit("head", count=missing, owner="heavy")
                await asyncio.sleep(LOOK)

        async def light() -> None:
            for when, jobs in experiment.arrivals():
                await asyncio.sleep(began + when - loop.time())
                cluster = await pool.submit("head", count=jobs, owner="light")
                submitted.update((f"{cluster}.{number}", loop.time()) for number in range(jobs))

        crowd = asyncio.create_task(heavy())
        await light()
        await pool.run_until(lambda: not queue.count("light", 1), within=30 * 86400.0)
        crowd.cancel()
        pool.assert_sound()
        return Waits(tuple(at - submitted[job] for job, _, at in pool.witness.starts if job in submitted))


def first_come_first_served(experiment: Experiment, load: int) -> Waits:
    """The same jobs through a plain queue: whoever came first takes the next free slot."""
    chance = experiment.lengths()
    waits: list[float] = []
    queue: deque[tuple[float, bool]] = deque()
    ends: list[tuple[float, bool]] = []
    arrivals = deque(experiment.arrivals())
    heavy = free = 0
    free = experiment.slots
    now = look = 0.0
    while arrivals or any(light for _, light in queue):
        now = min([look, *(when for when, _ in list(arrivals)[:1]), *(when for when, _ in ends[:1])])
        while ends and ends[0][0] <= now:
            heavy -= not heapq.heappop(ends)[1]
            free += 1
        while arrivals and arrivals[0][0] <= now:
            queue.extend([(now, True)] * arrivals.popleft()[1])
        if look <= now:
            look = now + LOOK
            queue.extend([(now, False)] * (load * experiment.slots - heavy))
            heavy = load * experiment.slots
        while free and queue:
            since, light = queue.popleft()
            if light:
                waits.append(now - since)
            heapq.heappush(ends, (now + experiment.length(chance), light))
            free -= 1
    return Waits(tuple(waits))


@benchmark("fairness")
async def fairness(effort: Effort) -> list[Row]:
    """A light user's waiting time beside a heavy user with 1, 2, 5, 20 times the pool's capacity queued, by policy."""
    whole = Experiment()
    experiment = Experiment(lasts=effort.of(int(whole.lasts), least=1800))
    naive = {load: first_come_first_served(experiment, load) for load in LOADS}
    rows = []
    for policy in POLICIES:
        least: Waits | None = None
        for load in LOADS:
            # On a loop of its own, which is virtual.
            waits = await asyncio.to_thread(simulated, experiment, policy, load)
            least = least or waits
            said = f"{policy}, heavy user {load} x"
            for which, ours, theirs, first in (
                ("mean", waits.mean, naive[load].mean, least.mean),
                ("95 %", waits.most, naive[load].most, least.most),
            ):
                # Equal turns remember nothing and promise an equal share only, not that light users go first.
                held_to = load > LOADS[0] and policy != "equal"
                goal = Goal("at most", round(first * MOST_GROWTH, 1)) if held_to else None
                note = f"{len(waits.all)} jobs" if which == "mean" else ""
                rows.append(Row(f"wait, {which}: {said}", ours, "s", goal, "first come, first served", theirs, note))
    return rows
