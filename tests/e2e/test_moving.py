"""Unmodified programs that lose their machine go on elsewhere from where they were (C1, C2, C3, C7)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pool.client import Pool
from pool.starter.native import NativeKeepers
from tests.e2e import support
from tests.e2e.support import HEAD, Nodes, client, slots, token, until

#: Counts in memory, a line each, until it is asked to stop, and never looks at what it has written.
COUNT = """
import os, time
print("begin", flush=True)
table, n = bytearray(3_000_000), 0
while not os.path.exists("enough"):
    table[n * 1000 % len(table)] = n % 251 + 1
    print(n, flush=True)
    n += 1
    time.sleep(0.005)
print("end", sum(table), flush=True)
"""
STEPS = 300
KERNEL = tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])


@pytest.fixture(scope="module")
def pool3(whose_pool: object) -> Iterator[Nodes]:
    """A head, and two machines that share its files."""

    async def start(nodes: Nodes) -> None:
        head = nodes.start("head", HEAD).ready()
        for name in ("one", "two"):
            nodes.start(name, "startd", join=await token(head, "startd"), CHECKPOINT_WORTH="0").ready()
        async with client(head) as pool:
            await slots(pool, 2)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
async def able(tmp_path: Path) -> bool:
    """Whether this machine allows what checkpoints need."""
    keepers = NativeKeepers(tmp_path / "keepers")
    await keepers.open()
    await keepers.close(kill=True)
    return bool(keepers.abilities.checkpoint)


@pytest.fixture
def home(pool3: Nodes, request: pytest.FixtureRequest) -> Path:
    directory = pool3.directory(support.directory_name(request))
    (directory / "count.py").write_text(COUNT)
    return directory


async def submit(pool: Pool, home: Path, **more: Any) -> Any:
    commands = {
        "executable": sys.executable,
        "arguments": f"{home}/count.py",
        "output": "out",
        "error": "err",
        "log": "log",
        **more,
    }
    return await pool.submit(commands, iwd=str(home))


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def goes_on(home: Path) -> None:
    """Wait until it runs on its second machine."""
    await until(lambda: read(home / "log").count("Job executing on host") == 2, "the job to go on")


def whole(output: str) -> None:
    """That is what an undisturbed run writes."""
    lines = output.splitlines()
    table, steps = bytearray(3_000_000), len(lines) - 2
    for n in range(steps):
        table[n * 1000 % len(table)] = n % 251 + 1
    assert steps > 20
    assert lines == ["begin", *map(str, range(steps)), f"end {sum(table)}"]


async def test_a_job_that_is_vacated_goes_on_where_it_was(pool3: Nodes, home: Path, able: bool) -> None:
    async with client(pool3.all[0]) as pool:
        cluster = await submit(pool, home)
        await until(lambda: "20\n" in read(home / "out"), "the job to count")
        await cluster.vacate()
        await goes_on(home)
        (home / "enough").touch()
        (result,) = await cluster.wait(support.PATIENCE)
    assert (result.state, result.exit_code) == ("completed", 0), result
    log = read(home / "log")
    assert log.count("Job executing on host") == 2
    if able:
        whole(read(home / "out"))
        assert re.search(r"Job was evicted\.\n\t\(1\) Job was checkpointed\.", log)
    else:
        assert "checkpointed" not in log


async def test_on_demand_and_back_to_the_last_one(pool3: Nodes, home: Path, able: bool) -> None:
    async with client(pool3.all[0]) as pool:
        cluster = await submit(pool, home)
        await until(lambda: "20\n" in read(home / "out"), "the job to count")
        acted = await cluster.checkpoint()
        assert acted.done == int(able)
        if not able:
            assert "cannot be checkpointed" in acted.refused[0][1]
            await cluster.remove()
            return
        await cluster.vacate(fast=True)
        await goes_on(home)
        (home / "enough").touch()
        (result,) = await cluster.wait(support.PATIENCE)
        (ad,) = await cluster.ads()
    assert (result.state, result.exit_code, ad.value("NumCkpts")) == ("completed", 0, 1), result
    whole(read(home / "out"))


#: Changes little of much memory, however long it runs, until it is asked to end, and then prints the sum of all of it.
MUCH = """
import os, random, time
much = bytearray(random.Random(1).randbytes(32 << 20))
n = 0
while not os.path.exists("enough"):
    n += 1
    much[n % 1024 * 4096] = n % 251
    print(n, flush=True)
    time.sleep(0.005)
