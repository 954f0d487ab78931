"""Acknowledged changes are there afterwards: kill -9, full disks, read-only places, vanished directories."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from pool.store import (
    AddEvent,
    NewCluster,
    SetMeta,
    Store,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreGone,
    StoreRefused,
    StoreTooNew,
    StoreUnwritable,
    schema,
)
from pool.store.schema import MIGRATIONS, migrate
from tests.conftest import REPOSITORY, passable
from tests.store.disks import WAYS, opened

WRITER = """
import asyncio, sys
from pool.store import AddEvent, NewCluster, SetProc
from tests.store.disks import opened

async def writer(store, lane):
    turn = 0
    while True:
        text = b"%d" % turn
        number = (await store.write(AddEvent(1, lane, "K", 1.0, text), SetProc(1, lane, 2, text)))[0]
        print(lane, turn, number, flush=True)
        turn += 1

async def main():
    store = opened(sys.argv[1], sys.argv[2])
    await store.write(NewCluster(1, "ann", b"", 8, None, 0.0))
    await asyncio.gather(*(writer(store, lane) for lane in range(8)))

asyncio.run(main())
"""


def killed_after(lines: int, command: list[str]) -> list[list[str]]:
    """Run a program, kill it when it has printed that many lines, and return every whole line it printed."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY, text=True) as child:
        assert child.stdout is not None
        printed = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        printed += child.stdout.read().splitlines(keepends=True)
    return [line.split() for line in printed if line.endswith("\n")]


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, cwd=REPOSITORY, text=True, timeout=20, check=False)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("lines", [1, 100, 777])
async def test_kill_9_loses_nothing_acknowledged(tmp_path: Path, how: str, lines: int) -> None:
    path = str(tmp_path / "q")
    acknowledged = killed_after(lines, [sys.executable, "-c", WRITER, path, how])
    assert len(acknowledged) >= lines

    store = Store.open(path)
    rows = {row.number: (row.proc, int(row.data)) async for piece in store.events(1) for row in piece}
    last: dict[int, int] = {}
    for lane, turn, number in (map(int, words) for words in acknowledged):
        assert rows[number] == (lane, turn)
        last[lane] = max(turn, last.get(lane, 0))
    assert sorted(rows) == list(range(1, len(rows) + 1)), "no event is missing in between"
    states = {proc: state async for piece in store.procs() for _, proc, _, state, _ in piece}
    for lane, turn in last.items():
        assert int(states[lane] or b"") >= turn
        # An event and the state of the same call are there together.
        assert int(states[lane] or b"") == max(t for p, t in rows.values() if p == lane)
    await store.close()


@pytest.mark.parametrize("how", WAYS)
async def test_a_full_disk_refuses_and_heals(tmp_path: Path, how: str) -> None:
    store = opened(tmp_path / "q", how)
    await store.write(NewCluster(1, "ann", b"", 1, None, 0.0), AddEvent(1, 0, "A", 1.0, b""))
    pages = store._session.connection.execute("PRAGMA page_count").fetchone()[0]
    store._session.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    outcomes = await asyncio.gather(
        store.write(SetMeta("small", b"1")),
        store.write(NewCluster(2, "ann", b"x" * 100_000, 1, None, 0.0), AddEvent(2, 0, "B", 1.0, b"")),
        return_exceptions=True,
    )
    assert outcomes[0] == [None], "what fits is taken"
    assert isinstance(outcomes[1], StoreFull)
    assert outcomes[1].retry
    assert "the disk is full" in outcomes[1].message
    assert outcomes[1].hint
    store._session.connection.execute("PRAGMA max_page_count = 1000000")
    assert await store.write(NewCluster(2, "ann", b"x" * 100_000, 1, None, 0.0), AddEvent(2, 0, "B", 1.0, b"")) == [
        None,
        2,
    ]
    await store.close()
    again = Store.open(str(tmp_path / "q"))
    assert [row.cluster for row in again.load().clusters] == [1, 2]
    assert again.load().meta == {"small": b"1"}
    await again.close()


