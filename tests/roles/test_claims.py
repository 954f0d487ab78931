"""The end of claims: a slot is free when nothing of its job is left, and not when somebody said it should be."""

from __future__ import annotations

import asyncio

from pool.policy import slots
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK


def test_a_slot_is_not_offered_while_its_job_dies() -> None:
    """The lease ends, the job is killed and takes five minutes to die: it hangs in a file system, say."""

    async def work() -> None:
        async with SimPool(31, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(500.0, dying=300.0))
            await pool.submit("head")
            await pool.run_until(lambda: bool(pool.witness.running), within=60)
            startd = pool.role("m1", "startd")
            (slot,) = startd.slots.values()
            pool.network.cut("head", "m1")
            await pool.run_until(lambda: slot.condition == slots.KILLING, within=120)
            killed = asyncio.get_running_loop().time()
            pool.network.restore_links()
            await asyncio.sleep(200.0)
            assert slot.condition == slots.KILLING
            assert slot.claim.over
            await pool.run_until(lambda: pool.queued("head") == 0, within=3600)
            (first, second), (died, _) = pool.witness.starts, pool.witness.ends
            assert (first[1], second[1]) == ("m1", "m1")
            assert second[2] >= died[2] > killed + 250.0
            (ad,) = await pool.ended("head")
            assert (ad["NumJobStarts"], ad["ExitCode"]) == (2, 0)
            pool.assert_sound()

    run_virtual(work())


def test_a_claim_that_is_over_is_no_claim() -> None:
    """A schedd that comes back for it hears so, once the job is dead."""

    async def work() -> None:
        async with SimPool(32, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(500.0, dying=100.0))
            await pool.submit("head")
            await pool.run_until(lambda: bool(pool.witness.running), within=60)
            (slot,) = pool.role("m1", "startd").slots.values()
            claim = slot.claim.id
            pool.network.cut("head", "m1")
            await pool.run_until(lambda: slot.condition == slots.KILLING, within=120)
            pool.network.restore_links()
            host = pool.network.host("head", roles=("schedd",))
            link = await host.connect("mem://m1")
            answer = await link.call("startd.resume", {"claim": claim, "job": [1, 0], "run": 1}, timeout=300.0)
            assert answer == {"state": "unknown"}
            assert not pool.witness.running
            await link.close()
            pool.assert_sound()

    run_virtual(work())


def test_a_job_that_ended_by_itself_is_not_evicted_afterwards() -> None:
    """Its end is on the way while the machine is vacated: it stays an end."""

    async def work() -> None:
        async with SimPool(33, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(20.0))
            await pool.submit("head")
            await pool.run_until(lambda: bool(pool.witness.running), within=60)
            startd = pool.role("m1", "startd")
            (slot,) = startd.slots.values()
            pool.network.cut("head", "m1")
            await pool.run_until(lambda: not pool.witness.running, within=60)
            await startd.evict(slot, True)
            pool.network.restore_links()
            await pool.run_until(lambda: pool.queued("head") == 0, within=600)
            (ad,) = await pool.ended("head")
            assert (ad["NumJobStarts"], ad["ExitCode"]) == (1, 0)
            pool.assert_sound()

    run_virtual(work())


def test_a_job_that_is_sent_as_its_claim_ends_is_not_lost() -> None:
    """The owner takes the machine back between the report of an end and its answer, which carries the next job."""

    async def work() -> None:
        async with SimPool(34, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(20.0))
            await pool.submit("head", count=2)
            await pool.run_until(lambda: bool(pool.witness.running), within=60)
            startd = pool.role("m1", "startd")
            (slot,) = startd.slots.values()
            pool.run_at("schedd.ended", TrapPhase.AFTER, lambda: startd.evict(slot, True))
            await pool.run_until(lambda: pool.queued("head") == 0, within=600)
            assert sorted(ad["ExitCode"] for ad in await pool.ended("head")) == [0, 0]
            assert len(pool.witness.starts) == 2
            pool.assert_sound()

    run_virtual(work())


def test_a_claim_that_nobody_learned_of_does_not_last() -> None:
    """The schedd dies before it has the answer; its lease would be an hour."""

    async def work() -> None:
        async with SimPool(35, settings={**QUICK, "CLAIM_LEASE": "3600"}) as pool:
            await pool.add("head", "collector,negotiator")
            await pool.add("submit", "schedd")
            await pool.add("m1", "startd")
            pool.trap("startd.claim", TrapPhase.AFTER, "submit")
            await pool.submit("submit")
            (slot,) = pool.role("m1", "startd").slots.values()
            await pool.run_until(lambda: slot.condition == slots.CLAIMED_IDLE, within=10)
            await pool.run_until(lambda: slot.condition == slots.UNCLAIMED, within=20)
            pool.assert_sound()

    run_virtual(work())


def test_a_claim_that_is_over_is_forgotten() -> None:
    async def work() -> None:
        async with SimPool(36, settings={**QUICK, "CLAIM_LIFE": "0"}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(1.0))
            await pool.submit("head", count=20)
            await pool.run_until(lambda: pool.queued("head") == 0, within=600)
            await asyncio.sleep(5.0)
            watch = pool.role("head", "schedd").placement._watch
            assert pool.traps.called["startd.claim"] >= 10
            assert not any(watch._over.values())
            pool.assert_sound()

    run_virtual(work())


def test_an_evicted_job_is_matched_again_at_once() -> None:
    """Its machine is free before the negotiator knows that the job is idle; the next regular cycle is far."""

    async def work() -> None:
        async with SimPool(37, settings={**QUICK, "NEGOTIATION_INTERVAL": "600"}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(100.0))
            await pool.submit("head")
            await pool.run_until(lambda: bool(pool.witness.running), within=60, step=0.001)
            await asyncio.sleep(0.3)  # its start was advertised a moment ago
            startd = pool.role("m1", "startd")
            await startd.evict(startd.slots["slot1"], True)
            await pool.run_until(lambda: len(pool.witness.starts) == 2, within=2)
            pool.assert_sound()

    run_virtual(work())
