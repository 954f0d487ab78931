"""A parallel job that is larger than its pool, on machines of two pools: real nodes, joined by tokens (WR 6.4)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import support
from tests.e2e.flocks import BOTH, agree, lines_of
from tests.e2e.support import Nodes, asked, client, poolnode, program, slots, until
from tests.starter.support import PYTHON


@pytest.fixture(scope="module")
def flock3(whose_pool: object) -> Iterator[Nodes]:
    """physics with a machine of one slot, and chem, which lends one of two."""

    async def start(nodes: Nodes) -> None:
        physics = nodes.start("physics", BOTH, SLOTS="1", CHECKPOINT_WORTH="0").ready()
        chem = nodes.start("chem", BOTH, SLOTS="2", FILESYSTEM_DOMAIN="chem", CHECKPOINT_WORTH="0").ready()
        await agree(chem, physics, ("chem", "physics"))
        async with client(physics) as pool:
            await slots(pool, 2)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def private4(whose_pool: object) -> Iterator[Nodes]:
    """Two pools with two slots each, whose administrators give every job a network of its own."""

    async def start(nodes: Nodes) -> None:
        physics = nodes.start("physics", BOTH, SLOTS="2", JOB_NETWORK="private", CHECKPOINT_WORTH="0").ready()
        chem = nodes.start(
            "chem", BOTH, SLOTS="2", FILESYSTEM_DOMAIN="chem", JOB_NETWORK="private", CHECKPOINT_WORTH="0"
        ).ready()
        await agree(chem, physics, ("chem", "physics"))
        async with client(physics) as pool:
            await slots(pool, 2)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(flock3: Nodes, request: pytest.FixtureRequest) -> Path:
    return flock3.directory(support.directory_name(request))


def job(script: str, more: str = "") -> str:
    return f"""
    universe = parallel
    executable = {script}
    arguments = $(Node)
    output = out.$(Node)
    error = err.$(Node)
    machine_count = 3
    should_transfer_files = YES
    log = log
    +ParallelShutdownPolicy = "WAIT_FOR_ALL"
    {more}
    queue
    """


def outputs(home: Path, kind: str = "out") -> list[list[str]]:
    return [lines_of(home / f"{kind}.{node}") for node in range(3)]


async def test_its_nodes_have_their_files_and_their_ends(flock3: Nodes, home: Path) -> None:
    physics = flock3.all[0]
    (home / "in").write_text("from physics\n")
    script = program(home, 'cat in; echo node $1 of $_CONDOR_NPROCS; echo made by $1 > "made.$1"')
    async with client(physics) as pool:
        cluster = await pool.submit(job(script, "transfer_input_files = in"), iwd=str(home))
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert result.ok, (result, outputs(home, "err"))
        (ad,) = await cluster.ads()
    assert [(home / f"out.{node}").read_text() for node in range(3)] == [
        f"from physics\nnode {node} of 3\n" for node in range(3)
    ]
    assert [(home / f"made.{node}").read_text() for node in range(3)] == [f"made by {node}\n" for node in range(3)]
    hosts = sorted(str(host).partition("@")[2] for host in (end["host"] for end in result.processes))
    assert hosts == ["chem@chem@physics", "chem@chem@physics", "physics"]
    assert ad.value("JobNetworkGiven") == "private"


async def test_it_is_saved_in_both_pools_and_goes_on(flock3: Nodes, home: Path) -> None:
    """All nodes from the same checkpoint, each step once."""
    physics = flock3.all[0]
    script = program(home, "i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done")
    async with client(physics) as pool:
        more = "checkpoint = required\nstream_output = true"
        cluster = await pool.submit(job(script, more), iwd=str(home))
        await until(lambda: all(len(lines) > 5 for lines in outputs(home)), "some steps of all")
        said = poolnode("checkpoint", str(cluster.cluster), "--address", physics.address)
        assert said.returncode == 0, said.stdout + said.stderr
        await cluster.vacate()

        async def runs_again() -> bool:
            (ad,) = await cluster.ads()
            return bool((ad.value("NumJobStarts", 0), ad.value("NumCkpts"), ad.value("JobStatus")) == (2, 2, 2))

        await asked(runs_again, "the second run")
        before = [len(lines) for lines in outputs(home)]
        await until(lambda: all(len(now) > was for now, was in zip(outputs(home), before, strict=True)), "more steps")
        await cluster.remove()
    for lines in outputs(home):
        assert lines == [*map(str, range(len(lines)))]


async def test_q_and_why_say_where_each_node_runs(flock3: Nodes, home: Path) -> None:
    physics = flock3.all[0]
    script = program(home, "echo begun; exec sleep 600")
    async with client(physics) as pool:
        cluster = await pool.submit(job(script, "stream_output = true"), iwd=str(home))
        await until(lambda: outputs(home) == [["begun"]] * 3, "all nodes to run")
        name = f"{cluster.cluster}.0"
        (listed,) = poolnode("q", name, "--json", "-A", physics.address).stdout.splitlines()
        hosts = str(json.loads(listed)["AllRemoteHosts"]).split(",")
        assert sorted(hosts) == ["slot1@chem@chem@physics", "slot1@physics", "slot2@chem@chem@physics"]
        row = poolnode("q", name, "-A", physics.address).stdout.splitlines()[1]
        assert ",".join(hosts) in row
        told = poolnode("why", name, "-A", physics.address).stdout
        assert f"{name} runs on {hosts[0]}, {hosts[1]} and {hosts[2]} for" in told
        await cluster.remove()


async def test_nodes_in_two_pools_reach_each_other_by_their_names(private4: Nodes) -> None:
    physics, home = private4.all[0], private4.directory("own")
    (home / "node.py").write_text(NODE)
    script = program(home, f"exec {PYTHON} node.py $1")
    async with client(physics) as pool:
        described = job(script, "transfer_input_files = node.py").replace("machine_count = 3", "machine_count = 4")
        cluster = await pool.submit(described, iwd=str(home))
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert result.ok, (result, outputs(home, "err"))
    pools = [str(end["host"]).partition("@")[2] for end in result.processes]
    assert sorted(pools) == ["chem@chem@physics", "chem@chem@physics", "physics", "physics"]
    addresses = [f"10.77.0.{node + 1}" for node in range(4)]
    for node in range(4):
        heard = [f"rank{other}" for other in range(4) if other != node]
        assert sorted((home / f"out.{node}").read_text().split()) == sorted([*addresses, addresses[node], *heard])


#: Prints the addresses of all nodes, its own by its hostname, and the name that each node of its network tells it.
NODE = """
import os, socket, sys, time

def reach(host):
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection((host, 7000), timeout=60)
        except ConnectionRefusedError:  # it does not listen yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)

hosts = os.environ["POOLNODE_HOSTS"].split()
own = int(sys.argv[1])
print(*hosts, socket.gethostbyname(socket.gethostname()))
others = [number for number, host in enumerate(hosts) if host != "-" and number != own]
server = socket.create_server(("", 7000))
for other in others:
    if other < own:
        with reach(f"rank{other}") as to:
            to.sendall(socket.gethostname().encode())
            to.shutdown(socket.SHUT_WR)
            print(to.makefile().read())
    else:
        server.settimeout(60)
        caller, _ = server.accept()
        with caller:
            print(caller.makefile().read())
            caller.sendall(socket.gethostname().encode())
"""
