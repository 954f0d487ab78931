"""A negotiator that is told how ads differ knows what one knows that is told them whole."""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import pytest

from pool.classad import ClassAd
from pool.policy.flock.kinds import COUNT
from pool.policy.flock.shown import GUEST_LEAVES, LENDER
from pool.policy.priorities import GroupQuota
from pool.policy.registry import RegisteredAd, Registry, Update, difference
from pool.roles.collector import _Watcher
from pool.roles.negotiator.pool_view import PoolView
from pool.roles.negotiator.usage import PoolUsage
from pool.testing import run_virtual
from pool.testing.pool import SimPool
from tests.roles.support import lasting
from tests.roles.support import told as told_of

HOUR = 3600.0


def _values(chance: random.Random) -> dict[str, list[Any]]:
    """Attributes of a slot, with the values that each may have; None where it has none."""
    return {
        "State": ["Unclaimed", "Claimed", "Claimed", "Preempting"],
        "Activity": ["Idle", "Busy", "Vacating", "Yielding"],
        "RemoteUser": [None, "ada@head", "bob@head", ['strcat("ada", "@head")']],
        "RemoteGroup": [None, "physics", "chemistry"],
        "RemoteNiceUser": [None, True],
        "ConcurrencyLimits": [None, "licence:2", "licence, tape"],
        "SlotWeight": [None, 2.0, ["Memory / 100"], ["LoadAvg * 10"]],
        "Cpus": [1, 4],
        "Memory": [100, 200, 1000],
        "LoadAvg": [0.0, -0.0, round(chance.random(), 2), 1],
        "JobStart": [None, 1, 2],
        "PartitionableSlot": [None, None, True],
        **{GUEST_LEAVES: [None, True], "JobCanCheckpoint": [None, True], LENDER: [None, "chem"], COUNT: [None, 2, 3]},
        "KeyboardIdle": [chance.randrange(1000)],
        "Rank": [None, 0.0, ["TARGET.Owner == Friend"]],
        "friend": [None, "ada"],
    }


class _Accounts:
    """Accounts, as far as a view needs them."""

    def __init__(self) -> None:
        self.quotas: tuple[GroupQuota, ...] = ()
        self.usage = PoolUsage()

    def submitter(self, name: str, ad: Any) -> None:
        """Its use is not counted here."""


class _Reader:
    """A watcher of a collector, and the view that it has of the pool."""

    def __init__(self, *, differences: bool) -> None:
        self.watcher = _Watcher(frozenset({"Machine", "Submitter"}), True, differences=differences)
        self.accounting = _Accounts()
        self.wakes: list[float] = []
        self.seen: list[Any] = []
        self.view = PoolView(cast(Any, self.accounting), self.wakes.append, self._see)
        self.items = 0

    def _see(self, before: ClassAd | None, after: ClassAd | None) -> None:
        began = after.eval("JobStart") if after is not None else None
        self.seen.append((before.to_wire() if before is not None else None, began))

    def read(self) -> None:
        items = self.watcher.take_changes()
        self.items += sum(len(item) > 4 for item in items)
        for _ in self.view.learn_all(items):
            pass

    def knowledge(self) -> list[Any]:
        usage, view = self.accounting.usage, self.view
        index = view.picture
        return [
            *(self.wakes, self.seen),
            {name: ad.to_wire() for name, ad in index.ads.items()},
            {user: (use.weight, use.slots) for user, use in usage.uses.items()},
            *(usage.limits, usage.holders, view.weight),
            {name: view.key(name) for name in index.ads},
            view.withheld(asyncio.get_running_loop().time()),
            {name: index.values(name) for name in ("Memory", "LoadAvg", "State", "RemoteUser", "Friend")},
            {name: ad.to_wire() for name, ad in view.submitters.items()},
        ]


class _Advertisers:
    """Slots and a submitter whose ads change by chance, in a collector's registry with readers."""

    def __init__(self, chance: random.Random, readers: tuple[_Reader, ...]) -> None:
        self._chance = chance
        self._readers = readers
        self._registry = Registry()
        self._ads: dict[tuple[str, str], dict[str, Any]] = {}
        self._sequence = 0

    def step(self) -> None:
        """One ad is told whole, changes, or goes."""
        chance = self._chance
        key = chance.choice([("Machine", f"slot{number}@m") for number in range(4)] + [("Submitter", "ada@head")])
        before = self._ads.get(key)
        if before is not None and chance.random() < 0.05:
            del self._ads[key]
            self._registry.invalidate(*key, "m")
            self._tell(key, None)
            return
        values = _values(chance)
        drawn = {name: chance.choice(values[name]) for name in chance.sample(sorted(values), chance.randrange(4))}
        if key[0] == "Submitter":
            drawn = {"IdleJobs": chance.randrange(3), "Demand": chance.randrange(3)}
        ad = {name: value for name, value in {**(before or {}), **drawn}.items() if value is not None}
        private = chance.choice([None, None, {"ClaimId": f"key {chance.randrange(3)}"}, {}])
        whole = before is None or chance.random() < 0.05
        changed, gone = (ad, ()) if whole or before is None else difference(before, ad)
        sequence = 1 if whole else self._registry.entries[key].sequence + 1
        self._registry.update(Update(*key, "i", sequence, whole, changed, gone, private), "m", 0.0)
        self._ads[key] = ad
        self._tell(key, self._registry.entries[key])

    def _tell(self, key: tuple[str, str], entry: RegisteredAd | None) -> None:
        for reader in self._readers:
            reader.watcher.notify(key, entry)


@pytest.mark.parametrize("seed", range(10))
def test_ads_as_differences_come_to_the_same(seed: int) -> None:
    async def work() -> None:
        chance = random.Random(seed)
        readers = whole, differences = _Reader(differences=False), _Reader(differences=True)
        advertisers = _Advertisers(chance, readers)
        for _ in range(400):
            advertisers.step()
            if chance.random() < 0.02:
                quotas = (GroupQuota(chance.choice(["physics", "chemistry"]), 0.5),)
                whole.accounting.quotas = differences.accounting.quotas = quotas
            if chance.random() < 0.6:
                for reader in readers:
                    reader.read()
                assert whole.knowledge() == differences.knowledge()
        assert whole.items == 0
        assert differences.items > 100

    run_virtual(work())


def test_a_negotiator_is_told_differences() -> None:
    async def work() -> None:
        async with SimPool(1) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: lasting(HOUR))
            view = pool.role("head", "negotiator").pool_view
            learn, lengths = view.update_ad, []

            def learning(kind: str, name: str, ad: Any, private: Any, gone: Any = None) -> None:
                if kind == "Machine" and ad is not None:
                    lengths.append(len(ad) if gone is not None else None)
                learn(kind, name, ad, private, gone)

            view.update_ad = learning
            await pool.submit("head", count=2)
            await pool.run_until(lambda: not pool.queued("head"))
            told, _ = told_of(pool, "slot1@m1")
            assert {name.lower() for name in view.picture.ad("slot1@m1").to_wire()} == {name.lower() for name in told}
            differences = [length for length in lengths if length is not None]
            assert len(lengths) - len(differences) <= 1
            assert sum(differences) / len(differences) < len(told) / 4
            pool.assert_sound()

    run_virtual(work())
