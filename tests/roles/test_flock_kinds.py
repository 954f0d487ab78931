"""Pools that show each other kinds of machines in place of machines, in virtual time, with the real roles."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pool.policy.flock.kinds import COUNT, MachineKinds
from pool.policy.flock.limits import ANY_MACHINE
from pool.roles.cooperative import WorkTurns
from pool.roles.world.offers import SHARE, Borrower
from pool.testing import run_virtual
from pool.testing.flock import SimFlock, head
from tests.roles.support import QUICK, lasting


@asynccontextmanager
async def summed_pools(seed: int, machines: int, *, seconds: float = 10.0) -> AsyncIterator[SimFlock]:
    """Physics, without a machine, borrows from chem, which shows it kinds only."""
    settings = {**QUICK, "FLOCK_LISTED_MACHINES": "0"}
    async with SimFlock(["physics", "chem"], seed, settings=settings) as flock:
        flock.agree(lender="chem", borrower="physics")
        await flock.add_pool("chem", machines, behave=lambda spec: lasting(seconds))
        await flock.add_pool("physics", 0)
        await flock.run_until(lambda: offered(flock) == machines, within=60)
        yield flock


def kinds(flock: SimFlock) -> list[dict[str, Any]]:
    """The ads of kinds at the borrower's collector."""
    entries = flock.pool("physics").role(head("physics"), "collector")._registry.entries
    return [entry.ad for (kind, name), entry in entries.items() if kind == "Machine" and name.startswith("like-")]


def offered(flock: SimFlock) -> int:
    return sum(ad.get(COUNT, 1) for ad in kinds(flock))


def test_jobs_run_on_machines_that_are_summed_up() -> None:
    """Twelve jobs on five machines: all run, five at a time, each once; and then all machines are there again."""

    async def work() -> None:
        async with summed_pools(1, 5) as flock:
            assert len(kinds(flock)) < 5
            began = flock.now()
            await flock.submit("physics", count=8)
            await flock.submit("physics", count=4, owner="bob")
            await flock.run_until(lambda: len(flock.witness.running) == 5, within=5)
            await flock.run_until(lambda: flock.queued() == 0, within=120)
            assert flock.now() - began < 60
            assert len(flock.runs_by_machine()) == 5
            await flock.run_until(lambda: offered(flock) == 5, within=60)
            flock.assert_sound()

    run_virtual(work())


def test_names_that_a_job_reads_divide_the_kinds() -> None:
    """A job asks for an attribute that no job has asked for before: its machines become a kind of their own."""

    async def work() -> None:
        settings = {**QUICK, "FLOCK_LISTED_MACHINES": "0"}
        async with SimFlock(["physics", "chem"], 2, settings=settings) as flock:
            flock.agree(lender="chem", borrower="physics")
            await flock.add_pool("chem", 3)
            special = {"STARTD_ATTRS": "CLAIM_LIFE", "CLAIM_LIFE": "7777"}
            await flock.pool("chem").add("chem-special", "startd", settings=special)
            await flock.add_pool("physics", 0)
            await flock.run_until(lambda: offered(flock) == 4, within=60)
            before = len(kinds(flock))
            await flock.submit("physics", ad={"Requirements": ["TARGET.CLAIM_LIFE =?= 7777"]})
            await flock.run_until(lambda: flock.queued() == 0, within=60)
            assert list(flock.runs_by_machine()) == ["chem-special"]
            assert len(kinds(flock)) > before
            flock.assert_sound()

    run_virtual(work())


def test_kinds_while_the_link_breaks_and_worlds_are_restarted() -> None:
    async def work() -> None:
        chance = random.Random(3)
        async with summed_pools(3, 4, seconds=20) as flock:
            await flock.submit("physics", count=20)
            for _ in range(4):
                await flock.settle(chance.uniform(1, 20))
                flock.network.cut(head("physics"), head("chem"))
                name = chance.choice(["physics", "chem"])
                await flock.pool(name).restart_role(head(name), "world")
                await flock.settle(chance.uniform(0, 3))
                flock.network.restore_links()
            await flock.run_until(lambda: flock.queued() == 0, within=5000)
            assert len(await flock.pool("physics").ended(head("physics"))) == 20
            flock.assert_sound()

    run_virtual(work())


def test_names_that_a_pool_tells_again_and_again_take_a_part_of_the_time() -> None:
    """Each division of the machines takes a second here. Other names than before count when twenty have passed."""

    async def work() -> None:
        loop, extra = asyncio.get_running_loop(), 0.0
        divided: list[float] = []

        def ad(slot: str, seconds: float) -> dict[str, Any]:
            return {"Name": slot, "Memory": 100, "a": seconds, "b": 2 * seconds, "Requirements": True}

        machines = {f"slot{number}": ad(f"slot{number}", number) for number in range(8)}
        nothing: Any = None
        turns = WorkTurns()
        borrower = Borrower("chem", nothing, machines, (), turns, clock=lambda: loop.time() + extra)

        async def looked() -> int:
            nonlocal extra
            borrower.wake.clear()
            items = await borrower.offers(
                lets_in=True, creditor=False, limits=ANY_MACHINE, lendable=lambda: machines, listed=0
            )
            return sum(ad is not None for _, ad in items)

        regroup = MachineKinds.regroup

        def slow(kinds: MachineKinds) -> Iterator[None]:
            nonlocal extra
            divided.append(loop.time() + extra)
            extra += 1.0
            yield from regroup(kinds)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MachineKinds, "regroup", slow)
            assert await looked() == 1  # one kind: nobody reads what differs
            borrower.refer(["a"])
            assert await looked() == 8  # at once
            for number in range(300):
                borrower.refer(["b", f"c{number}"] if number % 2 else [f"d{number}"])
                await looked()
                await asyncio.sleep(0.1)
            assert len(divided) == 2
            assert divided[1] - divided[0] >= SHARE
            borrower.refer(["b"])
            await looked()
            while len(divided) == 2:  # it is not forgotten, and nothing else wakes it
                await borrower.wake.wait()
                await looked()
            assert borrower.summed

    run_virtual(work())
