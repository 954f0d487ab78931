"""Clocks that jump, again and again, while everything goes on: wall time is for people, never for waiting."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, asking


def more_than(them: Sequence[Any], count: int) -> bool:
    return len(them) > count


@pytest.mark.parametrize("seed", range(3))
def test_jumps_of_a_month_lose_nothing_and_forget_no_machine(seed: int, tmp_path: Path) -> None:
    async def work() -> None:
        chance = random.Random(seed)
        async with SimPool(seed, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            for name in ("m1", "m2"):
                await pool.add(name, "startd", behave=lambda spec: Behaviour(50.0))
            cluster = await pool.submit("head", count=20)
            for jump in range(8):
                began = len(pool.witness.starts)
                await pool.run_until(partial(more_than, pool.witness.starts, began), within=400)
                pool.wall_shift = chance.choice((-1, 1)) * chance.choice((3.0, 3600.0, 30 * 86400.0))
                if jump == 4:
                    await pool.kill("head")
                    await pool.restart("head")
                    continue
                async with asking(pool) as user:
                    assert {ad.value("Machine") for ad in await user.machines()} == {"m1", "m2"}
            await pool.run_until(lambda: pool.queued("head") == 0, within=4000)
            assert Counter(ad["ProcId"] for ad in await pool.ended("head")) == Counter(range(20))
            assert len(pool.witness.starts) == 20, "no job was started again for a clock"
            async with asking(pool) as user:
                async for batch in user.events(cluster=cluster):
                    for event in batch:
                        assert event["data"].get("real", 0.0) >= 0.0
                    if not batch:
                        break
            pool.assert_sound()

    run_virtual(work())
