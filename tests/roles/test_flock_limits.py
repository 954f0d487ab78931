"""The limits of an agreement hold in each moment, however a pool's requests come and whenever the limits change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pool.testing import run_virtual
from pool.testing.flock import SimFlock, head
from pool.wire import Connection, RemoteError
from tests.roles.support import QUICK, lasting
from tests.roles.test_flock_enemies import REQUEST, as_physics


@asynccontextmanager
async def lending(rules: Path, seed: int, machines: int) -> AsyncIterator[SimFlock]:
    """Chem lends its machines to physics, by these rules, its flock's file."""
    async with SimFlock(["physics", "chem"], seed, settings=QUICK) as flock:
        flock.agree(lender="chem", borrower="physics")
        chem = {"FLOCK_FILE": str(rules)}
        await flock.add_pool("chem", machines, behave=lambda spec: lasting(10_000), settings=chem)
        await flock.add_pool("physics", 0)
        await flock.run_until(lambda: len(flock.machines_shown("chem")) == machines, within=60)
        yield flock
        flock.assert_sound()


async def claimed(link: Connection, count: int) -> list[Any]:
    try:
        answer = await link.call("world.claim", {**REQUEST, "count": count}, timeout=60)
    except RemoteError:
        return []
    return list(answer["claims"])


def test_requests_in_quick_succession_get_no_more_machines_than_agreed(tmp_path: Path) -> None:
    """While a startd is asked for the slots of one request, these count, too."""

    rules = tmp_path / "rules"
    rules.write_text("[physics]\nmachines = 2\n")

    async def work() -> None:
        async with lending(rules, 1, machines=8) as flock:
            link = await as_physics(flock)
            asked = []
            for _ in range(400):
                asked.append(asyncio.create_task(claimed(link, 2)))
                await asyncio.sleep(0.001)
            claims = [claim for answer in await asyncio.gather(*asked) for claim in answer]
            assert len(claims) == 2

    run_virtual(work())


def test_a_request_that_waits_gets_nothing_once_the_agreement_gives_nothing(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("")

    async def work() -> None:
        async with lending(rules, 2, machines=1) as flock:
            link = await as_physics(flock)
            (first,) = await claimed(link, 1)
            waiting = asyncio.create_task(claimed(link, 1))
            await flock.settle(1)
            world: Any = flock.pool("chem").role(head("chem"), "world")
            assert world.lending.waiting() == {"physics": 1}
            rules.write_text('[physics]\nusers = ["alice"]\n')
            world.reload(world.settings)
            passed = {"schedd": REQUEST["schedd"], "startd": first["startd"], "verb": "release"}
            await link.call("world.pass_call", {**passed, "params": {"claims": [first["claim"]]}})
            assert await waiting == []

    run_virtual(work())


def test_no_job_follows_where_the_rules_changed_while_the_world_was_not_up(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("")

    async def work() -> None:
        async with SimFlock(["physics", "chem"], 3, settings=QUICK, directory=tmp_path) as flock:
            flock.agree(lender="chem", borrower="physics")
            chem = {"FLOCK_FILE": str(rules)}
            await flock.add_pool("chem", 2, behave=lambda spec: lasting(100), settings=chem)
            await flock.add_pool("physics", 0)
            await flock.submit("physics", count=9)
            await flock.run_until(lambda: flock.running("physics") == 2, within=60)
            rules.write_text("[physics]\nmachines = 1\n")
            await flock.pool("chem").crash(head("chem"))
            await flock.pool("chem").restart(head("chem"))
            await flock.settle(150)
            for _ in range(100):
                await flock.settle(1)
                assert flock.running("physics") <= 1
            await flock.run_until(lambda: flock.queued() == 0, within=2000)
            flock.assert_sound()

    run_virtual(work())
