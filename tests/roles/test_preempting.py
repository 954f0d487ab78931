"""Better jobs for slots that are taken (D5, RL 4.3): who waits, who leaves, what happens when anything dies.

The negotiator's part is played here, so that each step comes when the test wants it; startds and schedds are the real
ones. Two schedds: `low` has alice's job, which runs; `high` has bob's, which is better.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pool.errors import PoolError
from pool.policy import slots
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, told

RULES = {**QUICK, "RANK": "TARGET.Worth", "EVALUATE_INTERVAL": "5"}
LONG = Behaviour(3000.0)


class Story:
    """A machine m1 that runs alice's job (Worth 1), and bob's job (Worth 5) that waits at another schedd."""

    def __init__(self, pool: SimPool) -> None:
        self.pool = pool

    def slot(self, name: str = "slot1") -> Any:
        return self.pool.role("m1", "startd").slots[name]

    def running(self) -> set[str]:
        return set(self.pool.witness.running)

    def of(self, node: str) -> Any:
        """The only job in a schedd's queue."""
        (job,) = self.pool.role(node, "schedd").queue.jobs()
        return job

    async def tell(self, to: str, method: str, params: dict[str, Any]) -> Any:
        """Speak as the negotiator."""
        link = await self.pool.network.host("broker", roles=("negotiator",)).connect(f"mem://{to}")
        try:
            return await link.call(method, params)
        finally:
            await link.close()

    async def match(self, user: str, node: str, slot: str = "slot1@m1", why: str = "") -> bool:
        """Match a user's first request with a slot; `why` for one that is taken. Whether the startd agreed."""
        await asyncio.sleep(0.2)
        submitter = f"{user}@{node}"
        asked = {"submitter": submitter, "limit": 100, "references": ["worth"]}
        requests = (await self.tell(node, "schedd.requests", asked))["requests"]
        if not requests:
            return False
        _, private = told(self.pool, slot)
        preempt = {"preempt": why == "unsaid" or why} if why else {}
        grant = {"slot": slot, "claim": private.get("ClaimId", ""), "count": 1, "submitter": submitter, **preempt}
        if not (await self.tell("m1", "startd.matched", {"grants": [{**grant, "node": node}]}))["accepted"]:
            return False
        match = {**grant, "request": requests[0]["number"], "startd": "mem://m1", "ad": {}}
        await self.tell(node, "schedd.matched", {"matches": [match]})
        return True

    async def begun(self, slot: str = "slot1@m1") -> None:
        """Alice's job runs."""
        assert await self.match("alice", "low", slot)
        await self.pool.run_until(lambda: bool(self.running()), within=10)
        await asyncio.sleep(2.0)

    async def idle(self) -> None:
        """Alice's job has ended, and her schedd still has the claim, for a moment."""
        ended = asyncio.Event()

        async def tell() -> None:
            ended.set()

        self.pool.run_at("schedd.ended", TrapPhase.AFTER, tell)
        await ended.wait()
        await asyncio.sleep(0.1)
        assert self.slot().condition == slots.CLAIMED_IDLE

    async def both_end(self, within: float = 20000) -> None:
        """Nothing is lost, whoever was preempted: the broker matches what is free until both jobs have ended."""

        async def match_what_is_free() -> None:
            while True:
                await asyncio.sleep(5.0)
                for user, node in (("bob", "high"), ("alice", "low")):
                    entries = self.pool.role("head", "collector")._registry.entries
                    for kind, name in list(entries):
                        if kind == "Machine" and entries[(kind, name)].ad["State"] == "Unclaimed":
                            await self.match(user, node, name)

        matching = asyncio.create_task(match_what_is_free())
        try:
            await self.pool.run_until(lambda: not self.pool.queued("low") + self.pool.queued("high"), within=within)
        finally:
            matching.cancel()
        for node in ("low", "high"):
            (ad,) = [ad for ad in await self.pool.ended(node) if ad["JobStatus"] == 4]
            assert ad["ExitCode"] == 0
        await self.pool.run_until(lambda: not self.pool.role("m1", "startd").claims, within=200)
        assert not self.pool.nodes["m1"].machine.keepers
        for node in ("low", "high"):
            assert not self.pool.role(node, "schedd").placement.claims
            assert not self.pool.role(node, "schedd").placement.matches.on_the_way("bob")