again = bytearray(random.Random(1).randbytes(32 << 20))
for k in range(1, n + 1):
    again[k % 1024 * 4096] = k % 251
print("end", much == again, flush=True)
"""


async def test_the_next_checkpoint_takes_over_what_has_not_changed(pool3: Nodes, home: Path, able: bool) -> None:
    """The image before stays on the machine until the next is there, and goes with the job."""
    (home / "count.py").write_text(MUCH)
    kept = [pool3.state(name) / "images" / "head.schedd" / "incoming" for name in ("one", "two")]

    def pages() -> list[Path]:
        return [path for place in kept if place.exists() for path in place.rglob("pages*")]

    async with client(pool3.all[0]) as pool:
        cluster = await submit(pool, home)
        await until(lambda: "20\n" in read(home / "out"), "the job to count")
        for _ in range(3 if able else 0):
            assert (await cluster.checkpoint()).done == 1
        if able and KERNEL >= (6, 7):  # one that can tell what was written
            sizes = {path.name: path.stat().st_size for path in pages()}
            assert sorted(sizes) == ["pages", "pages.1", "pages.2", "pages_2.2"]
            assert max(sizes["pages"], sizes["pages.1"]) < 16 << 20 < sizes["pages.2"] + sizes["pages_2.2"]
        await cluster.vacate(fast=True)
        before = len(read(home / "out"))
        await until(lambda: len(read(home / "out")) != before, "the job to go on")
        (home / "enough").touch()
        (result,) = await cluster.wait(support.PATIENCE)
    assert (result.state, result.exit_code) == ("completed", 0), result
    assert read(home / "out").splitlines()[-1] == "end True"
    await until(lambda: not pages(), "the image to go with the job")


async def test_what_cannot_be_saved_is_named_and_runs_on(pool3: Nodes, home: Path, able: bool) -> None:
    (home / "count.py").write_text(
        "import os, socket, time\n"
        "a = socket.create_server(('127.0.0.1', 0))\n"
        "print('begin', flush=True)\n"
        "while not os.path.exists('enough'):\n"
        "    time.sleep(0.005)\n"
        "print('end', flush=True)\n"
    )
    async with client(pool3.all[0]) as pool:
        free, bound = await submit(pool, home), await submit(pool, home, checkpoint="required", output="other")
        await until(lambda: "begin" in read(home / "out") and "begin" in read(home / "other"), "both to begin")
        acted = await free.checkpoint()
        assert (acted.done, len(acted.refused)) == (0, 1)
        if able:
            assert re.search(r"descriptor 3 of process \d+ is a TCP socket", acted.refused[0][1])
            await bound.checkpoint()
            (result,) = await bound.wait(support.PATIENCE, until_stuck=True)
            (ad,) = await bound.ads()
            assert result.state == "held"
            assert re.match(r"it cannot be checkpointed: descriptor 3 of process", str(ad.value("HoldReason")))
        (home / "enough").touch()
        (result,) = await free.wait(support.PATIENCE)
        assert result.state == "completed"
        await bound.remove()
    assert read(home / "out") == "begin\nend\n"


async def test_a_pipeline_of_programs_goes_on_as_one(pool3: Nodes, home: Path, able: bool) -> None:
    waits = "[ $n -lt 50 ] || until [ -e enough ]; do sleep 0.005; done"
    script = f"seq 1 {STEPS} | while read n; do {waits}; echo $n; done | tee seen | grep -c 7"
    async with client(pool3.all[0]) as pool:
        cluster = await submit(pool, home, executable="/bin/bash", arguments=f"\"-c '{script}'\"")
        await until(lambda: "20\n" in read(home / "seen"), "the pipeline to flow")
        await cluster.vacate()
        await goes_on(home)
        (home / "enough").touch()
        (result,) = await cluster.wait(support.PATIENCE)
    assert (result.state, result.exit_code) == ("completed", 0), result
    assert read(home / "out") == f"{sum('7' in str(n) for n in range(1, STEPS + 1))}\n"
    assert read(home / "seen").splitlines() == [str(n) for n in range(1, STEPS + 1)]
