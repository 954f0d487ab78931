"""Jobs whose files are carried go on elsewhere with exactly the files of the moment (C1, C2, C4)."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pool.client import Pool
from tests.e2e import support
from tests.e2e.support import HEAD, Nodes, administrator, client, slots, token, until
from tests.starter.support import PYTHON

#: Counts in memory and in files: one appended to, one written in place, one that has no name any more, one that is
#: mapped. When it is asked to stop it says what each of them holds.
COUNT = r"""
import mmap, os, time
steps = 0
print("begin", os.getcwd(), os.environ["_CONDOR_SCRATCH_DIR"], open("input.txt").read().strip(), flush=True)
os.makedirs("deep/er", exist_ok=True)
trail = open("deep/er/trail", "a")
place = open("place", "w+b", buffering=0)
gone = open("gone", "w+b", buffering=0)
os.unlink("gone")
with open("mapped", "wb") as made:
    made.truncate(4 * 4096)
mapped = mmap.mmap(os.open("mapped", os.O_RDWR), 4 * 4096)
while not os.path.exists(".enough"):
    n, steps = steps, steps + 1
    trail.write(f"{n}\n"); trail.flush()
    place.seek(0); place.write(b"%08d" % n)
    gone.write(b"%08d" % n)
    mapped[n % (4 * 4096)] = n % 251 + 1
    if n:
        os.unlink(f"step.{n - 1}")
    open(f"step.{n}", "w").write(str(n))
    print(n, flush=True)
    time.sleep(0.005)