def play(
    story: Callable[[Story], Coroutine[Any, Any, None]],
    *,
    settings: dict[str, str] | None = None,
    first: Behaviour = LONG,
    second: Behaviour = LONG,
    ad: dict[str, Any] | None = None,
    directory: Path | None = None,
) -> None:
    async def work() -> None:
        async with SimPool(61, settings={**RULES, **(settings or {})}, directory=directory) as pool:
            await pool.add("head", "collector")
            await pool.add("low", "schedd")
            await pool.add("high", "schedd")
            behave = {"alice": first, "bob": second}
            await pool.add("m1", "startd", behave=lambda spec: behave[str(spec.claim["owner"])])
            await pool.submit("low", owner="alice", ad={"Worth": 1, **(ad or {})})
            # Jobs of two schedds may have the same number; the witness tells them apart by it.
            await pool.submit("high", owner="bob", ad={"Worth": 5, "Requirements": ["false"]})
            await pool.act("high", "bob", action="remove", all=True)
            await pool.submit("high", owner="bob", ad={"Worth": 5})
            await story(Story(pool))
            pool.assert_sound()

    run_virtual(work())


# --- as it should be


def test_a_job_that_the_machine_prefers_takes_its_place() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        assert it.running() == {"1.0"}
        assert await it.match("bob", "high", why="rank")
        await it.pool.run_until(lambda: it.running() == {"2.0"}, within=1)
        await it.pool.run_until(lambda: it.of("low").status == 1, within=1)
        alices = it.of("low")
        assert alices.get("VacateReason") == "preempted by rank: the machine prefers a job of bob@high (5 over 1)"
        await asyncio.sleep(1.0)
        ad, _ = told(it.pool, "slot1@m1")
        assert (ad["RemoteUser"], ad["CurrentRank"], ad["State"]) == ("bob@high", 5.0, "Claimed")
        await it.both_end()
        assert len(it.pool.witness.starts) == 3

    play(story)


def test_the_word_of_the_negotiator_counts_for_priorities() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        assert await it.match("bob", "high", why="priority")
        await it.pool.run_until(lambda: it.running() == {"2.0"}, within=1)
        assert it.of("low").get("VacateReason") == "preempted by the user priority of bob@high"

    play(story, settings={"RANK": "0"})


def test_a_grant_that_does_not_say_why_is_taken_for_what_it_can_be() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        assert await it.match("bob", "high", why="unsaid")
        await it.pool.run_until(lambda: it.running() == {"2.0"}, within=1)
        assert it.of("low").get("VacateReason").startswith("preempted by rank")

    play(story)


def test_rank_is_compared_again_by_the_machine() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        assert await it.match("bob", "high", why="rank")
        await asyncio.sleep(60.0)
        assert it.running() == {"1.0"}
        assert it.of("high").status == 1
        assert it.slot().condition == slots.BUSY
        _, private = told(it.pool, "slot1@m1")
        assert private["ClaimId"]  # somebody else may try

    play(story, settings={"RANK": "0 - TARGET.Worth"})


def test_nobody_preempts_without_the_grant_for_it() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        assert not await it.match("bob", "high")
        await asyncio.sleep(10.0)
        assert it.running() == {"1.0"}

    play(story)


def test_both_ads_are_matched_again() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        it.pool.nodes["m1"].sensors.facts["Closed"] = True
        await asyncio.sleep(6.0)
        assert await it.match("bob", "high", why="priority")
        await asyncio.sleep(60.0)
        assert it.running() == {"1.0"}

    play(story, settings={"START": 'Closed =!= true || TARGET.Owner == "alice"'})


def test_an_idle_claim_makes_room_at_once_and_its_schedd_is_told() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        await it.idle()
        assert len(it.pool.role("low", "schedd").placement.claims) == 1
        assert await it.match("bob", "high", why="rank")
        await it.pool.run_until(lambda: it.running() == {"2.0"}, within=0.5)
        assert not it.pool.role("low", "schedd").placement.claims

    play(story, first=Behaviour(20.0))


