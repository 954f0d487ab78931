"""What the frozen copies cost from which an image is written while the job runs on."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import psutil

from pool.starter.keeper import NativeKeeper, NativeKeepers
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


async def alone(keeper: NativeKeeper, image: Path) -> list[int]:
    """Bytes that job and copy do not share when half of the copy is in an image; none when the moment was missed."""
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
        return [rollup(pid, "Private") for pid in large] if len(large) == 2 else []
    finally:
        for process in held:
            with contextlib.suppress(psutil.Error):
                process.resume()
        assert (await soon(saving)).refused == ()


async def test_what_is_read_of_a_copy_is_not_copied_for_it(keepers: NativeKeepers, scratch: Path) -> None:
    """Job and copy share their pages to the end: the image takes no second room in memory."""
    keeper = await soon(keepers.start(spec(scratch, sys.executable, "-c", FULL, isolation="shared")))
    await until(lambda: (scratch / "out").exists() and bool((scratch / "out").read_text()))
    owned: list[int] = []
    for number in range(50):
        if not owned:
            owned = await alone(keeper, scratch.parent / f"image{number}")
    assert max(owned) < 25 << 20, owned
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
