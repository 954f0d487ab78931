"""Two pools that lend to each other, each with its own authority: real nodes, joined by tokens (EV 4.3, 5.5, 8)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool.wire import RealNetwork, RemoteError
from pool.wire.credentials import Credentials
from tests.conftest import REPOSITORY
from tests.e2e import support
from tests.e2e.support import (
    Node,
    Nodes,
    administrator,
    asked,
    client,
    outcome,
    poolnode,
    processes_with,
    program,
    slots,
    until,
)

HEAD = "collector,negotiator,schedd,world"
BOTH = "collector,negotiator,schedd,startd,world"


async def agree(lender: Node, borrower: Node, names: tuple[str, str]) -> None:
    """The borrower's jobs may run on the lender's machines."""
    async with administrator(lender) as pool:
        made = await pool.call("node.token", {"roles": ["flock"], "node": names[1], "lifetime": 600, "uses": 1})
    async with administrator(borrower) as pool:
        await pool.call("world.accept", {"pool": names[0], "token": made["token"]})


@pytest.fixture(scope="module")
def flock2(whose_pool: object) -> Iterator[Nodes]:
    """physics, which has no machine, and chem, which has one of two slots."""

    async def start(nodes: Nodes) -> None:
        physics = nodes.start("physics", HEAD).ready()
        chem = nodes.start("chem", BOTH, SLOTS="2", FILESYSTEM_DOMAIN="chem").ready()
        await agree(chem, physics, ("chem", "physics"))
        async with client(physics) as pool:
            await slots(pool, 1)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(flock2: Nodes, request: pytest.FixtureRequest) -> Path:
    return flock2.directory(support.directory_name(request))


async def test_a_job_runs_in_another_pool_with_its_files(flock2: Nodes, home: Path) -> None:
    physics = flock2.all[0]
    (home / "in").write_text("from physics\n")
    script = program(home, "cat in; echo made > result; id -un; exit 3")
    async with client(physics) as pool:
        cluster = await pool.submit(
            {"executable": script, "transfer_input_files": "in", "output": "out", "log": "log"}, iwd=str(home)
        )
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert (result.exit_code, result.reason) == (3, ""), result
        (ad,) = await cluster.ads()
    said, user = (home / "out").read_text().splitlines()
    assert said == "from physics"
    assert (home / "result").read_text() == "made\n"
    assert str(ad.value("LastRemoteHost")).endswith("@chem@physics")
    assert "@chem@physics" in (home / "log").read_text()
    if support.submitter is not None:
        assert user == "nobody", "an account of the same name here is another user's"


async def test_a_job_that_wants_no_flock_stays(flock2: Nodes, home: Path) -> None:
    physics = flock2.all[0]
    async with client(physics) as pool:
        cluster = await pool.submit({"executable": "/bin/true", "flock": "false"}, iwd=str(home))
        other = await outcome(pool, home, executable="/bin/true")
        assert other.ok
        (ad,) = await cluster.ads()
        assert ad.value("JobStatus") == 1
        await cluster.remove()


async def test_it_can_be_watched_inspected_and_removed_as_at_home(flock2: Nodes, home: Path) -> None:
    physics, chem = flock2.all
    script = program(home, "echo begun; exec sleep 600", "flocked-sleep.sh")
    async with client(physics) as pool:
        cluster = await pool.submit({"executable": script, "output": "out"}, iwd=str(home))
        await until(lambda: "begun" in poolnode("tail", f"{cluster.cluster}.0", "-A", physics.address).stdout, "output")
        inspected = poolnode("inspect", f"{cluster.cluster}.0", "-A", physics.address)
        assert "sleep" in inspected.stdout, inspected.stderr
        assert "chem" in poolnode("status", "-A", physics.address).stdout
        shown = json.loads(poolnode("flock", "--json", "-A", physics.address).stdout)
        assert (shown["pool"], shown["borrowed"]) == ("chem", 1)
        async with client(chem) as lender:
            owners = {str(ad.value("RemoteOwner", "")) for ad in await lender.machines()}
        assert any(owner.endswith("@physics") for owner in owners), owners
        await cluster.remove()
        await until(lambda: not processes_with("flocked-sleep.sh"), "the job to end there")

    async def idle_again() -> bool:
        async with client(chem) as lender:
            return {ad.value("State") for ad in await lender.machines()} == {"Unclaimed"}

    await asked(idle_again, "chem's machine to be free")


async def test_a_checkpoint_moves_a_job_between_its_runs_there(flock2: Nodes, home: Path) -> None:
    """It is saved on the submit side, leaves, and goes on from there: each step once."""
    physics = flock2.all[0]
    script = program(home, "i=0; while [ ! -e go ]; do echo $i; i=$((i+1)); sleep 0.02; done; echo end")
    async with client(physics) as pool:
        cluster = await pool.submit(
            {"executable": script, "output": "out", "checkpoint": "required", "remote_io": "on"}, iwd=str(home)
        )
        await until(lambda: len(_lines(home / "out")) > 3, "some steps")
        await cluster.checkpoint()
        await cluster.vacate()

        async def runs_again() -> bool:
            (ad,) = await cluster.ads()
            return bool(ad.value("NumJobStarts", 0) >= 2 and ad.value("JobStatus") == 2)

        await asked(runs_again, "the second run")
        (home / "go").touch()
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert result.ok, result
    lines = _lines(home / "out")
    assert lines == [*map(str, range(len(lines) - 1)), "end"]


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
        await until(lambda: _lines(home / "out") == ["begun"], "the job to begin")
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
    assert _lines(home / "out") == ["begun", "end"]


async def _has_guest(lender: Node, user: str) -> bool:
    async with client(lender) as pool:
        return user in {str(ad.value("RemoteOwner", "")) for ad in await pool.machines()}


def _lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


async def test_a_pool_gets_nothing_that_the_agreement_does_not_give(flock2: Nodes, home: Path) -> None:
    """A world with a good certificate that lies: every other method, other addresses, our files, other users."""
    physics, chem = flock2.all
    credentials = Credentials.load(physics.state / "flock" / "chem")
    network = RealNetwork(credentials=credentials)
    link = await network.connect(credentials.address)
    try:
        for name in ("node.info", "node.token", "collector.query", "schedd.query", "startd.claim", "world.status"):
            with pytest.raises(RemoteError, match="needs the right to"):
                await link.call(name, {})
        way = {"schedd": "physics", "startd": credentials.address}
        for verb in ("drain", "matched", "vacate", "claim", "no.such"):
            with pytest.raises(RemoteError, match="does not pass between pools"):
                await link.call("world.pass_call", {**way, "verb": verb, "params": {}})
        for address in ("tcp://127.0.0.1:1", "unix:///etc/passwd", "local:", credentials.address.replace("127", "128")):
            with pytest.raises(RemoteError, match="has no machine at"):
                await link.call(
                    "world.pass_call", {**way, "startd": address, "verb": "release", "params": {"claims": []}}
                )
        ad = {"Owner": "root", "Requirements": True, "Cmd": "/bin/true", "JobUniverse": 5, "User": "root@chem"}
        request = {"schedd": "physics", "owner": "root", "lease": 60.0, "ad": ad, "count": 1}
        (made,) = (await link.call("world.claim", request))["claims"]
        order = {"claim": made["claim"], "start": {"mode": "shared"}, "shared": None, "own": ad}
        with pytest.raises(RemoteError, match="cannot work on files of the machine"):
            await link.call("world.pass_call", {**way, "verb": "activate", "params": order})
        await asked(lambda: _has_guest(chem, "root@physics"), "chem to show whose slot it is")
        await link.call("world.pass_call", {**way, "verb": "release", "params": {"claims": [made["claim"]]}})
    finally:
        await link.close()


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
