"""`poolnode inspect`: what a running job does now, on the machine where it runs."""

from __future__ import annotations

import pytest

from pool.client import Pool
from pool.errors import PoolError
from pool.policy.inspection import Inspection
from tests.e2e.support import ALL, HEAD, Nodes, asked, client, program, slots, token


async def seen(pool: Pool, job: tuple[int, int]) -> Inspection:
    """The first look at a job in which one of its processes waits for another at the end of a pipe."""
    found: list[Inspection] = []

    async def waits() -> bool:
        try:
            found.append(await pool.inspect(job, 0.0))
        except PoolError as error:
            if "does not run" not in error.message:
                raise
            return False
        return "to write into" in str(found[-1])

    await asked(waits, "a process that waits for another")
    return found[-1]


async def test_a_job_on_another_node_is_seen_with_what_its_processes_wait_for(nodes: Nodes) -> None:
    home = nodes.directory("home")
    head = nodes.start("head", HEAD).ready()
    nodes.start("run", "startd", join=await token(head, "startd"), FILESYSTEM_DOMAIN="far").ready()
    async with client(head) as pool:
        await slots(pool, 1)
        cluster = await pool.submit({"executable": program(home, "sleep 600 | cat")}, iwd=str(home))
        job = (cluster.ids[0][0], 0)
        found = await seen(pool, job)
        (part,) = found.parts
        assert (part.slot, part.stage) == ("slot1_1@run", "supervise")
        assert "waits for its child" in str(found)
        assert {"sleep", "cat"} <= {process.command.split()[0] for process in part.processes}
        await pool.act("hold", ids=[job])

        async def does_not_run() -> bool:
            try:
                await pool.inspect(job, 0.0)
            except PoolError as error:
                return "does not run" in error.message
            return False

        await asked(does_not_run, "the job to be held")
        with pytest.raises(PoolError, match=r"there is no job 99\.0"):
            await pool.inspect("99.0")
        await pool.act("remove", everything=True)


async def test_a_local_job_is_seen_beside_its_schedd(nodes: Nodes) -> None:
    home = nodes.directory("home")
    head = nodes.start("head", ALL).ready()
    async with client(head) as pool:
        script = program(home, "sleep 600 | cat")
        cluster = await pool.submit({"executable": script, "universe": "local"}, iwd=str(home))
        found = await seen(pool, (cluster.ids[0][0], 0))
        assert found.parts[0].slot == "local@head"
        await pool.act("remove", everything=True)
