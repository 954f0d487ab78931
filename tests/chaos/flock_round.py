"""One run against three real pools: jobs of every kind, kills at random, and what must hold in the end."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from pool.classad import ClassAd
from pool.client import Pool
from pool.errors import PoolError
from pool.jobs.events import EventKind
from pool.policy.queue import COMPLETED
from tests.chaos.checker import violations
from tests.chaos.flock_jobs import FlockJob, draw_jobs
from tests.chaos.flock_kills import Killer
from tests.chaos.flock_pools import POOLS, FlockPools
from tests.chaos.real_machines import Machine, command_line
from tests.chaos.record import JobName, Outcome, Record, Run

TROUBLE = (PoolError, OSError, TimeoutError)
HELD = 5
#: Seconds after which jobs that neither begin nor end are given up: the machine may be very busy.
PATIENCE = 180.0
#: Seconds without a start after which the next process is killed all the same.
LONGEST_PAUSE = 10.0


class FlockRun:
    """Jobs and kills of a seed.

    Attributes:
        lines: what was killed, and when.
        ran: how many jobs ended in which pool, by the pool of their submit.
    """

    def __init__(self, pools: FlockPools, seed: int, jobs: int, kills: int) -> None:
        self.pools = pools
        self.lines: list[str] = []
        self.ran: Counter[tuple[str, str]] = Counter()
        self.killer = Killer(pools, seed)
        self.jobs = draw_jobs(seed, jobs, POOLS, {pool: disk.path for pool, disk in pools.homes.items()})
        self._kills = kills
        self._chance = random.Random(f"flock run {seed}")
        self._left = len(self.jobs)
        self._began = time.monotonic()

    async def play(self) -> list[str]:
        """Submit, kill, wait until no job is left, and check; what is wrong."""
        for job in self.jobs:
            job.prepare()
        async with asyncio.TaskGroup() as group:
            for pool in POOLS:
                group.create_task(self._submit_all(pool))
            killing = group.create_task(self._kill_all())
            showing = group.create_task(self._show_progress())
            try:
                await self._wait_for_ends()
            finally:
                killing.cancel()
                showing.cancel()
        await self.killer.over()
        for node in self.pools.nodes:
            await node.ready()
        record = await self._collect()
        broken = violations(record)
        broken += [line for job in self.jobs if job.name in record.outcomes for line in job.wrong_outputs()]
        broken += [f"{job} was never queued" for job in self.jobs if job.name is None]
        return broken + _traces(self.pools) + await self._left_behind()

    @property
    def restored(self) -> int:
        """How many copies of jobs went on from a checkpoint."""
        return sum(copy.first > 0 for copies in self.pools.reports.copies.values() for copy in copies)

    @property
    def starts(self) -> int:
        """How many copies of jobs there were."""
        return sum(map(len, list(self.pools.reports.copies.values())))

    # -- jobs --------------------------------------------------------------------------------------------

    async def _submit_all(self, pool: str) -> None:
        waiting = [job for job in self.jobs if job.pool == pool]
        while waiting:
            with contextlib.suppress(*TROUBLE):
                async with self.pools.user(pool) as link:
                    while waiting:
                        if not await self._is_queued(link, waiting[0]):
                            await self.pools.submit(waiting[0], link)
                        waiting.pop(0)
            await asyncio.sleep(0.2)

    async def _is_queued(self, link: Pool, job: FlockJob) -> bool:
        """Whether a submit that was not answered was done."""
        if job.tried:
            asked, names = f'Iwd == "{job.home}"', ["ClusterId", "ProcId"]
            queued = await link.jobs(constraint=asked, attributes=names)
            for ad in queued or await link.history(constraint=asked, attributes=names):
                job.name = _name(job.pool, ad)
                return True
        job.tried = True
        return False

    async def _wait_for_ends(self) -> None:
        """Until no job is left, or those that are left do not move."""
        before, since = (-1, -1), time.monotonic()
        while time.monotonic() - since < PATIENCE:
            left, held = 0, 0
            for pool in POOLS:
                mine = sum(job.pool == pool for job in self.jobs)
                try:
                    async with self.pools.user(pool) as link:
                        states = [ad.value("JobStatus") for ad in await link.jobs(attributes=["JobStatus"])]
                    unsubmitted = sum(job.pool == pool and job.name is None for job in self.jobs)
                    left, held = left + len(states) + unsubmitted, held + states.count(HELD)
                except TROUBLE:
                    left += mine
            self._left = left
            if left == held:
                return  # nobody releases what is held: no fault here is a reason for it
            if (now := (left, self.starts)) != before:
                before, since = now, time.monotonic()
            await asyncio.sleep(0.5)

    # -- kills -------------------------------------------------------------------------------------------

    async def _kill_all(self) -> None:
        """Each kill after some more jobs have begun."""
        await self._until_started(1)
        for _ in range(self._kills):
            more = self._chance.uniform(0.4, 1.4) * len(self.jobs) / self._kills
            await self._until_started(self.starts + round(more))
            at = time.monotonic() - self._began
            self.lines.append(f"{at:7.2f} s  {self.killer.kill()}")

    async def _until_started(self, count: int) -> None:
        deadline = time.monotonic() + LONGEST_PAUSE
        while time.monotonic() < deadline:
            if self.starts >= count:
                return
            await asyncio.sleep(0.05)

    async def _show_progress(self) -> None:
        shown = -1
        while True:
            if (count := sum(self.killer.killed.values())) // 10 > shown // 10:
                shown = count
                took = time.monotonic() - self._began
                print(f"{took:.0f} s: {count} kills, {self.starts} starts, {self._left} jobs left", flush=True)
            await asyncio.sleep(0.5)

    # -- what is found -----------------------------------------------------------------------------------

    async def _collect(self) -> Record:
        record = Record()
        for pool in POOLS:
            mine = {str(job.home): job for job in self.jobs if job.pool == pool}
            async with self.pools.user(pool) as link:
                for ad in await link.jobs():
                    name = _name(pool, ad)
                    record.left[name] = f"status {ad.value('JobStatus')}, hold reason {ad.value('HoldReason')}"
                for ad in await link.history():
                    name = _name(pool, ad)
                    if (job := mine.get(str(ad.value("Iwd")))) is not None:
                        job.name = job.name or name
                    self.ran[pool, _ran_in(pool, str(ad.value("LastRemoteHost")))] += 1
                    status = "completed" if ad.value("JobStatus") == COMPLETED else f"in state {ad.value('JobStatus')}"
                    # NumJobCompletions counts ends by our SIGKILL, too; the TERMINATED events do not.
                    outcome = Outcome(status, ad.value("ExitCode"), 1, float(ad.value("CompletionDate") or 0))
                    record.outcomes[name].append(outcome)
                    if ad.value("LastHoldReason"):
                        record.failures.append(f"{name} was held: {ad.value('LastHoldReason')}")
                ids = [job.name[1:] for job in mine.values() if job.name is not None]
                await _count_ends(link, pool, ids, record.told)
        for job in self.jobs:
            if job.name is not None:
                record.accepted.append(job.name)
                record.runs[job.name] = [
                    Run(number, f"process {copy.pid}", copy.began, copy.seen, copy.whole)
                    for number, copy in enumerate(self.pools.reports.copies.get(job.label, []), 1)
                ]
        return record

    async def _left_behind(self) -> list[str]:
        """End all nodes as their service managers do; the processes that are left."""
        for node in self.pools.nodes:
            node.away += 1
            if node.process is not None:
                node.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            left = [(node, pid) for node in self.pools.nodes for pid in _alive(node)]
            if not left:
                return []
            await asyncio.sleep(0.1)
        return [f"at {node.name} process {pid} is left: {command_line(pid)[:200]!r}" for node, pid in left]


def _alive(node: Machine) -> list[int]:
    if node.process is not None:
        node.process.poll()
    return node.processes()


def _traces(pools: FlockPools) -> list[str]:
    """Stack traces in the logs."""
    found = []
    for node in pools.nodes:
        with node.log.open("rb") as file:
            lines = [line for line in file if b'"trace"' in line or b"Traceback" in line]
        found += [f"a stack trace in {node.log}: {line.decode(errors='replace')[:600].strip()}" for line in lines[:3]]
    return found


async def _count_ends(link: Pool, pool: str, ids: list[tuple[int, int]], told: dict[JobName, int]) -> None:
    if not ids:
        return
    async for batch in link.events(ids=ids):
        if not batch:
            return
        for event in batch:
            if event["kind"] == EventKind.TERMINATED:
                told[pool, event["cluster"], event["proc"]] += 1


def _name(pool: str, ad: ClassAd) -> JobName:
    return pool, int(ad.value("ClusterId")), int(ad.value("ProcId"))


def _ran_in(home: str, host: str) -> str:
    """The pool of a slot: SLOT@MACHINE, or SLOT@MACHINE@POOL@NODE in another one."""
    parts = host.split("@")
    return parts[2] if len(parts) == 4 else home


async def play(seed: int, jobs: int, kills: int, directory: Path) -> int:
    """Play one run; 1 where something is wrong."""
    began = time.monotonic()
    pools = FlockPools(seed, directory)
    async with pools.started():
        print(f"three pools run after {time.monotonic() - began:.1f} s; their logs are in {directory}", flush=True)
        run = FlockRun(pools, seed, jobs, kills)
        broken = await run.play()
    killed = sum(run.killer.killed.values())
    away = sum(count for (home, there), count in run.ran.items() if home != there)
    told = f"{len(run.jobs)} jobs, {killed} kills, {run.starts} copies, {run.restored} restored, {away} in other pools"
    print(f"{told}, {len(broken)} broken, {time.monotonic() - began:.0f} s")
    for (home, there), count in sorted(run.ran.items()):
        print(f"  {count:6}  jobs of {home} in {there}")
    for kind, count in run.killer.killed.items():
        print(f"  {count:6}  {kind}")
    (directory / "kills.txt").write_text("\n".join(run.lines) + "\n")
    if broken:
        print(f"seed {seed}:", *broken[:40], sep="\n    ")
        (directory / "broken.txt").write_text("\n".join(broken) + "\n")
        for pool, head in pools.heads.items():
            shutil.copytree(head.state / "spool", directory / f"spool-{pool}", dirs_exist_ok=True)
    sys.stdout.flush()
    return 1 if broken else 0


def main(arguments: list[str]) -> int:
    """Inside the namespaces: `SEED JOBS KILLS DIRECTORY`."""
    seed, jobs, kills, directory = arguments
    return asyncio.run(play(int(seed), int(jobs), int(kills), Path(directory)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
