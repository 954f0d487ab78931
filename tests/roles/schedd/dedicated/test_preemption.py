"""`SCHEDD_PREEMPTION_REQUIREMENTS` and `_RANK`: waiting dedicated jobs take machines from running ones."""

from __future__ import annotations

from typing import Any

import pytest

from pool.classad import ClassAd
from pool.config import ConfigError, Settings
from pool.policy.dedicated import WRIGHT, DedicatedJob, decide
from pool.roles.schedd.dedicated.preemption import RANK, REQUIREMENTS, PreemptionRules, trouble
from tests.policy.dedicated.building import gang, machines, queue, runs
from tests.roles.schedd.dedicated.support import DedicatedStory, parallel, pause, play, serial

BY_PRIORITY: dict[str, Any] = {
    REQUIREMENTS: "TARGET.JobPrio > MY.RemoteJobPrio",
    RANK: "-MY.RemoteJobPrio",
    "CHECKPOINT_WORTH": "0",
}


def settings(**given: str) -> Settings:
    return Settings.load(None, sets=given, environ={}, files=False)


def test_the_machines_of_the_highest_rank_are_taken_and_no_more_gangs_than_needed() -> None:
    running = [runs(gang(f"{n}.0", 2)) for n in range(1, 4)]
    ranks = {"1.0:1": 1.0, "2.0:1": 5.0, "3.0:2": 3.0}

    def preempt(job: DedicatedJob) -> dict[str, float]:
        return ranks if job.priority > 0 else {}

    decisions = decide(queue(gang("9.0", 3, priority=1)), running, (), 0.0, WRIGHT, preemption=preempt)
    assert [save.job for save in decisions.saves] == ["2.0", "3.0"]
    assert not decisions.waits
    plain = decide(queue(gang("9.0", 3)), running, (), 0.0, WRIGHT, preemption=preempt)
    assert not plain.saves
    too_big = decide(queue(gang("9.0", 6, priority=1)), [*running[:2], runs(gang("8.0", 2))], (), 0.0, WRIGHT)
    assert not too_big.saves


def test_nobody_leaves_in_vain() -> None:
    """The candidates do not suffice: the third gang is none."""
    running = [runs(gang(f"{n}.0", 2)) for n in range(1, 4)]
    found = decide(queue(gang("9.0", 6)), running, (), 0.0, WRIGHT, preemption=lambda job: {"1.0:1": 1.0, "2.0:1": 1.0})
    assert not found.saves
    assert [wait.job for wait in found.waits] == ["9.0"]


def test_free_machines_come_before_those_of_others() -> None:
    running = [runs(gang("1.0", 2))]
    found = decide(queue(gang("9.0", 2)), running, machines(2), 0.0, WRIGHT, preemption=lambda job: {"1.0:1": 1.0})
    assert not found.saves
    assert [start.job for start in found.starts] == ["9.0"]


def test_one_of_the_two_alone_does_nothing_and_is_said_to() -> None:
    for name, other in ((REQUIREMENTS, RANK), (RANK, REQUIREMENTS)):
        alone = settings(**{name: "true"})
        assert PreemptionRules.read(alone) is None
        assert trouble(alone) == f"{name} does nothing without {other}: no dedicated job is preempted; set both"
    both = settings(**{REQUIREMENTS: "true", RANK: "1"})
    assert PreemptionRules.read(both) is not None
    assert not trouble(both)
    assert not trouble(settings())


def test_an_expression_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=REQUIREMENTS):
        settings(**{REQUIREMENTS: "TARGET. >"})
    with pytest.raises(ConfigError, match="there is no such setting"):
        settings(SCHEDD_PREEMPTION_REQUIREMENT="true")


def test_a_job_of_higher_priority_takes_the_machines_of_a_lower_one() -> None:
    async def story(at: DedicatedStory) -> None:
        at.seconds |= {"1.0": 500.0, "2.0": 500.0, "3.0": 20.0}
        await at.pool.submit("head", ad=serial(JobPrio=5))
        await at.runs("1.0")
        await at.pool.submit("head", ad=serial(JobPrio=2))
        await at.runs("2.0")
        await pause(30.0)
        await at.pool.submit("head", owner="bob", ad=serial(JobPrio=3))
        await at.runs("3.0", 30.0)
        assert "1.0" in at.running()
        assert "2.0" not in at.running()
        ads = await at.done(3, 2000.0)
        (ad,) = [one for one in ads if one["ClusterId"] == 2]
        assert ad["CommittedTime"] == pytest.approx(500.0, abs=5.0), "it was saved, and lost nothing"

    play(story, stateful=True, **BY_PRIORITY)


def test_equal_jobs_do_not_chase_each_other() -> None:
    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 100.0
        await at.pool.submit("head", count=4, ad=parallel(2, JobPrio=1))
        await at.done(4, 1000.0)
        assert len(at.pool.witness.starts) == 8

    play(story, stateful=True, **BY_PRIORITY)


def test_an_expression_without_a_value_makes_no_candidate() -> None:
    rules = PreemptionRules.read(settings(**{REQUIREMENTS: "MY.Nothing > 3", RANK: "1"}))
    assert rules is not None
    assert rules.candidates(ClassAd({}), (), 0.0, lambda name: None) == {}
