"""What a job costs below the roles: starts a second through the keepers alone, beside xargs."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
from pathlib import Path

from pool.starter.keeper import KeeperSpec, NativeKeepers
from tests.benchmarks.peers import xargs
from tests.benchmarks.rows import Effort, Row, benchmark

SLOTS = 8
TURNS = 5


@benchmark("starts")
async def starts(effort: Effort) -> list[Row]:
    """1,000 /bin/true by 8 keepers at a time, with the host's files and with a tree of their own, beside xargs."""
    jobs = effort.of(1000, least=40)
    ours: dict[str, list[float]] = {"shared": [], "full": []}
    plain: list[float] = []
    with tempfile.TemporaryDirectory(prefix="poolnode-bench-") as directory:
        keepers = NativeKeepers(Path(directory, "keepers"))
        await keepers.open()
        try:
            for isolation in ours:
                await _through(keepers, Path(directory), isolation, SLOTS)
            for _ in range(effort.of(TURNS, least=2)):
                for isolation, rates in ours.items():
                    rates.append(jobs / await _through(keepers, Path(directory), isolation, jobs))
                plain.append(jobs / await xargs(SLOTS, jobs))
        finally:
            await keepers.close(kill=True)
    peer = statistics.median(plain)
    return [
        Row(
            f"{jobs:,} /bin/true through {SLOTS} keepers, isolation {isolation}",
            statistics.median(rates),
            "jobs/s",
            None,
            f"xargs -P{SLOTS}",
            peer,
        )
        for isolation, rates in ours.items()
    ]


async def _through(keepers: NativeKeepers, directory: Path, isolation: str, jobs: int) -> float:
    loop = asyncio.get_running_loop()

    async def lane(number: int) -> None:
        scratch = directory / f"slot{number}"
        scratch.mkdir(exist_ok=True)
        for turn in range(jobs // SLOTS):
            spec = KeeperSpec(
                id=f"{number}.{turn}.1",
                argv=("/bin/true",),
                env={"PATH": os.defpath},
                cwd=str(scratch),
                uid=os.geteuid(),
                gid=os.getegid(),
                scratch=str(scratch),
                isolation=isolation,
                hidden=(str(directory / "spool"),),
                lease_seconds=60.0,
            )
            keeper = await keepers.start(spec)
            await keeper.ended
            await keeper.forget()

    began = loop.time()
    await asyncio.gather(*(lane(number) for number in range(SLOTS)))
    return loop.time() - began
