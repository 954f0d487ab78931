"""Parallel jobs on real nodes: numbers, files, ends, core files, and the commands on them in each state (WR 3, 5, 6.8).

Two machines share the head's files, to the third they are carried; each has two slots.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e import support
from tests.e2e.support import (
    HEAD,
    Nodes,
    client,
    poolnode,
    processes_with,
    program,
    slots,
    token,
    until,
)
from tests.ordinary_user import as_root
from tests.starter.support import PYTHON
from tests.starter.test_members import cores_are_files


@pytest.fixture(scope="module")
def pool3(whose_pool: object) -> Iterator[Nodes]:
    async def start(nodes: Nodes) -> None:
        head = nodes.start("head", HEAD).ready()
        nodes.start("one", "startd", join=await token(head, "startd"), SLOTS="2", CHECKPOINT_WORTH="0").ready()
        nodes.start("two", "startd", join=await token(head, "startd"), SLOTS="2", CHECKPOINT_WORTH="0").ready()
        far = await token(head, "startd")
        nodes.start("three", "startd", join=far, FILESYSTEM_DOMAIN="far", SLOTS="2", CHECKPOINT_WORTH="0").ready()
        async with client(head) as pool:
            await slots(pool, 3)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(pool3: Nodes, request: pytest.FixtureRequest) -> Path:
    return pool3.directory(support.directory_name(request))


def asked(pool: Nodes, command: str, *arguments: str) -> str:
    done = poolnode(command, *arguments, "--address", pool.all[0].address)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def printed(address: str, job: str, node: int) -> str:
    return poolnode("tail", job, "--node", str(node), "--address", address).stdout.strip()


async def test_a_script_knows_its_number_and_where_the_others_are(pool3: Nodes, home: Path) -> None:
    """Four nodes of one script on three machines, with files of their own there and back."""
    for node in range(4):
        (home / f"in.{node}").write_text(f"{node * 11}\n")
        (home / f"part.{node}").write_text(f"part {node}\n")
    script = program(home, 'read n; echo "$1 $RANK $_CONDOR_PROCNO/$_CONDOR_NPROCS $n $(cat $2) $POOLNODE_HOSTS" >&1')
    text = f"""
    universe = parallel
    executable = {script}
    arguments = $(Node) part.$(Node)
    environment = RANK=$(Node)
    input = in.$(Node)
    output = out.$(Node)
    error = err.$(Node)
    transfer_input_files = part.$(Node)
    machine_count = 4
    +ParallelShutdownPolicy = "WAIT_FOR_ALL"
    log = log
    queue
    """
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        (result,) = await cluster.wait(support.PATIENCE)
        assert result.ok, result
        (ad,) = await cluster.ads()
    for node in range(4):
        said = (home / f"out.{node}").read_text().split()
        assert said[:6] == [str(node), str(node), f"{node}/4", str(node * 11), "part", str(node)]
        assert len(said[6:]) == 4
        assert (home / f"err.{node}").read_text() == ""
    ends = [(end["name"], end["code"]) for end in result.processes]
    assert ends == [(f"node {node}", 0) for node in range(4)]
    assert ad.value("MaxHosts") == 4
    codes = re.findall(r"^(\d{3}) \(", (home / "log").read_text(), re.M)
    assert sorted(codes) == ["000", "001", "005", *["014"] * 4, *["015"] * 4]
    assert (codes[0], codes[-1]) == ("000", "005")


async def test_several_programs_in_one_job(pool3: Nodes, home: Path) -> None:
    """A master and three workers of another program, each on machines of its own kind (WR 6.5)."""
    program(home, f'echo "master $_CONDOR_PROCNO"; while [ ! -e {home}/go ]; do sleep 0.02; done; exit 5', "master")
    program(home, 'echo "worker $_CONDOR_PROCNO $1"; exec sleep 600', "worker")
    text = """
    universe = parallel
    output = out.$(Node)
    executable = master
    machine_count = 1
    requirements = Machine == "one"
    queue
    executable = worker
    arguments = "'for the master'"
    machine_count = 3
    requirements = Machine != "one"
    queue
    """
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        address, job = pool3.all[0].address, str(cluster.cluster)
        await until(lambda: all("worker" in printed(address, job, node) for node in (1, 2, 3)), "the workers to begin")
        (home / "go").touch()
        (result,) = await cluster.wait(support.PATIENCE)
        assert (result.state, result.exit_code) == ("completed", 5), result
        hosts = [str(end["host"]).rpartition("@")[2] for end in result.processes]
        assert hosts[0] == "one"
        assert "one" not in hosts[1:]
        assert (home / "out.0").read_text() == "master 0\n"
        for node in (1, 2, 3):
            assert (home / f"out.{node}").read_text() == f"worker {node} for the master\n"
        assert [bool(end["with_job"]) for end in result.processes] == [False, True, True, True]
    await until(lambda: not processes_with(str(home / "worker")), "the workers to be gone")


@pytest.mark.parametrize("where", ["shared", "carried"])
async def test_a_node_that_crashes_ends_the_others_and_its_core_comes_home(
    pool3: Nodes, home: Path, where: str
) -> None:
    """W37: SIGSEGV on one node; the notice says which, where and when."""
    (home / "crash.py").write_text(
        "import os, signal, sys, time\n"
        "if sys.argv[1] != '2':\n    time.sleep(600)\n"
        f"while not os.path.exists({str(home / 'go')!r}) and {where == 'shared'}: time.sleep(0.02)\n"
        "os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    machines = 'Machine == "one" || Machine == "two"' if where == "shared" else 'Machine == "three"'
    text = f"""
    universe = parallel
    executable = {PYTHON}
    transfer_executable = false
    arguments = crash.py $(Node)
    transfer_input_files = crash.py
    requirements = {machines if where == "shared" else "true"}
    machine_count = {4 if where == "shared" else 3}
    rank = Machine == "three"
    core_size = {1 << 30}
    log = log
    queue
    """
    if where == "carried":
        text = text.replace("queue", "should_transfer_files = YES\n    queue")
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        await until(
            lambda: "014 (" in (home / "log").read_text() if (home / "log").exists() else False, "a node to run"
        )
        (home / "go").touch()
        (result,) = await cluster.wait(support.PATIENCE)
        assert (result.state, result.signal) == ("completed", signal.SIGSEGV), result
        ends = list(result.processes)
        assert [end["with_job"] for end in ends[:3]] == [True, True, False]
        assert (ends[2]["signal"], ends[2]["core"], ends[2]["failed"]) == (11, True, True)
        (ad,) = await cluster.ads()
        slot = ends[2]["host"]
        assert ad.value("ExitReason") == f"node 2 on {slot} died because of signal 11"
    if cores_are_files():
        assert (home / "core.2").stat().st_size > 4096
        assert not (home / "core").exists()
    log = (home / "log").read_text()
    assert re.search(
        r"^015 .* Node 2 terminated.\n\t\(0\) Abnormal termination \(signal 11\)\n\t\(1\) Corefile in: ", log, re.M
    )
    assert f"\tnode 2 on {slot}: signal 11, core file" in log


async def test_one_that_cannot_be_started_starts_none(pool3: Nodes, home: Path) -> None:
    good, bad = program(home, "exec sleep 4711", "good"), home / "bad"
    bad.write_text("#!/no/such/interpreter\n")
    bad.chmod(0o755)
    text = (
        f'universe = parallel\nexecutable = {good}\nmachine_count = 2\nrequirements = Machine != "three"\nlog = log\n'
    )
    text += f"queue\nexecutable = {bad}\nmachine_count = 1\nqueue\n"
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert result.state == "held", result
        assert "node 2" in result.reason or "bad" in result.reason, result
        asked(pool3, "rm", str(cluster.cluster))
    await until(lambda: not processes_with("4711"), "the others to be gone")


LOOP = """
import os, sys, time
n = 0
while not os.path.exists(sys.argv[1] + "/enough"):
    n += 1
    print(n, flush=True)
    time.sleep(0.02)
