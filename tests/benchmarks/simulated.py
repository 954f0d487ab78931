"""The cost of simulated pools (`pool.testing`): a quiet day, days of work, short and long jobs, random faults.

Processor time: the clock of a busy machine says nothing of a program that never waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor

from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.chaos.faults import plan
from tests.chaos.virtual import run_round

DAY = 86400.0
#: Turns of the virtual clock in the life of a simulated job of a second.
TURNS = 28


async def _pool_of(pool: SimPool, machines: int) -> None:
    await pool.add("head", "collector,negotiator,schedd")
    for number in range(machines):
        await pool.add(f"m{number}", "startd", behave=lambda spec: Behaviour(600.0))


async def _quiet_day() -> float:
    async with SimPool(1) as pool:
        await _pool_of(pool, 10)
        began = time.thread_time()
        await asyncio.sleep(DAY)
        return time.thread_time() - began


async def _work(jobs: int) -> float:
    async with SimPool(1) as pool:
        began = time.thread_time()
        await _pool_of(pool, 100)
        await pool.submit("head", count=jobs)
        await pool.run_until(lambda: not pool.queued("head"), within=10 * DAY)
        return time.thread_time() - began


async def _short_jobs(jobs: int) -> float:
    """For each job of a second, on machines that are there already."""
    async with SimPool(1) as pool:
        await pool.add("head", "collector,negotiator,schedd")
        for number in range(20):
            await pool.add(f"m{number}", "startd", behave=lambda spec: Behaviour(1.0))
        await asyncio.sleep(200.0)
        began = time.thread_time()
        await pool.submit("head", count=jobs)
        await pool.run_until(lambda: not pool.queued("head"), within=DAY)
        return (time.thread_time() - began) / jobs


async def _job_hours(jobs: int, hours: float) -> float:
    """For each hour of each of some jobs that run at the same time, beside as many hours without them."""
    spent = []
    settings = {"SLOTS": str(jobs), "UPDATE_INTERVAL": "7200", "AD_LIFETIME": "21600", "CLAIM_LEASE": "7200"}
    async with SimPool(1, settings=settings) as pool:
        await pool.add("head", "collector,negotiator,schedd")
        await pool.add("m0", "startd", behave=lambda spec: Behaviour((hours + 1) * 3600.0))
        for busy in (False, True):
            if busy:
                await pool.submit("head", count=jobs)
                await pool.run_until(lambda: len(pool.witness.running) == jobs)
            await asyncio.sleep(120.0)
            began = time.thread_time()
            await asyncio.sleep(hours * 3600.0)
            spent.append(time.thread_time() - began)
    return (spent[1] - spent[0]) / (jobs * hours)


async def _turns(jobs: int) -> float:
    """For each of some jobs, the turns of the clock that a simulated job of a second takes, and nothing else."""

    async def job() -> None:
        for _ in range(TURNS):
            await asyncio.sleep(1.0 / TURNS)

    began = time.thread_time()
    for _ in range(jobs // 20):
        await asyncio.gather(*(job() for _ in range(20)))
    return (time.thread_time() - began) / jobs


def _chaos(rounds: int) -> tuple[float, int, int]:
    """Processor time, faults, and rounds that broke a rule."""
    logging.disable(logging.CRITICAL)
    run_round(0)
    began = time.thread_time()
    broken = sum(bool(run_round(seed)) for seed in range(1, rounds + 1))
    used = time.thread_time() - began
    logging.disable(logging.NOTSET)
    return used, sum(plan(seed).troubles for seed in range(1, rounds + 1)), broken


@benchmark("simulated")
async def simulated(effort: Effort) -> list[Row]:
    """Processor time of simulated pools: a quiet day of 10 machines, 3,000 jobs on 100, short and long jobs, faults."""
    loop, jobs, rounds = asyncio.get_running_loop(), effort.of(3000), effort.of(100)
    with ThreadPoolExecutor(1) as thread:  # each has a loop of its own
        quiet = await loop.run_in_executor(thread, lambda: run_virtual(_quiet_day()))
        worked = await loop.run_in_executor(thread, lambda: run_virtual(_work(jobs)))
        short = await loop.run_in_executor(thread, lambda: run_virtual(_short_jobs(effort.of(1000, least=50))))
        turns = await loop.run_in_executor(thread, lambda: run_virtual(_turns(effort.of(1000, least=60))))
        running = await loop.run_in_executor(thread, lambda: run_virtual(_job_hours(effort.of(50, least=10), 20.0)))
        used, faults, broken = await loop.run_in_executor(thread, _chaos, rounds)
    note = f"{faults} faults in {rounds} rounds, {broken} broken"
    return [
        Row("simulated quiet day, 10 machines", quiet, "s", Goal("at most", 1.0)),
        Row(f"simulated 100 machines, {jobs} jobs", worked, "s", Goal("at most", 10.0)),
        Row(
            "a simulated job of a second",
            1e3 * short,
            "ms",
            Goal("at most", 0.5),
            f"{TURNS} turns of the clock alone",
            1e3 * turns,
        ),
        Row("an hour of a simulated job that runs", 1e3 * running, "ms"),
        Row("rounds of random faults", 60 * rounds / used, "a minute", Goal("at least", 1000), note=note),
        Row("random faults", 60 * faults / used, "a minute"),
    ]
