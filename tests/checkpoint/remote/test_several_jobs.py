"""Several jobs at one remote file: each sees what the one before has written, as on a local disk (B1)."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.checkpoint.remote.conftest import Site
from tests.starter.support import PYTHON, soon, until

JOBS, TIMES = 3, 60

#: Adds one to the number in `counter`, so often, under a lock of a kind, at which the file stays open or not.
COUNTER = """
import fcntl, os, sys, time
kind, times = sys.argv[1], int(sys.argv[2])

def add(fd):
    os.lseek(fd, 0, os.SEEK_SET)
    found = os.read(fd, 100)
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, b"%d\\n" % (int(found or b"0") + 1))

def once():
    fd = os.open("counter", os.O_RDWR | os.O_CREAT, 0o666)
    add(fd)
    os.close(fd)

kept = os.open("counter", os.O_RDWR | os.O_CREAT, 0o666)
if kind == "O_EXCL":
    os.close(kept)
for _ in range(times):
    if kind == "flock":
        fcntl.flock(kept, fcntl.LOCK_EX)
        add(kept)
        fcntl.flock(kept, fcntl.LOCK_UN)
    elif kind == "lockf":
        fcntl.lockf(kept, fcntl.LOCK_EX)
        add(kept)
        fcntl.lockf(kept, fcntl.LOCK_UN)
    elif kind == "flock of another file":
        with open("lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            once()
    else:
        while True:
            try:
                os.close(os.open("lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                break
            except FileExistsError:
                time.sleep(0.001)
        once()
        os.unlink("lock")
"""

#: Adds rows to a database, each kept before it is reported as added.
ROWS = """
import sqlite3, sys
who, times = sys.argv[1], int(sys.argv[2])
db = sqlite3.connect("rows.db", timeout=60, isolation_level=None)
db.execute("create table if not exists rows (who text, number integer, text text)")
for number in range(times):
    db.execute("begin immediate")
    (count,) = db.execute("select count(*) from rows").fetchone()
    db.execute("insert into rows values (?, ?, ?)", (who, number, "x" * (count * 37 % 3000)))
    db.execute("commit")
    print(number, flush=True)
"""

#: The same in WAL mode, which has processes share memory; says once that it has begun, and goes on when it may.
WAL = """
import os, sqlite3, sys, time
who = sys.argv[1]
try:
    db = sqlite3.connect("wal.db", timeout=1, isolation_level=None)
    db.execute("pragma journal_mode = wal")
    db.execute("create table if not exists rows (who text, number integer)")
    for number in range(40):
        db.execute("insert into rows values (?, ?)", (who, number))
        if number == 20 and who == "job 1":
            open("begun", "w").close()
            while not os.path.exists("go"):
                time.sleep(0.01)
    print("whole")
except sqlite3.OperationalError as error:
    print(error)
"""

#: Opens a file that others add to, adds a line, and closes it.
LINES = """
import os, sys
for number in range(int(sys.argv[2])):
    with open("lines", "a") as file:
        file.write("%s %d\\n" % (sys.argv[1], number))
"""

#: Reads a file that is exchanged for another one again and again.
READS = """
import sys
for number in range(int(sys.argv[2])):
    with open("exchanged") as file:
        text = file.read()
    assert text == text[:1] * 5000 + "\\n", text[:10]
"""


async def one_of(site: Site, number: int, program: str, *arguments: str) -> str:
    """Runs it in a job of its own; what that has written."""
    scratch, journal = site.top / f"scratch{number}", site.top / f"journal{number}"
    scratch.mkdir()
    journal.mkdir()
    end = site.home.open(site.tree, journal, job=f"{number}.0")
    wanted = site.spec(PYTHON, "-c", program, *arguments, id=f"{number}.0.0")
    wanted = replace(wanted, scratch=str(scratch))
    keeper = await soon(site.keepers.start(wanted, remote=end.end.fileno()))
    end.close()
    ended = await soon(keeper.ended)
    await keeper.forget()
    errors = (scratch / "err").read_text()
    assert (ended.code, errors) == (0, ""), ended
    return (scratch / "out").read_text()


async def all_of(site: Site, program: str, arguments: Callable[[int], tuple[str, ...]]) -> list[str]:
    """Runs it in several jobs at once; what each has written."""
    numbers = range(1, JOBS + 1)
    return await asyncio.gather(*(one_of(site, number, program, *arguments(number)) for number in numbers))


@pytest.mark.parametrize("kind", ["flock", "lockf", "flock of another file", "O_EXCL"])
async def test_a_counter(site: Site, way: str, kind: str) -> None:
    if not site.able or (way == "notification" and kind != "O_EXCL"):  # locks there are among a job's own processes
        pytest.skip("needs remote files in this way and /dev/fuse")
    await all_of(site, COUNTER, lambda number: (kind, str(TIMES)))
    assert (site.tree / "counter").read_text() == f"{JOBS * TIMES}\n"


async def test_a_counter_that_programs_at_home_add_to(site: Site, way: str) -> None:
    if not site.able or way == "notification":
        pytest.skip("needs remote files in this way and /dev/fuse")
    at_home = await asyncio.create_subprocess_exec(PYTHON, "-c", COUNTER, "flock", str(TIMES), cwd=site.tree)
    await all_of(site, COUNTER, lambda number: ("flock", str(TIMES)))
    assert await at_home.wait() == 0
    assert (site.tree / "counter").read_text() == f"{(JOBS + 1) * TIMES}\n"


async def test_a_database(site: Site, way: str) -> None:
    """As the same three programs on the local disk: each reported row is there, and the file is whole."""
    if not site.able or way == "notification":
        pytest.skip("needs remote files in this way and /dev/fuse")
    told = await all_of(site, ROWS, lambda number: (f"job {number}", str(TIMES // 2)))
    assert told == ["".join(f"{number}\n" for number in range(TIMES // 2))] * JOBS

    def found(directory: Path) -> tuple[list[object], list[object]]:
        with closing(sqlite3.connect(directory / "rows.db")) as db:
            rows = db.execute("select who, number from rows order by who, number").fetchall()
            return db.execute("pragma integrity_check").fetchall(), rows

    local = site.top / "local"
    local.mkdir()
    for number in range(1, JOBS + 1):
        command = [PYTHON, "-c", ROWS, f"job {number}", str(TIMES // 2)]
        await asyncio.to_thread(subprocess.run, command, cwd=local, check=True, capture_output=True)
    assert found(site.tree) == found(local)


async def test_a_database_whose_users_share_memory(site: Site, way: str) -> None:
    """Machines cannot: one job at a time has it, and others are refused, by what the job's log says, too."""
    if not site.able or way == "notification":
        pytest.skip("needs remote files in this way and /dev/fuse")
    first = asyncio.ensure_future(one_of(site, 1, WAL, "job 1"))
    await until((site.tree / "begun").exists)
    assert await one_of(site, 2, WAL, "job 2") == "unable to open database file\n"
    (site.tree / "go").touch()
    assert await first == "whole\n"
    assert await one_of(site, 3, WAL, "job 3") == "whole\n"
    with closing(sqlite3.connect(site.tree / "wal.db", timeout=1)) as db:
        assert db.execute("select who, count(*) from rows group by who").fetchall() == [("job 1", 40), ("job 3", 40)]
        assert await one_of(site, 4, WAL, "job 4") == "unable to open database file\n"
    site.home.ask("leave", job="4.0", run=1)
    said = [(event["job"], event["why"]) for event in site.home.events]
    assert [job for job, _ in said] == ["2.0", "4.0"]
    assert all("wal.db-shm" in why and "journal_mode" in why for _, why in said)


async def test_a_file_that_all_add_to(site: Site) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    at_home = await asyncio.create_subprocess_exec(PYTHON, "-c", LINES, "home", str(TIMES), cwd=site.tree)
    await all_of(site, LINES, lambda number: (str(number), str(TIMES)))
    assert await at_home.wait() == 0
    lines = (site.tree / "lines").read_text().splitlines()
    who = ["home", *(str(number) for number in range(1, JOBS + 1))]
    assert sorted(lines) == sorted(f"{each} {number}" for each in who for number in range(TIMES))


async def test_a_file_that_is_exchanged_at_home(site: Site) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    (site.tree / "exchanged").write_text("0" * 5000 + "\n")
    running = asyncio.ensure_future(all_of(site, READS, lambda number: ("", str(TIMES * 5))))
    number = 0
    while not running.done():
        number += 1
        other = site.tree / "other"
        other.write_text(str(number % 10) * 5000 + "\n")
        other.rename(site.tree / "exchanged")
        await asyncio.sleep(0)
    await running


async def test_a_small_file_comes_with_its_opening(site: Site, way: str) -> None:
    if not site.able or way == "notification":
        pytest.skip("needs remote files in this way and /dev/fuse")
    (site.tree / "first").write_bytes(b"x" * 60000)
    (site.tree / "small").write_bytes(b"x" * 60000)
    await site.shell("cat first > /dev/null")
    home = psutil.Process(site.home.process.pid)
    before = home.io_counters().read_chars
    await site.shell("cat small > /dev/null", end=site.connect(run=2))
    assert home.io_counters().read_chars - before < 90000
