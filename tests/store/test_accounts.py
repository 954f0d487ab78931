"""The negotiator's memory on disk: kept, set aside when damaged, refused when newer."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from pool.store.accounts import AccountStore
from pool.store.errors import StoreError, StoreTooNew


def test_what_is_saved_is_loaded_again(tmp_path: Path) -> None:
    path = str(tmp_path / "accounts.db")
    store = AccountStore.open(path)
    assert store.load() == ([], None)
    store.save([{"name": "a", "real": 2.5}, {"name": "b", "index": -3.0}], [], 100.0)
    store.save([{"name": "a", "real": 3.5}], ["b", "nobody"], 200.0)
    store.close()
    again = AccountStore.open(path)
    assert again.load() == ([{"name": "a", "real": 3.5}], 200.0)
    assert again.note == ""
    again.close()


@pytest.mark.parametrize("damage", ["text", "tables", "page"])
def test_a_damaged_one_is_set_aside_with_a_word(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "accounts.db"
    if damage == "text":
        path.write_text("these are no accounts\n" * 500)
    elif damage == "tables":
        with sqlite3.connect(path) as connection:
            connection.executescript("CREATE TABLE other (x); PRAGMA user_version = 1")
        connection.close()
    else:
        store = AccountStore.open(str(path))
        store.save([{"name": f"user{n}", "note": "x" * 50} for n in range(2000)], [], 1.0)
        store.close()
        data = bytearray(path.read_bytes())
        for place in range(4096, len(data), 4096):
            data[place : place + 64] = b"\xff" * 64
        path.write_bytes(data)
    store = AccountStore.open(str(path))
    assert store.load() == ([], None)
    assert "set aside as accounts.db.damaged-1" in store.note
    assert (tmp_path / "accounts.db.damaged-1").exists()
    store.save([{"name": "a"}], [], 1.0)
    store.close()
    assert AccountStore.open(str(path)).load() == ([{"name": "a"}], 1.0)


def test_a_newer_one_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "accounts.db"
    AccountStore.open(str(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match="a newer version wrote the file"):
        AccountStore.open(str(path))
    assert path.read_bytes() == before


def test_where_it_cannot_be_written_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot open accounts"):
        AccountStore.open(str(tmp_path / "nowhere" / "accounts.db"))
