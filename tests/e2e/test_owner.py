"""An owner's policy on a real node: it is read again while a job runs, and stops, continues and ends its processes."""

from __future__ import annotations

import asyncio
import signal

from pool.client import Pool
from tests.e2e.support import ALL, Nodes, asked, client, processes_with, program, until

IDLE, RUNNING, SUSPENDED = 1, 2, 7


async def test_a_job_is_suspended_goes_on_and_leaves_as_the_owner_says(nodes: Nodes) -> None:
    home = nodes.directory("home")
    config = nodes.place / "pool.conf"
    config.write_text("START : true\nSUSPEND : false\n")
    # The papers look every five seconds; a test does not want to wait for that.
    node = nodes.start("whole", ALL, config=config, EVALUATE_INTERVAL="0.1").ready()

    def wish(text: str) -> None:
        config.write_text(text)
        node.process.send_signal(signal.SIGHUP)

    async def becomes(pool: Pool, cluster: int, status: int) -> None:
        async def now() -> bool:
            (ad,) = await pool.jobs(ids=[(cluster, 0)])
            return bool(ad.value("JobStatus") == status)

        await asked(now, f"status {status}")

    beat = home / "beat"
    script = program(home, f"while :; do echo >> {beat}; sleep 0.01; done", "owners-test.sh")
    async with client(node) as pool:
        cluster = (await pool.submit({"executable": script}, iwd=str(home))).cluster
        await until(beat.exists, "the job to run")
        wish("START : true\nSUSPEND : true\nWANT_SUSPEND : true\nCONTINUE : false\n")
        await becomes(pool, cluster, SUSPENDED)
        written = beat.stat().st_size
        await asyncio.sleep(0.2)  # in which a job that ran would write some twenty times
        assert beat.stat().st_size == written
        assert processes_with("owners-test.sh")
        wish("START : true\nSUSPEND : false\nCONTINUE : true\n")
        await becomes(pool, cluster, RUNNING)
        await until(lambda: beat.stat().st_size > written, "the job to go on")
        wish("START : false\nSUSPEND : true\nWANT_SUSPEND : false\n")
        await becomes(pool, cluster, IDLE)
        assert not processes_with("owners-test.sh")
        written = beat.stat().st_size
        wish("START : true\nSUSPEND : false\n")
        await until(lambda: beat.stat().st_size > written, "it to run again")
        await pool.act("remove", ids=[(cluster, 0)], reason="enough")
        await until(lambda: not processes_with("owners-test.sh"), "it to be gone")