print("end", flush=True)
"""


async def test_the_commands_on_a_running_parallel_job(pool3: Nodes, home: Path) -> None:
    """q, why, inspect, tail, hold, release, checkpoint, vacate, history, rm."""
    (home / "loop.py").write_text(LOOP)
    text = f"""
    universe = parallel
    executable = {PYTHON}
    transfer_executable = false
    arguments = loop.py {home}
    transfer_input_files = loop.py
    output = out.$(Node)
    machine_count = 3
    +ParallelShutdownPolicy = "WAIT_FOR_ALL"
    log = log
    queue
    """
    head = pool3.all[0]
    async with client(head) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        job = f"{cluster.cluster}.0"

        def log() -> str:
            return (home / "log").read_text() if (home / "log").exists() else ""

        async def runs(times: int) -> None:
            await until(lambda: log().count("\n001 (") == times, f"start {times}")

        await runs(1)
        assert re.search(rf"{cluster.cluster}\.0 .* R ", await asyncio.to_thread(asked, pool3, "q"))
        assert "runs on slot" in await asyncio.to_thread(asked, pool3, "why", job)
        shown = await asyncio.to_thread(asked, pool3, "inspect", job)
        assert shown.count("loop.py") >= 3, shown
        for node in range(3):
            await until(partial(printed, head.address, job, node), f"node {node}'s output")
        await asyncio.to_thread(asked, pool3, "checkpoint", job)
        assert "Job was checkpointed" in log()
        await asyncio.to_thread(asked, pool3, "vacate", job)
        await runs(2)
        await asyncio.to_thread(asked, pool3, "hold", job)
        await until(lambda: "012 (" in log() and not processes_with("loop.py"), "the job to be held")
        assert " H " in await asyncio.to_thread(asked, pool3, "q")
        await asyncio.to_thread(asked, pool3, "release", job)
        await runs(3)
        (home / "enough").touch()
        (result,) = await cluster.wait(support.PATIENCE)
        assert result.ok, result
        (ad,) = await cluster.ads()
        assert ad.value("NumJobStarts") == 3
        for node in range(3):  # each number once: it went on from the checkpoints
            *numbers, end = (home / f"out.{node}").read_text().split()
            assert end == "end"
            assert numbers == [str(n + 1) for n in range(len(numbers))]
        assert job in await asyncio.to_thread(asked, pool3, "history")
        (home / "enough").unlink()
        again = await pool.submit(text.replace("log = log", "log = log2"), iwd=str(home))
        await until(lambda: len(processes_with("loop.py")) >= 3, "the next to run")
        await asyncio.to_thread(asked, pool3, "rm", str(again.cluster))
        await until(lambda: not processes_with("loop.py"), "nothing to be left")
        assert f"{again.cluster}.0" not in await asyncio.to_thread(asked, pool3, "q")


async def test_one_that_is_too_large_waits_in_words_and_can_be_removed(pool3: Nodes, home: Path) -> None:
    text = "universe = parallel\nexecutable = /bin/true\nmachine_count = 7\nqueue\n"
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))

        def explained() -> str | None:
            said = poolnode("why", f"{cluster.cluster}.0", "--address", pool3.all[0].address).stdout
            return said if "of 7 parts have a slot" in said else None

        said = await until(explained, "the reason")
        assert re.search(r"none yet for nodes? ", said), said
        asked(pool3, "hold", str(cluster.cluster))
        asked(pool3, "release", str(cluster.cluster))
        asked(pool3, "rm", str(cluster.cluster))
        (result,) = await cluster.wait(support.PATIENCE)
        assert result.state == "removed"


async def test_new_files_of_the_same_name_are_all_kept(pool3: Nodes, home: Path) -> None:
    """Where files are carried, nodes that each make a `result` do not write over each other's."""
    script = program(home, 'echo "$_CONDOR_PROCNO" > result')
    text = f"""
    universe = parallel
    executable = {script}
    should_transfer_files = YES
    machine_count = 3
    +ParallelShutdownPolicy = "WAIT_FOR_ALL"
    log = log
    queue
    """
    async with client(pool3.all[0]) as pool:
        (result,) = await (await pool.submit(text, iwd=str(home))).wait(support.PATIENCE)
        assert result.ok, result
    found = [home / name for name in sorted(os.listdir(home)) if name.startswith("result")]
    assert sorted(path.read_text().strip() for path in found) == ["0", "1", "2"]
    for path in found:
        assert path.name == "result" or path.name == f"result.{path.read_text().strip()}"
    assert "another node's has the name" in (home / "log").read_text()


