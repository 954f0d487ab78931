"""Agreements that end or change while jobs run in the other pool, and a job that comes home (EV 5.3, 8)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pool.testing import run_virtual
from pool.testing.flock import SimFlock, head
from pool.testing.keepers import Behaviour
from tests.roles.support import QUICK, lasting

REMATCH = {"REMATCH": "true", "REMATCH_PAUSE": "30"}


async def administrator(flock: SimFlock, name: str) -> Any:
    return await flock.network.user("root", head(name), administer=True)


@pytest.mark.parametrize("side", ["chem", "physics"])
def test_leave_takes_the_machines_back_at_once(side: str) -> None:
    """Either side may: jobs are evicted within seconds, wait at home, and none goes there again."""

    async def work() -> None:
        async with SimFlock(["physics", "chem"], 1, settings=QUICK) as flock:
            flock.agree(lender="chem", borrower="physics")
            await flock.add_pool("chem", 2, behave=lambda spec: lasting(10_000))
            await flock.add_pool("physics", 0)
            await flock.submit("physics", count=3)
            await flock.run_until(lambda: flock.running("physics") == 2, within=60)
            other = "physics" if side == "chem" else "chem"
            began = flock.now()
            assert await (await administrator(flock, side)).call("world.leave", {"pool": other}, timeout=60)
            assert flock.now() - began < 5
            await flock.settle(2)
            assert (flock.running("physics"), flock.queued("physics")) == (0, 3)
            started = len(flock.witness.starts)
            await flock.settle(200)
            assert len(flock.witness.starts) == started == 2
            await flock.submit("chem")
            await flock.run_until(lambda: flock.running("chem") == 1, within=30)
            flock.assert_sound()

    run_virtual(work())


def test_leave_with_a_pool_that_hangs_takes_no_longer_than_its_patience() -> None:
    async def work() -> None:
        async with SimFlock(["physics", "chem"], 2, settings=QUICK) as flock:
            flock.agree(lender="chem", borrower="physics")
            await flock.add_pool("chem", 1, behave=lambda spec: lasting(10_000))
            await flock.add_pool("physics", 0)
            await flock.submit("physics")
            await flock.run_until(lambda: flock.running("physics") == 1, within=60)
            flock.network.drop_silently(head("physics"), head("chem"))
            began = flock.now()
            await (await administrator(flock, "physics")).call("world.leave", {"pool": "chem"}, timeout=60)
            assert flock.now() - began < 25
            await flock.run_until(lambda: flock.running("physics") == 0, within=200)
            assert flock.queued("physics") == 1
            flock.assert_sound()

    run_virtual(work())


def test_leave_is_done_to_the_end_though_nobody_waits_for_it() -> None:
    """The administrator's command is broken off while the jobs there have time to leave."""

    async def work() -> None:
        async with SimFlock(["physics", "chem"], 5, settings=QUICK) as flock:
            flock.agree(lender="chem", borrower="physics")
            await flock.add_pool("chem", 1, behave=lambda spec: lasting(10_000))
            await flock.add_pool("physics", 0)
            await flock.submit("physics")
            await flock.run_until(lambda: flock.running("physics") == 1, within=60)
            flock.network.drop_silently(head("physics"), head("chem"))
            link = await administrator(flock, "physics")
            leaving = asyncio.create_task(link.call("world.leave", {"pool": "chem"}, timeout=60))
            await flock.settle(0.5)
            leaving.cancel()
            await link.close()
            await flock.settle(25)
            world = flock.pool("physics").role(head("physics"), "world")
            assert (world._admitting_pools(), world._lenders) == ([], {})
            flock.assert_sound()

    run_virtual(work())


def test_a_certificate_that_is_damaged_hinders_no_other_pool_and_no_own_job() -> None:
    async def work() -> None:
        async with SimFlock(["physics", "chem", "bio"], 6, settings=QUICK) as flock:
            flock.agree(lender="chem", borrower="physics")
            flock.agree(lender="bio", borrower="physics")
            place = flock.pool("physics").state(head("physics")) / "flock"
            (place / "bio" / "node.crt").write_text("half a certific")
            await flock.add_pool("chem", 1)
            await flock.add_pool("physics", 1)
            await flock.submit("physics", count=4)
            await flock.run_until(lambda: flock.queued("physics") == 0, within=300)
            assert set(flock.runs_by_machine()) == {"chem-m0", "physics-m0"}
            asked = await (await administrator(flock, "physics")).call("world.status")
            trouble = {one["pool"]: one["trouble"] for one in asked["pools"]}
            assert trouble["chem"] == ""
            assert "bio" in trouble["bio"]
            flock.assert_sound()

    run_virtual(work())


def test_a_right_that_is_withdrawn_is_gone_for_jobs_that_have_not_begun(tmp_path: Path) -> None:
    """FLOCK_FILE is read again: fewer machines, none, other users, and all again."""
    rules = tmp_path / "flock.toml"

    async def work() -> None:
        async with SimFlock(["physics", "chem"], 3, settings=QUICK | {"UPDATE_INTERVAL": "5"}) as flock:
            rules.write_text("[physics]\nmachines = 2\n")
            flock.agree(lender="chem", borrower="physics")
            await flock.add_pool("chem", 3, behave=lambda spec: lasting(50), settings={"FLOCK_FILE": str(rules)})
            await flock.add_pool("physics", 0)
            await flock.submit("physics", count=12)
            world = flock.pool("chem").role(head("chem"), "world")
            for text, most in (("machines = 2", 2), ("machines = 1", 1), ("in = false", 0), ('users = ["bob"]', 0)):
                rules.write_text(f"[physics]\n{text}\n")
                world.reload(world.settings)
                await flock.settle(60)
                assert flock.running("physics") <= most, text
            rules.write_text("")
            world.reload(world.settings)
            await flock.run_until(lambda: flock.running("physics") == 3, within=120)
            await flock.run_until(lambda: flock.queued() == 0, within=2000)
            assert len(flock.witness.starts) == 12, "nobody was evicted"
            flock.assert_sound()

    run_virtual(work())


def test_a_job_comes_home_with_its_checkpoint(tmp_path: Path) -> None:
    """Its Rank likes its own pool better; when its machine there is free it moves, and goes on from where it was."""

    async def work() -> None:
        async with SimFlock(["physics", "chem"], 4, settings=QUICK | REMATCH, directory=tmp_path) as flock:
            flock.agree(lender="chem", borrower="physics")
            length = {"physics:1.0": 100.0, "physics:2.0": 400.0}
            await flock.add_pool("chem", 1)
            await flock.add_pool("physics", 1)
            for pool in flock.pools.values():
                for node in pool.nodes.values():
                    node.machine.behave = lambda spec: Behaviour(
                        length.get(f"physics:{spec.id.rpartition('.')[0]}", 400.0), 0, saving=1.0
                    )
            await flock.submit("physics", ad={"WantFlock": False})
            await flock.run_until(lambda: flock.running("physics") == 1, within=30)
            await flock.submit("physics", ad={"Rank": ["FlockPool =?= undefined ? 10 : 0"], "WantCheckpoint": True})
            await flock.run_until(lambda: flock.running("physics") == 2, within=30)
            began = flock.now()
            await flock.run_until(lambda: flock.queued() == 0, within=3000)
            machines = [machine for job, machine, _ in flock.witness.starts if job == "physics:2.0"]
            assert machines == ["chem-m0", "physics-m0"]
            assert flock.now() - began < 410, "the 400 s of the program, and a move"
            flock.assert_sound()

    run_virtual(work())
