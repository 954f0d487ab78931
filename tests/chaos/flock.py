"""Rounds of several pools on the virtual clock: what goes wrong between pools, at random, and what must hold.

    python -m tests.chaos.flock --seed 1 --rounds 300

Each seed is a plan: pools that lend to each other or not, machines, jobs, clocks that differ by minutes, and troubles:
calls between two pools that are lost, unanswered, late, doubled and in another order; links that break, fall silent or
carry one way; heads, roles and machines that die, at any time or at a step of a start in another pool. In some rounds
machines are lent with credit, and in some users have accounts in several pools and let their jobs run in all.

When all is over each job has ended once, no two copies ran at a time, at every instant a program that ran was one that
its schedd called running and its machine busy, and no machine is left in anybody's hands. With credit no balance was
beyond the bound at any time, and the ledgers of each two pools have the same entries, both signed.
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
from typing import Any

from pool.errors import PoolError
from pool.policy.flock.ledger import UNIT, CreditTerms
from pool.roles.world.private_lending import guests_of
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
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
#: Calls of a start in another pool from the request to the end, of credit and of private flocks: nodes die at them.
STEPS = (
    *("world.claim", "world_jobs.matched", "startd.matched", "startd.claim", "world.pass_call", "startd.activate"),
    *(
        "schedd.matched",
        "world_back.pass_back",
        "schedd.ended",
        "startd.release",
        "startd.renew",
        "startd.end_after_job",
    ),
    *("startd.take_back", "world_back.credit", "world_private.matched", "world_door.wish", "world_jobs.requests"),
)
#: Seconds between two looks at the balances. A debt may be so far beyond its bound: a part, and machine-seconds.
LOOK, BEYOND, SLACK = 5.0, 1.01, 5.0
TROUBLES = ("calls", "calls", "calls", "cut", "silence", "one way", "loss", "slow", "clock", "role", "head", "machine")


class FlockRound:
    """One seed's plan, carried out.

    Attributes:
        broken: what did not hold, a line each.
        jobs: that were submitted. maybe: those whose submit was not answered.
        fates: of calls between pools. faults: of each kind.
        seen: entries in ledgers, jobs with other pools, nodes that died at a step.
    """

    def __init__(self, seed: int, directory: Path) -> None:
        self.chance = random.Random(f"flock {seed}")
        self.more = random.Random(f"credit {seed}")
        self.bound: float | None = self.more.choice((None, 60.0, 1000.0, 1e6))
        self.private = self.more.random() < 0.5
        self.seen: Counter[str] = Counter()
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
            await self._agree_on_credit()
            await self._join()
            await flock.settle(10)
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch_balances())
                group.create_task(self._make_troubles(watching))
            flock.network.restore_links()
            await self._end()

    async def _make_troubles(self, watching: asyncio.Task[None]) -> None:
        chance = self.chance
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._submit())
                for _ in range(self.more.randint(0, 3)):
                    self._die_at_step(group)
                if chance.random() < 0.5:  # hardly a call between pools is without trouble
                    for one, other in itertools.combinations(self.names, 2):
                        group.create_task(self._trouble_calls(one, other, chance.uniform(60, 400)))
                for _ in range(chance.randint(1, 10)):
                    group.create_task(self._trouble(chance.choice(TROUBLES), chance.uniform(0, 150)))
        finally:
            watching.cancel()
            for pool in self.flock.pools.values():
                pool.traps.waiting.clear()

    async def _agree_on_credit(self) -> None:
        if self.bound is None:
            return
        for one, other in itertools.permutations(self.names, 2):
            await self._book(one).agree(other, CreditTerms(True, self.bound))

    def _book(self, pool: str) -> Any:
        return self.flock.pool(pool).role(head(pool), "world").credit

    async def _join(self) -> None:
        """Users have accounts in other pools."""
        for home, other in itertools.permutations(self.names, 2) if self.private else ():
            for user in ("alice", "bob"):
                if self.more.random() < 0.7:
                    link = await self.flock.network.user(user, head(home))
                    await link.call("world.join", {"pool": other, "token": f"{user}@{head(other)}"})
                    await link.close()

    async def _watch_balances(self) -> None:
        while self.bound is not None:
            await self.flock.settle(LOOK)
            for name in self.names:
                if "world" not in self.flock.pool(name).nodes[head(name)].running:
                    continue
                for other in self._book(name).partners:
                    balance = self._book(name).balance(other)
                    if abs(balance) > BEYOND * self.bound + SLACK and len(self.broken) < 5:
                        self.broken.append(f"{other} owes {name} {balance:.1f} s, and the bound is {self.bound:g}")

    def _die_at_step(self, group: asyncio.TaskGroup) -> None:
        """A node dies before or after a call of a pool is served, and comes back."""
        more, flock = self.more, self.flock
        pool, victim = more.choice(self.names), more.choice(self.names)
        node = head(victim) if more.random() < 0.7 else more.choice(list(flock.pool(victim).nodes))
        seconds = more.choice((0.5, more.uniform(1, 100)))

        async def die() -> None:
            if flock.pool(victim).nodes[node].running:
                self.seen["nodes that died at a step"] += 1
                await flock.pool(victim).kill(node)
                group.create_task(self._start_again(victim, node, seconds))

        flock.pool(pool).run_at(more.choice(STEPS), more.choice(list(TrapPhase)), die, count=more.randint(1, 6))

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
            ad = {}
            if self.private and self.more.random() < 0.6:
                others = [other for other in self.names if other != name]
                ad = {"FlockAlso": ",".join(self.more.sample(others, self.more.randint(1, len(others))))}
                self.seen["jobs with other pools"] += count
            try:
                await self.flock.submit(name, count=count, owner=self.chance.choice(("alice", "bob")), ad=ad)
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
        await self._start_again(pool, node, seconds)

    async def _start_again(self, pool: str, node: str, seconds: float) -> None:
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
        self._compare_ledgers()
        self.broken += self.status.broken
        self.broken += [f"two copies of a job ran: {double}" for double in flock.witness.doubles]
        for pool in flock.pools.values():
            self.broken += [f"a role failed: {what!r}" for node in pool.nodes.values() for what in node.failures]

    def _compare_ledgers(self) -> None:
        """Each two pools have the same entries, and no more time in them than machines were claimed."""
        for one, other in itertools.combinations(self.names if self.bound is not None else (), 2):
            books = self._book(one), self._book(other)
            ledgers = [
                {signed.entry: signed for signed in book.partners[pool].ledger} if pool in book.partners else {}
                for book, pool in zip(books, (other, one), strict=True)
            ]
            self.seen["entries in ledgers"] += len(ledgers[0])
            if ledgers[0] != ledgers[1]:
                self.broken.append(f"the ledgers of {one} and {other} differ: {len(ledgers[0])}, {len(ledgers[1])}")
            balances = books[0].balance(other), books[1].balance(one)
            if balances[0] != -balances[1]:
                self.broken.append(f"the balances of {one} and {other} are {balances}")
        for name in self.names if self.bound is not None else ():
            left = [use for use in self._book(name).measures.uses.values() if not use.closed]
            if left:
                self.broken.append(f"{name} still counts {left}")
            machines = sum(node.name != head(name) for node in self.flock.pool(name).nodes.values())
            time = sum(
                signed.entry.amount
                for partner in self._book(name).partners.values()
                for signed in partner.ledger
                if signed.entry.lender == self._book(name)._key.public
            )
            if time / UNIT > machines * self.flock.now():
                self.broken.append(f"{name} has lent more machine time than there was: {time / UNIT:.0f} s")

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
            private = [*world.private_borrowing.shown(), *guests_of(world.private_lending)]
            if left := [one for one in private if one["running"] or one["waiting"]]:
                self.broken.append(f"the private flocks of {name} still have jobs: {left}")


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
        totals += Counter(jobs=played.jobs.total(), instants=played.status.instants) + played.seen
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
