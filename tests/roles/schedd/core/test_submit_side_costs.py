"""The work of a process for several jobs at once is shared out among them, other work is not (EV 2.8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from pool.metering import Meter
from pool.outside import OutsideWorld
from pool.policy.queue import QueuedCluster, QueuedJob
from pool.roles.schedd.core.submit_side_costs import QUIET, SubmitSideCosts
from pool.testing import run_virtual


class Process:
    """A process whose processor time only `use` lets pass, and the costs of its jobs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.aside = Meter(lambda: self.now)
        outside = replace(OutsideWorld(), cpu=lambda: self.now, thread_cpu=lambda: self.now)
        self.costs = SubmitSideCosts({}, outside, self.aside)
        self.cluster = QueuedCluster(1, "alice", {"Owner": "alice"})

    def use(self, seconds: float) -> None:
        self.now += seconds

    def job(self, proc: int) -> QueuedJob:
        job = QueuedJob(self.cluster, proc, 1, None, {"NumJobStarts": 1})
        self.cluster.jobs[proc] = job
        return job


def play(story: Callable[[Process], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        process = Process()
        await story(process)
        process.costs.close()

    run_virtual(work())


def test_time_from_one_step_to_the_next_belongs_to_the_first() -> None:
    async def story(process: Process) -> None:
        one, two, three = (process.job(proc) for proc in range(3))
        process.costs.step([one])
        process.use(1.0)
        await asyncio.sleep(0.1)
        process.costs.step([two])
        process.costs.step([three])
        process.use(4.0)
        await asyncio.sleep(0.1)
        assert process.costs.collect_seconds(one, 0.0) == 1.0
        assert process.costs.collect_seconds(two, 0.0) == process.costs.collect_seconds(three, 0.0) == 2.0
        assert process.costs.collect_seconds(two, 0.0) == 0.0, "it was taken"

    play(story)


def test_what_follows_on_a_jobs_last_step_is_the_next_jobs() -> None:
    async def story(process: Process) -> None:
        one, two = process.job(0), process.job(1)
        process.costs.step([one])
        del process.cluster.jobs[0]
        process.use(1.0)
        await asyncio.sleep(0.1)
        process.costs.step([two])
        await asyncio.sleep(0.1)
        assert process.costs.collect_seconds(two, 0.0) == 1.0

    play(story)


def test_an_idle_process_works_for_no_job() -> None:
    async def story(process: Process) -> None:
        one, two = process.job(0), process.job(1)
        process.costs.step([one])
        process.use(1.0)
        await asyncio.sleep(2 * QUIET)
        process.use(100.0)
        await asyncio.sleep(2 * QUIET)
        process.costs.step([two])
        process.use(1.0)
        await asyncio.sleep(0.1)
        assert process.costs.collect_seconds(one, 0.0) == process.costs.collect_seconds(two, 0.0) == 1.0

    play(story)


def test_questions_and_jobs_that_run_here_are_nobodys_costs() -> None:
    async def story(process: Process) -> None:
        one = process.job(0)
        process.costs.step([one])

        async def question() -> None:
            process.use(50.0)

        await process.aside.task(question())
        process.use(1.0)
        await asyncio.sleep(0.1)
        assert process.costs.collect_seconds(one, 0.0) == 1.0

    play(story)


def test_a_submit_is_shared_by_its_jobs_and_charged_once() -> None:
    async def story(process: Process) -> None:
        jobs = [process.job(proc) for proc in range(4)]

        async def submit() -> QueuedCluster:
            process.use(8.0)
            return process.cluster

        await process.costs.submitted(submit())
        assert process.costs.collect_seconds(jobs[0], 0.0) == 2.0
        jobs[0].update({"LocalUserCpu": 2.0})
        assert process.costs.collect_seconds(jobs[0], 0.0) == 0.0
        assert process.costs.collect_seconds(jobs[1], 0.0) == 2.0

    play(story)
