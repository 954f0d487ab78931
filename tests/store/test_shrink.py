"""The space of removed rows is given back to the file system, a little at a time."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from pool.store import AddEvent, NewCluster, RemoveCluster, RewriteFile, Shrink, Store, StoreFull, Trim, session
from pool.testing import run_virtual
from pool.testing.pool import SimPool
from tests.roles.support import QUICK
from tests.store.disks import WAYS, opened


async def fill(store: Store, clusters: int = 200) -> None:
    for number in range(1, clusters + 1):
        await store.write(NewCluster(number, "ann", b"x" * 20_000, 1, None, 0.0), AddEvent(number, 0, "S", 1.0, b"y"))


async def empty(store: Store, clusters: int = 200) -> None:
    await store.write(*(RemoveCluster(number) for number in range(1, clusters + 1)))
    while any(await store.write(Trim(2.0))):
        pass


def pages_on_disk(path: Path) -> int:
    return path.stat().st_size // 4096


async def old_store(folder: Path) -> Path:
    """A filled store whose file is as an earlier version of the program made it."""
    path = folder / "q"
    store = Store.open(str(path))
    await fill(store)
    await store.close()
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("PRAGMA auto_vacuum = NONE")
        connection.execute("VACUUM")
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (0,)
    connection.close()
    return path


@pytest.mark.parametrize("how", WAYS)
async def test_a_store_shrinks_in_slices(tmp_path: Path, how: str) -> None:
    store = opened(tmp_path / "q", how)
    await fill(store)
    full, _ = await store.free()
    await empty(store)
    _, free = await store.free()
    assert free > full * 0.9
    slices = 0
    while free:
        (left,) = await store.write(Shrink(100))
        assert left is not None
        assert free - left == min(free, 100)
        free, slices = left, slices + 1
    assert slices > 5
    await store.close()
    assert pages_on_disk(tmp_path / "q") < full // 10


async def test_an_older_store_learns_to_shrink(tmp_path: Path) -> None:
    path = await old_store(tmp_path)
    store = Store.open(str(path))
    assert len(store.load().clusters) == 200
    await empty(store)
    assert (await store.write(Shrink(100_000))) == [0]
    await store.close()
    assert pages_on_disk(path) < 50


async def test_an_older_store_that_keeps_little_is_made_small_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await old_store(tmp_path)
    monkeypatch.setattr(session, "_REWRITTEN", 100 * 4096)
    store = Store.open(str(path))  # too much is kept in it
    full, _ = await store.free()
    assert not store.shrinks
    await empty(store)
    await store.close()
    assert pages_on_disk(path) == full
    store = Store.open(str(path))
    assert store.shrinks
    assert (await store.free())[0] < 50
    await store.close()
    assert pages_on_disk(path) < 50


@pytest.mark.parametrize("how", WAYS)
async def test_an_older_store_that_keeps_much_is_written_anew_while_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    path = await old_store(tmp_path)
    monkeypatch.setattr(session, "_REWRITTEN", 4096)
    store = opened(path, how)
    full, _ = await store.free()
    await empty(store, 150)
    assert not store.shrinks
    # Changes written before and after it, in one turn of the loop, are kept.
    results = await asyncio.gather(
        store.write(NewCluster(901, "ann", b"a", 1, None, 0.0)),
        store.write(RewriteFile()),
        store.write(NewCluster(902, "ann", b"b", 1, None, 0.0)),
    )
    assert [*results] == [[None]] * 3
    assert store.shrinks
    assert (await store.free())[0] < full // 2
    await store.write(*(RemoveCluster(number) for number in range(151, 201)))
    assert (await store.write(Shrink(100_000))) == [0]
    await store.close()
    assert pages_on_disk(path) < full // 10
    again = Store.open(str(path))
    assert [row.cluster for row in again.load().clusters] == [901, 902]
    await again.close()


async def test_without_room_for_it_an_older_store_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await old_store(tmp_path)
    monkeypatch.setattr(session, "_ROOM", 1e12)
    store = Store.open(str(path))
    with pytest.raises(StoreFull, match="no room"):
        await store.write(RewriteFile())
    assert not store.shrinks
    assert len(store.load().clusters) == 200
    await store.write(RemoveCluster(1))
    await store.close()


def test_a_schedd_has_an_older_store_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_REWRITTEN", 4096)
    monkeypatch.setattr(session.StoreSession, "_let_it_shrink", lambda self: None)  # as an earlier version made it

    async def work() -> None:
        async with SimPool(1, settings={**QUICK, "HISTORY_DAYS": "0.01"}, directory=tmp_path) as sim:
            await sim.add("head", "collector,negotiator,schedd")
            for _ in range(150):
                await sim.submit("head", ad={"Note": "x" * 100_000, "JobStatus": 5})
            await sim.act("head", "alice", action="remove", all=True)
            store = sim.role("head", "schedd").store
            full, _ = await store.free()
            assert not store.shrinks
            await asyncio.sleep(2 * 3600.0)
            assert store.shrinks
            assert (await store.free())[0] <= full // 3
            sim.assert_sound()

    run_virtual(work())


def test_a_schedd_gives_back_what_its_queue_does_not_need(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(1, settings={**QUICK, "HISTORY_DAYS": "0.01"}, directory=tmp_path) as sim:
            await sim.add("head", "collector,negotiator,schedd")
            for _ in range(150):
                cluster = await sim.submit("head", ad={"Note": "x" * 100_000, "JobStatus": 5})
            await sim.act("head", "alice", action="remove", all=True)
            assert cluster == 150
            store = sim.role("head", "schedd").store
            full, _ = await store.free()
            await asyncio.sleep(2 * 3600.0)  # history goes after an hour, its room after ten minutes more
            assert (await store.free())[0] <= full // 3
            sim.assert_sound()

    run_virtual(work())