LIMITED = """
import asyncio, resource, signal, sys
from pool.store import AddEvent, NewCluster, StoreError
from tests.store.disks import opened

async def main():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = opened(sys.argv[1], sys.argv[2])
    await store.write(NewCluster(1, "ann", b"", 1, None, 0.0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    done, failed = 0, 0
    while failed < 5:
        try:
            await store.write(AddEvent(1, 0, "A", 1.0, b"x" * 5000))
            assert not failed
            done += 1
        except StoreError as error:
            assert error.retry and error.hint, error
            failed += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    number = (await store.write(AddEvent(1, 0, "B", 1.0, b"")))[0]
    print(done, number, flush=True)
    import os; os.kill(os.getpid(), 9)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", WAYS)
async def test_a_write_that_the_system_refuses(tmp_path: Path, how: str) -> None:
    """The kernel itself refuses in the middle of a write, as on a full disk; then there is room again."""
    path = str(tmp_path / "q")
    ran = run(LIMITED, path, how)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    done, number = map(int, ran.stdout.split())
    assert done > 3
    assert number == done + 1
    store = Store.open(path)
    rows = [row async for piece in store.events(1) for row in piece]
    assert [row.number for row in rows] == list(range(1, number + 1))
    assert rows[-1].kind == "B"
    await store.close()


@pytest.mark.parametrize("how", WAYS)
async def test_a_store_that_vanishes_during_a_commit_acknowledges_nothing(tmp_path: Path, how: str) -> None:
    home = tmp_path / "state"
    home.mkdir()
    store = opened(home / "q", how)
    await store.write(NewCluster(1, "ann", b"", 1, None, 0.0))
    await store.write(AddEvent(1, 0, "A", 0.0, b""))

    def vanish(sql: str) -> None:
        if sql == "COMMIT" and home.exists():
            home.rename(tmp_path / "elsewhere")

    store._session.connection.set_trace_callback(vanish)
    settled: list[object] = []
    with pytest.raises(StoreGone, match="no longer there"):
        await store.write(AddEvent(1, 0, "B", 0.0, b""), settled=settled.append)
    assert settled == []
    (tmp_path / "elsewhere").rename(home)
    store._session.connection.set_trace_callback(None)
    (number,) = await store.write(AddEvent(1, 0, "B", 0.0, b""))
    assert number is not None
    await store.close()


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("what", ["directory", "file", "log", "moved"])
async def test_a_store_that_vanished_acknowledges_nothing(tmp_path: Path, how: str, what: str) -> None:
    home = tmp_path / "state"
    home.mkdir()
    store = opened(home / "q", how)
    await store.write(NewCluster(1, "ann", b"", 1, None, 0.0))
    if what == "directory":
        shutil.rmtree(home)
    elif what == "moved":
        home.rename(tmp_path / "elsewhere")
    else:
        (home / ("q" if what == "file" else "q-wal")).unlink()
    for _ in range(2):
        with pytest.raises(StoreGone, match="no longer there") as caught:
            await store.write(AddEvent(1, 0, "A", 1.0, b""))
        assert caught.value.retry
    if what == "moved":
        (tmp_path / "elsewhere").rename(home)
        assert await store.write(AddEvent(1, 0, "A", 1.0, b"")) == [1]
    await store.close()


def test_a_second_schedd_is_refused_in_words(tmp_path: Path) -> None:
    path = str(tmp_path / "q")
    first = Store.open(path, inline=True)
    with pytest.raises(StoreBusy, match=f"another schedd works on it .process {os.getpid()}"):
        Store.open(path)
    asyncio.run(first.close())
    asyncio.run(Store.open(path, inline=True).close())


def test_a_store_of_a_newer_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "q")
    asyncio.run(Store.open(path).close())
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    before = Path(path).read_bytes()
    with pytest.raises(StoreTooNew, match="a newer poolnode wrote it") as caught:
        Store.open(path)
    assert "install" in caught.value.hint
    assert Path(path).read_bytes() == before


async def test_an_older_store_is_brought_forward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "q")
    store = Store.open(path)
    assert store.migrated_from is None
    await store.write(NewCluster(1, "ann", b"", 1, None, 0.0))
    await store.close()
    later = (*MIGRATIONS, ("CREATE TABLE extra(x)", "INSERT INTO extra VALUES(7)"))
    monkeypatch.setattr(schema, "migrate", None)
    monkeypatch.setattr("pool.store.session.migrate", lambda c, p: migrate(c, p, later))
    store = Store.open(path)
    assert store.migrated_from == len(MIGRATIONS)
    assert store._session.connection.execute("SELECT x FROM extra").fetchone() == (7,)
    assert len(store.load().clusters) == 1
    await store.close()


def test_a_migration_that_fails_leaves_the_old_version() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, "q")
    broken = (*MIGRATIONS, ("CREATE TABLE extra(x)", "no statement"))
    with pytest.raises(sqlite3.Error):
        migrate(connection, "q", broken)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'extra'").fetchone() == (0,)
    connection.close()


@pytest.mark.parametrize(
    "content", [b"this is no database at all, it is a letter" * 100, b"SQLite format 3\0" + b"\xff" * 5000]
)
def test_a_file_that_is_no_store_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "q").write_bytes(content)
    with pytest.raises(StoreDamaged) as caught:
        Store.open(str(tmp_path / "q"))
    assert caught.value.hint
    assert (tmp_path / "q").read_bytes() == content


def test_somebody_elses_database_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "q") as connection:
        connection.execute("CREATE TABLE theirs(x)")
    connection.close()
    with pytest.raises(StoreDamaged, match="another program"):
        Store.open(str(tmp_path / "q"))


def test_no_directory_for_it(tmp_path: Path) -> None:
    with pytest.raises(StoreUnwritable, match=r"[Nn]o such file"):
        Store.open(str(tmp_path / "none" / "q"))


READ_ONLY = """
import os, sys
from pool.store import Store, StoreError
if os.geteuid() == 0:
    os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
