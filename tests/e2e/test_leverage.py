"""The cost of a job on the submit side is counted wherever it is spent: in the node, its threads and its file servers
(A11).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import ALL, HEAD, PATIENCE, Nodes, client, program, slots, token
from tests.ordinary_user import OrdinaryUser

MEGABYTES = 64


async def cost_at_home(pool: Any, iwd: Path, **commands: Any) -> float:
    """Runs a job; processor seconds on the submit side."""
    (cluster,) = await pool.submit_all({"iwd": str(iwd), **commands})
    (result,) = await cluster.wait(PATIENCE, until_stuck=True)
    assert result.ok, result
    (ad,) = await cluster.ads(["ClusterId", "ProcId", "LocalUserCpu"])
    return float(ad.value("LocalUserCpu"))


async def test_files_that_travel_are_part_of_what_a_job_costs(nodes: Nodes) -> None:
    home = nodes.directory("home")
    (home / "data").write_bytes(bytes(MEGABYTES << 20))
    script = program(home, "test ! -f data || cat data > out")
    async with client(nodes.start("whole", ALL).ready()) as pool:
        common = {"executable": script, "should_transfer_files": "YES"}
        await cost_at_home(pool, home, **common)
        small = await cost_at_home(pool, home, **common)
        large = await cost_at_home(pool, home, **common, transfer_input_files="data", transfer_output_files="out")
    assert large > small + MEGABYTES * 1e-4, "reading and writing a megabyte takes more than a tenth of a millisecond"


@pytest.mark.own_pool("has an ordinary user already")
async def test_what_file_servers_do_counts_for_the_job(nodes: Nodes) -> None:
    ann = OrdinaryUser(nodes.place)
    head = nodes.start("head", HEAD, machine=ann.machine).ready()
    join, there = await token(head, "startd"), "elsewhere"
    far = nodes.start(
        "far", "startd", join=join, machine=ann.machine, RUN_AS="owner", FILESYSTEM_DOMAIN=there, UID_DOMAIN=there
    )
    far.ready()
    home = nodes.directory("home")
    (home / "data").write_bytes(bytes(MEGABYTES << 20))
    script = program(home, "cat data > out")
    (home / "remote.sub").write_text(f"executable = {script}\nremote_io = on\nqueue\n")
    (home / "small.sub").write_text("executable = /bin/true\nremote_io = on\nqueue\n")
    ann.owns(home)
    costs = []
    async with client(head) as pool:
        await slots(pool, 1)
        for file in ("small.sub", "small.sub", "remote.sub"):
            done = ann.poolnode("submit", "-q", "--wait", file, "--address", head.address, cwd=home)
            assert done.returncode == 0, done.stderr
            (ad,) = await pool.cluster(int(done.stdout.split()[0])).ads(["ClusterId", "ProcId", "LocalUserCpu"])
            costs.append(float(ad.value("LocalUserCpu")))
    assert costs[-1] > costs[1] + MEGABYTES * 1e-4, costs
