"""Jobs with mapped files saved and restored (VS 5.3): data on its way is neither lost nor doubled."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from pool.starter.keeper import KeeperSpec, NativeKeeper, NativeKeepers
from tests.checkpoint.machines import needs
from tests.checkpoint.mapping.conftest import Program
from tests.checkpoint.mapping.support import job, program, python, sh
from tests.checkpoint.test_checkpoints import saved
from tests.conftest import REPOSITORY
from tests.starter.support import family, soon, to_end, until

#: 2,000,000 bytes, the last of them when somebody says so.
FEED = "exec 5> data; head -c 1200000 /dev/zero >&5; until [ -e go ]; do sleep 0.01; done; head -c 800000 /dev/zero >&5"
#: Four threads that write blocks of one value each, and who looks whether any was torn.
THREADS = """
import os, threading, time
out = os.open("fort.10", os.O_WRONLY | os.O_CREAT)
def work(value):
    for _ in range(80):
        os.write(out, bytes([value]) * 30000)
        time.sleep(0.004)
for value in range(1, 5): threading.Thread(target=work, args=(value,)).start()
"""
BLOCKS = """
import os
seen = {}
source = os.open("fort.11", os.O_RDONLY)
while block := os.read(source, 30000):
    assert block.count(block[0]) == 30000, len(block)
    seen[block[0]] = seen.get(block[0], 0) + 1
print(sorted(seen.items()), os.getuid())
"""
#: Reads its standard input slowly.
SLOW = """
import hashlib, os, time
seen = hashlib.md5()
while block := os.read(0, 65536):
    seen.update(block)
    time.sleep(PAUSE)
