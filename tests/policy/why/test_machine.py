"""Why a machine runs nothing, on hand-made machines."""

from __future__ import annotations

from typing import Any

import pytest

from pool.classad import ClassAd
from pool.policy import slots
from pool.policy.owner import OwnerPolicy
from pool.policy.slots import SlotCondition
from pool.policy.why import crowd
from pool.policy.why.findings import Demand, Rule, SlotFinding, Trouble, ValueCount
from pool.policy.why.holding import run_all
from pool.policy.why.machine import IdleJobKind, demand, from_the_ad, owners_view
from pool.policy.why.words import lines
from tests.policy.why.support import DESKTOP, NOW, job, one, pool, slot


def view(
    condition: SlotCondition, policy: dict[str, str] | None = None, job_ad: ClassAd | None = None, **facts: Any
) -> Any:
    made = OwnerPolicy.from_shipped("desktop", policy or {})
    state = {"State": str(condition.state), "Activity": str(condition.activity)}
    return owners_view(made, slot("slot1@m", **DESKTOP, **state, **facts), job_ad, condition, NOW)


def rules(findings: Any) -> dict[str, Rule]:
    return {finding.name: finding for finding in findings if isinstance(finding, Rule)}


def test_the_clauses_that_keep_everybody_out() -> None:
    rule = rules(view(slots.OWNER, KeyboardIdle=12, TotalLoadAvg=2.0))["START"]
    assert rule.clauses == (
        "(TotalLoadAvg - TotalCondorLoadAvg) <= 0.3 is not so (TotalCondorLoadAvg is 0, TotalLoadAvg is 2)",
        "KeyboardIdle > 900 is not so (KeyboardIdle is 12)",
    )


def test_a_start_that_depends_on_the_job_keeps_nobody_out() -> None:
    rule = rules(view(slots.UNCLAIMED, {"START": 'TARGET.Owner == "alice"'}))["START"]
    assert (rule.value, rule.effect) == ("undefined", "it depends on the job")


@pytest.mark.parametrize(
    ("condition", "asked"),
    [
        (slots.BUSY, "SUSPEND PREEMPT"),
        (slots.SUSPENDED, "CONTINUE PREEMPT"),
        (slots.RETIRING, "SUSPEND"),
        (slots.VACATING, "KILL"),
        (slots.CLAIMED_IDLE, "START"),
        (slots.DRAINED, ""),
        (slots.KILLING, ""),
    ],
    ids=str,
)
def test_only_what_matters_now_is_said(condition: SlotCondition, asked: str) -> None:
    assert set(rules(view(condition, job_ad=job()))) == set(asked.split())


def test_a_time_that_runs_is_said() -> None:
    rule = rules(view(slots.SUSPENDED, job_ad=job()))["PREEMPT"]
    assert rule.value == "false"
    assert "so for 600 s" in rule.clauses[0]


def test_troubles_are_told_once_each() -> None:
    findings = view(slots.OWNER, {"START": "error"}, PolicyTrouble="START is error; RANK is error")
    texts = [finding.text for finding in findings if isinstance(finding, Trouble)]
    assert len(texts) == len(set(texts))
    assert any("RANK is error" in text for text in texts)


def test_a_machine_that_was_taken_out_of_use() -> None:
    assert one(view(slots.DRAINED), SlotFinding).drained == "an administrator takes it out of use"
    leaving = view(slots.BUSY, job_ad=job(), Draining=True, DrainReason="new\ndisk")
    assert lines(leaving, NOW)[1] == (
        "  an administrator takes it out of use: new disk; `poolnode undrain` brings it back"
    )


def test_what_an_ad_alone_tells_lies_included() -> None:
    ad = slot("slot1@m", **DESKTOP, KeyboardIdle=3)
    assert rules(from_the_ad(ad, NOW))["START"].value == "false"
    bare = ClassAd.from_wire({"Name": 3, "State": ["1+"], "PolicyTrouble": 7, "EnteredCurrentActivity": "long ago"})
    assert from_the_ad(bare, NOW) == [SlotFinding("", "Unknown", "", memory="0 MB")]


def against(ad: ClassAd, *wishes: IdleJobKind) -> Demand:
    (place,) = crowd.whole_slots(pool(ad))
    return run_all(demand(place, wishes, NOW))[0]


def test_idle_jobs_against_a_machine() -> None:
    found = against(
        slot("slot1@m", **(DESKTOP | {"Requirements": ['TARGET.Owner != "eve" && KeyboardIdle > 3']})),
        IdleJobKind(job(), 5),
        IdleJobKind(job('OpSys == "WINDOWS"'), 7),
        IdleJobKind(job("(TARGET.Memory >= RequestMemory)", RequestMemory=65536), 2),
        IdleJobKind(job(Owner="eve"), 1),
    )
    assert (found.jobs, found.clusters, found.fit) == (15, 4, 5)
    assert found.unmet == (ValueCount('OpSys == "WINDOWS"', 7), ValueCount("request_memory 64 GB", 2))
    assert found.refused == (ValueCount('TARGET.Owner != "eve"', 1),)


def test_a_machine_without_requirements_takes_nobody() -> None:
    assert against(slot("slot1@m", Requirements=None), IdleJobKind(job(), 3)).fit == 0
    assert one([against(slot("slot1@m"), IdleJobKind(ClassAd({}), 1))], Demand).fit == 0
