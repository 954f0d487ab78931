"""Real keepers of jobs that were handed on: a node is killed between two ends, and no job runs twice or is lost."""

from __future__ import annotations

from collections import Counter

import pytest

from pool.client import Pool
from tests.e2e.support import HEAD, Nodes, asked, client, program, slots, token, until

JOBS = 24
TEXT = """
echo $1 >> began
sleep 0.0$2
echo $1 >> ended
"""


@pytest.mark.parametrize("victim", ["head", "run"])
async def test_a_node_is_killed_and_no_job_runs_twice(nodes: Nodes, victim: str) -> None:
    home = nodes.directory("home")
    head = nodes.start("head", HEAD, HAND_ON_BELOW="0.5").ready()
    run = nodes.start("run", "startd", join=await token(head, "startd"), SLOTS="2").ready()
    async with client(head) as pool:
        await slots(pool, 1)
        job = {"executable": program(home, TEXT, "handed-on-7531.sh"), "arguments": "$(Process) $RANDOM_INTEGER(2,9)"}
        await pool.submit({**job, "queue": JOBS}, iwd=str(home))

    def begun() -> list[str]:
        return (home / "began").read_text().split() if (home / "began").exists() else []

    for count in (7, 14):
        await until(lambda count=count: len(begun()) >= count, f"{count} jobs to begin")  # type: ignore[misc]
        if victim == "head":
            head.crash()
            head = nodes.start("head", HEAD, HAND_ON_BELOW="0.5").ready()
        else:
            run.crash()
            run = nodes.start("run", "startd", SLOTS="2").ready()
    async with client(head) as pool:
        await asked(lambda: queue_is_empty(pool), "the queue to be empty")
        history = await pool.history()
    assert sorted(ad.value("ProcId") for ad in history) == list(range(JOBS))
    assert {(ad.value("JobStatus"), ad.value("ExitCode")) for ad in history} == {(4, 0)}
    assert Counter(begun()) == Counter(map(str, range(JOBS)))
    assert Counter((home / "ended").read_text().split()) == Counter(map(str, range(JOBS)))


async def queue_is_empty(pool: Pool) -> bool:
    return not await pool.jobs(attributes=["ClusterId"])