try:
    Store.open(sys.argv[1])
except StoreError as error:
    print(type(error).__name__, error.retry, bool(error.hint))
"""


def test_a_place_that_may_not_be_written(tmp_path: Path) -> None:
    home = tmp_path / "state"
    home.mkdir()
    asyncio.run(Store.open(str(home / "q")).close())
    for name in (home / "q", home / "q.lock"):
        name.chmod(0o444)
    home.chmod(0o555)
    tmp_path.chmod(0o755)
    passable(tmp_path)
    try:
        ran = run(READ_ONLY, str(home / "q"))
    finally:
        home.chmod(0o755)
    assert ran.stdout.split() == ["StoreUnwritable", "True", "True"], ran.stderr


async def test_a_crash_between_two_openings_folds_the_log_in(tmp_path: Path) -> None:
    """The log that a killed schedd left is read by the next one, whatever else it finds."""
    store = Store.open(str(tmp_path / "q"), inline=True)
    await store.write(
        NewCluster(1, "ann", b"", 1, None, 0.0), *(AddEvent(1, 0, "A", 1.0, b"x" * 3000) for _ in range(50))
    )
    for name in ("q", "q-wal"):
        shutil.copy(tmp_path / name, tmp_path / f"copy{name[1:]}")
    await store.close()
    copy = Store.open(str(tmp_path / "copy"))
    assert len([row async for piece in copy.events(1) for row in piece]) == 50
    await copy.close()
    # A torn last page, as after a power cut in the middle of a write that was never acknowledged.
    torn = Store.open(str(tmp_path / "copy"), inline=True)
    await torn.write(AddEvent(1, 0, "B", 1.0, b""))
    log = (tmp_path / "copy-wal").read_bytes()
    await torn.close()
    with pytest.raises(StoreError):
        await torn.write(AddEvent(1, 0, "C", 1.0, b""))
    shutil.copy(tmp_path / "copy", tmp_path / "last")
    (tmp_path / "last-wal").write_bytes(log + log[32:2000])
    last = Store.open(str(tmp_path / "last"))
    assert [row.kind async for piece in last.events(1, after=50) for row in piece] == ["B"]
    await last.close()


@pytest.mark.parametrize("how", ["loop", "thread"])
async def test_large_and_small_calls_keep_their_order(tmp_path: Path, how: str) -> None:
    """A submit too large for the loop and small writes around it are written in the order they were made."""
    store = opened(tmp_path / "q", how)
    await store.write(SetMeta("first", b""))
    outcomes = await asyncio.gather(
        store.write(NewCluster(1, "ann", b"", 1, None, 0.0)),
        store.write(NewCluster(2, "ann", b"", 5000, [b"d"] * 5000, 0.0), AddEvent(2, -1, "S", 1.0, b"")),
        *(store.write(AddEvent(1, 0, "A", 1.0, b"")) for _ in range(50)),
        store.write(NewCluster(2, "ann", b"", 1, None, 0.0)),
        return_exceptions=True,
    )
    assert outcomes[1] == [None, 1]
    assert [outcome[0] for outcome in outcomes[2:-1]] == list(range(2, 52))  # type: ignore[index]
    assert isinstance(outcomes[-1], StoreRefused)
    await store.close()


async def test_a_busy_loop_does_not_starve_the_writer(tmp_path: Path) -> None:
    """Long work in slices of two milliseconds goes on all the while; a write is still durable soon."""
    store = opened(tmp_path / "q", "thread")
    await store.write(NewCluster(1, "ann", b"", 1, None, 0.0))
    loop = asyncio.get_running_loop()

    async def work() -> None:
        while True:
            until = loop.time() + 0.002
            while loop.time() < until:
                pass
            await asyncio.sleep(0)

    busy = asyncio.ensure_future(work())
    async with asyncio.timeout(3):
        for _ in range(10):
            await store.write(AddEvent(1, 0, "A", 1.0, b""))
    busy.cancel()
    await store.close()
