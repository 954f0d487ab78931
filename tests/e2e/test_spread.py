"""Pipe jobs spread over several machines, on real nodes: bytes, ends, and what takes all parts with it (G8)."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import support
from tests.e2e.support import (
    HEAD,
    Nodes,
    administrator,
    client,
    poolnode,
    processes_with,
    program,
    slots,
    token,
    until,
)
from tests.starter.support import PYTHON

PARTS = 'foo.requirements = Machine == "one"\n bar.requirements = Machine == "two"'


@pytest.fixture(scope="module")
def pool3(whose_pool: object) -> Iterator[Nodes]:
    """A head, two machines that share its files, and one that files are carried to."""

    async def start(nodes: Nodes) -> None:
        head = nodes.start("head", HEAD).ready()
        nodes.start("one", "startd", join=await token(head, "startd"), SLOTS="2", CHECKPOINT_WORTH="0").ready()
        far = await token(head, "startd")
        nodes.start("two", "startd", join=far, FILESYSTEM_DOMAIN="far", SLOTS="2", CHECKPOINT_WORTH="0").ready()
        nodes.start("three", "startd", join=await token(head, "startd"), CHECKPOINT_WORTH="0").ready()
        async with client(head) as pool:
            await slots(pool, 3)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(pool3: Nodes, request: pytest.FixtureRequest) -> Path:
    return pool3.directory(support.directory_name(request))


async def test_bytes_end_of_file_and_exit_codes_pass_from_machine_to_machine(pool3: Nodes, home: Path) -> None:
    """Random bytes there and back again: three parts, the middle one where files are carried to."""
    data = os.urandom(6_000_001)
    (home / "data").write_bytes(data)
    text = """
    executable = cat < data | b=/bin/cat | sha256sum > sum
    b.requirements = Machine == "two"
    log = log
    queue
    """
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        (result,) = await cluster.wait(support.PATIENCE)
        assert result.ok, result
        assert (home / "sum").read_text().split()[0] == hashlib.sha256(data).hexdigest()
        assert [(end["name"], end["code"]) for end in result.processes] == [("cat", 0), ("b", 0), ("sha256sum", 0)]


async def test_who_writes_to_a_reader_that_has_had_enough_gets_sigpipe(pool3: Nodes, home: Path) -> None:
    text = f"executable = foo=/usr/bin/yes bar=/usr/bin/head\npipe = foo | bar\nbar.output = out\n{PARTS}\nqueue\n"
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        (result,) = await cluster.wait(support.PATIENCE)
        assert result.ok, result
        ends = [(end["name"], end["code"], end["signal"], end["failed"]) for end in result.processes]
        assert ends == [("foo", None, signal.SIGPIPE, False), ("bar", 0, None, False)]
        assert (home / "out").read_text() == "y\n" * 10


async def test_a_process_that_fails_ends_those_on_other_machines(pool3: Nodes, home: Path) -> None:
    foo = program(home, "echo begun; exit 7", "foo")
    bar = program(home, "cat > got; exec sleep 54321", "bar")
    text = f"executable = {foo} {bar}\npipe = foo | bar\nfoo.exit_codes_ok = 0\nlog = log\n{PARTS}\nqueue\n"
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        (result,) = await cluster.wait(support.PATIENCE)
        assert (result.state, result.exit_code) == ("completed", 7), result
        ends = [(end["name"], end["code"], end["failed"], end["with_job"]) for end in result.processes]
        assert ends == [("foo", 7, True, False), ("bar", None, False, True)]
        (ad,) = await cluster.ads()
        assert "process foo exited with 7" in ad.value("ExitReason")


@pytest.mark.parametrize(
    "bar", ["- > bar", "fort.10 > bar\nbar.arguments = fort.10\nbar.short_reads = true"], ids=["stdin", "file"]
)
async def test_a_file_that_is_a_pipe_may_lead_to_another_machine(pool3: Nodes, home: Path, bar: str) -> None:
    foo = program(home, "seq 1 5000 > fort.11", "foo")
    text = f"executable = {foo} bar=/usr/bin/tail\npipe = foo > fort.11 {bar}\nbar.output = out\n{PARTS}\nqueue\n"
    async with client(pool3.all[0]) as pool:
        (result,) = await (await pool.submit(text, iwd=str(home))).wait(support.PATIENCE)
        assert result.ok, result
        assert (home / "out").read_text().split()[-1] == "5000"
        carried = ["bar_in"] if "fort.10" in bar else []
        assert [end["name"] for end in result.processes] == ["foo", "foo_out", *carried, "bar"]


@pytest.mark.parametrize("how", ["vacate", "crash"])
async def test_a_machine_that_is_lost_takes_all_parts_with_it(pool3: Nodes, home: Path, how: str) -> None:
    """Both begin again, and what comes out is whole: nothing is lost, nothing comes twice."""
    (home / "hold").touch()
    foo = program(home, f"seq 1 200000; while [ -e {home}/hold ]; do sleep 0.05; done; seq 200001 300000", "foo")
    text = f"executable = {foo} bar=/usr/bin/md5sum\npipe = foo | bar\nbar.output = out\n{PARTS}\nqueue\n"
    expected = hashlib.md5("".join(f"{n}\n" for n in range(1, 300_001)).encode()).hexdigest()
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        foos = await until(lambda: processes_with(foo), "foo to run")
        bars = await until(lambda: processes_with("md5sum"), "bar to run")
        if how == "vacate":
            async with administrator(pool3.all[2]) as owner:
                await owner.call("startd.vacate", {"graceful": True})
        else:
            two = pool3.all[2]
            two.crash()
            pool3.start("two", "startd", FILESYSTEM_DOMAIN="far", SLOTS="2", CHECKPOINT_WORTH="0").ready()
        await until(lambda: not any(one.is_running() for one in (*foos, *bars)), "both to be gone")
        (home / "hold").unlink()
        (result,) = await cluster.wait(support.PATIENCE)
        assert result.ok, result
        assert (home / "out").read_text().split()[0] == expected
        (ad,) = await cluster.ads()
        assert ad.value("NumJobStarts") == 2


GEN = """
import os, sys, time
open(sys.argv[1] + "/began.gen", "a").write("x")
number = 0
while not os.path.exists(sys.argv[1] + "/enough"):
    block = "".join(f"{n} {n * n % 9973}\\n" for n in range(number, number + 4000))
    print(block, end="", flush=True)
    number += 4000
    if number == 200_000:
        open(sys.argv[1] + "/megabytes", "w").close()
    time.sleep(0.01)
