"""The world's record of other pools over restarts and on damaged disks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool.store.errors import StoreDamaged, StoreTooNew
from pool.store.flock_ledger import FlockLedgerStore, Row


def test_rows_are_kept_replaced_and_removed(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")
    store = FlockLedgerStore.open(path)
    store.save([("entry", "a", {"n": 1}), ("entry", "b", {"n": 2}), ("use", "a", {"n": 3})])
    store.save([("entry", "a", {"n": 4}), ("entry", "b", None)])
    store.close()
    again = FlockLedgerStore.open(path)
    assert again.load() == [("entry", "a", {"n": 4}), ("use", "a", {"n": 3})]
    again.close()


def test_a_damaged_or_newer_file_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"nothing of ours" * 100)
    with pytest.raises(StoreDamaged):
        FlockLedgerStore.open(str(path))
    assert path.read_bytes().startswith(b"nothing of ours")
    path.unlink()
    store = FlockLedgerStore.open(str(path))
    store._connection.execute("PRAGMA user_version = 99")
    store.close()
    with pytest.raises(StoreTooNew):
        FlockLedgerStore.open(str(path))


def test_a_save_under_way_ends_before_the_file_is_saved_again_and_closed(tmp_path: Path) -> None:
    """A world that stops saves and closes while a thread of the save before is not through."""
    path = str(tmp_path / "ledger.db")
    store = FlockLedgerStore.open(path)
    entered, released = threading.Event(), threading.Event()
    errors: list[Exception] = []

    def rows() -> Iterator[Row]:
        yield "entry", "a", {"n": 1}
        entered.set()
        assert released.wait(60)
        yield "entry", "b", {"n": 2}

    def save() -> None:
        try:
            store.save(rows())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=save)
    thread.start()
    assert entered.wait(60)
    threading.Timer(0.05, released.set).start()
    store.save([("entry", "c", {"n": 3})])
    store.close()
    thread.join()
    assert errors == []
    again = FlockLedgerStore.open(path)
    assert [key for _, key, _ in again.load()] == ["a", "b", "c"]
    again.close()
