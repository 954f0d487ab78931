"""The writer of an image gives way to everybody else on the machine: its owner feels nothing (D4)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import psutil
import pytest

from pool.starter.keeper import NativeKeepers
from tests.starter.support import family, soon, spec, until

#: Memory that no file system can leave out, so that writing it takes a while.
FULL = "import os, time; memory = os.urandom(100 << 20); print('ready', flush=True); time.sleep(600)"


def giving_way(keeper: int) -> set[tuple[int, int, bool]]:
    """Class and niceness of each process below a keeper that is not as the job is, and whether its disk use is idle."""
    found = set()
    for process in family(keeper):
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            kind, nice = os.sched_getscheduler(process.pid), process.nice()
            if nice == 19:
                found.add((kind, nice, process.ionice().ioclass == psutil.IOPRIO_CLASS_IDLE))
    return found


@pytest.mark.parametrize("stop", [False, True])
async def test_an_image_is_written_by_what_gives_way(keepers: NativeKeepers, scratch: Path, stop: bool) -> None:
    """In the idle class beside a job that runs; the last image, for which a job waits, at the lowest priority."""
    keeper = await soon(keepers.start(spec(scratch, sys.executable, "-c", FULL, isolation="shared")))
    await until(lambda: (scratch / "out").exists() and bool((scratch / "out").read_text()))
    assert not giving_way(keeper.pid)
    saving = asyncio.create_task(keeper.checkpoint(scratch.parent / "image", stop=stop))
    seen: set[tuple[int, int, bool]] = set()
    while not saving.done():
        seen |= giving_way(keeper.pid)
        await asyncio.sleep(0.001)
    assert (await saving).refused == ()
    # Between the one call and the next a writer gives way in part.
    assert any(disk and (kind == os.SCHED_IDLE) is not stop for kind, _, disk in seen), seen
    if not stop:
        assert not giving_way(keeper.pid)  # the job itself is as it was
        await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()


async def test_an_image_is_written_though_no_processor_has_nothing_to_do(keepers: NativeKeepers, scratch: Path) -> None:
    """Where the idle class is given nothing, who asked for its work does it in the end, giving way yet."""
    keeper = await soon(keepers.start(spec(scratch, sys.executable, "-c", FULL, isolation="shared")))
    await until(lambda: (scratch / "out").exists() and bool((scratch / "out").read_text()), 20)
    saving = asyncio.create_task(keeper.checkpoint(scratch.parent / "image"))
    aside = scratch.parent / "image.aside"
    held: list[psutil.Process] = []
    try:
        while not held and not saving.done():
            await asyncio.sleep(0.001)
            for process in family(keeper.pid):
                with contextlib.suppress(psutil.Error, ProcessLookupError):
                    if os.sched_getscheduler(process.pid) == os.SCHED_IDLE:
                        process.suspend()
                        held.append(process)
        await until(lambda: sum(path.stat().st_size for path in aside.glob("pages*")) >= 100 << 20, 20)
    finally:
        for process in held:
            with contextlib.suppress(psutil.NoSuchProcess):  # a copy's hand goes on whatever stops it, and has ended
                process.resume()
    assert (await soon(saving, 20)).refused == ()
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
