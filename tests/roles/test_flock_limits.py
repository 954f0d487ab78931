"""The limits of an agreement hold in each moment, however a pool's requests come and whenever the limits change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pool.testing import run_virtual
from pool.testing.flock import SimFlock, head
from pool.wire import Connection, RemoteError
from tests.roles.support import QUICK, lasting
from tests.roles.test_flock_enemies import REQUEST, as_physics
from tests.roles.test_flock_status import why


@asynccontextmanager
async def lending(rules: Path, seed: int, machines: int, **settings: str) -> AsyncIterator[SimFlock]:
    """Chem lends its machines to physics, by these rules, its flock's file."""
    async with SimFlock(["physics", "chem"], seed, settings=QUICK | settings) as flock:
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


def test_only_machines_of_the_agreed_kinds_are_shown_and_lent(tmp_path: Path) -> None:
    """They hold for each request of the other pool; if the file changes, the new ones hold."""
    rules = tmp_path / "rules"
    rules.write_text("[physics]\nkinds = 'Machine == \"chem-m1\"'\n")

    async def work() -> None:
        async with lending(rules, 4, machines=3) as flock:
            await flock.run_until(lambda: len(flock.machines_shown("physics")) == 1, within=60)
            assert flock.machines_shown("physics") == ["slot1@chem-m1@chem@physics-head"]
            link = await as_physics(flock)
            claims = await asyncio.gather(*(claimed(link, 1) for _ in range(3)))
            assert [claim["slot"] for answer in claims for claim in answer] == ["slot1@chem-m1"]
            rules.write_text("[physics]\nkinds = 'Machine != \"chem-m1\"'\n")
            world: Any = flock.pool("chem").role(head("chem"), "world")
            world.reload(world.settings)
            await flock.run_until(lambda: len(flock.machines_shown("physics")) == 2, within=60)
            claims = await asyncio.gather(*(claimed(link, 1) for _ in range(3)))
            assert {claim["slot"] for answer in claims for claim in answer} == {"slot1@chem-m0", "slot1@chem-m2"}

    run_virtual(work())


def test_jobs_of_another_pool_begin_in_the_agreed_hours_only(tmp_path: Path) -> None:
    """And `why` there says from when on; one that runs may end, and none follows."""
    rules = tmp_path / "rules"
    rules.write_text("")

    async def work() -> None:
        async with lending(rules, 5, machines=1) as flock:
            chem = flock.pool("chem")
            chem.nodes["chem-m0"].machine.behave = lambda spec: lasting(1000)
            now = datetime.fromtimestamp(chem.wall(), UTC).astimezone()
            opens, closes = (f"{now + timedelta(hours=hours):%H:%M}" for hours in (2, 4))
            rules.write_text(f"[physics]\nhours = '{opens}-{closes}'\n")
            world: Any = chem.role(head("chem"), "world")
            world.reload(world.settings)
            await flock.submit("physics", count=20)
            await flock.run_until(lambda: len(flock.machines_shown("physics")) == 1, within=60)
            began = flock.now()
            await flock.settle(60)
            asked = await flock.network.user("alice", head("physics"))
            (pool,) = await why(asked, 1)
            assert (pool["idle"], pool["fit"], pool["opens"]) == (1, 0, opens)
            await flock.run_until(lambda: flock.running("physics") == 1, within=4 * 3600)
            assert 7200 - 120 <= flock.now() - began <= 7200 + 900
            await flock.run_until(lambda: flock.running("physics") == 0, within=4 * 3600)
            assert flock.now() - began <= 4 * 3600 + 1000 + 900
            assert flock.now() - began >= 4 * 3600 - 120
            done = len(flock.witness.starts)
            await flock.settle(3600)
            assert len(flock.witness.starts) == done

    run_virtual(work())


def test_a_job_hears_at_once_of_machines_that_ask_for_less_than_before(tmp_path: Path) -> None:
    """They are shown all the while, and what they ask of jobs is another."""
    rules = tmp_path / "rules"
    rules.write_text("")

    async def work() -> None:
        async with lending(rules, 6, machines=1, NEGOTIATION_INTERVAL="3000") as flock:
            chem = flock.pool("chem")
            soon = datetime.fromtimestamp(chem.wall(), UTC).astimezone() + timedelta(hours=2)
            rules.write_text(f"[physics]\nhours = '{soon:%H:%M}-{soon + timedelta(hours=1):%H:%M}'\n")
            world: Any = chem.role(head("chem"), "world")
            world.reload(world.settings)
            await flock.submit("physics")
            await flock.settle(30)
            assert (len(flock.machines_shown("physics")), flock.running("physics")) == (1, 0)
            rules.write_text("")
            world.reload(world.settings)
            await flock.run_until(lambda: flock.running("physics") == 1, within=5)

    run_virtual(work())
