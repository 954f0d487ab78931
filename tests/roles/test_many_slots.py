"""The ads of more slots than are sent at a time, on the loop that nodes run on."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import uvloop

from pool.roles.startd.slots.ads import AT_ONCE, SlotAds
from pool.roles.startd.slots.records import Slot
from pool.roles.startd.slots.table import SlotTable


class Told:
    """An advertiser that notes its calls, and how often the loop came round meanwhile."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.rounds = 0
        self.at: list[int] = []

    def withdraw(self, kind: str, name: str) -> None:
        self.names.remove(name)

    def publish(self, kind: str, name: str, ad: dict[str, Any], private: Any = None) -> None:
        self.names.append(name)
        self.at.append(self.rounds)


def test_all_are_told_in_portions_and_changes_meanwhile_too() -> None:
    async def work() -> None:
        told = Told()
        names = [f"slot{number}" for number in range(3 * AT_ONCE)]
        table = SlotTable(lambda: 0.0)
        for name in names:
            table.add(Slot(name, "static", {}, "", 0.0))
        facts: Any = SimpleNamespace(wire={})
        ads = SlotAds(table, facts, facts, dict, told, node="x", address="")
        ads.publish_all()
        assert len(told.names) == AT_ONCE
        ads.touch(table.slots["slot0"])  # while the others wait to be sent
        async with asyncio.timeout(30):
            while len(told.names) < 3 * AT_ONCE + 1:
                told.rounds += 1
                await asyncio.sleep(0)
        assert set(told.names) == {f"{name}@x" for name in names}
        assert told.names.count("slot0@x") == 2
        assert max(told.at.count(turn) for turn in set(told.at)) <= AT_ONCE + 1

    uvloop.run(work())