def test_a_dynamic_slot_is_taken_over_as_it_is() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        assert set(it.pool.role("m1", "startd").slots) == {"slot1", "slot1_1"}
        assert await it.match("bob", "high", "slot1_1@m1", why="rank")
        await it.pool.run_until(lambda: it.running() == {"2.0"}, within=1)
        assert it.slot("slot1_1").resources["Memory"] == 500
        assert it.slot().resources["Memory"] == 4096 - 500
        await it.both_end()
        await it.pool.run_until(lambda: set(it.pool.role("m1", "startd").slots) == {"slot1"}, within=60)
        assert it.slot().resources["Memory"] == 4096

    play(story, settings={"SLOTS": "partitionable"}, ad={"RequestMemory": 500})


def test_a_job_that_asks_for_more_than_a_dynamic_slot_has_does_not_get_it() -> None:
    async def story(it: Story) -> None:
        await it.pool.act("high", "bob", action="remove", all=True)
        await it.pool.submit("high", owner="bob", ad={"Worth": 5, "RequestMemory": 1000})
        await it.begun()
        assert await it.match("bob", "high", "slot1_1@m1", why="rank")
        await asyncio.sleep(30.0)
        assert it.running() == {"1.0"}
        assert it.slot("slot1_1").condition == slots.BUSY

    play(story, settings={"SLOTS": "partitionable"}, ad={"RequestMemory": 500})


# --- retirement


@pytest.mark.parametrize(("wish", "expected"), [(None, 600.0), (100, 100.0), (5000, 600.0)])
def test_retirement_is_respected_and_the_jobs_own_smaller_wish(wish: int | None, expected: float) -> None:
    async def story(it: Story) -> None:
        await it.begun()
        assert await it.match("bob", "high", why="rank")
        await it.pool.run_until(lambda: it.slot().condition == slots.RETIRING, within=1)
        ad, private = told(it.pool, "slot1@m1")
        assert (ad["Activity"], ad["PreemptingUser"], private) == ("Retiring", "bob@high", {})
        await it.pool.run_until(lambda: it.running() == {"2.0"}, within=1000)
        (_, _, began), (_, _, over) = it.pool.witness.starts[0], it.pool.witness.ends[0]
        assert expected - 1 <= over - began <= expected + 6
        assert it.of("low").get("VacateReason").startswith("preempted by rank")

    ad = {"MaxJobRetirementTime": wish} if wish is not None else {}
    play(story, settings={"MAX_JOB_RETIREMENT": "10 min"}, ad=ad)


def test_a_job_that_ends_in_its_retirement_has_ended_well() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        assert await it.match("bob", "high", why="rank")
        await it.pool.run_until(lambda: it.running() == {"2.0"}, within=150)
        (ad,) = await it.pool.ended("low")
        assert (ad["ExitCode"], ad["NumJobStarts"]) == (0, 1)
        await it.both_end()

    play(story, settings={"MAX_JOB_RETIREMENT": "10 min"}, first=Behaviour(100.0))


def test_a_job_that_does_not_want_to_leave_is_killed_in_time() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        assert await it.match("bob", "high", why="rank")
        await it.pool.run_until(lambda: it.slot().condition == slots.VACATING, within=1)
        await asyncio.sleep(60.0)
        assert it.running() == {"1.0"}
        await it.pool.run_until(lambda: it.running() == {"2.0"}, within=120)

    play(story, settings={"MAX_VACATE": "2 min"}, first=Behaviour(3000.0, stubborn=True))


# --- who changes their mind


def test_who_does_not_want_the_slot_any_more_leaves_the_job_alone() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        assert await it.match("bob", "high", why="rank")
        await it.pool.run_until(lambda: it.slot().condition == slots.RETIRING, within=1)
        await it.pool.act("high", "bob", action="remove", all=True)
        await it.pool.run_until(lambda: it.slot().condition == slots.BUSY, within=1)
        assert it.slot().waiting is None
        await it.pool.run_until(lambda: it.pool.queued("low") == 0, within=4000)
        (ad,) = await it.pool.ended("low")
        assert (ad["NumJobStarts"], ad["ExitCode"]) == (1, 0)
        await it.pool.run_until(lambda: not it.pool.role("m1", "startd").claims, within=5)

    play(story, settings={"MAX_JOB_RETIREMENT": "2 h"})