print(seen.hexdigest())
"""
#: Of the example.
SMC = ("phnx", "geom", "snomux")
#: System calls.
LSEEK, READV, NANOSLEEP = 8, 19, 230
#: From (program, pause in microseconds): a job that writes its result into *.out.
Shape = Callable[[Path, str, int], KeeperSpec]


def line(scratch: Path, stages: str, pause: int) -> KeeperSpec:
    """Three in a row, with records of sizes that fit nothing; the last reads records larger than what a pipe holds."""
    members = (
        program(scratch, "phnx", stages, "make", "70001", "500", str(pause), "fort.10"),
        program(scratch, "geom", stages, "pass", "90000", "0", "0", "fort.11", "fort.10"),
        program(scratch, "snomux", stages, "sum", "1500000", "0", "0", "fort.11"),
    )
    return job(scratch, members, (0, "fort.10", 1, "fort.11"), (1, "fort.10", 2, "fort.11"))


def circle(scratch: Path, stages: str, pause: int) -> KeeperSpec:
    """One writes all before it reads what comes back: most of it lies on the disk meanwhile."""
    members = (
        program(scratch, "a", stages, "turn", "70001", "150", str(pause), "i", "o"),
        program(scratch, "b", stages, "pass", "50000", "0", str(pause), "i", "o"),
    )
    return job(scratch, members, (0, "o", 1, "i"), (1, "o", 0, "i"))


def fan(scratch: Path, stages: str, pause: int) -> KeeperSpec:
    """One file to three, each at its own pace; one reads it as its standard input."""
    members = (
        program(scratch, "a", stages, "make", "70001", "200", str(pause), "o"),
        program(scratch, "b", stages, "sum", "100001", "0", "0", "i"),
        program(scratch, "c", stages, "sum", "33333", "0", str(pause), "i"),
        program(scratch, "d", "/usr/bin/md5sum"),
    )
    return job(scratch, members, (0, "o", 1, "i"), (0, "o", 2, "i"), (0, "o", 3, ""))


def short(scratch: Path, stages: str, pause: int) -> KeeperSpec:
    """Kernel pipes, for readers that accept short reads: from a file, and from a standard output."""
    members = (
        program(scratch, "a", stages, "send", "70001", "300", str(pause), "o"),
        sh(scratch, "b", "exec cat i", stdout=""),
        program(scratch, "c", stages, "take", "50000", "0", "0", "i"),
    )
    return job(scratch, members, (0, "o", 1, "i", True), (1, "", 2, "i", True))


def to_stdin(scratch: Path, stages: str, pause: int) -> KeeperSpec:
    """Writes that are larger than the pipe to a standard input, so that a stop is inside one."""
    members = (
        program(scratch, "a", stages, "send", "300001", "60", "0", "o"),
        python(scratch, "b", f"PAUSE = {pause / 4e6}\n{SLOW}"),
    )
    return job(scratch, members, (0, "o", 1, ""))


def fortran(scratch: Path, stages: str, pause: int) -> KeeperSpec:
    """The job of examples/smc, with fewer events: unformatted records, and units that nobody has opened."""
    members = tuple(program(scratch, name, str(scratch / name)) for name in SMC)
    return job(scratch, members, (0, "fort.10", 1, "fort.11"), (1, "fort.10", 2, "fort.11"))


def built(scratch: Path) -> None:
    for name in SMC:
        source = (REPOSITORY / "examples" / "smc" / f"{name}.f").read_text().replace("NEV = 40000", "NEV = 15000")
        (scratch / f"{name}.f").write_text(source)
        subprocess.run(["gfortran", "-O2", "-std=legacy", "-o", scratch / name, scratch / f"{name}.f"], check=True)


def results(scratch: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(scratch.glob("*.out")) + sorted(scratch.glob("*.err"))}


async def undisturbed(keepers: NativeKeepers, scratch: Path, wanted: KeeperSpec) -> dict[str, str]:
    end = await to_end(keepers, wanted)
    assert (end.error, end.code) == ("", 0), results(scratch)
    left = results(scratch)
    for name in left:
        (scratch / name).unlink()
    return left


async def ends_well(keeper: NativeKeeper, scratch: Path) -> None:
    end = await soon(keeper.ended, 30)
    await keeper.forget()
    assert (end.error, [one.code for one in end.members]) == ("", [0] * len(end.members)), results(scratch)


MOVES: dict[Shape, int] = {line: 8, circle: 8, fan: 8, short: 8, to_stdin: 4, fortran: 4}


@pytest.mark.parametrize("shape", [line, circle, fan, short, to_stdin, fortran])
async def test_moved_at_any_moment(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, programs: Program, shape: Shape
) -> None:
    if shape is fortran:
        needs("gfortran", "gfortran")
        built(scratch)
    stages = programs("stages.c")
    expected = await undisturbed(keepers, scratch, shape(scratch, stages, 0))
    chance = random.Random(shape.__name__)
    wanted = shape(scratch, stages, 2500)
    keeper = await soon(keepers.start(wanted))
    for number in itertools.count():
        await asyncio.sleep(chance.uniform(0, 0.08))
        if number == MOVES[shape] or keeper.ended.done():
            break
        await saved(keepers, keeper, tmp_path / f"image{number}", stop=True)
        keeper = await soon(keepers.start(wanted, image=tmp_path / f"image{number}"), 20)
    assert number == MOVES[shape]
    await ends_well(keeper, scratch)
    assert results(scratch) == expected


async def test_it_runs_on_after_an_image_and_goes_back_to_an_older_one(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, programs: Program
) -> None:
    stages = programs("stages.c")
    expected = await undisturbed(keepers, scratch, line(scratch, stages, 0))
    wanted = line(scratch, stages, 2000)
    keeper = await soon(keepers.start(wanted))
    for number in range(5):
        await asyncio.sleep(0.03)
        report = await soon(keeper.checkpoint(tmp_path / f"image{number}"), 20)
        assert report.refused == ()
    await ends_well(keeper, scratch)
    assert results(scratch) == expected
    for number in (1, 3):
        keeper = await soon(keepers.start(wanted, image=tmp_path / f"image{number}"), 20)
        await ends_well(keeper, scratch)
        assert results(scratch) == expected


def foo_is_in(keeper: NativeKeeper, call: int) -> bool:
    """Whether the program of calls.c waits in that system call."""
    for process in family(keeper.pid)[1:]:
        with contextlib.suppress(psutil.Error, OSError):
            if process.name() == "calls":
                return Path(f"/proc/{process.pid}/syscall").read_text().split()[0] == str(call)
    return False


@pytest.mark.parametrize(
    ("case", "call"), [("seeks_over", LSEEK), ("goes_back_late", NANOSLEEP), ("whole_reads", READV)]
)
async def test_saved_inside_a_call(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, programs: Program, case: str, call: int
) -> None:
    """Waiting for what a seek passes over, standing elsewhere than the pipe, in the middle of a read."""
    members = (
        sh(scratch, "feed", FEED),
        program(scratch, "foo", programs("calls.c"), case),
        sh(scratch, "count", "wc -c < data"),
    )
    wanted = job(scratch, members, (0, "data", 1, "in"), (1, "out", 2, "data"))
    keeper = await soon(keepers.start(wanted))
    for number in range(3):
        await until(lambda keeper=keeper: foo_is_in(keeper, call), 20)  # type: ignore[misc]
        await saved(keepers, keeper, tmp_path / f"image{number}", stop=number != 1)
        keeper = await soon(keepers.start(wanted, image=tmp_path / f"image{number}"), 20)
    (scratch / "go").touch()
    await ends_well(keeper, scratch)


async def test_another_users_threads_with_a_filter(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    """Each has two filters, of which the second asks the supervisor; a process has one listener for all its threads."""
    if os.getuid() != 0:
        pytest.skip("needs root")
    os.chown(scratch, 65534, 65534)
    members = (python(scratch, "a", THREADS), python(scratch, "b", BLOCKS))
    other = {"uid": 65534, "gid": 65534, "groups": (), "filter": "plain"}
    wanted = job(scratch, members, (0, "fort.10", 1, "fort.11"), **other)
    keeper = await soon(keepers.start(wanted))
    for number in range(3):
        await asyncio.sleep(0.05)
        await saved(keepers, keeper, tmp_path / f"image{number}", stop=number != 1)
        keeper = await soon(keepers.start(wanted, image=tmp_path / f"image{number}"), 20)
    await ends_well(keeper, scratch)
    assert (scratch / "b.out").read_text() == "[(1, 80), (2, 80), (3, 80), (4, 80)] 65534\n"
