"""Which jobs a startd starts with huge pages: by its machine's memory, its settings and the job's wish."""

from __future__ import annotations

import asyncio

import pytest

from pool.jobs.huge_pages import HUGE_PAGES, THRIFTY, VARIABLE, WASTEFUL
from pool.starter.spec import KeeperSpec
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool


@pytest.mark.parametrize(
    ("offer", "available", "enforced", "wish", "huge"),
    [
        (WASTEFUL, 4096, "false", {}, True),
        (WASTEFUL, 100, "false", {}, False),
        (WASTEFUL, 4096, "true", {}, False),
        (WASTEFUL, 4096, "false", {HUGE_PAGES: "off"}, False),
        (WASTEFUL, 100, "true", {HUGE_PAGES: "on"}, True),
        (THRIFTY, 100, "true", {}, True),
    ],
)
def test_a_start_has_huge_pages(offer: str, available: int, enforced: str, wish: dict[str, str], huge: bool) -> None:
    asked = []

    def behave(spec: KeeperSpec) -> Behaviour:
        asked.append(VARIABLE in spec.env)
        return Behaviour(10.0)

    async def scenario() -> None:
        async with SimPool(1) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            machine = await pool.add("m1", "startd", behave=behave, settings={"ENFORCE_MEMORY": enforced})
            machine.sensors.facts |= {HUGE_PAGES: offer, "AvailableMemory": available}
            await asyncio.sleep(60.0)
            await pool.submit("head", count=1, ad={"RequestMemory": 2000, **wish})
            await pool.run_until(lambda: not pool.queued("head"))

    run_virtual(scenario())
    assert asked == [huge]
