"""A store that lost its contents is not taken for a new one, and gives no number again (A3)."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pool.store import AddEvent, NewCluster, Store, StoreDamaged, StoreError, StoreLost
from tests.store.disks import WAYS, opened

KILLED = """
import asyncio, os, signal, sys
from pool.store import AddEvent, NewCluster, Store

async def main():
    store = Store.open(sys.argv[1])
    for number in range(store.load().next_cluster, store.load().next_cluster + int(sys.argv[2])):
        await store.write(NewCluster(number, "ann", b"ad", 1, None, 0.0), AddEvent(number, 0, "SUBMIT", 1.0, b""))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def killed_with(path: Path, clusters: int) -> None:
    """A schedd queues so many clusters and is killed."""
    ran = subprocess.run([sys.executable, "-c", KILLED, str(path), str(clusters)], check=False)
    assert ran.returncode == -signal.SIGKILL


def emptied(path: Path) -> None:
    path.write_bytes(b"")
    Path(f"{path}-wal").unlink()


def emptied_beside_its_log(path: Path) -> None:
    path.write_bytes(b"")


def removed(path: Path) -> None:
    path.unlink()
    Path(f"{path}-wal").unlink()


def without_its_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def take_way_out(error: StoreError) -> None:
    """Do as its last words say."""
    assert error.hint is not None
    subprocess.run(shlex.split(error.hint.split("`")[-2]), check=True)


def cut_log(path: Path, size: int) -> None:
    log = Path(f"{path}-wal")
    log.write_bytes(log.read_bytes()[:-size])


def numbers_in(path: Path) -> dict[str, int]:
    lines = Path(f"{path}.ids").read_text().splitlines()
    return {name: int(number) for name, number in map(str.split, lines)}


DAMAGES = [emptied, emptied_beside_its_log, removed, without_its_log]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("folded", [False, True])
async def test_what_lost_its_jobs_is_refused_with_a_way_out(
    tmp_path: Path, damage: Callable[[Path], None], folded: bool
) -> None:
    path, kept = tmp_path / "queue.db", tmp_path / "kept"
    if folded:  # what was queued at first is in the store itself, and not in its log
        await (store := Store.open(str(path))).write(NewCluster(1, "ann", b"ad", 1, None, 0.0))
        await store.close()
    killed_with(path, 5)
    kept.mkdir()
    for name in ("queue.db", "queue.db-wal"):
        shutil.copy(tmp_path / name, kept)
    damage(path)
    before = sorted(name for name in os.listdir(tmp_path) if not name.endswith((".lock", "-shm")))
    with pytest.raises(StoreLost, match=f"up to cluster {5 + folded} were queued|its log is not") as caught:
        Store.open(str(path))
    after = sorted(name for name in os.listdir(tmp_path) if not name.endswith((".lock", "-shm")))
    assert after == before

    # One way out: restore the missing file.
    for name in ("queue.db", "queue.db-wal"):
        shutil.copy(kept / name, tmp_path)
    store = Store.open(str(path))
    assert store.load().next_cluster == 6 + folded
    await store.close()

    # The other: give the jobs up.
    for name in ("queue.db", "queue.db-wal", "queue.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    take_way_out(caught.value)
    for _ in range(3):
        store = Store.open(str(path))
        loaded = store.load()
        assert not loaded.clusters
        assert loaded.next_cluster >= 6 + folded
        assert loaded.next_event >= 6
        await store.close()


async def test_an_older_copy_is_refused_and_gives_no_number_again(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    await (store := Store.open(str(path))).write(NewCluster(1, "ann", b"ad", 1, None, 0.0))
    await store.close()
    older = path.read_bytes()
    store = Store.open(str(path))
    for number in (2, 3):
        await store.write(NewCluster(number, "ann", b"ad", 1, None, 0.0), AddEvent(number, 0, "SUBMIT", 1.0, b""))
    await store.close()
    path.write_bytes(older)
    with pytest.raises(StoreLost, match="older than it was") as caught:
        Store.open(str(path))
    take_way_out(caught.value)
    store = Store.open(str(path))
    loaded = store.load()
    assert [row.cluster for row in loaded.clusters] == [1]
    assert (loaded.next_cluster >= 4, loaded.next_event) == (True, 3)
    await store.close()


async def test_a_log_whose_end_the_disk_lost_is_no_reason_to_stand_still(tmp_path: Path) -> None:
    """After a power failure: numbers that may have been given are left out, and the rest goes on."""
    path = tmp_path / "queue.db"
    killed_with(path, 5)
    cut_log(path, 5000)
    store = Store.open(str(path))
    loaded = store.load()
    assert 0 < len(loaded.clusters) < 5
    assert loaded.next_cluster > 5
    await store.close()


@pytest.mark.parametrize("how", WAYS)
async def test_numbers_are_reserved_before_they_are_given(tmp_path: Path, how: str) -> None:
    store = opened(tmp_path / "q", how)
    for number in (1, 2000, 2001):
        await store.write(NewCluster(number, "ann", b"ad", 1, None, 0.0))
        said = numbers_in(tmp_path / "q")
        assert said["reserved"] >= said["cluster"] == number + 1
    await store.close()


async def test_a_store_that_had_given_nothing_may_go(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    for _ in range(2):
        await Store.open(str(path)).close()
        path.unlink()


async def test_a_store_of_before_there_was_such_a_file(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    killed_with(path, 3)
    (tmp_path / "queue.db.ids").unlink()
    store = Store.open(str(path))
    assert store.load().next_cluster == 4
    await store.close()
    assert numbers_in(path)["cluster"] == 4


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q.ids").write_text("something else")
    with pytest.raises(StoreDamaged) as caught:
        Store.open(str(tmp_path / "q"))
    assert isinstance(caught.value, StoreError)
    assert caught.value.hint
