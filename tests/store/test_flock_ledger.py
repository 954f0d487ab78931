"""The world's record of other pools over restarts and on damaged disks."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.store.errors import StoreDamaged, StoreTooNew
from pool.store.flock_ledger import FlockLedgerStore


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