"""
SINK = """
import hashlib, sys
open(sys.argv[1] + "/began.sink", "a").write("x")
whole, lines = hashlib.sha256(), 0
for line in sys.stdin.buffer:
    whole.update(line)
    lines += 1
print(lines, whole.hexdigest())
"""


def expected(lines: int) -> str:
    """The sink's output when the middle puts a for 1."""
    whole = hashlib.sha256()
    for n in range(lines):
        whole.update(f"{n} {n * n % 9973}\n".replace("1", "a").encode())
    return whole.hexdigest()


async def asked(pool: Nodes, command: str, cluster: int) -> None:
    said = await asyncio.to_thread(poolnode, command, str(cluster), "--address", pool.all[0].address)
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize(("how", "checkpoints"), [("crash", 2), ("vacate", 1)])
async def test_it_goes_on_from_a_checkpoint_of_all_parts(pool3: Nodes, home: Path, how: str, checkpoints: int) -> None:
    """Megabytes are on their way when it is made. No process begins anew; nothing is lost, nothing comes twice."""
    for name, text in (("gen.py", GEN), ("sink.py", SINK)):
        (home / name).write_text(text)
    text = f"""
    executable = gen={PYTHON} gen.py {home} | mid=/usr/bin/tr 1 a | sink={PYTHON} sink.py {home} > out
    gen.requirements = Machine == "one"
    mid.requirements = Machine == "two"
    sink.requirements = Machine == "three"
    log = log
    queue
    """
    async with client(pool3.all[0]) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        await until(lambda: all((home / f"began.{name}").exists() for name in ("gen", "sink")), "all to run")
        await until(lambda: "Job executing on host" in (home / "log").read_text(), "its machines to say so")
        if how == "crash":
            for _ in range(2):
                await asked(pool3, "checkpoint", cluster.cluster)
            pool3.all[3].crash()
            pool3.start("three", "startd", CHECKPOINT_WORTH="0").ready()
        else:
            await until((home / "megabytes").exists, "megabytes to flow")
            await asked(pool3, "vacate", cluster.cluster)
            await until(lambda: "was checkpointed" in (home / "log").read_text(), "all parts to leave, saved")
        (home / "enough").touch()
        (result,) = await cluster.wait(support.PATIENCE)
        assert result.ok, result
        lines, digest = (home / "out").read_text().split()
        assert int(lines) > 0
        assert digest == expected(int(lines))
        assert [(home / f"began.{name}").read_text() for name in ("gen", "sink")] == ["x", "x"]
        (ad,) = await cluster.ads()
        assert (ad.value("NumJobStarts"), ad.value("NumCkpts")) == (2, checkpoints)


async def test_a_work_flow_of_all_kinds_of_jobs(pool3: Nodes, home: Path) -> None:
    """A pipe job, one with remote I/O where files are carried to, one spread over machines, one that moves."""
    slow = "import time\nfor at in range(40):\n    print(at, flush=True)\n    time.sleep(0.05)\n"
    (home / "slow.py").write_text(slow)
    dag = f"""
    JOB pipe {{
        executable = seq 1 1000 | sort -rn | head -n 3 > first
    }}
    JOB remote {{
        executable = {program(home, "cat first > second; echo remote >> second")}
        remote_io = on
        requirements = Machine == "two"
    }}
    JOB spread {{
        executable = foo=/bin/cat bar=/usr/bin/sort
        pipe = foo | bar
        foo.input = second
        bar.output = third
        {PARTS}
    }}
    JOB moved {{
        executable = {PYTHON}
        arguments = slow.py
        output = fourth
        requirements = Machine != "two"
    }}
    PARENT pipe CHILD remote
    PARENT remote CHILD spread moved
    """
    (home / "all.dag").write_text(dag.replace("\n    ", "\n"))
    node = pool3.all[0]
    done = poolnode("dag", "submit", "-q", "all.dag", cwd=home, POOLNODE_ADDRESS=node.address)
    number = int(done.stdout)
    async with client(node) as pool:
        await until(lambda: (home / "all.dag.dagman.out").exists(), "the work flow to begin")
        await until(
            lambda: "ULOG_EXECUTE for HTCondor Node moved" in (home / "all.dag.dagman.out").read_text(), "moved"
        )
        found = re.findall(r"ULOG_EXECUTE for HTCondor Node moved \((\d+)\.", (home / "all.dag.dagman.out").read_text())
        moved = pool.cluster(int(found[0]))
        await moved.vacate()
        (result,) = await pool.cluster(number).wait(support.PATIENCE)
        assert result.ok, result
        (ad,) = await pool.gather("schedd.history", {"ids": [[moved.cluster, 0]], "limit": 1})
    assert (home / "third").read_text().split() == ["1000", "998", "999", "remote"]
    assert (home / "fourth").read_text().split() == [str(at) for at in range(40)]
    assert ad["NumJobStarts"] >= 1
