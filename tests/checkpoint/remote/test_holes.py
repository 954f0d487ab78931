"""Sparse files on the submit side: holes stay holes in a job, and only data travel."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from tests.checkpoint.remote.conftest import Site
from tests.starter.support import PYTHON

SIZE, PIECE = 4 << 30, 4096
#: Where it has data: 208 kB in all.
PLACES = [number * (SIZE // 52) // PIECE * PIECE for number in range(52)]
#: Finds the pieces of what is written and not closed yet: data, hole, data and the end.
FINDS = """
import os
fd = os.open("new", os.O_RDWR | os.O_CREAT, 0o666)
os.pwrite(fd, b"x" * 4096, 0)
os.pwrite(fd, b"y" * 4096, 1 << 30)
places = [os.lseek(fd, 0, os.SEEK_DATA), os.lseek(fd, 0, os.SEEK_HOLE), os.lseek(fd, 1 << 20, os.SEEK_DATA)]
print(*places, os.lseek(fd, 1 << 30, os.SEEK_HOLE))
try:
    os.lseek(fd, (1 << 30) + 4096, os.SEEK_DATA)
except OSError as error:
    print(error.strerror)
"""


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        for place in PLACES:
            file.seek(place)
            file.write(os.urandom(PIECE))
        file.truncate(SIZE)


def pieces(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return [os.pread(file.fileno(), PIECE, place) for place in PLACES]


async def test_a_sparse_file_is_read_and_written_by_its_data(site: Site, way: str) -> None:
    if not site.able or way == "notification":  # there a file is fetched whole
        pytest.skip("needs remote files in this way and /dev/fuse")
    sparse(site.tree / "sparse")
    end = site.connect()
    home = psutil.Process(site.home.process.pid)
    before = home.io_counters()
    await site.shell("cp sparse copied; cp --sparse=always sparse made", end=end)
    after = home.io_counters()
    assert after.read_chars - before.read_chars < 32 << 20
    assert after.write_chars - before.write_chars < 32 << 20
    for name in ("copied", "made"):
        status = (site.tree / name).stat()
        assert (status.st_size, status.st_blocks * 512 < 4 << 20) == (SIZE, True), name
        assert pieces(site.tree / name) == pieces(site.tree / "sparse"), name


async def test_holes_of_what_is_being_written(site: Site, way: str) -> None:
    if not site.able or way == "notification":
        pytest.skip("needs remote files in this way and /dev/fuse")
    (site.tree / "finds.py").write_text(FINDS)
    found = await site.run(PYTHON, "finds.py")
    assert found == f"0 4096 {1 << 30} {(1 << 30) + 4096}\nNo such device or address\n"
