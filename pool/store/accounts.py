"""The negotiator's record of users over a restart: their accounts, and when they were last counted (A2, A6).

A small SQLite file beside the queue, written every few minutes and after an administrator's word. It is worth less than
a queue: one that is damaged is set aside with a word on it, and everybody begins anew. One of a newer version is
refused. Every method blocks on the disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import msgpack

from pool.store.errors import StoreDamaged, from_sqlite
from pool.store.small import open_small

VERSION = 1
_TABLES = {
    "accounts": "name TEXT PRIMARY KEY, account BLOB NOT NULL",
    "facts": "name TEXT PRIMARY KEY, value REAL NOT NULL",
}


class AccountStore:
    """An open store of accounts.

    Attributes:
        note: what happened to an older one that could not be read; empty when nothing did.
    """

    def __init__(self, connection: sqlite3.Connection, path: str, note: str) -> None:
        self._connection = connection
        self._path = path
        self.note = note

    @classmethod
    def open(cls, path: str) -> Self:
        """The store in a file, made where it is missing; `:memory:` keeps nothing.

        Raises:
            StoreTooNew: a newer program wrote it.
            StoreError: it cannot be written.
        """
        try:
            return cls(_opened(path), path, "")
        except StoreDamaged as error:
            aside = _free_name(Path(path))
            Path(path).rename(aside)
            for ending in ("-wal", "-shm"):
                Path(path + ending).unlink(missing_ok=True)
            return cls(_opened(path), path, f"{error.message}; it was set aside as {aside.name}, priorities begin anew")

    def load(self) -> tuple[list[dict[str, Any]], float | None]:
        """All accounts in wire form, and the wall time up to which they were counted."""
        try:
            rows = self._connection.execute("SELECT account FROM accounts ORDER BY name").fetchall()
            counted = self._connection.execute("SELECT value FROM facts WHERE name = 'counted'").fetchone()
        except sqlite3.Error as error:
            raise from_sqlite(error, "read accounts in", self._path) from error
        found: list[dict[str, Any]] = []
        for (packed,) in rows:
            try:
                wire = msgpack.unpackb(packed)
            except (ValueError, msgpack.UnpackException):
                continue
            if isinstance(wire, dict) and isinstance(wire.get("name"), str):
                found.append(wire)
        return found, float(counted[0]) if counted else None

    def save(self, changed: Iterable[Mapping[str, Any]], gone: Iterable[str], counted: float) -> None:
        """Write what has changed, all of it or nothing.

        Raises:
            StoreError: it cannot be written; the next save tries again.
        """
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany("DELETE FROM accounts WHERE name = ?", [(name,) for name in gone])
                self._connection.executemany(
                    "INSERT OR REPLACE INTO accounts VALUES (?, ?)",
                    [(wire["name"], msgpack.packb(dict(wire))) for wire in changed],
                )
                self._connection.execute("INSERT OR REPLACE INTO facts VALUES ('counted', ?)", (counted,))
        except sqlite3.Error as error:
            raise from_sqlite(error, "write accounts to", self._path) from error

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _opened(path: str) -> sqlite3.Connection:
    return open_small(path, "accounts", _TABLES, VERSION)


def _free_name(path: Path) -> Path:
    number = 1
    while (found := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return found
