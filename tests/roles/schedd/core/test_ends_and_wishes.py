"""Requests to a job whose end is on the way, or a moment old: nothing that is done is done again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pool.errors import PoolError
from pool.policy.queue import COMPLETED, HELD, REMOVED
from pool.roles.startd.role import ASKED
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.keepers import Behaviour, FakeKeeper
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, asking


def play(
    tmp_path: Path,
    story: Callable[[SimPool], Coroutine[Any, Any, None]],
    ad: dict[str, Any] | None = None,
    behaviour: Behaviour = Behaviour(30.0, saving=1.0),
) -> None:
    async def work() -> None:
        async with SimPool(5, settings=QUICK, directory=tmp_path, stateful=True) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: behaviour)
            await pool.submit("head", ad=ad)
            await pool.run_until(lambda: bool(pool.witness.running), within=60)
            await story(pool)
            pool.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("action", ["vacate", "checkpoint", "hold"])
def test_while_its_end_is_on_the_way(action: str, force: bool, tmp_path: Path) -> None:
    async def story(pool: SimPool) -> None:
        async def asks() -> None:
            await pool.act("head", "alice", action=action, ids=[[1, 0]], force=force)

        trap = pool.run_at("schedd.ended", TrapPhase.BEFORE, asks)
        await pool.run_until(lambda: pool.queued("head") == 0, within=300)
        (ad,) = await pool.ended("head")
        assert (ad["JobStatus"], ad["NumJobStarts"], ad["ExitCode"]) == (COMPLETED, 1, 0)
        assert trap.sprung

    play(tmp_path, story)


def test_one_that_is_removed_while_its_end_is_on_the_way_is_removed(tmp_path: Path) -> None:
    async def story(pool: SimPool) -> None:
        async def asks() -> None:
            await pool.act("head", "alice", action="remove", ids=[[1, 0]])

        pool.run_at("schedd.ended", TrapPhase.BEFORE, asks)
        await pool.run_until(lambda: pool.queued("head") == 0, within=300)
        (ad,) = await pool.ended("head")
        assert (ad["JobStatus"], ad["NumJobStarts"]) == (REMOVED, 1)

    play(tmp_path, story)


def test_one_that_runs_again_by_its_own_policy_is_held_first(tmp_path: Path) -> None:
    async def story(pool: SimPool) -> None:
        async def asks() -> None:
            await pool.act("head", "alice", action="hold", ids=[[1, 0]])

        pool.run_at("schedd.ended", TrapPhase.BEFORE, asks)
        (job,) = pool.role("head", "schedd").queue.jobs()
        await pool.run_until(lambda: job.status == HELD, within=300)
        await asyncio.sleep(100.0)
        assert len(pool.witness.starts) == 1

    play(tmp_path, story, {"OnExitRemove": False})


@pytest.mark.parametrize("graceful", [False, True])
@pytest.mark.parametrize("seconds", [5.0, 30.0])
def test_a_moment_after_its_end(
    graceful: bool, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program has ended, and the machine has not heard of it yet when the job is to leave."""
    stops: list[asyncio.Future[None]] = []
    before = FakeKeeper._end

    async def story(pool: SimPool) -> None:
        (slot,) = pool.role("m1", "startd").claims.values()
        running = slot.claim.running

        def ends(self: FakeKeeper, cause: str, *more: Any) -> None:
            before(self, cause, *more)
            if cause == "exit":
                stops.append(asyncio.ensure_future(running.stop(graceful, ASKED)))

        monkeypatch.setattr(FakeKeeper, "_end", ends)
        keeper = running.starter.keeper
        keeper._timer.cancel()
        asyncio.get_running_loop().call_later(seconds, keeper._end, "exit", 0, None)
        await pool.run_until(lambda: pool.queued("head") == 0, within=300)
        (ad,) = await pool.ended("head")
        assert (ad["JobStatus"], ad["NumJobStarts"], ad["ExitCode"]) == (COMPLETED, 1, 0)
        assert stops

    play(tmp_path, story, behaviour=Behaviour(60.0, saving=1.0))


def test_what_takes_long_is_waited_for_and_told() -> None:
    """All of a large queue: minutes, on a busy disk."""

    async def work() -> None:
        async with SimPool(5, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            cluster = await pool.submit("head", count=8000)
            ledger = pool.role("head", "schedd").ledger
            real = ledger.store.begin

            async def later(*changes: Any, **how: Any) -> Any:
                await asyncio.sleep(100.0)
                return await real(*changes, **how)

            ledger.store.begin = lambda *changes, **how: asyncio.ensure_future(later(*changes, **how))
            told: list[int] = []
            async with asking(pool) as user:
                acted = await user.act("hold", everything=True, progress=told.append)
                assert acted.done == 8000
                ledger.store.begin = real
                assert len(told) > 100
                assert told == sorted(told)
                assert set(told) - {0, 8000}
                with pytest.raises(PoolError, match="no jobs named"):
                    await user.act("hold")
                acted = await user.act("hold", ids=[(cluster, 5), (99, 0)])
                whys = ["it is held already", "there is no such job in the queue"]
                assert acted.done == 0
                assert sorted(why for _, why in acted.refused) == whys

    run_virtual(work())


def test_a_user_may_be_named_as_priorities_and_slots_name_him() -> None:
    async def work() -> None:
        async with SimPool(5, settings=QUICK | {"UID_DOMAIN": "lab.example"}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.submit("head", count=2)
            async with asking(pool) as user:
                for name, count in (("alice", 2), ("alice@lab.example", 2), ("alice@other.example", 0), ("bob", 0)):
                    assert len(await user.jobs(owner=name)) == count
                assert (await user.act("remove", owner="alice@other.example")).done == 0
                acted = await user.act("remove", owner="alice@lab.example")
                assert (acted.done, acted.owners) == (2, ("alice",))
                assert len(await user.history(owner="alice@lab.example")) == 2

    run_virtual(work())
