"""Leases that end while the connection stays: whoever stood still, or was cut off for less than a connection lasts.

A link that is silent holds what is sent and tells nobody: so it looks from outside when a node is stopped (SIGSTOP),
and when packets are lost for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pool.policy.queue import HELD, RUNNING
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, lasting

#: Leases end long before a silent connection does, which is after 60 s.
SHORT = {**QUICK, "CLAIM_LEASE": "20"}


def play(tmp_path: Path, story: Callable[[SimPool], Coroutine[Any, Any, None]], *, dying: float = 0.0) -> None:
    async def work() -> None:
        async with SimPool(5, settings=SHORT, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator")
            await pool.add("submit", "schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(100.0, dying=dying))
            await pool.submit("submit")
            await pool.run_until(lambda: bool(pool.witness.running), within=60)
            await asyncio.sleep(5.0)
            await story(pool)
            pool.assert_sound()

    run_virtual(work())


def the_job(pool: SimPool) -> Any:
    return next(iter(pool.role("submit", "schedd").queue.jobs()))


async def silent(pool: SimPool, seconds: float) -> None:
    pool.network.drop_silently("submit", "m1")
    await asyncio.sleep(seconds)
    pool.network.restore_links()


@pytest.mark.parametrize("seconds", [23.0, 26.0, 40.0, 55.0])
def test_the_job_runs_again(seconds: float, tmp_path: Path) -> None:
    async def story(pool: SimPool) -> None:
        await silent(pool, seconds)
        await pool.run_until(lambda: pool.queued("submit") == 0, within=400)
        (ad,) = await pool.ended("submit")
        assert (ad["NumJobStarts"], ad["ExitCode"]) == (2, 0)
        assert not pool.role("submit", "schedd").placement.claims

    play(tmp_path, story)


def test_the_schedds_own_lease_decides(tmp_path: Path) -> None:
    """The machine is silent for ever, and its connection with it."""

    async def story(pool: SimPool) -> None:
        pool.network.keepalive = None
        pool.network.drop_silently("submit", "m1")
        await pool.run_until(lambda: the_job(pool).status != RUNNING, within=25)
        assert not pool.witness.running

    play(tmp_path, story)


def test_the_startd_tells_of_a_lease_that_has_ended(tmp_path: Path) -> None:
    """Its schedd need not come upon it by itself."""

    async def story(pool: SimPool) -> None:
        startd = pool.role("m1", "startd")
        (slot,) = startd.claims.values()
        slot.claim.asked -= 100.0
        await pool.run_until(lambda: the_job(pool).get("NumJobStarts") == 2, within=10)

    play(tmp_path, story)


@pytest.mark.parametrize("action", ["remove", "hold", "vacate", "checkpoint"])
def test_what_is_done_to_a_job_whose_claim_is_gone_takes_effect(action: str, tmp_path: Path) -> None:
    """The startd has forgotten the claim and says nothing of it: a call that names it says so."""

    async def story(pool: SimPool) -> None:
        startd = pool.role("m1", "startd")
        (slot,) = startd.claims.values()
        keeper = next(iter(pool.nodes["m1"].machine.keepers.values()))
        slot.claim.running.abandoned = True
        slot.claim.link = None  # it cannot be reported
        await keeper.kill()
        await pool.run_until(lambda: slot.claim is None, within=1)
        job = the_job(pool)
        assert job.status == RUNNING
        asyncio.get_running_loop().call_later(
            4.0, pool.network.drop_silently, "submit", "head"
        )  # nor matched again soon
        await pool.act("submit", "alice", action=action, ids=[[1, 0]])
        if action == "remove":
            await pool.run_until(lambda: pool.queued("submit") == 0, within=3)
        elif action == "hold":
            await pool.run_until(lambda: job.status == HELD, within=3)
        else:
            await pool.run_until(lambda: job.run is None or job.get("NumJobStarts") == 2, within=3)
        assert len(pool.witness.starts) <= 2

    play(tmp_path, story)


def test_no_second_copy_while_the_first_one_dies(tmp_path: Path) -> None:
    """The lease has ended and the killed job takes its time: who asks for the claim waits until nothing is left."""

    async def story(pool: SimPool) -> None:
        await pool.add("m2", "startd", behave=lambda spec: Behaviour(100.0))
        startd = pool.role("m1", "startd")
        (slot,) = startd.claims.values()
        await pool.role("m1", "startd").leases.abandon_claim(slot)
        await pool.act("submit", "alice", action="vacate", ids=[[1, 0]])
        await pool.run_until(lambda: pool.queued("submit") == 0, within=400)
        assert len(pool.witness.starts) == 2

    play(tmp_path, story, dying=8.0)


def test_a_keeper_that_hangs_when_the_lease_ends_does_not_outlive_it(tmp_path: Path) -> None:
    """The startd ends it by force before the schedd may start the job elsewhere."""

    async def story(pool: SimPool) -> None:
        await pool.add("m2", "startd", behave=lambda spec: Behaviour(100.0))
        (keeper,) = pool.nodes["m1"].machine.keepers.values()
        keeper.stop_answering()
        pool.network.drop_silently("submit", "m1")
        await pool.run_until(lambda: len(pool.witness.starts) == 2, within=60)
        pool.network.restore_links()
        await pool.run_until(lambda: pool.queued("submit") == 0, within=400)

    play(tmp_path, story)


def test_a_renewal_that_is_missed_is_asked_after(tmp_path: Path) -> None:
    """A startd's role that was started again knows no connection to the schedd; the connection never broke."""

    async def story(pool: SimPool) -> None:
        (slot,) = pool.role("m1", "startd").claims.values()
        slot.claim.link = None
        await pool.run_until(lambda: pool.queued("submit") == 0, within=400)
        assert len(pool.witness.starts) == 1

    play(tmp_path, story)


@pytest.mark.parametrize("phase", list(TrapPhase))
@pytest.mark.parametrize("method", ["schedd.renew", "startd.deactivate", "startd.resume", "schedd.revoked"])
def test_silence_begins_at_a_call(method: str, phase: TrapPhase, tmp_path: Path) -> None:
    async def story(pool: SimPool) -> None:
        async def falls_silent() -> None:
            pool.network.drop_silently("submit", "m1")
            asyncio.get_running_loop().call_later(35.0, pool.network.restore_links)

        pool.run_at(method, phase, falls_silent)
        await asyncio.sleep(10.0)
        await pool.act("submit", "alice", action="vacate", ids=[[1, 0]])
        await pool.run_until(lambda: pool.queued("submit") == 0, within=600)

    play(tmp_path, story)


def test_a_startd_that_was_started_again_counts_a_lease_on_and_ends_a_keeper_that_hangs_in_time() -> None:
    async def work() -> None:
        async with SimPool(8, settings={**QUICK, "CLAIM_LEASE": "20"}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            for name in ("m1", "m2"):
                await pool.add(name, "startd", behave=lambda spec: lasting(300.0))
            await pool.submit("head")
            await pool.run_until(lambda: bool(pool.witness.starts), within=60)
            machine = pool.witness.starts[0][1]
            await asyncio.sleep(10.0)
            pool.network.drop_silently("head", machine)
            (keeper,) = pool.nodes[machine].machine.keepers.values()
            keeper.stop_answering()
            await asyncio.sleep(8.0)
            await pool.restart_role(machine, "startd")
            await pool.run_until(lambda: len(pool.witness.starts) == 2, within=60)
            await asyncio.sleep(30.0)
            pool.assert_sound()

    run_virtual(work())
