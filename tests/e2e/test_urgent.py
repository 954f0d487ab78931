"""Computing on demand with real processes: docs/urgent.md's job takes the slot, and the one below goes on after it."""

from __future__ import annotations

import asyncio

from pool.client import Pool
from tests.e2e.support import ALL, Nodes, asked, client, program, until

RUNNING, SUSPENDED = 2, 7


async def test_an_urgent_job_takes_the_slot_and_hands_it_back(nodes: Nodes) -> None:
    home = nodes.directory("home")
    node = nodes.start("whole", ALL, SLOTS="1", POLICY="dedicated", START_URGENT="TARGET.RequestMemory < 2000").ready()
    beat, go = home / "beat", home / "go"
    slow = program(home, f"n=0; while [ $n -lt 200 ]; do n=$((n+1)); echo $n >> {beat}; sleep 0.02; done", "slow.sh")
    quick = program(home, f"echo here > {home}/here; while [ ! -e {go} ]; do sleep 0.02; done", "quick.sh")

    async def becomes(pool: Pool, cluster: int, status: int) -> None:
        async def now() -> bool:
            (ad,) = await pool.jobs(ids=[(cluster, 0)])
            return bool(ad.value("JobStatus") == status)

        await asked(now, f"status {status}")

    async with client(node) as pool:
        below = await pool.submit({"executable": slow, "log": "log"}, iwd=str(home))
        await until(beat.exists, "the job to run")
        urgent = await pool.submit({"executable": quick, "urgent": "true", "request_memory": "10"}, iwd=str(home))
        await until((home / "here").exists, "the urgent job to run")
        await becomes(pool, below.cluster, SUSPENDED)
        written = beat.stat().st_size
        await asyncio.sleep(0.2)  # in which a job that ran would write some ten times
        assert beat.stat().st_size == written

        async def shown() -> bool:
            slots = {ad["Name"].split("@")[0]: ad["Activity"] for ad in await pool.advertised("Machine")}
            return slots == {"slot1": "Yielding", "slot1_urgent": "Busy"}

        await asked(shown, "both slots")
        go.touch()
        (result,) = await urgent.wait()
        assert (result.state, result.exit_code) == ("completed", 0)
        await becomes(pool, below.cluster, RUNNING)
        (result,) = await below.wait()
        assert (result.state, result.exit_code) == ("completed", 0)
        (ad,) = await below.ads()
        assert (ad.value("NumJobStarts"), ad.value("TotalSuspensions")) == (1, 1)
    assert beat.read_text().split() == [str(number) for number in range(1, 201)]
    log = (home / "log").read_text()
    assert log.count("Job was suspended.") == log.count("Job was unsuspended.") == 1