def test_a_slot_is_not_waited_for_for_ever() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        assert await it.match("bob", "high", why="rank")
        await asyncio.sleep(550.0)
        assert it.slot().condition == slots.RETIRING
        assert it.pool.role("high", "schedd").placement.matches.on_the_way("bob") == 1
        await asyncio.sleep(100.0)
        assert it.slot().condition == slots.BUSY
        assert it.pool.role("high", "schedd").placement.matches.on_the_way("bob") == 0

    play(story, settings={"MAX_JOB_RETIREMENT": "2 h", "CLAIM_PATIENCE": "10 min"})


def test_a_second_better_job_has_to_wait_for_another_match() -> None:
    async def story(it: Story) -> None:
        await it.pool.add("higher", "schedd")
        await it.pool.submit("higher", owner="bob", count=3, ad={"Worth": 9})
        await it.begun()
        _, private = told(it.pool, "slot1@m1")
        grant = {"slot": "slot1@m1", "claim": private["ClaimId"], "count": 1, "preempt": "rank"}
        storm = [{**grant, "submitter": f"bob@{node}", "node": node} for node in ("high", "higher") * 50]
        answer = await it.tell("m1", "startd.matched", {"grants": storm})
        assert answer["accepted"] == [0]
        assert not await it.match("bob", "higher", why="rank")
        await asyncio.sleep(35.0)  # nobody came with the grant: it has lapsed
        assert await it.match("bob", "higher", why="rank")
        await asyncio.sleep(1.0)
        assert not await it.match("bob", "high", why="rank")
        assert it.slot().condition == slots.RETIRING

    play(story, settings={"MAX_JOB_RETIREMENT": "1 h"})


def test_an_owner_who_comes_back_has_the_machine_before_anybody() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        assert await it.match("bob", "high", why="rank")
        await it.pool.run_until(lambda: it.slot().condition == slots.RETIRING, within=1)
        it.pool.nodes["m1"].sensors.owners_load = 3.0
        await it.pool.run_until(lambda: it.slot().condition == slots.OWNER, within=60)
        assert it.slot().waiting is None
        assert not it.running()
        assert it.of("low").get("VacateReason") == "the machine's owner is back"
        await asyncio.sleep(60.0)
        assert (it.of("low").status, it.of("high").status) == (1, 1)
        assert it.pool.role("high", "schedd").placement.matches.on_the_way("bob") == 0
        it.pool.nodes["m1"].sensors.owners_load = 0.0
        await it.both_end()

    play(story, settings={"POLICY": "desktop", "MAX_JOB_RETIREMENT": "1 h"})


def test_an_administrator_who_vacates_hurries_a_retirement() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        assert await it.match("bob", "high", why="rank")
        await it.pool.run_until(lambda: it.slot().condition == slots.RETIRING, within=1)
        startd = it.pool.role("m1", "startd")
        await startd.evict(it.slot(), True)
        await it.pool.run_until(lambda: it.running() == {"2.0"}, within=5)
        await it.both_end()

    play(story, settings={"MAX_JOB_RETIREMENT": "1 h"})


# --- who dies


@pytest.mark.parametrize("victim", ["low", "high", "m1"])
@pytest.mark.parametrize("when", [0.0, 0.001, 0.003, 0.005, 0.008, 5.0])
@pytest.mark.parametrize("retirement", ["0", "10 min"])
@pytest.mark.parametrize("away", [5.0, 200.0])
def test_whoever_dies_meanwhile_both_jobs_run_to_their_end_and_never_twice(
    victim: str, when: float, retirement: str, away: float, tmp_path: Path
) -> None:
    async def story(it: Story) -> None:
        await it.begun()
        await it.match("bob", "high", why="rank")
        await asyncio.sleep(when)
        await it.pool.kill(victim)
        await asyncio.sleep(away)
        await it.pool.restart(victim)
        await it.both_end()
        assert Counter(job for job, _, _ in it.pool.witness.starts).keys() == {"1.0", "2.0"}

    play(
        story,
        settings={"MAX_JOB_RETIREMENT": retirement},
        first=Behaviour(300.0),
        second=Behaviour(30.0),
        directory=tmp_path,
    )


