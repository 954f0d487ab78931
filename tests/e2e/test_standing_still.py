"""SIGSTOP of what keeps a job while it runs: its connections stay, and its lease does not."""

from __future__ import annotations

import signal

from tests.e2e.support import HEAD, PATIENCE, Nodes, client, slots, token
from tests.e2e.test_deaths import began, ended_once, waiting

LEASE = "3"


async def test_the_startds_node_stands_still_for_longer_than_the_lease(nodes: Nodes) -> None:
    """Its keeper ends the job in time; the schedd does not wait for a word of it, and the node is used again."""
    home = nodes.directory("home")
    head = nodes.start("head", HEAD, CLAIM_LEASE=LEASE).ready()
    run = nodes.start("run", "startd", join=await token(head, "startd"), CLAIM_LEASE=LEASE).ready()
    async with client(head) as pool:
        await slots(pool, 1)
        cluster = await pool.submit(waiting(home), iwd=str(home))
        await began(home)
        run.signal(signal.SIGSTOP)
        head.said("a lease has ended: its machine was not heard of")
        assert not (home / "ended").exists()
        run.signal(signal.SIGCONT)
        await began(home, times=2)
        (home / "go").touch()
        await ended_once(pool, cluster.cluster, home, runs=2)


async def test_a_job_on_a_machine_that_stands_still_is_removed(nodes: Nodes) -> None:
    home = nodes.directory("home")
    head = nodes.start("head", HEAD, CLAIM_LEASE=LEASE).ready()
    run = nodes.start("run", "startd", join=await token(head, "startd"), CLAIM_LEASE=LEASE).ready()
    async with client(head) as pool:
        await slots(pool, 1)
        cluster = await pool.submit(waiting(home), iwd=str(home))
        await began(home)
        run.signal(signal.SIGSTOP)
        try:
            await cluster.remove()
            (result,) = await cluster.wait(30.0)
            assert result.state == "removed"
        finally:
            run.signal(signal.SIGCONT)
        (home / "go").touch()
        (again,) = await (await pool.submit(waiting(home), iwd=str(home))).wait(PATIENCE)
        assert again.state == "completed"
        assert len((home / "ended").read_text().splitlines()) == 1  # of the second job
