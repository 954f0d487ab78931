"""Images of a job of which a tenth of the pages changed since the image before, on a disk and in memory."""

from __future__ import annotations

import shutil
import signal
import statistics
import tempfile
from pathlib import Path

from pool.starter.keeper import NativeKeepers
from tests.benchmarks.checkpoint import compiled_program, is_ready, job_with_memory
from tests.benchmarks.floors import written
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.starter.support import until

_MEMORY, _TURNS = Path("/dev/shm"), 5


async def _increments(place: Path, program: Path, megabytes: int, *, huge_pages: bool) -> list[tuple[float, float]]:
    """Of each image after the first: seconds until it is written, and until as many bytes by themselves are."""
    keepers = NativeKeepers(place / "keepers")
    await keepers.open()
    try:
        out, last = place / "out", place / "image"
        keeper = await keepers.start(job_with_memory(place, program, megabytes, out, huge_pages=huge_pages))
        await until(lambda: is_ready(out), 60)
        await keeper.checkpoint(last, loose=True)
        taken = []
        for turn in range(_TURNS):
            await keeper.signal(signal.SIGUSR1)
            await until(lambda times=turn + 2: is_ready(out, times), 60)  # type: ignore[misc]
            image = place / f"image{turn}"
            report = await keeper.checkpoint(image, parent=last, loose=True)
            shutil.rmtree(last)
            last = image
            taken.append((report.seconds, written(place / "plain", megabytes // 10)))
        return taken
    finally:
        await keepers.close(kill=True)


@benchmark("increments")
async def increments(effort: Effort) -> list[Row]:
    """An image with every tenth page changed, 1 GB, written to a disk's file system and to memory; not synchronised."""
    megabytes, rows = effort.of(1000, least=100), []
    with tempfile.TemporaryDirectory() as directory:
        program = compiled_program(Path(directory))
        for where, parent, goal in (("the disk", None, 150.0), ("memory", _MEMORY, 80.0)):
            for huge_pages in (False, True):
                place = Path(tempfile.mkdtemp(dir=parent))
                try:
                    taken = await _increments(place, program, megabytes, huge_pages=huge_pages)
                finally:
                    shutil.rmtree(place, ignore_errors=True)
                rows.append(
                    Row(
                        f"an image with every tenth page of {megabytes} MB changed, to {where}"
                        + (", huge pages" if huge_pages else ""),
                        statistics.median(ours for ours, _ in taken) * 1000,
                        "ms",
                        Goal("at most", goal),
                        "as many bytes written in order",
                        statistics.median(plain for _, plain in taken) * 1000,
                        note=f"{min(taken)[0] * 1000:.0f} to {max(taken)[0] * 1000:.0f} ms",
                    )
                )
    return rows
