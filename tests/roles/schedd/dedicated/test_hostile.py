"""A user who does his worst to plans, reservations and their quota; looks that are made at the same time."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from pool.roles.cooperative import WorkTurn
from pool.roles.schedd.dedicated.reservations import read_request
from pool.wire import RemoteError
from tests.roles.schedd.dedicated.support import OURS, DedicatedStory, parallel, play, serial


async def ask(at: DedicatedStory, caller: str, method: str, /, **params: Any) -> Any:
    link = await at.pool.network.user(caller, "head")
    try:
        return await link.call(method, params)
    finally:
        await link.close()


async def reserve(at: DedicatedStory, caller: str, /, *, wait: float = 3600.0, **more: Any) -> Any:
    asked: dict[str, Any] = {"machines": 1, "start": at.pool.wall() + wait, "duration": 600.0}
    asked |= {"user": None, "group": None, "requirements": None}
    return await ask(at, caller, "schedd.reserve_machines", **{**asked, **more})


def test_questions_at_the_same_time_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its own requirements; both are looked at in slices, beside a cycle."""
    monkeypatch.setattr(WorkTurn, "is_over", property(lambda self: True))

    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 1000.0
        await at.pool.submit("head", count=5, ad=parallel(2))
        await at.runs("1.0")
        wanted = {"machines": 1, "start": at.pool.wall() + 3600.0, "duration": 600.0}
        asked = [
            read_request({**wanted, "requirements": text}, "alice", administer=False, now=at.pool.wall())
            for text in ("true", "Memory < -1", "true", "Memory < -1")
        ]
        at.scheduler.wake()
        states = await asyncio.gather(*(at.scheduler.look_with(one) for one in asked), at.scheduler.decide_now())
        fits = [bool(state.fits[asked[0].request]) for state in states[:4]]
        assert fits == [True, False, True, False]

    play(story)


@pytest.mark.parametrize(
    "more",
    [
        {"machines": 0},
        {"machines": -3},
        {"machines": 10**9},
        {"machines": True},
        {"start": float("nan")},
        {"start": float("inf")},
        {"duration": float("nan")},
        {"duration": -1.0},
        {"duration": 1e300},
        {"user": "bob"},
        {"group": "physics"},
        {"requirements": "("},
        {"requirements": "x" * 20_000},
        {"start": 0.0, "duration": 10.0},
    ],
)
def test_a_request_that_makes_no_sense_is_refused(more: dict[str, Any]) -> None:
    async def story(at: DedicatedStory) -> None:
        await at.pool.submit("head", ad=serial())
        await at.runs("1.0")
        with pytest.raises(RemoteError):
            await reserve(at, "alice", **more)
        assert await ask(at, "alice", "schedd.reservations") == []

    play(story)


def test_many_requests_at_once_stay_within_the_quota() -> None:
    async def story(at: DedicatedStory) -> None:
        await at.pool.submit("head", ad=serial())
        await at.runs("1.0")
        found = await asyncio.gather(*(reserve(at, "alice") for _ in range(20)), return_exceptions=True)
        made = [one for one in found if isinstance(one, dict)]
        assert len(made) == 2, "as many machines as a user may have at a time"
        await reserve(at, "bob", wait=7200.0)
        with pytest.raises(RemoteError, match="is alice's"):
            await ask(at, "bob", "schedd.cancel_reservation", id=made[0]["id"])

    play(story, RESERVATION_MACHINES="2", machines=3)


def test_a_flood_of_plans_costs_little() -> None:
    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 1000.0
        await at.pool.submit("head", count=300, ad=parallel(2))
        await at.runs("1.0")
        before = time.thread_time()
        await ask(at, "mallory", "schedd.dedicated_plan")
        one = time.thread_time() - before
        before = time.thread_time()
        await asyncio.gather(*(ask(at, "mallory", "schedd.dedicated_plan") for _ in range(20)))
        many = time.thread_time() - before
        assert many < 20 * one + 1.0

    play(story)


#: Values that a startd may put where the scheduler looks.
LIES: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2**62,
    -0.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "Unclaimed",
    "Claimed",
    "Preempting",
    OURS,
    "x" * 5000,
    ["error"],
    ["undefined"],
    ["("],
    ["Memory"],
    ["{1, {2}, [A = 1]}"],
    ['{"' + OURS + '", "DedicatedScheduler@else"}'],
    ["TARGET.Cpus > 10 ** 1000"],
    ['[a = "x"; until = 1e308]'],
    [["x"]],
    {"a": 1},
]
SEEN = [
    "State", "Activity", "CurrentRank", "Cpus", "Memory", "Disk", "GPUs", "PartitionableSlot", "Requirements",
    "Rank", "DedicatedScheduler", "DedicatedSchedulers", "DedicatedHolder", "DedicatedLoans",
    "DedicatedHolderSaveable", "Machine", "SlotID", "StartdIpAddr",
]  # fmt: skip


def test_ads_of_a_lying_startd_harm_no_cycle() -> None:
    """Whatever it says of itself, cycles and plans go on, and honest machines are used."""

    async def story(at: DedicatedStory) -> None:
        chance = random.Random(7)
        at.seconds["*"] = 30.0
        await at.pool.submit("head", count=3, ad=parallel(2))
        await at.runs("1.0")
        honest = next(ad for name, ad in at.scheduler.machines.index.ads.items() if name == "slot1@m0").to_wire()
        for number in range(150):
            told = {name: chance.choice(LIES) for name in SEEN if chance.random() < 0.4}
            name = chance.choice(["slot1@liar", "slot1@m1#1", "#", "slot1@liar" * 100])
            at.scheduler.machines.update_ads([(number, name, {**honest, "Name": name, **told}, None)])
            await at.scheduler.decide_now()
            if not number % 15:
                await ask(at, "alice", "schedd.dedicated_plan")
        known = list(at.scheduler.machines.index.ads)
        assert len(known) > 4, "it looked at the liars, too"
        for name in known:
            if name not in ("slot1@m0", "slot1@m1"):
                at.scheduler.machines.update_ads([(0, name, None, None)])
        await at.done(3, 600.0)

    play(story)
