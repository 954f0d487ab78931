"""The frozen copies from which an image is written while the job runs on: who writes it, what is in its way, and
what it costs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

from pool.starter.keeper import NativeKeeper, NativeKeepers
from tests.checkpoint.conftest import Compile
from tests.checkpoint.test_standing_still import writers
from tests.starter.support import family, soon, spec, until

#: Memory that no file system can leave out, and that nobody writes to again.
FULL = "import os, time; memory = os.urandom(100 << 20); print('ready', flush=True); time.sleep(600)"


def rollup(pid: int, field: str) -> int:
    """Bytes of a process's memory of the kinds whose names begin so."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(field))
    return 0


async def halfway(keeper: NativeKeeper, image: Path) -> list[tuple[int, bool]]:
    """Of job, copy and who shares the copy's memory the bytes that they share with nobody else, and whether they are
    in the idle class, when half of the copy is in an image; none when the moment was missed.
    """
    saving = asyncio.create_task(keeper.checkpoint(image))
    pages = image.with_name(image.name + ".aside")
    held: list[psutil.Process] = []

    def written() -> int:
        with contextlib.suppress(OSError):
            return sum(path.stat().st_blocks * 512 for path in pages.glob("pages*"))
        return 0

    try:
        await until(lambda: saving.done() or written() >= 50 << 20)
        for process in writers(keeper):
            process.suspend()
            held.append(process)
        large = [process.pid for process in family(keeper.pid) if rollup(process.pid, "Rss") > 100 << 20]
        found = [(rollup(pid, "Private"), os.sched_getscheduler(pid) == os.SCHED_IDLE) for pid in large]
        return found if len(found) > 1 else []
    finally:
        for process in held:
            with contextlib.suppress(psutil.Error):
                process.resume()
        assert (await soon(saving)).refused == ()


async def caught(keeper: NativeKeeper, images: Path) -> list[tuple[int, bool]]:
    """As `halfway`, for the first image where the moment is met."""
    for number in range(50):
        with contextlib.suppress(ProcessLookupError):
            if found := await halfway(keeper, images / f"image{number}"):
                return found
    raise AssertionError("no image was met when it was half written")


async def test_what_is_read_of_a_copy_is_not_copied_for_it(keepers: NativeKeepers, scratch: Path) -> None:
    """Job and copy share their pages to the end: the image takes no second room in memory. The copy writes it."""
    keeper = await soon(keepers.start(spec(scratch, sys.executable, "-c", FULL, isolation="shared")))
    await until(lambda: (scratch / "out").exists() and bool((scratch / "out").read_text()))
    found = await caught(keeper, scratch.parent)
    assert max(alone for alone, _ in found) < 25 << 20, found
    assert any(idle for _, idle in found) == (not keepers.abilities.memory), found
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()


async def test_what_a_copy_writes_is_not_the_jobs_work(keepers: NativeKeepers, scratch: Path) -> None:
    """A job that only sleeps has used no more of a processor, nor of memory, after ten images of it than before."""
    keeper = await soon(keepers.start(spec(scratch, sys.executable, "-c", FULL, isolation="shared")))
    await until(lambda: (scratch / "out").exists() and bool((scratch / "out").read_text()))
    before = await soon(keeper.usage())
    for number in range(10):
        saving = asyncio.create_task(keeper.checkpoint(scratch.parent / f"image{number}"))
        while not saving.done():
            assert (await soon(keeper.usage())).max_rss < before.max_rss * 1.5
        assert (await saving).refused == ()
        assert len(os.listdir(scratch.parent / f"image{number}")) == 3
    after = await soon(keeper.usage())
    assert after.user_cpu - before.user_cpu < 0.1, (before, after)  # to sum them once takes twice as long
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()


#: Gives a lock up by closing its file whenever it is asked to, and says whether it is free then.
LOCKED = """
import fcntl, os, time
memory = os.urandom(100 << 20)
print("ready", flush=True)
for number in range(50):
    locked = open("lock", "w")
    fcntl.flock(locked, fcntl.LOCK_EX)
    while not os.path.exists(f"go{number}"):
        time.sleep(0.005)
    locked.close()
    other = open("lock", "w")
    try:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("free", flush=True)
    except BlockingIOError:
        print("held", flush=True)
    other.close()
"""