STEPS = ["startd.matched", "schedd.matched", "startd.preempt", "schedd.ended", "startd.activate", "schedd.revoked"]


@pytest.mark.parametrize("victim", ["low", "high", "m1"])
@pytest.mark.parametrize("phase", list(TrapPhase))
@pytest.mark.parametrize("method", STEPS)
def test_killed_at_a_step_of_the_preemption(method: str, phase: TrapPhase, victim: str, tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        await it.begun()
        if method == "schedd.revoked":
            await it.idle()
        it.pool.trap(method, phase, victim)
        with contextlib.suppress(PoolError):  # the broker's own call may meet the trap
            await it.match("bob", "high", why="rank")
        await asyncio.sleep(20.0)
        for name, node in it.pool.nodes.items():
            if not node.running:
                await it.pool.restart(name)
        await it.both_end()

    play(story, first=Behaviour(100.0), second=Behaviour(30.0), directory=tmp_path)


@pytest.mark.parametrize("who", ["low", "high"])
@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("seconds", [10.0, 100.0])
def test_cut_off_while_somebody_waits(who: str, silent: bool, seconds: float, tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        await it.begun()
        await it.match("bob", "high", why="rank")
        await asyncio.sleep(5.0)
        it.pool.network.partition({who}, {"m1"}, silent=silent)
        await asyncio.sleep(seconds)
        it.pool.network.restore_links()
        await it.both_end()

    rules = {"MAX_JOB_RETIREMENT": "3 min"}
    play(story, settings=rules, first=Behaviour(300.0), second=Behaviour(30.0), directory=tmp_path)


# --- with the negotiator


def test_the_negotiator_preempts_by_rank_and_the_evicted_job_comes_back() -> None:
    async def work() -> None:
        async with SimPool(62, settings=RULES) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(600.0))
            await pool.submit("head", owner="alice", ad={"Worth": 1})
            await pool.run_until(lambda: bool(pool.witness.running), within=60)
            await asyncio.sleep(60.0)
            await pool.submit("head", owner="bob", ad={"Worth": 5})
            await pool.run_until(lambda: "2.0" in pool.witness.running, within=5)
            # Nobody preempts the better one, and two equal ones do not change places.
            await pool.submit("head", owner="carol", ad={"Worth": 5})
            await pool.run_until(lambda: not pool.queued("head"), within=4000)
            assert [job for job, _, _ in pool.witness.starts][:2] == ["1.0", "2.0"]
            assert Counter(job for job, _, _ in pool.witness.starts) == {"1.0": 2, "2.0": 1, "3.0": 1}
            pool.assert_sound()

    run_virtual(work())


def test_a_storm_of_better_jobs_for_all_machines_at_once() -> None:
    """Thirty machines, each with a job; sixty better ones come together, and then ninety still better ones."""

    async def work() -> None:
        async with SimPool(63, settings={**RULES, "SLOTS": "2", "EVALUATE_INTERVAL": "30"}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            for number in range(15):
                await pool.add(f"m{number}", "startd", behave=lambda spec: Behaviour(300.0))
            for worth, (user, count) in enumerate((("alice", 30), ("bob", 60), ("carol", 90))):
                await pool.submit("head", owner=user, count=count, ad={"Worth": worth})
                await asyncio.sleep(20.0)
            assert {job.partition(".")[0] for job in pool.witness.running} == {"3"}
            assert pool.traps.called["startd.preempt"] <= 70
            await pool.run_until(lambda: not pool.queued("head"), within=20000)
            assert {ad["ExitCode"] for ad in await pool.ended("head")} == {0}
            pool.assert_sound()

    run_virtual(work())


def test_a_slot_taken_for_one_job_of_a_user_is_not_used_for_the_one_that_left() -> None:
    async def work() -> None:
        async with SimPool(64, settings=RULES) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(600.0))
            for worth in (1, 5):
                await pool.submit("head", owner="alice", ad={"Worth": worth})
                await asyncio.sleep(60.0)
            await pool.run_until(lambda: not pool.queued("head"), within=4000)
            assert [job for job, _, _ in pool.witness.starts] == ["1.0", "2.0", "1.0"]
            pool.assert_sound()

    run_virtual(work())
