"""kill -9 of each process while a job runs: the job runs on, or again, and ends exactly once (A3)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

import psutil
import pytest

from pool.client import Cluster, Pool
from tests.e2e.support import (
    ALL,
    HEAD,
    PATIENCE,
    Node,
    Nodes,
    client,
    poolnode,
    processes_with,
    program,
    slots,
    token,
    until,
)

#: A job that says when it begins, waits for a file, and says when it ends.
WAITS = """
echo began >> began
while ! test -e go; do sleep 0.02; done
echo ended >> ended
echo from the job
exit 4
"""


def waiting(pool_directory: Path, **more: str) -> dict[str, str]:
    return {"executable": program(pool_directory, WAITS, "waits-9753.sh"), "output": "out", **more}


async def began(home: Path, times: int = 1) -> None:
    path = home / "began"
    await until(lambda: path.exists() and len(path.read_text().splitlines()) == times, "the job to begin")


async def two(nodes: Nodes) -> tuple[Node, Node]:
    """A head, and a startd on a node of its own."""
    head = nodes.start("head", HEAD).ready()
    run = nodes.start("run", "startd", join=await token(head, "startd")).ready()
    async with client(head) as pool:
        await slots(pool, 1)
    return head, run


async def ended_once(pool: Pool, cluster: int, home: Path, runs: int = 1) -> None:
    """The job has ended with its own exit code, and everything about it happened the right number of times."""
    (result,) = await pool.cluster(cluster, 1).wait(PATIENCE, until_stuck=True)
    assert (result.state, result.exit_code) == ("completed", 4), result
    assert (home / "out").read_text() == "from the job\n"
    assert (home / "began").read_text() == "began\n" * runs
    assert (home / "ended").read_text() == "ended\n"
    ad = await pool.job(cluster).ad()
    assert ad.value("NumJobStarts") == runs
    assert ad.value("NumJobCompletions") == 1
    kinds = []
    async for batch in pool.events(cluster=cluster):
        if not batch:
            break
        kinds += [event["kind"] for event in batch]
    assert kinds.count("TERMINATED") == 1, kinds
    assert 1 <= kinds.count("EXECUTE") <= runs, kinds
    assert await pool.jobs() == []


@pytest.mark.parametrize("when", ["while the node is away", "after it is back"])
async def test_the_startds_node_is_killed_and_its_job_runs_on(nodes: Nodes, when: str) -> None:
    home = nodes.directory("home")
    head, run = await two(nodes)
    async with client(head) as pool:
        cluster: Cluster = await pool.submit(waiting(home), iwd=str(home))
        await began(home)
        run.crash()
        assert processes_with("waits-9753"), "the job died with its node"
        if when == "while the node is away":
            (home / "go").touch()
            await until(lambda: not processes_with("waits-9753"), "the job to end")
        again = nodes.start("run", "startd")
        again.said("a running job was found again", job=f"{cluster.cluster}.0")
        again.ready()
        (home / "go").touch()
        await ended_once(pool, cluster.cluster, home)


@pytest.mark.parametrize("when", ["while the node is away", "after it is back"])
async def test_the_schedds_node_is_killed_and_its_job_runs_on(nodes: Nodes, when: str) -> None:
    home = nodes.directory("home")
    head, _ = await two(nodes)
    async with client(head) as pool:
        cluster = await pool.submit(waiting(home), iwd=str(home))
        await began(home)
    head.crash()
    if when == "while the node is away":
        (home / "go").touch()
        await until(lambda: not processes_with("waits-9753"), "the job to end")
    again = nodes.start("head", HEAD).ready()
    async with client(again) as pool:
        (home / "go").touch()
        await ended_once(pool, cluster.cluster, home)


async def test_a_job_whose_files_are_carried_survives_both_nodes(nodes: Nodes) -> None:
    """Its outputs reach the submit side to a schedd that was restarted, from a startd that was; inputs do not come
    back.
    """
    home = nodes.directory("home")
    (home / "in").write_text("before\n")
    head = nodes.start("head", HEAD).ready()
    run = nodes.start("run", "startd", join=await token(head, "startd"), FILESYSTEM_DOMAIN="far").ready()
    script = program(home, "cat in; sleep 1.5; echo made > made", "waits-9753.sh")
    async with client(head) as pool:
        cluster = await pool.submit(
            {"executable": script, "output": "out", "transfer_input_files": "in"}, iwd=str(home)
        )
        await until(lambda: processes_with("waits-9753"), "the job to begin")
    run.crash()
    head.crash()
    (home / "in").write_text("edited meanwhile\n")
    nodes.start("run", "startd", FILESYSTEM_DOMAIN="far").said("a running job was found again")
    again = nodes.start("head", HEAD).ready()
    async with client(again) as pool:
        (result,) = await pool.cluster(cluster.cluster, 1).wait(PATIENCE, until_stuck=True)
        assert result.ok, result
        assert (await cluster_ad(pool, cluster.cluster)) == (1, 1)
    assert (home / "out").read_text() == "before\n"
    assert (home / "made").read_text() == "made\n"
    assert (home / "in").read_text() == "edited meanwhile\n"


async def cluster_ad(pool: Pool, cluster: int) -> tuple[object, object]:
    ad = await pool.job(cluster).ad()
    return ad.value("NumJobStarts"), ad.value("NumJobCompletions")


async def test_the_keeper_is_killed_and_the_job_runs_again(nodes: Nodes) -> None:
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL).ready()
    async with client(whole) as pool:
        cluster = await pool.submit(waiting(home), iwd=str(home))
        await began(home)
        job = processes_with("waits-9753")[0]
        keepers = [one for one in job.parents() if one.pid not in (whole.process.pid, psutil.Process().pid)]
        assert keepers
        keepers[0].kill()
        await began(home, 2)
        await until(lambda: len(processes_with("waits-9753")) == 1, "the first copy to be gone")
        (home / "go").touch()
        await ended_once(pool, cluster.cluster, home, runs=2)


async def test_sigterm_hands_over_and_the_next_node_takes_up(nodes: Nodes) -> None:
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL).ready()
    async with client(whole) as pool:
        cluster = await pool.submit(waiting(home), iwd=str(home))
        await began(home)
    assert whole.stop() == 0
    troubles = [line for line in whole.log if line.get("level") in ("warning", "error") and "what" not in line]
    # A machine that is busy with other things holds every loop.
    assert not [line for line in troubles if line["message"] != "the loop was held"]
    assert processes_with("waits-9753"), "a hand-over leaves jobs running"
    assert not (whole.state / "node.sock").exists()
    again = nodes.start("whole", ALL).ready()
    async with client(again) as pool:
        (home / "go").touch()
        await ended_once(pool, cluster.cluster, home)


async def test_every_process_of_every_node_is_killed_at_once(nodes: Nodes) -> None:
    """As when the power goes: the job was accepted, so it runs, after a lease if it must."""
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL, CLAIM_LEASE="2").ready()
    async with client(whole) as pool:
        cluster = await pool.submit(waiting(home), iwd=str(home))
        await began(home)
    family = psutil.Process(whole.process.pid).children(recursive=True)
    for process in [psutil.Process(whole.process.pid), *family, *processes_with("waits-9753")]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    whole.ended()
    await until(lambda: not processes_with("waits-9753"), "the job to be gone")
    again = nodes.start("whole", ALL, CLAIM_LEASE="2").ready()
    async with client(again) as pool:
        await began(home, 2)
        (home / "go").touch()
        await ended_once(pool, cluster.cluster, home, runs=2)


async def test_an_orderly_restart_of_the_schedds_node_ends_no_wait(nodes: Nodes) -> None:
    """`poolnode wait`, a program's wait and its events go on where they were."""
    home = nodes.directory("home")
    head, _ = await two(nodes)
    async with client(head) as pool:
        cluster = await pool.submit(waiting(home), iwd=str(home))
        await began(home)
        command = ("wait", f"{cluster.cluster}", "--address", head.address)
        commands = asyncio.create_task(asyncio.to_thread(poolnode, *command))
        of_all = asyncio.create_task(cluster.wait(PATIENCE))
        of_one = asyncio.create_task(cluster[0].wait(PATIENCE))
        kinds: list[str] = []

        async def listen() -> None:
            async for event in cluster.events():
                kinds.append(event.kind.value)
                if event.kind.ends:
                    return

        listening = asyncio.create_task(listen())
        await until(lambda: "EXECUTE" in kinds, "the events")
        assert head.stop() == 0
        again = nodes.start("head", HEAD).ready()
        assert again.address == head.address
        (home / "go").touch()
        (result,) = await of_all
        assert result.exit_code == 4
        assert await of_one == result
        await asyncio.wait_for(listening, PATIENCE)
        assert (kinds.count("SUBMIT"), kinds.count("TERMINATED")) == (1, 1)
        done = await commands
        assert done.returncode == 1, done.stderr  # its job has, too