def happens(event: asyncio.Event, _: object) -> None:
    event.set()


def more_lines_than(path: Path, count: int) -> bool:
    return path.read_text().count("\n") > count


async def test_what_a_job_closes_is_closed(keepers: NativeKeepers, scratch: Path) -> None:
    """A frozen copy keeps nothing of the job's open while an image is written."""
    keeper = await soon(keepers.start(spec(scratch, sys.executable, "-c", LOCKED, isolation="shared")))
    out, met = scratch / "out", 0
    await until(lambda: out.exists() and out.read_text() == "ready\n")
    for number in range(50):
        gone = asyncio.Event()
        image = scratch.parent / f"image{number}"
        saving = asyncio.create_task(keeper.checkpoint(image, let_go=partial(happens, gone)))
        await soon(gone.wait())
        held = writers(keeper)
        for process in held:
            with contextlib.suppress(psutil.Error):
                process.suspend()
        met += not saving.done() and bool(held)
        try:
            (scratch / f"go{number}").touch()
            await until(partial(more_lines_than, out, number + 1))
        finally:
            for process in held:
                with contextlib.suppress(psutil.Error):
                    process.resume()
            assert (await soon(saving)).refused == ()
        if met:
            break
    assert met, "no image was met while it was written"
    assert "held" not in out.read_text()
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()


#: Has much memory, says when it is there, and in the end whether it is as it was; a part cannot be read in between.
GUARDED = """
import ctypes, hashlib, mmap, os, time
memory = mmap.mmap(-1, 40 << 20)
memory.write(os.urandom(40 << 20))
before = hashlib.sha256(memory).hexdigest()
part = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)) + (10 << 20))
def protect(how):
    assert ctypes.CDLL(None).mprotect(part, 5 << 20, how) == 0
protect(0)
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
protect(mmap.PROT_READ | mmap.PROT_WRITE)
print(hashlib.sha256(memory).hexdigest() == before, flush=True)
"""
#: System calls of x86-64.
SOCKETPAIR, PWRITEV = 53, 296


@pytest.mark.parametrize(
    "limit", ["ulimit -f 64", "ulimit -n 6", "ulimit -v 150000", f"hide {SOCKETPAIR}", f"hide -{PWRITEV}", ":"]
)
async def test_what_is_in_a_copys_way_is_in_no_images(
    keepers: NativeKeepers, scratch: Path, compiled: Compile, limit: str
) -> None:
    """A copy has its job's limits and filters, and cannot read what the job cannot."""
    words = [sys.executable, "-c", '"$0"']
    if limit.startswith("hide"):
        words = [compiled("hide"), limit.removeprefix("hide "), "--", *words]
        limit = ":"
    script = f"{limit}; exec {' '.join(words)}"
    wanted = spec(scratch, "/bin/sh", "-c", script, GUARDED, isolation="shared")
    keeper = await soon(keepers.start(wanted))
    await until(lambda: (scratch / "out").exists() and bool((scratch / "out").read_text()))
    images = [scratch.parent / f"image{number}" for number in range(2)]
    for image in images:
        assert (await soon(keeper.checkpoint(image))).refused == ()
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
    (scratch / "go").touch()
    for image in images:
        keeper = await soon(keepers.start(wanted, image=image))
        assert (await soon(keeper.ended)).code == 0, (scratch / "err").read_text()
        await keeper.forget()
        assert (scratch / "out").read_text() == "ready\nTrue\n"


async def test_an_image_is_written_though_its_job_is_suspended(keepers: NativeKeepers, scratch: Path) -> None:
    """The copy stands still with the job then, and others write what it has not."""
    if not keepers.abilities.cgroup:
        pytest.skip("needs the ability cgroup")
    keeper = await soon(keepers.start(spec(scratch, sys.executable, "-c", FULL, isolation="shared")))
    await until(lambda: (scratch / "out").exists() and bool((scratch / "out").read_text()))
    await keeper.suspend()
    assert (await soon(keeper.checkpoint(scratch.parent / "image"), 20)).refused == ()
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