gone.seek(0)
print("gone", gone.read() == b"".join(b"%08d" % n for n in range(steps)))
print("mapped", all(mapped[n % (4 * 4096)] == n % 251 + 1 for n in range(max(0, steps - 4 * 4096), steps)))
print("trail", open("deep/er/trail").read() == "".join(f"{n}\n" for n in range(steps)))
print("place", open("place").read(), sorted(name for name in os.listdir(".") if name[0] != "."))
"""


@pytest.fixture(scope="module")
def pool3(whose_pool: object) -> Iterator[Nodes]:
    """A head, and two machines that files are carried to."""

    async def start(nodes: Nodes) -> None:
        head = nodes.start("head", HEAD).ready()
        for name in ("one", "two"):
            join = await token(head, "startd")
            nodes.start(name, "startd", join=join, FILESYSTEM_DOMAIN=name, CHECKPOINT_WORTH="0").ready()
        async with client(head) as pool:
            await slots(pool, 2)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(pool3: Nodes, request: pytest.FixtureRequest) -> Path:
    directory = pool3.directory(support.directory_name(request))
    (directory / "count.py").write_text(COUNT)
    (directory / "input.txt").write_text("hello\n")
    return directory


async def submit(pool: Pool, home: Path, **more: Any) -> Any:
    commands = {
        "executable": PYTHON,
        "transfer_executable": "false",
        "arguments": "count.py",
        "output": "out",
        "error": "err",
        "log": "log",
        "should_transfer_files": "YES",
        "when_to_transfer_output": "ON_EXIT",
        "transfer_input_files": "count.py, input.txt",
        **more,
    }
    return await pool.submit(commands, iwd=str(home))


async def reaches(cluster: Any, line: bytes) -> None:
    """Wait until the job has written that."""
    said = b""
    async with asyncio.timeout(support.PATIENCE):
        async for piece in cluster[0].tail():
            said += piece
            if line in said:
                return


async def enough(nodes: Nodes, cluster: Any, home: Path) -> None:
    """Let the job come to its end, on its second machine."""
    log = home / "log"
    await until(lambda: log.read_text().count("Job executing on host") == 2, "the job to go on")
    (ad,) = await cluster.ads()
    slot, _, name = str(ad.value("RemoteHost")).rpartition("@")
    (nodes.state(name) / "execute" / slot / ".enough").touch()


def whole(home: Path) -> int:
    """It wrote what an undisturbed run writes; how many steps it made."""
    lines = (home / "out").read_text().splitlines()
    steps = len(lines) - 5
    assert steps > 20
    assert lines[0] == "begin /job /job hello"
    assert lines[1 : steps + 1] == list(map(str, range(steps)))
    names = ["count.py", "deep", "input.txt", "mapped", "place", f"step.{steps - 1}"]
    assert lines[steps + 1 :] == ["gone True", "mapped True", "trail True", f"place {steps - 1:08d} {names}"]
    return steps


async def test_it_goes_on_with_its_files(pool3: Nodes, home: Path) -> None:
    async with client(pool3.all[0]) as pool:
        cluster = await submit(pool, home)
        await reaches(cluster, b"\n20\n")
        (home / "input.txt").write_text("bye\n")  # what a beginning would read
        await cluster.vacate()
        await enough(pool3, cluster, home)
        (result,) = await cluster.wait(support.PATIENCE)
        (ad,) = await cluster.ads()
    assert (result.state, result.exit_code) == ("completed", 0), (result, (home / "err").read_text())
    log = (home / "log").read_text()
    assert log.count("Job executing on host") == 2
    assert re.search(r"Job was evicted\.\n\t\(1\) Job was checkpointed\.", log)
    assert ad.value("NumCkpts") == 1
    steps = whole(home)
    assert sorted(os.listdir(home)) == sorted(
        ["count.py", "err", "input.txt", "log", "mapped", "out", "place", f"step.{steps - 1}"]
    )


async def test_what_was_done_after_the_checkpoint_is_undone(pool3: Nodes, home: Path) -> None:
    async with client(pool3.all[0]) as pool:
        cluster = await submit(pool, home)
        await reaches(cluster, b"\n20\n")
        assert (await cluster.checkpoint()).done == 1
        await reaches(cluster, b"\n60\n")
        assert (await cluster.checkpoint()).done == 1
        await reaches(cluster, b"\n100\n")
        (home / "input.txt").write_text("bye\n")
        await cluster.vacate(fast=True)
        await enough(pool3, cluster, home)
        (result,) = await cluster.wait(support.PATIENCE)
    assert (result.state, result.exit_code) == ("completed", 0), result
    whole(home)


async def test_it_comes_straight_from_the_machine_before(pool3: Nodes, home: Path) -> None:
    async with client(pool3.all[0]) as pool:
        cluster = await submit(pool, home)
        await reaches(cluster, b"\n20\n")
        (ad,) = await cluster.ads()
        first = str(ad.value("RemoteHost")).rpartition("@")[2]
        before, after = sorted(pool3.all[1:3], key=lambda node: node.state.stem != first)
        said = len(after.log)
        async with administrator(before) as machine:
            await machine.call("startd.drain", {"how": "vacate", "reason": "moved"})
            await enough(pool3, cluster, home)
            (result,) = await cluster.wait(support.PATIENCE)
            await machine.call("startd.undrain", {})
        assert (result.state, result.exit_code) == ("completed", 0), result
        line = after.said("a job goes on from a checkpoint", after=said, job=f"{cluster.cluster}.0")
        assert line["nearer"] == line["received"] > 0
    whole(home)
    await until(lambda: not _packs(pool3), "the images to go with the job")


async def test_a_damaged_checkpoint_gives_way_to_the_one_before(pool3: Nodes, home: Path) -> None:
    async with client(pool3.all[0]) as pool:
        cluster = await submit(pool, home)
        await reaches(cluster, b"\n20\n")
        assert (await cluster.checkpoint()).done == 1
        before = {path: path.stat().st_size for path in _packs(pool3)}
        assert (await cluster.checkpoint()).done == 1
        for path in _packs(pool3):
            size = path.stat().st_size
            os.truncate(path, before.get(path, 0))
            if "spool" not in path.parts:
                os.truncate(path, size)  # what came since is nothing but zeros
        (home / "input.txt").write_text("bye\n")
        await cluster.vacate(fast=True)
        await enough(pool3, cluster, home)
        (result,) = await cluster.wait(support.PATIENCE)
    assert (result.state, result.exit_code) == ("completed", 0), result
    whole(home)
    log = (home / "log").read_text()
    assert re.search(r"it could not go on from checkpoint 2: .*it goes on from checkpoint 1", log), log


async def test_a_node_that_dies_with_a_tentative_checkpoint_finishes_it(pool3: Nodes, home: Path) -> None:
    head = pool3.all[0]
    async with client(head) as pool:
        cluster = await submit(pool, home)
        await reaches(cluster, b"\n20\n")
        (ad,) = await cluster.ads()
        name = str(ad.value("RemoteHost")).rpartition("@")[2]
        machine = next(node for node in pool3.all[1:3] if node.state.stem == name)
        (home / "input.txt").write_text("bye\n")
        head.signal(signal.SIGSTOP)
        try:
            async with administrator(machine) as there:
                await there.call("startd.vacate", {})
                images = machine.state / "images" / "head.schedd" / "jobs"
                await until(lambda: list(images.glob("*/[0-9]*.manifest")), "the checkpoint to be taken in")
            machine.crash()
        finally:
            head.signal(signal.SIGCONT)
        pool3.all[pool3.all.index(machine)] = pool3.start(
            name, "startd", FILESYSTEM_DOMAIN=name, CHECKPOINT_WORTH="0"
        ).ready()
        pool3.all.pop()
        await enough(pool3, cluster, home)
        (result,) = await cluster.wait(support.PATIENCE)
    assert (result.state, result.exit_code) == ("completed", 0), result
    whole(home)
    assert re.search(r"Job was evicted\.\n\t\(1\) Job was checkpointed\.", (home / "log").read_text())


def _packs(nodes: Nodes) -> list[Path]:
    """The files of chunks on all disks."""
    stores = [nodes.state("head") / "spool" / "checkpoints", *(nodes.state(name) / "images" for name in ("one", "two"))]
    return [path for store in stores for path in store.rglob("packs/*") if path.name.isdecimal()]
