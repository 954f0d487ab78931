"""Jobs that are handed on to a claim before the one before them has ended: none is lost, and none runs twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pool.errors import PoolError
from pool.policy.queue import HELD, QueuedJob
from pool.starter.spec import KeeperSpec
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK as SHORT_LEASES

#: Of jobs, seconds: a claim's next is handed on where they are below five.
SHORT = 2.0
QUICK = {**SHORT_LEASES, "HAND_ON_BELOW": "5"}
JOBS = 9


def short(spec: KeeperSpec) -> Behaviour:
    return Behaviour(SHORT)


async def begin(pool: SimPool, *, machines: int = 1, behave: Callable[[KeeperSpec], Behaviour] = short) -> None:
    """A pool with a schedd and machines of one slot each, and jobs in the queue."""
    await pool.add("head", "collector,negotiator")
    await pool.add("submit", "schedd")
    for number in range(1, machines + 1):
        await pool.add(f"m{number}", "startd", behave=behave)
    await pool.submit("submit", count=JOBS)


def handed_on(pool: SimPool) -> list[QueuedJob]:
    """The jobs that were handed on and are not yet known to have begun."""
    claims = pool.role("submit", "schedd").placement.claims.values()
    return [claim.handed_on.job for claim in claims if claim.handed_on is not None]


async def until_handed_on(pool: SimPool) -> QueuedJob:
    """Wait until the startd has a job that was handed on, while another runs."""
    node = pool.nodes["m1"]

    def there() -> bool:
        role = node.running.get("startd")
        slots = role.slots.values() if role is not None else ()  # type: ignore[attr-defined]
        return any(slot.claim is not None and slot.claim.handed_on is not None for slot in slots)

    await pool.run_until(there, within=200)
    return handed_on(pool)[0]


async def all_end(pool: SimPool, *, once: bool = True, jobs: int = JOBS) -> None:
    """Every job ends, and its end is told once; with `once` none has begun twice either."""
    await pool.run_until(lambda: pool.queued("submit") == 0, within=4000)
    ended = await pool.ended("submit")
    assert Counter(ad["ProcId"] for ad in ended) == Counter(range(jobs))
    begun = Counter(job for job, _, _ in pool.witness.starts)
    assert not once or set(begun.values()) == {1}, begun
    pool.assert_sound()


def starts_of(pool: SimPool, job: QueuedJob) -> int:
    return sum(name == "{}.{}".format(*job.id) for name, _, _ in pool.witness.starts)


def test_the_next_job_begins_when_the_one_before_has_ended(tmp_path: Path) -> None:
    """It waits for no message: with a link of a second each way, the machine is hardly ever idle."""

    async def work(below: str) -> float:
        async with SimPool(1, settings={**QUICK, "HAND_ON_BELOW": below}, directory=tmp_path / below) as pool:
            pool.network.delay = (0.4, 0.4)
            await begin(pool)
            await all_end(pool)
            times = sorted(time for _, _, time in pool.witness.starts)
            return (times[-3] - times[1]) / (len(times) - 4)  # the last ones are left to claims that have none

    for below in ("0", "5"):
        (tmp_path / below).mkdir()
    assert run_virtual(work("0")) > SHORT + 0.7
    assert run_virtual(work("5")) < SHORT + 0.1


@pytest.mark.parametrize("what", ["remove", "hold"])
def test_a_job_that_its_user_stops_while_it_is_handed_on_does_not_begin(what: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(2, settings=QUICK, directory=tmp_path) as pool:
            await begin(pool)
            job = await until_handed_on(pool)
            await pool.act("submit", "alice", action=what, ids=[list(job.id)])
            assert job.status == HELD or what == "remove"
            await pool.run_until(lambda: pool.queued("submit") <= (what == "hold"), within=400)
            assert starts_of(pool, job) == 0
            if what == "hold":
                assert job.status == HELD
                await pool.act("submit", "alice", action="release", ids=[list(job.id)])
            await pool.run_until(lambda: pool.queued("submit") == 0, within=400)
            ends = Counter(ad["JobStatus"] for ad in await pool.ended("submit"))
            assert ends == (Counter({4: JOBS - 1, 3: 1}) if what == "remove" else Counter({4: JOBS}))
            pool.assert_sound()

    run_virtual(work())


def test_the_present_job_is_stopped_and_not_the_one_that_was_handed_on(tmp_path: Path) -> None:
    """Both have the same number of a run."""

    async def work() -> None:
        async with SimPool(3, settings=QUICK, directory=tmp_path) as pool:
            await begin(pool)
            following = await until_handed_on(pool)
            (claim,) = pool.role("submit", "schedd").placement.claims.values()
            present = claim.job
            assert (claim.run, claim.handed_on.run) == (1, 1)
            await pool.act("submit", "alice", action="remove", ids=[list(present.id)])
            await pool.run_until(lambda: pool.queued("submit") == 0, within=400)
            ends = {(ad["ClusterId"], ad["ProcId"]): ad["JobStatus"] for ad in await pool.ended("submit")}
            assert [job for job, status in ends.items() if status == 3] == [present.id]
            assert starts_of(pool, following) == 1
            pool.assert_sound()

    run_virtual(work())


def test_a_job_that_waits_behind_a_long_one_is_given_back(tmp_path: Path) -> None:
    """The third job is long: the fourth begins on the other machine, which takes the rest."""

    def behave(spec: KeeperSpec) -> Behaviour:
        return Behaviour(1000.0 if spec.id.startswith("1.2.") else SHORT)

    async def work() -> None:
        async with SimPool(4, settings=QUICK, directory=tmp_path) as pool:
            await begin(pool, machines=2, behave=behave)
            await pool.run_until(lambda: pool.queued("submit") == 1, within=200)
            waited = [ad for ad in await pool.ended("submit") if ad["NumJobStarts"] == 2]
            assert len(waited) == 1
            assert not handed_on(pool)
            await all_end(pool)

    run_virtual(work())


@pytest.mark.parametrize("graceful", [False, True])
def test_a_claim_that_is_taken_back_gives_back_what_was_handed_on(graceful: bool, tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(5, settings=QUICK, directory=tmp_path) as pool:
            await begin(pool)
            job = await until_handed_on(pool)
            startd = pool.role("m1", "startd")
            (slot,) = startd.slots.values()
            present = slot.claim.running.name
            await startd.evict(slot, graceful)
            await pool.run_until(lambda: not handed_on(pool) and job.status == 1, within=20)
            assert starts_of(pool, job) == 0
            await all_end(pool, once=False)
            begun = Counter(name for name, _, _ in pool.witness.starts)
            assert {name for name, times in begun.items() if times > 1} == {present}

    run_virtual(work())


def test_a_machine_that_is_drained_keeps_none(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(6, settings=QUICK, directory=tmp_path) as pool:
            await begin(pool, machines=2)
            await until_handed_on(pool)
            async with await pool.connect("root", "m1", administer=True) as root:
                await root.call("startd.drain", {"how": "finish"})
            await all_end(pool)

    run_virtual(work())


#: (call, whether it is before or after it that the victim dies, at which of the calls)
STEPS = [
    (method, phase, victim, count)
    for method in ("schedd.ended", "startd.activate")
    for phase in TrapPhase
    for victim in ("submit", "m1")
    for count in (1, 2, 3, 5)
    if method == "schedd.ended" or count == 1
]


@pytest.mark.parametrize(("method", "phase", "victim", "count"), STEPS)
def test_killed_at_this_step_and_back_soon(
    method: str, phase: TrapPhase, victim: str, count: int, tmp_path: Path
) -> None:
    """A job whose end was not acknowledged is reported by the node that comes back: it is not run again."""

    async def work() -> None:
        async with SimPool(7, settings=QUICK, directory=tmp_path) as pool:
            trap = pool.trap(method, phase, victim, count=count)
            await begin(pool)
            await pool.run_until(lambda: trap.sprung, within=400)
            await asyncio.sleep(3.0)  # what was begun ends meanwhile
            await pool.restart(victim)
            await all_end(pool)

    run_virtual(work())


@pytest.mark.parametrize("victim", ["submit", "m1"])
@pytest.mark.parametrize("after", [0.1, 1.0, 1.9, 2.1, 3.0])
def test_killed_while_a_job_is_handed_on(victim: str, after: float, tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(8, settings=QUICK, directory=tmp_path) as pool:
            await begin(pool)
            await until_handed_on(pool)
            await asyncio.sleep(after)
            await pool.kill(victim)
            await asyncio.sleep(1.0)
            await pool.restart(victim)
            await all_end(pool)

    run_virtual(work())


@pytest.mark.parametrize("restarted", [False, True])
def test_both_nodes_are_killed_between_two_ends(restarted: bool, tmp_path: Path) -> None:
    """The machine has an end that is not acknowledged and a job that runs; the schedd knows both as running."""

    async def work() -> None:
        async with SimPool(9, settings=QUICK, directory=tmp_path) as pool:
            trap = pool.trap("schedd.ended", TrapPhase.BEFORE, "submit", count=3)
            await begin(pool)
            await pool.run_until(lambda: trap.sprung, within=400)
            await asyncio.sleep(1.0)
            (slot,) = pool.role("m1", "startd").slots.values()
            assert len(slot.claim.overtaken) == 1
            assert not slot.claim.running.ended
            if restarted:
                await pool.kill("m1")
                await asyncio.sleep(0.2)
                await pool.restart("m1")
            await pool.restart("submit")
            await all_end(pool)

    run_virtual(work())


@pytest.mark.parametrize("count", [2, 3, 4])
def test_an_end_that_is_refused_for_a_while_is_told_before_those_after_it(count: int, tmp_path: Path) -> None:
    """The schedd takes the end of a later job as a sign that the earlier one is lost, and would run it again."""

    async def refuse() -> None:
        raise PoolError("the disk is busy", retry=True)

    async def work() -> None:
        async with SimPool(11, settings=QUICK, directory=tmp_path) as pool:
            trap = pool.run_at("schedd.ended", TrapPhase.BEFORE, refuse, count=count)
            await begin(pool)
            await all_end(pool)
            assert trap.sprung

    run_virtual(work())


def test_the_machine_is_gone_with_what_was_handed_on(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(10, settings=QUICK, directory=tmp_path) as pool:
            await begin(pool, machines=2)
            job = await until_handed_on_to_first(pool)
            await pool.crash("m1")
            await all_end(pool, once=False)
            assert starts_of(pool, job) == 1

    run_virtual(work())


async def until_handed_on_to_first(pool: SimPool) -> QueuedJob:
    claims = pool.role("submit", "schedd").placement.claims
    found: list[QueuedJob] = []

    def there() -> bool:
        found[:] = [
            claim.handed_on.job
            for claim in claims.values()
            if claim.handed_on is not None and claim.slot.endswith("@m1")
        ]
        return bool(found)

    await pool.run_until(there, within=200)
    return found[0]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("silent", [False, True])
def test_cut_off_at_any_time(seed: int, silent: bool, tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(200 + seed, settings=QUICK, directory=tmp_path) as pool:
            await begin(pool, machines=2)
            for _ in range(2):
                await asyncio.sleep(pool.chance.uniform(0.0, 8.0))
                machine = f"m{pool.chance.randrange(1, 3)}"
                pool.network.partition({"submit"}, {machine}, silent=silent)
                await asyncio.sleep(pool.chance.choice((1.0, 5.0, 90.0)))
                pool.network.restore_links()
            await all_end(pool, once=False)

    run_virtual(work())
