"""Pools of a test's own: nodes that are killed, and the example of three pools."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pool.wire.certificates import life_of
from tests.conftest import REPOSITORY
from tests.e2e import support
from tests.e2e.flocks import BOTH, HEAD, agree, lines_of
from tests.e2e.support import Nodes, client, outcome, program, slots, until


@pytest.mark.parametrize("side", ["the pool that borrows", "the pool that lends"])
async def test_a_pools_node_is_killed_and_the_job_runs_on(nodes: Nodes, side: str) -> None:
    """Its lease spans both pools: the job goes on in its keeper, is found again, and runs once."""
    home = nodes.directory("home")
    physics = nodes.start("physics", HEAD).ready()
    chem = nodes.start("chem", BOTH, SLOTS="1", FILESYSTEM_DOMAIN="chem").ready()
    await agree(chem, physics, ("chem", "physics"))
    script = program(home, "echo begun; while [ ! -e go ]; do sleep 0.02; done; echo end", "flocked-waits.sh")
    async with client(physics) as pool:
        await slots(pool, 1)
        cluster = await pool.submit({"executable": script, "output": "out", "remote_io": "on"}, iwd=str(home))
        await until(lambda: lines_of(home / "out") == ["begun"], "the job to begin")
    killed = physics if side == "the pool that borrows" else chem
    killed.crash()
    again = (
        nodes.start("physics", HEAD)
        if killed is physics
        else nodes.start("chem", BOTH, SLOTS="1", FILESYSTEM_DOMAIN="chem")
    )
    again.ready()
    physics = again if killed is physics else physics
    async with client(physics) as pool:
        (home / "go").touch()
        (result,) = await pool.cluster(cluster.cluster).wait(support.PATIENCE, until_stuck=True)
        assert result.ok, result
        (ad,) = await pool.cluster(cluster.cluster).ads()
        assert ad.value("NumJobStarts") == 1
    assert lines_of(home / "out") == ["begun", "end"]


async def test_an_agreement_outlives_its_certificate(nodes: Nodes) -> None:
    """The world that borrows has it renewed by the pool that issued it, and connects anew with the present one."""
    home = nodes.directory("home")
    config = home / "chem.conf"
    config.write_text("CERTIFICATE_LIFE = 6 s\n")
    physics = nodes.start("physics", HEAD).ready()
    chem = nodes.start("chem", BOTH, SLOTS="1", FILESYSTEM_DOMAIN="chem", config=config).ready()
    await agree(chem, physics, ("chem", "physics"))
    certificate = nodes.state("physics") / "flock" / "chem" / "node.crt"
    first = life_of(certificate.read_text())[1]
    physics.said("the certificate from another pool was renewed")
    # A node takes long to start on a slow machine: the last one lives longer.
    config.write_text("CERTIFICATE_LIFE = 1 h\n")
    chem.signal(signal.SIGHUP)
    await until(lambda: life_of(certificate.read_text())[1] > time.time() + 600, "a certificate that lives longer")
    await until(lambda: time.time() > first, "the first certificate to end")
    chem.crash()
    nodes.start("chem", BOTH, SLOTS="1", FILESYSTEM_DOMAIN="chem", config=config).ready()
    async with client(physics) as pool:
        result = await outcome(pool, home, executable="/bin/true", remote_io="on")
        assert result.ok, result


async def test_a_pools_world_is_stopped_and_local_jobs_start(nodes: Nodes) -> None:
    """The world is a node of its own that hangs (SIGSTOP), while a job waits for a machine behind it (F-4)."""
    home = nodes.directory("home")
    physics = nodes.start("physics", "collector,negotiator,schedd,startd", SLOTS="1").ready()
    chem = nodes.start("chem", BOTH, SLOTS="1", FILESYSTEM_DOMAIN="chem").ready()
    world = nodes.start("gate", "world", join=await support.token(physics, "world"), POOL_NAME="physics").ready()
    await agree(chem, world, ("chem", "physics"))
    async with client(physics) as pool:
        await slots(pool, 2)
        world.signal(signal.SIGSTOP)
        try:
            wanted = {"executable": "/bin/true", "requirements": 'FlockPool =?= "chem"', "remote_io": "on"}
            away = await pool.submit(wanted, iwd=str(home))
            result = await outcome(pool, home, executable="/bin/true", flock="false")
            assert result.ok, result
            (ad,) = await pool.cluster(away.cluster).ads()
            assert ad.value("JobStatus") == 1
        finally:
            world.signal(signal.SIGCONT)
        (result,) = await away.wait(support.PATIENCE, until_stuck=True)
        assert result.ok, "it waited for the world, and ran when that went on"


@pytest.mark.own_pool("it starts three pools of its own")
async def test_the_example_of_three_pools(nodes: Nodes) -> None:
    home = nodes.directory("home")
    shutil.copytree(REPOSITORY / "examples" / "flock", home / "flock")
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(home)}
    script = home / "flock" / "three_pools.sh"
    done = await asyncio.create_subprocess_exec(script, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = await asyncio.wait_for(done.communicate(), 3 * support.PATIENCE)
    assert done.returncode == 0, err.decode()
    ran = {pool: int(count) for count, pool in re.findall(r"(\d+) @(\w+)@tree", out.decode())}
    assert set(ran) == {"oak", "elm"}
    assert sum(ran.values()) == 20
    assert out.decode().endswith("leaf 0 fell in another pool\n")
