"""The world's record of other pools: signed entries, open claims, terms and keys (EV 4.2).

A small SQLite file. Each row has a table's name, a key and a value. A file that is damaged is refused and stays where
it is: it is worth machine-hours, and the other pool has the same entries. Every method blocks on the disk.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgpack

from pool.store.errors import StoreDamaged, from_sqlite
from pool.store.small import open_small

VERSION = 1
_TABLES = {"rows": "part TEXT, key TEXT, value BLOB NOT NULL, PRIMARY KEY (part, key)"}
#: (part, key, value in wire form, or None where the row goes).
Row = tuple[str, str, Mapping[str, Any] | None]


class FlockLedgerStore:
    """An open store. One thread may save while another saves or closes it: they wait for each other."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._in_use = threading.Lock()
        self._connection = connection
        self._path = path

    @classmethod
    def open(cls, path: str) -> Self:
        """The store in a file, made where it is missing; `:memory:` keeps nothing.

        Raises:
            StoreTooNew: a newer program wrote it.
            StoreDamaged: it is damaged.
            StoreError: it cannot be written.
        """
        return cls(open_small(path, "the flock's ledger", _TABLES, VERSION), path)

    def load(self) -> list[tuple[str, str, dict[str, Any]]]:
        """All rows: part, key and value.

        Raises:
            StoreDamaged: one of them cannot be read.
        """
        try:
            rows = self._connection.execute("SELECT part, key, value FROM rows ORDER BY part, key").fetchall()
            return [(part, key, msgpack.unpackb(value)) for part, key, value in rows]
        except sqlite3.Error as error:
            raise from_sqlite(error, "read the flock's ledger in", self._path) from error
        except (ValueError, msgpack.UnpackException) as error:
            raise StoreDamaged(f"cannot read the flock's ledger in {self._path}: a row is damaged") from error

    def save(self, rows: Iterable[Row]) -> None:
        """Write rows, all or none; on disk when this returns.

        Raises:
            StoreError: they cannot be written.
        """
        try:
            with self._in_use, self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                for part, key, value in rows:
                    if value is None:
                        self._connection.execute("DELETE FROM rows WHERE part = ? AND key = ?", (part, key))
                    else:
                        packed = msgpack.packb(dict(value))
                        self._connection.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", (part, key, packed))
        except sqlite3.Error as error:
            raise from_sqlite(error, "write the flock's ledger to", self._path) from error

    def close(self) -> None:
        """Close the file, once the save under way has ended."""
        with self._in_use:
            self._connection.close()
