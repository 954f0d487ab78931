"""A fault of one job is that job's trouble: the role lives on, and the jobs beside it do not feel it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pool.policy.queue import HELD
from pool.starter.spec import KeeperError
from pool.starter.starter import Starter
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour, FakeKeeper, FakeKeepers
from pool.testing.pool import SimPool
from tests.roles.support import QUICK

SECONDS = 400.0


def play(tmp_path: Path, story: Callable[[SimPool], Coroutine[Any, Any, None]]) -> None:
    """A machine with two jobs; `story` begins when both run, and in the end both have ended well."""

    async def work() -> None:
        settings = {**QUICK, "SLOTS": "2", "CLAIM_LEASE": "150"}
        async with SimPool(9, settings=settings, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(SECONDS))
            await pool.submit("head", count=2)
            await pool.run_until(lambda: len(pool.witness.running) == 2, within=60)
            await asyncio.sleep(5.0)
            await story(pool)
            await pool.run_until(lambda: pool.queued("head") == 0, within=3000)
            assert [ad["ExitCode"] for ad in await pool.ended("head")] == [0, 0]
            pool.assert_sound()

    run_virtual(work())


def keeper_of(pool: SimPool, name: str) -> FakeKeeper:
    return next(one for one in pool.nodes["m1"].machine.keepers.values() if one.id.startswith(name))


def starts(pool: SimPool) -> list[str]:
    return sorted(job for job, _, _ in pool.witness.starts)


def test_a_keeper_that_hangs(tmp_path: Path) -> None:
    async def story(pool: SimPool) -> None:
        keeper = keeper_of(pool, "1.0")
        keeper.stop_answering()
        await pool.run_until(lambda: keeper.ended.done(), within=130)
        await pool.run_until(lambda: len(starts(pool)) == 3, within=120)
        assert starts(pool) == ["1.0", "1.0", "1.1"]

    play(tmp_path, story)


def test_a_keeper_that_hangs_for_a_moment_only(tmp_path: Path) -> None:
    async def story(pool: SimPool) -> None:
        keeper = keeper_of(pool, "1.0")
        await asyncio.sleep(45.0)
        keeper.hangs = True
        await asyncio.sleep(35.0)  # asked in vain meanwhile
        keeper.hangs = False
        await asyncio.sleep(200.0)
        assert starts(pool) == ["1.0", "1.1"]

    play(tmp_path, story)


def test_a_role_that_fails_finds_its_jobs_and_renews_their_leases(tmp_path: Path) -> None:
    """Over connections that never broke."""

    async def story(pool: SimPool) -> None:
        await pool.restart_role("m1", "startd")
        await asyncio.sleep(1.0)
        claims = [slot.claim for slot in pool.role("m1", "startd").claims.values()]
        assert len(claims) == 2
        await pool.run_until(lambda: pool.queued("head") == 0, within=SECONDS + 100)
        assert starts(pool) == ["1.0", "1.1"]

    play(tmp_path, story)


@pytest.mark.parametrize("role", ["schedd", "collector", "negotiator"])
def test_another_role_that_fails(role: str, tmp_path: Path) -> None:
    async def story(pool: SimPool) -> None:
        await pool.restart_role("head", role)
        await pool.run_until(lambda: pool.queued("head") == 0, within=SECONDS + 100)
        assert starts(pool) == ["1.0", "1.1"]

    play(tmp_path, story)


@pytest.mark.parametrize("error", [KeeperError("the disk is full"), OSError(5, "input/output error"), KeyError("x")])
@pytest.mark.parametrize("method", ["has_outputs", "wait", "discard"])
def test_a_run_that_cannot_be_looked_after(
    method: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first job's run fails in a way that nobody has foreseen; the second job ends in peace."""
    before = getattr(Starter, method)
    failed: list[Any] = []

    def fails(self: Starter, *given: Any) -> Any:
        if self.id == "1.0.1" and not failed:
            failed.append(method)
            raise error
        return before(self, *given)

    monkeypatch.setattr(Starter, method, fails)

    async def story(pool: SimPool) -> None:
        await pool.run_until(lambda: pool.queued("head") == 0, within=3000)
        assert starts(pool).count("1.1") == 1
        assert failed
        assert not pool.role("m1", "startd").claims
        assert not pool.nodes["m1"].machine.keepers

    play(tmp_path, story)


def test_a_start_that_cannot_be_worked_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that breaks what works out its start is held; the others of its owner start."""
    from pool.roles.schedd.placement.starts import Starts

    before = Starts._start_of

    def fails(self: Starts, claim: Any, job: Any, run: int) -> Any:
        if job.id == (1, 0):
            raise TypeError("no such thing")
        return before(self, claim, job, run)

    monkeypatch.setattr(Starts, "_start_of", fails)

    async def work() -> None:
        async with SimPool(9, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd")
            await pool.submit("head", count=2)
            await pool.run_until(lambda: len(pool.witness.ends) == 1, within=100)
            (job,) = pool.role("head", "schedd").queue.jobs()
            assert (job.status, job.get("HoldReason")) == (HELD, "cannot start: TypeError: no such thing")
            pool.assert_sound()

    run_virtual(work())


def test_a_start_that_fails_unforeseen_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, failed = FakeKeepers.start, []

    async def start(self: FakeKeepers, spec: Any, **more: Any) -> FakeKeeper:
        if spec.id == "1.0.2":
            failed.append(spec.id)
            raise ValueError("no such keeper")
        return await before(self, spec, **more)

    monkeypatch.setattr(FakeKeepers, "start", start)

    async def story(pool: SimPool) -> None:
        await pool.act("head", "alice", action="vacate", ids=[[1, 0]])
        await pool.run_until(lambda: bool(failed), within=200)
        await pool.run_until(lambda: pool.queued("head") == 0, within=3000)
        assert starts(pool) == ["1.0", "1.0", "1.1"]

    play(tmp_path, story)


def test_a_role_that_has_failed_begins_nothing_more(tmp_path: Path) -> None:
    """Its connections live on, and end: the next role sees to the claims then, and nobody else."""

    async def story(pool: SimPool) -> None:
        await pool.restart_role("head", "schedd")
        await asyncio.sleep(5.0)
        pool.network.drop_silently("head", "m1")
        pool.network.cut("head", "m1")
        await asyncio.sleep(1.0)
        reaching = [task for task in asyncio.all_tasks() if task.get_name() == "schedd.reach"]
        assert len(reaching) == 2, "for each claim one"
        pool.network.restore_links()

    play(tmp_path, story)
