"""Rounds of several pools on the virtual clock: what goes wrong between pools, at random, and what must hold.

    python -m tests.chaos.flock --seed 1 --rounds 300

Each seed is a plan: pools that lend to each other or not, machines, jobs, clocks that differ by minutes, and troubles:
calls between two pools that are lost, unanswered, late, doubled and in another order; links that break, fall silent or
carry one way; heads, roles and machines that die. When all is over each job has ended once, no two copies ran at a
time, at every instant a program that ran was one that its schedd called running and its machine busy, and no
machine is left in anybody's hands.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import logging
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from pool.errors import PoolError
from pool.testing import run_virtual
from pool.testing.flock import SimFlock, head
from pool.testing.flock_status import FlockStatus
from pool.testing.keepers import Behaviour
from pool.testing.messages import CallFate, CallTrouble
from pool.wire import CannotConnect

#: Seconds of leases, quick ones; and until all is over long after the last fault.
LEASE, PATIENCE = 60.0, 20_000.0
SETTINGS = {
    "CLAIM_LEASE": f"{LEASE:g}",
    "UPDATE_INTERVAL": "30",
    "AD_LIFETIME": "100",
    "NEGOTIATION_INTERVAL": "60",
}
HEAD_PARTS = ("collector", "negotiator", "schedd", "world")
TROUBLES = ("calls", "calls", "calls", "cut", "silence", "one way", "loss", "slow", "clock", "role", "head", "machine")


class FlockRound:
    """One seed's plan, carried out.

    Attributes:
        broken: what did not hold, a line each.
        jobs: that were submitted. maybe: those whose submit was not answered.
        fates: of calls between pools. faults: of each kind.
    """

    def __init__(self, seed: int, directory: Path) -> None:
        self.chance = random.Random(f"flock {seed}")
        self.names = [f"pool{number}" for number in range(self.chance.randint(2, 4))]
        self.flock = SimFlock(self.names, seed, settings=SETTINGS, directory=directory)
        self.status = FlockStatus(self.flock)
        self.jobs: Counter[str] = Counter()
        self.maybe: Counter[str] = Counter()
        self.fates: Counter[CallFate] = Counter()
        self.faults: Counter[str] = Counter()
        self.broken: list[str] = []

    async def play(self) -> None:
        """From the first submit until all has ended."""
        chance, flock = self.chance, self.flock
        async with flock:
            least = self._agree()
            for name in self.names:
                flock.pool(name).wall_shift = chance.uniform(-600, 600)
                await flock.add_pool(name, chance.randint(least, 3), behave=lambda spec: self._behaviour())
            if not any(len(pool.nodes) > 1 for pool in flock.pools.values()):
                await flock.pool(self.names[0]).add(f"{self.names[0]}-m0", "startd")
            self.status.begin()
            await flock.settle(10)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._submit())
                if chance.random() < 0.5:  # hardly a call between pools is without trouble
                    for one, other in itertools.combinations(self.names, 2):
                        group.create_task(self._trouble_calls(one, other, chance.uniform(60, 400)))
                for _ in range(chance.randint(1, 10)):
                    group.create_task(self._trouble(chance.choice(TROUBLES), chance.uniform(0, 150)))
            flock.network.restore_links()
            await self._end()

    def _agree(self) -> int:
        """Everybody lends to everybody, or each to one; returns how many machines each pool has at least."""
        if self.chance.random() < 0.5:
            self.flock.agree_all()
            return 0
        for place, borrower in enumerate(self.names):
            lender = self.names[(place + 1) % len(self.names)]
            self.flock.agree(lender=lender, borrower=borrower)
        return 1

    def _behaviour(self) -> Behaviour:
        return Behaviour(self.chance.uniform(1, 120), saving=self.chance.choice((None, 1.0)))

    async def _submit(self) -> None:
        for _ in range(self.chance.randint(2, 10)):
            await self.flock.settle(self.chance.choice((0.0, self.chance.uniform(0, 60))))
            name, count = self.chance.choice(self.names), self.chance.randint(1, 5)
            try:
                await self.flock.submit(name, count=count, owner=self.chance.choice(("alice", "bob")))
                self.jobs[name] += count
            except CannotConnect:
                pass
            except PoolError:
                self.maybe[name] += count  # the answer was lost

    async def _trouble(self, kind: str, at: float) -> None:
        chance, flock = self.chance, self.flock
        await flock.settle(at)
        one, other = chance.sample(self.names, 2)
        seconds = chance.choice((chance.uniform(0.1, 10), LEASE * chance.uniform(0.8, 1.6), chance.uniform(10, 200)))
        self.faults[kind] += 1
        match kind:
            case "calls":
                await self._trouble_calls(one, other, seconds)
            case "cut" | "silence" | "one way":
                network = flock.network
                {"cut": network.cut, "silence": network.drop_silently, "one way": network.drop_one_way}[kind](
                    head(one), head(other)
                )
                await flock.settle(seconds)
                network.restore_links(head(one), head(other))
            case "loss":
                flock.network.loss = chance.uniform(0.001, 0.05)
                await flock.settle(seconds)
                flock.network.loss = 0.0
            case "slow":
                flock.network.slow_down(head(one), head(other), (0.01, chance.uniform(0.1, 5.0)))
                await flock.settle(seconds)
                flock.network.slow_down(head(one), head(other), flock.network.delay)
            case "clock":
                flock.pool(one).wall_shift += chance.uniform(-600, 600)
            case "role":
                role = chance.choice(HEAD_PARTS)
                if role in flock.pool(one).nodes[head(one)].running:
                    await flock.pool(one).restart_role(head(one), role)
            case "head":
                await self._kill(one, head(one), seconds)
            case _:
                machines = [name for name in flock.pool(one).nodes if name != head(one)]
                if machines:
                    await self._kill(one, chance.choice(machines), seconds)

    async def _trouble_calls(self, one: str, other: str, seconds: float) -> None:
        chance = self.chance
        lost, unanswered, late, doubled = (chance.choice((0.0, chance.uniform(0, 0.25))) for _ in range(4))
        seconds += 60.0  # some calls come by
        longest = chance.choice((0.05, 5.0, 90.0))
        trouble = CallTrouble(random.Random(chance.random()), lost, unanswered, late, doubled, longest)
        self.flock.network.trouble_calls(head(one), head(other), trouble)
        await self.flock.settle(seconds)
        self.flock.network.trouble_calls(head(one), head(other), None)
        self.fates += trouble.seen

    async def _kill(self, pool: str, node: str, seconds: float) -> None:
        if not self.flock.pool(pool).nodes[node].running:
            return
        await (self.flock.pool(pool).crash if self.chance.random() < 0.3 else self.flock.pool(pool).kill)(node)
        await self.flock.settle(seconds)
        if not self.flock.pool(pool).nodes[node].running:
            await self.flock.pool(pool).restart(node)

    async def _end(self) -> None:
        """All jobs end, each once; then all machines are free and nobody believes anything else."""
        flock = self.flock
        try:
            await flock.run_until(lambda: not flock.queued(), within=PATIENCE)
        except TimeoutError:
            left = {name: flock.queued(name) for name in self.names}
            self.broken.append(f"{left} jobs have not ended long after all faults were over")
            return
        for name in self.names:
            ended = await flock.pool(name).ended(head(name))
            if not self.jobs[name] <= len(ended) <= self.jobs[name] + self.maybe[name]:
                self.broken.append(f"{name}: {self.jobs[name]} jobs submitted, {len(ended)} ended")
            if wrong := [ad for ad in ended if ad.get("ExitCode") != 0]:
                self.broken.append(f"{name}: {len(wrong)} jobs ended without their exit code")
        await flock.settle(4 * LEASE)
        self._at_rest()
        self.broken += self.status.broken
        self.broken += [f"two copies of a job ran: {double}" for double in flock.witness.doubles]
        for pool in flock.pools.values():
            self.broken += [f"a role failed: {what!r}" for node in pool.nodes.values() for what in node.failures]

    def _at_rest(self) -> None:
        for name, pool in self.flock.pools.items():
            for node in pool.nodes.values():
                if "startd" in node.running and node.running["startd"].table.claims:  # type: ignore[attr-defined]
                    self.broken.append(f"{node.name} is claimed though no job is left")
            registry = pool.role(head(name), "collector")._registry
            for (kind, slot), entry in registry.entries.items():
                if kind == "Machine" and entry.ad.get("State") != "Unclaimed":
                    self.broken.append(f"{name} shows {slot} as {entry.ad.get('State')} though no job is left")
            world = pool.role(head(name), "world")
            lent = {other: world.lending.lent_to(other) for other in self.names if world.lending.lent_to(other)}
            if world.borrowing.lent() or lent or any(world.lending.waiting().values()):
                told = f"{world.borrowing.lent()}, {lent}, {world.lending.waiting()}"
                self.broken.append(f"the world of {name} still counts borrowed, lent and waiting: {told}")


def play(seed: int) -> FlockRound:
    """One round; what broke a rule is in its `broken`."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="poolnode-flock-chaos-", dir=place) as directory:
        played = FlockRound(seed, Path(directory))
        try:
            run_virtual(played.play())
        except Exception:
            played.broken.append(f"the round could not be played: {traceback.format_exc()}")
    return played


def main() -> int:
    """Play the rounds that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.flock", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="the first round's; the others count on from it")
    parser.add_argument("--rounds", type=int, default=100, help="how many")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    gc.set_threshold(100_000)
    began, broken = time.monotonic(), []
    fates: Counter[CallFate] = Counter()
    faults: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.rounds):
        played = play(seed)
        fates += played.fates
        faults += played.faults
        totals += Counter(jobs=played.jobs.total(), instants=played.status.instants)
        if played.broken:
            broken.append(seed)
            print(f"seed {seed}:", *played.broken, sep="\n    ", flush=True)
    for counter in (faults, fates):
        totals.update({str(what): count for what, count in counter.items()})
    counted = ", ".join(f"{count:,} {what}" for what, count in sorted(totals.items()))
    seconds = time.monotonic() - began
    print(f"{given.rounds} rounds in {seconds:.0f} s: {counted}; broken: {broken or 'none'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
