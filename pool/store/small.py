"""Opening the small SQLite files of roles, which hold a few rows that matter: users' accounts, the flock's ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from pool.store.errors import StoreDamaged, StoreError, StoreTooNew, from_sqlite


def open_small(path: str, name: str, tables: Mapping[str, str], version: int) -> sqlite3.Connection:
    """Open a file and look whether its pages fit together; it is made where it is missing. Blocks on the disk.

    Args:
        name: of what the file holds, for errors: "accounts".
        tables: the columns of each table. version: of them; a file of a newer one is refused.

    Raises:
        StoreTooNew: a newer program wrote it.
        StoreDamaged: it is damaged, or something else.
        StoreError: it cannot be written.
    """
    connection = None
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=2.0)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found > version:
            hint = "run that version, or move the file away"
            raise StoreTooNew(f"cannot open {name} in {path}: a newer version wrote the file", hint=hint)
        if found == 0:
            made = "".join(f"CREATE TABLE {table} ({columns}) WITHOUT ROWID; " for table, columns in tables.items())
            connection.executescript(f"BEGIN; {made} PRAGMA user_version = {version}; COMMIT;")
        if connection.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise StoreDamaged(f"cannot open {name} in {path}: the file is damaged")
        for table in tables:
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    except BaseException as error:
        if connection is not None:
            connection.close()
        if not isinstance(error, sqlite3.Error):
            raise
        trouble = from_sqlite(error, f"open {name} in", path)
        if type(trouble) is StoreError and Path(path).exists():  # tables that are not ours
            trouble = StoreDamaged(f"cannot open {name} in {path}: it is something else")
        raise trouble from error
    return connection