def peak(pid: int, *, reset: bool = False) -> int:
    """The most memory in bytes that a process has had since it was reset."""
    if reset:
        with as_root():
            Path(f"/proc/{pid}/clear_refs").write_text("5")
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_node_that_writes_much_leaves_memory_and_the_others_alone(
    pool3: Nodes, home: Path, streamed: bool
) -> None:
    """300 MB of standard output from a machine whose files are copied; the other node's words come meanwhile."""
    size, most = 300_000_000, 100_000_000
    much = f"head -c {size} /dev/zero | tr '\\0' x"
    script = program(home, f'if [ "$1" = 1 ]; then {much}; else echo begun; sleep 8; echo ended; fi')
    text = f"""
    universe = parallel
    executable = {script}
    arguments = $(Node)
    output = out.$(Node)
    stream_output = {str(streamed).lower()}
    +ParallelShutdownPolicy = "WAIT_FOR_ALL"
    requirements = TARGET.FileSystemDomain == "far"
    machine_count = 2
    queue
    """
    head = pool3.all[0]
    before = peak(head.process.pid, reset=True)
    async with client(head) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        await until(lambda: printed(head.address, f"{cluster.cluster}.0", 0) == "begun", "node 0's first line")
        (result,) = await cluster.wait(support.PATIENCE)
        assert result.ok, result
    assert (home / "out.1").stat().st_size == size
    assert (home / "out.0").read_text() == "begun\nended\n"
    assert peak(head.process.pid) - before < most
