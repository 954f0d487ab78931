"""A machine whose owner's policy asks for nothing is not looked at again and again, and misses nothing by it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pool.policy.owner import OwnerPolicy, is_decided
from pool.policy.slots import BUSY, OWNER, UNCLAIMED
from pool.testing import run_virtual
from pool.testing.pool import SimPool
from tests.roles.support import lasting

HOUR = 3600.0


def counted(node: Any) -> list[float]:
    """The times at which a node's sensors are read from now on."""
    read, times = node.sensors.read, []

    def reading(wall: float) -> Any:
        times.append(wall)
        return read(wall)

    object.__setattr__(node.sensors, "read", reading)
    return times


def test_a_dedicated_machine_is_read_when_it_advertises_and_when_something_happens() -> None:
    async def work() -> None:
        async with SimPool(1) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            node = await pool.add("m1", "startd", behave=lambda spec: lasting(HOUR))
            await asyncio.sleep(60.0)
            reads = counted(node)
            await asyncio.sleep(HOUR)
            assert 29 <= len(reads) <= 32, "every two minutes, when it is told anew"
            await pool.submit("head")
            await pool.run_until(lambda: not pool.queued("head"))
            assert len(reads) <= 80
            pool.assert_sound()

    run_virtual(work())


def test_a_change_of_a_quiet_machine_is_told_within_one_look() -> None:
    async def work() -> None:
        async with SimPool(2) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            node = await pool.add("m1", "startd")
            pool_view = pool.role("head", "negotiator").pool_view
            for number in range(3):
                await asyncio.sleep(1000.0 + number)
                node.sensors.facts["Colour"] = number
                await asyncio.sleep(5.1)
                assert pool_view.picture.ad("slot1@m1").value("Colour") == number

    run_virtual(work())


def test_an_owner_who_is_back_is_seen_at_once_by_a_policy_that_asks_for_him() -> None:
    async def work() -> None:
        async with SimPool(3, settings={"POLICY": "desktop"}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            node = await pool.add("m1", "startd")
            await asyncio.sleep(2000.0)
            (slot,) = pool.role("m1", "startd").slots.values()
            assert slot.condition == UNCLAIMED
            node.sensors.touched = pool.wall()
            await asyncio.sleep(5.1)
            assert slot.condition == OWNER
            await asyncio.sleep(895.0)
            assert slot.condition == OWNER
            await asyncio.sleep(10.0)
            assert slot.condition == UNCLAIMED, "fifteen minutes have passed, which nobody told"

    run_virtual(work())


@pytest.mark.parametrize(
    ("wishes", "owner", "unclaimed", "busy"),
    [
        ({}, False, True, True),
        ({"START": "false"}, True, False, True),
        ({"START": "ClockMin > 60"}, False, False, True),
        ({"SUSPEND": "TARGET.Big"}, False, True, False),
        ({"PREEMPT": "CurrentTime > 5"}, False, True, False),
        ({"START": "undefined"}, False, False, True),
    ],
)
def test_only_plain_constants_settle_what_an_owner_wants(
    wishes: dict[str, str], owner: bool, unclaimed: bool, busy: bool
) -> None:
    policy = OwnerPolicy.from_shipped("dedicated", wishes)
    found = [is_decided(policy, condition) for condition in (OWNER, UNCLAIMED, BUSY)]
    assert found == [owner, unclaimed, busy]
