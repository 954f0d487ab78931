"""What the frozen copies cost from which an image is written while the job runs on."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import psutil

from pool.starter.keeper import NativeKeepers
from tests.checkpoint.test_standing_still import writers
from tests.starter.support import family, soon, spec, until

#: Memory that no file system can leave out, and that nobody writes to again.
FULL = "import os, time; memory = os.urandom(100 << 20); print('ready', flush=True); time.sleep(600)"


def alone(pid: int) -> int:
    """Bytes of a process's memory that it shares with nobody."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private"))
    return 0


async def test_what_is_read_of_a_copy_is_not_copied_for_it(keepers: NativeKeepers, scratch: Path) -> None:
    """Job and copy share their pages to the end: the image takes no second room in memory."""
    keeper = await soon(keepers.start(spec(scratch, sys.executable, "-c", FULL, isolation="shared")))
    await until(lambda: (scratch / "out").exists() and bool((scratch / "out").read_text()))
    pages = scratch.parent / "image.aside" / "pages"
    saving = asyncio.create_task(keeper.checkpoint(scratch.parent / "image"))
    await until(lambda: saving.done() or (pages.exists() and pages.stat().st_blocks * 512 >= 50 << 20))
    held: list[psutil.Process] = []
    try:
        for process in writers(keeper):
            process.suspend()
            held.append(process)
        assert not saving.done()
        owned = [alone(process.pid) for process in family(keeper.pid)]
    finally:
        for process in held:
            process.resume()
    assert (await soon(saving)).refused == ()
    assert max(owned) < 25 << 20, owned
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
