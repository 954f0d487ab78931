"""Why: asked of real roles over the wire, in pools that do not exist (D8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pool.client.why import Explanation
from pool.errors import PoolError
from pool.policy.why.findings import (
    Busy,
    ClaimingFinding,
    Cycle,
    Demand,
    Ended,
    FailedStarts,
    HeldFinding,
    Limit,
    Machines,
    Nearest,
    Outlook,
    Queued,
    RefusedFinding,
    Rejected,
    Rule,
    Running,
    Silent,
    SlotFinding,
    Trouble,
    TurnFinding,
    Unmet,
    UnreachableFinding,
)
from pool.policy.why.standing import Standing
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, asking

LONG = Behaviour(100_000.0)
MEMORY = "(TARGET.Memory >= RequestMemory)"


def tell(
    story: Callable[[SimPool], Coroutine[Any, Any, None]],
    *,
    machines: int = 2,
    settings: dict[str, str] | None = None,
    behave: Behaviour = LONG,
) -> None:
    async def work() -> None:
        async with SimPool(3, settings={**QUICK, **(settings or {})}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            for number in range(machines):
                await pool.add(f"m{number}", "startd", behave=lambda spec: behave)
            await story(pool)
            pool.assert_sound()

    run_virtual(work())


async def why(pool: SimPool, job: str, user: str = "alice") -> Explanation:
    async with asking(pool, user) as asker:
        return await asker.why(job)


async def why_machine(pool: SimPool, name: str) -> list[Explanation]:
    async with asking(pool) as asker:
        return await asker.why_machine(name)


def the(explanation: Explanation, kind: type[Any]) -> Any:
    found = [finding for finding in explanation.findings if isinstance(finding, kind)]
    assert found, explanation
    return found[0]


# --- jobs


def test_a_running_job_and_one_that_waits_for_busy_machines() -> None:
    async def story(pool: SimPool) -> None:
        cluster = await pool.submit("head", count=4, owner="bob")
        await pool.run_until(lambda: len(pool.witness.running) == 2, within=60)
        await asyncio.sleep(10)
        running = await why(pool, f"{cluster}.0")
        assert running.standing is Standing.RUNNING
        assert the(running, Running).phase == "running"
        assert running.lines()[0].startswith(f"{cluster}.0 runs on slot1@m")
        waiting = await why(pool, f"{cluster}.3")
        assert waiting.standing is Standing.BUSY
        busy = the(waiting, Busy)
        assert (busy.count, [share.count for share in busy.users]) == (2, [2])
        queued = the(waiting, Queued)
        assert (queued.ahead, queued.idle, queued.alike) == (1, 2, 2)

    tell(story)


def test_a_request_larger_than_any_machine() -> None:
    async def story(pool: SimPool) -> None:
        ad = {"Requirements": [f'OpSys == "LINUX" && {MEMORY}'], "RequestMemory": 65536}
        cluster = await pool.submit("head", ad=ad)
        await asyncio.sleep(5)
        explanation = await why(pool, f"{cluster}.0")
        assert explanation.standing is Standing.NO_MATCH
        (condition,) = the(explanation, Unmet).conditions
        assert (condition.text, condition.best) == ("request_memory 64 GB", "4 GB")
        assert the(explanation, Nearest).lets_in == 2

    tell(story)


def test_owners_who_use_their_machines() -> None:
    async def story(pool: SimPool) -> None:
        for node in pool.nodes.values():
            node.sensors.touched = pool.wall()
        await asyncio.sleep(20)
        cluster = await pool.submit("head")
        await asyncio.sleep(120)
        explanation = await why(pool, f"{cluster}.0")
        assert explanation.standing is Standing.REFUSED
        refused = the(explanation, RefusedFinding)
        assert refused.clauses[0].text == "KeyboardIdle > 900"
        assert "their owners use them" in str(explanation)

    tell(story, settings={"POLICY": "desktop"})


def test_a_job_that_is_held_and_what_releases_it() -> None:
    async def story(pool: SimPool) -> None:
        cluster = await pool.submit("head", ad={"Requirements": ["false"]})
        await pool.act("head", "alice", action="hold", ids=[[cluster]], reason="not yet")
        explanation = await why(pool, f"{cluster}.0")
        assert explanation.standing is Standing.HELD
        assert the(explanation, HeldFinding).code == 1
        assert "not yet" in explanation.lines()[0]
        assert f"poolnode release {cluster}.0" in explanation.lines()[1]

    tell(story)


def test_jobs_that_have_ended_and_jobs_that_never_were() -> None:
    async def story(pool: SimPool) -> None:
        done = await pool.submit("head")
        await pool.run_until(lambda: pool.queued("head") == 0, within=60)
        gone = await pool.submit("head", ad={"Requirements": ["false"]})
        await pool.act("head", "alice", action="remove", ids=[[gone]], reason="no use")
        ended = the(await why(pool, f"{done}.0"), Ended)
        assert (ended.removed, ended.code, ended.signalled) == (False, 3, False)
        removed = the(await why(pool, f"{gone}.0"), Ended)
        assert removed.removed
        assert "no use" in removed.reason
        with pytest.raises(PoolError, match=r"there is no job 99\.0"):
            await why(pool, "99.0")

    tell(story, behave=Behaviour(5.0, 3))


def test_a_job_on_a_machine_that_cannot_be_reached() -> None:
    async def story(pool: SimPool) -> None:
        cluster = await pool.submit("head")
        await pool.run_until(lambda: len(pool.witness.running) == 1, within=60)
        await asyncio.sleep(1)
        await pool.kill(next(iter(pool.witness.running.values())))
        await asyncio.sleep(5)
        explanation = await why(pool, f"{cluster}.0")
        assert explanation.standing is Standing.UNREACHABLE
        assert 0 < the(explanation, UnreachableFinding).left <= 63
        assert "starts elsewhere" in str(explanation)

    tell(story)


def test_nobody_to_ask_and_nothing_to_run_on() -> None:
    async def story(pool: SimPool) -> None:
        cluster = await pool.submit("head")
        await asyncio.sleep(1)
        empty = await why(pool, f"{cluster}.0")
        assert empty.standing is Standing.NO_MACHINES
        assert the(empty, Machines).slots == 0
        await pool.add("other", "schedd")
        alone = await pool.submit("other")
        await pool.kill("head")
        async with asking(pool, at="other") as asker:
            explanation = await asker.why((alone, 0))
        assert explanation.standing is Standing.BLIND
        assert the(explanation, Silent).who == "the negotiator"
        assert the(explanation, Queued).owner == "alice"

    tell(story, machines=0)


def test_a_negotiator_that_hears_no_collector() -> None:
    async def story(pool: SimPool) -> None:
        await pool.add("other", "negotiator,schedd")
        cluster = await pool.submit("other", count=2, ad={"Requirements": ["TARGET.Memory > 100000"]})
        await asyncio.sleep(30)
        await pool.kill("head")
        await asyncio.sleep(90)
        async with asking(pool, at="other") as asker:
            explanation = await asker.why((cluster, 0))
        assert explanation.standing is Standing.NO_MATCH
        assert the(explanation, Silent).who == "the collector"
        await pool.kill("other")
        await pool.restart("other")
        cluster = await pool.submit("other")
        await asyncio.sleep(1)
        async with asking(pool, at="other") as asker:
            explanation = await asker.why((cluster, 0))
        assert explanation.standing is Standing.BLIND
        assert "the collector cannot be asked" in str(explanation)

    tell(story)


def test_a_cycle_that_takes_long_holds_no_asker_up() -> None:
    async def story(pool: SimPool) -> None:
        cluster = await pool.submit("head", count=3, owner="bob")
        await pool.run_until(lambda: len(pool.witness.running) == 2, within=60)
        await asyncio.sleep(5)
        async with pool.role("head", "negotiator")._looking:
            explanation = await why(pool, f"{cluster}.2")
            assert the(explanation, Busy).kept == ()
            assert the(explanation, TurnFinding).running == 2
            assert the((await why_machine(pool, "m0"))[0], Demand).fit == 1
        assert the(await why(pool, f"{cluster}.2"), Busy).kept

    tell(story)


def test_slots_that_are_too_small_by_themselves() -> None:
    async def story(pool: SimPool) -> None:
        node = pool.nodes["m0"]
        node.sensors.facts["Cpus"] = 4
        await pool.kill("m0")
        await pool.restart("m0")
        await pool.submit("head", count=4, owner="bob")
        await pool.run_until(lambda: len(pool.witness.running) == 4, within=60)
        cluster = await pool.submit("head", ad={"RequestCpus": 3})
        await asyncio.sleep(10)
        busy = the(await why(pool, f"{cluster}.0"), Busy)
        kept = [(one.value, one.count) for one in busy.kept]
        assert (busy.count, kept) == (1, [("it is too small by itself", 4)])

    tell(story, machines=1, settings={"SLOTS": "partitionable"})


def test_what_the_last_negotiation_left_is_kept_with_the_jobs() -> None:
    async def story(pool: SimPool) -> None:
        cluster = await pool.submit("head", count=2, ad={"Requirements": ["TARGET.Memory > 100000"]})
        await asyncio.sleep(5)
        explanation = await why(pool, f"{cluster}.1")
        assert the(explanation, Rejected).reason == the(explanation, Cycle).reason == "no machine matches"
        async with asking(pool) as asker:
            ads = await asker.jobs(constraint="LastRejMatchTime > 0")
        assert [ad.value("LastRejMatchReason") for ad in ads] == ["no machine matches"] * 2
        await pool.act("head", "alice", action="hold", ids=[[cluster, 0]])
        async with asking(pool) as asker:
            (held,) = await asker.jobs(ids=[(cluster, 0)])
        assert held.value("LastRejMatchReason") is None

    tell(story)


def test_a_negotiator_that_speaks_of_requests_that_are_not_there() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", ad={"Requirements": ["false"]})
        await asyncio.sleep(1)
        links = pool.nodes["head"].links
        assert links is not None
        (group,) = pool.role("head", "schedd").queue.groups("alice")
        for rejections in ([[group.id, "x" * 10_000], [77, "y"]], [], [[group.id, 7]]):
            params = {"submitter": "alice@head", "time": 5.0, "rejections": rejections}
            await links.call("mem://head", "schedd.rejected", params)
        assert group.rejected == ("7", 5.0)
        params = {"submitter": "bob@head", "time": 6.0, "rejections": [[group.id, "not yours"]]}
        await links.call("mem://head", "schedd.rejected", params)
        assert group.rejected == ("7", 5.0)

    tell(story)


def test_where_the_user_stands_and_how_long_it_may_take() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=8, owner="bob")
        await asyncio.sleep(1)
        cluster = await pool.submit("head", count=3, owner="alice")
        await asyncio.sleep(5)
        early = await why(pool, f"{cluster}.2")
        turn = the(early, TurnFinding)
        assert (turn.user, turn.place, turn.of, turn.running) == ("alice@head", 1, 2, 0)
        assert the(early, Outlook).seconds is None
        assert "none like them has ended yet" in str(early)
        await asyncio.sleep(250)
        late = await why(pool, f"{cluster}.2")
        found = the(late, Outlook)
        assert found.seconds is not None
        assert 60 < found.seconds < 600
        assert "outlook: about" in str(late)

    tell(story, behave=Behaviour(100.0))


def test_machines_that_cannot_start_a_job() -> None:
    async def story(pool: SimPool) -> None:
        cluster = await pool.submit("head", ad={"Requirements": ["false"]})
        (job,) = pool.role("head", "schedd").queue.jobs()
        failures = [["m1", 0.0, 10.0], ["m0", 5.0, 15.0]]
        job.update({"_start_failures": failures, "LastRemoteHost": "slot1@m0"})
        failed = the(await why(pool, f"{cluster}.0"), FailedStarts)
        assert (failed.count, failed.most, failed.slot) == (2, 5, "slot1@m0")

    tell(story)


def test_another_users_job_shows_nothing_private() -> None:
    async def story(pool: SimPool) -> None:
        ad = {"Environment": "SECRET=hunter2", "Requirements": ["false"]}
        cluster = await pool.submit("head", owner="bob", ad=ad)
        explanation = await why(pool, f"{cluster}.0", user="mallory")
        assert "hunter2" not in str(explanation.to_json()) + str(explanation)
        async with asking(pool, "mallory") as asker:
            answer = await asker.call("schedd.why", {"id": [cluster, 0]})
        assert "hunter2" not in str(answer)

    tell(story)


@pytest.mark.parametrize(
    ("request_", "fine"),
    [
        ({}, False),
        ({"ad": 3}, False),
        ({"ad": {f"a{number}": number for number in range(6000)}}, False),
        ({"ad": {"Requirements": 3.5}}, True),
        ({"ad": {"Requirements": ["((((("], "RequestMemory": "lots"}, "submitter": 7, "number": "x"}, True),
    ],
)
def test_requests_that_are_none_are_told_so_or_answered(request_: dict[str, Any], fine: bool) -> None:
    async def story(pool: SimPool) -> None:
        async with asking(pool) as asker:
            if fine:
                assert (await asker.call("negotiator.why", {"request": request_}))["findings"]
            else:
                with pytest.raises(PoolError, match="no job ad"):
                    await asker.call("negotiator.why", {"request": request_})

    tell(story, machines=1)


# --- machines


def test_a_machine_whose_owner_is_there() -> None:
    async def story(pool: SimPool) -> None:
        pool.nodes["m0"].sensors.touched = pool.wall()
        await asyncio.sleep(30)
        (explanation,) = await why_machine(pool, "m0")
        slot = the(explanation, SlotFinding)
        assert (slot.name, slot.state) == ("slot1@m0", "Owner")
        rule = the(explanation, Rule)
        assert (rule.name, rule.value) == ("START", "false")
        assert rule.clauses == ("KeyboardIdle > 900 is not so (KeyboardIdle is 30)",)

    tell(story, settings={"POLICY": "desktop"}, machines=1)


def test_a_machine_that_runs_says_what_would_move_the_job() -> None:
    async def story(pool: SimPool) -> None:
        cluster = await pool.submit("head", count=3)
        await pool.run_until(lambda: len(pool.witness.running) == 1, within=60)
        await asyncio.sleep(3)
        (explanation,) = await why_machine(pool, "slot1@m0")
        assert the(explanation, SlotFinding).job == f"{cluster}.0"
        rules = {finding.name: finding for finding in explanation.findings if isinstance(finding, Rule)}
        assert set(rules) == {"SUSPEND", "PREEMPT"}
        assert rules["SUSPEND"].value == "false"
        assert "KeyboardIdle < 15" in rules["SUSPEND"].clauses[0]

    tell(story, settings={"POLICY": "desktop"}, machines=1)


def test_a_free_machine_and_jobs_that_do_not_want_it() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=3, ad={"Requirements": ['OpSys == "WINDOWS"']})
        await pool.submit("head", count=2, ad={"RequestMemory": 65536})
        await asyncio.sleep(130)
        (explanation,) = await why_machine(pool, "m0")
        demand = the(explanation, Demand)
        assert (demand.jobs, demand.clusters, demand.fit) == (5, 2, 0)
        assert {share.value: share.count for share in demand.unmet} == {
            'OpSys == "WINDOWS"': 3,
            "request_memory 64 GB": 2,
        }

    tell(story, machines=1)


def test_a_machine_that_is_taken_out_of_use() -> None:
    async def story(pool: SimPool) -> None:
        link = await pool.network.user("root", "m0", administer=True)
        await link.call("startd.drain", {"reason": "a new disk"})
        await link.close()
        await asyncio.sleep(1)
        (explanation,) = await why_machine(pool, "m0")
        assert the(explanation, SlotFinding).state == "Drained"
        assert "out of use: a new disk" in str(explanation)
        cluster = await pool.submit("head")
        await asyncio.sleep(120)
        waiting = await why(pool, f"{cluster}.0")
        assert waiting.standing is Standing.UNUSABLE
        assert "(1 out of use)" in str(waiting)

    tell(story, machines=1)


def test_a_job_for_which_another_makes_room() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", owner="bob")
        await pool.run_until(lambda: len(pool.witness.running) == 1, within=60)
        cluster = await pool.submit("head")
        await asyncio.sleep(60)
        explanation = await why(pool, f"{cluster}.0")
        assert explanation.standing is Standing.CLAIMING
        assert the(explanation, ClaimingFinding) == ClaimingFinding(1, 1)
        (machine,) = await why_machine(pool, "m0")
        assert the(machine, SlotFinding).activity == "Retiring"

    tell(story, settings={"RANK": 'TARGET.Owner == "alice"', "MAX_JOB_RETIREMENT": "1 h"}, machines=1)


def test_what_may_take_a_slot_from_its_job() -> None:
    """Jobs that the machine prefers, kept waiting by a limit so that they can be looked at."""

    async def story(pool: SimPool) -> None:
        await pool.submit("head", owner="bob")
        await pool.run_until(lambda: len(pool.witness.running) == 1, within=60)
        await asyncio.sleep(3)
        negotiator = pool.role("head", "negotiator")
        cluster = await pool.submit("head", count=2, ad={"ConcurrencyLimits": "licence"})
        await pool.run_until(lambda: bool(negotiator.snapshot().leftover_requests()), within=130)
        waiting = await why(pool, f"{cluster}.0")
        assert waiting.standing is Standing.LIMITED
        assert the(waiting, Limit) == Limit("licence", 0, 0, 1, True)
        assert the(waiting, Cycle).reason == "a concurrency limit is used up (licence)"
        (explanation,) = await why_machine(pool, "m0")
        demand = the(explanation, Demand)
        assert (demand.fit, demand.better, demand.prior) == (2, 2, 0)

    rules = {"RANK": 'TARGET.Owner == "alice"', "RANK_PREEMPTION": "true", "CONCURRENCY_LIMITS": "licence=0"}
    tell(story, settings=rules, machines=1)


def test_a_policy_with_a_mistake_in_it() -> None:
    async def story(pool: SimPool) -> None:
        await asyncio.sleep(10)
        (explanation,) = await why_machine(pool, "m0")
        assert "START: error" in the(explanation, Trouble).text
        assert the(explanation, SlotFinding).state == "Owner"

    tell(story, machines=1, settings={"START": '1 + true > "x" && error'})


def test_a_machine_that_does_not_answer_is_told_of_from_its_ad() -> None:
    async def story(pool: SimPool) -> None:
        await asyncio.sleep(1)
        await pool.kill("m0")
        (explanation,) = await why_machine(pool, "m0")
        assert the(explanation, Silent).who == "the machine"
        assert the(explanation, SlotFinding).state == "Unclaimed"
        with pytest.raises(PoolError, match="there is no machine nowhere"):
            await why_machine(pool, "nowhere")

    tell(story, machines=1)


def test_a_short_name_that_several_machines_have() -> None:
    async def story(pool: SimPool) -> None:
        await pool.add("desk.a.example", "startd")
        await pool.add("desk.b.example", "startd")
        await asyncio.sleep(1)
        with pytest.raises(PoolError, match=r"desk may be any of desk\.a\.example, desk\.b\.example"):
            await why_machine(pool, "desk")
        assert [one.subject for one in await why_machine(pool, "DESK.a.example")] == ["slot1@desk.a.example"]

    tell(story, machines=0)


def test_the_last_cycle_is_told() -> None:
    async def story(pool: SimPool) -> None:
        cluster = await pool.submit("head", count=3)
        await asyncio.sleep(20)
        cycle = the(await why(pool, f"{cluster}.2"), Cycle)
        assert cycle.asked
        assert cycle.matched == 2

    tell(story)
