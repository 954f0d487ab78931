"""The administrator's rules: what is let into a queue, what is done to jobs in it, what machines say of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pool.config import Settings
from pool.errors import PoolError
from pool.roles.schedd.submit.rules import Rules
from pool.testing import run_virtual
from pool.testing.pool import SimPool
from pool.wire import RemoteError
from tests.roles.support import QUICK, lasting, told


def config(*lines: str) -> str:
    return "\n".join(["POLICY = dedicated", "SLOTS = 1", *lines, ""])


async def one_machine(pool: SimPool, seconds: float = 1000.0) -> None:
    await pool.add("head", "collector,negotiator,schedd")
    await pool.add("m1", "startd", behave=lambda spec: lasting(seconds))


def jobs(pool: SimPool) -> list[Any]:
    return list(pool.role("head", "schedd").queue.jobs())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"MAX_JOBS_SUBMITTED": "10"}, "MAX_JOBS_SUBMITTED = 10"),
        ({"MAX_JOBS_PER_OWNER": "6"}, "5 of alice are in the queue, and MAX_JOBS_PER_OWNER = 6"),
    ],
)
def test_a_queue_has_room_for_so_many(settings: dict[str, str], said: str) -> None:
    async def work() -> None:
        async with SimPool(1, settings=QUICK | settings) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.submit("head", count=5)
            await pool.submit("head", count=1 if "OWNER" in said else 5, owner="bob")
            with pytest.raises(RemoteError, match=said):
                await pool.submit("head", count=2)
            assert len(jobs(pool)) in (6, 10)

    run_virtual(work())


REQUIREMENTS = config(
    "SUBMIT_REQUIREMENTS = Project Small",
    "SUBMIT_REQUIREMENT_Project = ProjectName =!= undefined",
    'SUBMIT_REQUIREMENT_Project_REASON = strcat("name a project, ", Owner)',
    "SUBMIT_REQUIREMENT_Small = RequestMemory <= 1024",
)


def test_a_job_that_does_not_meet_the_requirements_is_refused_with_the_reason() -> None:
    async def work() -> None:
        async with SimPool(2, settings=QUICK, config=REQUIREMENTS) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            with pytest.raises(RemoteError, match="Project: name a project, alice"):
                await pool.submit("head")
            with pytest.raises(RemoteError, match="Small: it must make this true: RequestMemory <= 1024"):
                await pool.submit("head", ad={"ProjectName": "x", "RequestMemory": 2048})
            link = await pool.network.user("alice", "head")
            ad = {"Cmd": "/bin/true", "ProjectName": "x", "RequestMemory": 1}
            asked = {"ad": ad, "count": 2, "deltas": [None, {"RequestMemory": 5000}]}
            with pytest.raises(RemoteError, match="Small"):
                await link.call("schedd.submit", asked)
            await link.close()
            assert jobs(pool) == []
            await pool.submit("head", ad={"ProjectName": "x"})
            assert len(jobs(pool)) == 1

    run_virtual(work())


@pytest.mark.parametrize(
    ("rule", "status"),
    [
        ("SYSTEM_PERIODIC_HOLD = JobStatus == 2 && time() - JobCurrentStartDate > 100", 5),
        ("SYSTEM_PERIODIC_VACATE = JobStatus == 2 && NumJobStarts < 2", 2),
        ("SYSTEM_PERIODIC_REMOVE = time() - QDate > 100", None),
    ],
)
def test_a_rule_of_the_administrators_acts_on_every_job(rule: str, status: int | None, tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(3, settings=QUICK, config=config(rule), directory=tmp_path) as pool:
            await one_machine(pool)
            await pool.submit("head")
            if status is None:
                await pool.run_until(lambda: pool.queued("head") == 0, within=300)
                (ad,) = await pool.ended("head")
                assert "SYSTEM_PERIODIC_REMOVE became true" in ad["RemoveReason"]
            elif status == 5:
                await pool.run_until(lambda: jobs(pool)[0].status == 5, within=300)
                assert jobs(pool)[0].get("HoldReasonCode") == 26
            else:
                await pool.run_until(lambda: jobs(pool)[0].get("NumJobStarts") == 2, within=300)
            pool.assert_sound()

    run_virtual(work())


def test_a_held_job_is_released_by_a_rule() -> None:
    async def work() -> None:
        rule = config("SYSTEM_PERIODIC_RELEASE = HoldReasonCode == 15")
        async with SimPool(4, settings=QUICK, config=rule) as pool:
            await one_machine(pool, 5.0)
            await pool.submit("head", ad={"JobStatus": 5})
            await pool.run_until(lambda: pool.queued("head") == 0, within=100)

    run_virtual(work())


@pytest.mark.parametrize("name", ["SYSTEM_PERIODIC_HOLD", "SUBMIT_REQUIREMENT_A"])
def test_a_rule_that_is_no_expression_is_named(name: str, tmp_path: Path) -> None:
    text = f"SUBMIT_REQUIREMENTS = A\n{name} = 1 +\n"
    with pytest.raises(PoolError, match=name):
        Rules.from_settings(Settings.load(tmp_path / "a.conf", sets={}, environ={}, opener=lambda path: text))


def test_a_machines_own_attributes_are_in_its_ads_and_matched_by() -> None:
    async def work() -> None:
        text = config(
            "STARTD_ATTRS = Room, Fast, Machine", 'Room = "B 12"', "Fast = TARGET.RequestCpus < 2", "Machine = 1"
        )
        async with SimPool(5, settings=QUICK, config=text) as pool:
            await one_machine(pool, 5.0)
            await pool.submit("head", ad={"Requirements": ['TARGET.Room == "B 12" && TARGET.Fast']})
            await pool.run_until(lambda: pool.queued("head") == 0, within=100)
            ad, _ = told(pool, "slot1@m1")
            assert (ad["Room"], ad["Fast"], ad["Machine"]) == ("B 12", ["TARGET.RequestCpus < 2"], "m1")

    run_virtual(work())


TRANSFORMS = config(
    "SITE = here",
    "JOB_TRANSFORM_NAMES = Site, Small",
    "JOB_TRANSFORM_Small @=end",
    "    REQUIREMENTS RequestMemory < 1000",
    '    EVALSET Size strcat(Site, "-small")',
    "    DELETE Site",
    "@end",
    "JOB_TRANSFORM_Site @=x",
    "    # before Small, which uses what it says",
    '    DEFAULT Site "$(SITE)/$(MY.Owner)"',
    "    SET RequestDisk 7",
    "@x",
    "SUBMIT_REQUIREMENTS = Sized",
    "SUBMIT_REQUIREMENT_Sized = Size =!= undefined || RequestMemory == 5000",
)


def test_jobs_are_transformed_in_the_order_of_the_names_before_they_are_judged() -> None:
    async def work() -> None:
        async with SimPool(6, settings=QUICK, config=TRANSFORMS) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            link = await pool.network.user("alice", "head")
            ad = {"Cmd": "/bin/true", "RequestMemory": 1, "RequestDisk": 1}
            deltas = [None, {"RequestMemory": 5000}, {"Site": "there"}, {"RequestDisk": 3}, {"Note": 1}]
            asked = {"ad": ad, "count": 5, "deltas": deltas}
            assert (await link.call("schedd.submit", asked))["count"] == 5
            with pytest.raises(RemoteError, match="Sized"):
                await link.call("schedd.submit", {"ad": ad | {"RequestMemory": 2000}, "count": 1})
            await link.close()
            found = [job.ad() for job in jobs(pool)]
            usual = "here/alice-small"
            assert [ad.value("Size") for ad in found] == [usual, None, "there-small", usual, usual]
            assert [ad.value("Site") for ad in found] == [None, "here/alice", None, None, None]
            assert {ad.value("RequestDisk") for ad in found} == {7}
            assert [ad.value("Note") for ad in found] == [None, None, None, None, 1]

    run_virtual(work())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("JOB_TRANSFORM_NAMES = A\n", "there is no JOB_TRANSFORM_A"),
        ("JOB_TRANSFORM_NAMES = A\nJOB_TRANSFORM_A = SET B 1 +\n", "JOB_TRANSFORM_A: no expression in"),
        ("JOB_TRANSFORM_NAMES = A\nJOB_TRANSFORM_A @=end\nSET B 1\n", "JOB_TRANSFORM_A has no end"),
        ("JOB_TRANSFORM_NAMES = A\nJOB_TRANSFORM_A = SET QDate 1\n", "QDate is the schedd's to say"),
    ],
)
def test_a_transform_that_is_none_is_said_when_the_configuration_is_read(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(PoolError, match=said):
        Rules.from_settings(Settings.load(tmp_path / "a.conf", sets={}, environ={}, opener=lambda path: text))


def test_a_value_of_several_lines_is_a_setting_like_others(tmp_path: Path) -> None:
    text = "JOB_TRANSFORM_NAMES = A\nJOB_TRANSFORM_A @=end\n\n# said\nSET B 1\n@end\nADMIN = ann\n"
    settings = Settings.load(tmp_path / "a.conf", sets={}, environ={}, opener=lambda path: text)
    assert (settings.raw("JOB_TRANSFORM_A"), settings.text("ADMIN")) == ("# said\nSET B 1", "ann")
    assert not settings.warnings
