"""The store's tables and how an older store becomes a present one.

`MIGRATIONS[n]` takes a store from version n to n + 1, inside one transaction; version 0 is an empty file. A
migration that was ever released is never changed. Differences of a cluster's processes are stored as blocks
of `DELTA_BLOCK` in one row, because a row for each would cost the submit of a large cluster most of its time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from pool.store.errors import StoreDamaged, StoreTooNew

APPLICATION = 0x504F4F4C  # "POOL": marks the file as ours in SQLite's header
DELTA_BLOCK = 1000

MIGRATIONS: Sequence[Sequence[str]] = (
    (
        "CREATE TABLE meta(key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE cluster(cluster INTEGER PRIMARY KEY, owner TEXT NOT NULL, ad BLOB NOT NULL,"
        " count INTEGER NOT NULL, time REAL NOT NULL)",
        "CREATE TABLE delta(cluster INTEGER NOT NULL, block INTEGER NOT NULL, data BLOB NOT NULL,"
        " PRIMARY KEY(cluster, block))",
        # A process that ended keeps its row, with no state, until its cluster goes (EV 3.3).
        "CREATE TABLE proc(cluster INTEGER NOT NULL, proc INTEGER NOT NULL, status INTEGER NOT NULL,"
        " state BLOB, PRIMARY KEY(cluster, proc)) WITHOUT ROWID",
        "CREATE TABLE history(number INTEGER PRIMARY KEY, cluster INTEGER NOT NULL, proc INTEGER NOT NULL,"
        " owner TEXT NOT NULL, status INTEGER NOT NULL, time REAL NOT NULL, ad BLOB NOT NULL)",
        "CREATE INDEX history_job ON history(cluster, proc)",
        "CREATE INDEX history_owner ON history(owner)",
        "CREATE TABLE event(number INTEGER PRIMARY KEY, cluster INTEGER NOT NULL, proc INTEGER NOT NULL,"
        " kind TEXT NOT NULL, time REAL NOT NULL, data BLOB NOT NULL)",
        "CREATE INDEX event_cluster ON event(cluster)",
        "CREATE TABLE usage(owner TEXT PRIMARY KEY, jobs INTEGER NOT NULL, local_cpu REAL NOT NULL,"
        " remote_cpu REAL NOT NULL) WITHOUT ROWID",
        "INSERT INTO meta VALUES('next_cluster', x'31')",
    ),
    (
        "ALTER TABLE usage ADD COLUMN work REAL NOT NULL DEFAULT 0",
        "ALTER TABLE usage ADD COLUMN lost REAL NOT NULL DEFAULT 0",
        "ALTER TABLE usage ADD COLUMN saving REAL NOT NULL DEFAULT 0",
        "ALTER TABLE usage ADD COLUMN saved INTEGER NOT NULL DEFAULT 0",
    ),
    (
        # The ad that the jobs of a cluster in the history share, once it has left the queue. Their rows have the rest;
        # older rows have all of it.
        "CREATE TABLE past_cluster(cluster INTEGER PRIMARY KEY, ad BLOB NOT NULL)",
    ),
    (
        # A row stands for `count` processes that follow each other. Those of `proc` never overlap. A row of several has
        # the number of its last process, and its ad in the history lacks the process's number at the end.
        "ALTER TABLE proc ADD COLUMN count INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE history ADD COLUMN count INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE event ADD COLUMN count INTEGER NOT NULL DEFAULT 1",
        "CREATE INDEX proc_several ON proc(cluster, proc) WHERE count > 1",
        "CREATE INDEX history_several ON history(cluster, proc) WHERE count > 1",
        # Clusters that have left the queue, of whose processes or differences rows are left (`ForgetRemoved`).
        "CREATE TABLE removed_cluster(cluster INTEGER PRIMARY KEY)",
    ),
)


def migrate(
    connection: sqlite3.Connection, path: str, migrations: Sequence[Sequence[str]] = MIGRATIONS
) -> tuple[int, int]:
    """Bring the store to the newest version this program knows; returns (version found, version now).

    Raises:
        StoreTooNew: the store is from a newer program; it is left as it was.
        StoreDamaged: the file is somebody else's database.
    """
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    mark = int(connection.execute("PRAGMA application_id").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if mark != APPLICATION and (tables or found):
        raise StoreDamaged(
            f"cannot open store {path}: it is a database of another program",
            hint="give another path for the store",
        )
    if found > len(migrations):
        raise StoreTooNew(
            f"cannot open store {path}: a newer poolnode wrote it"
            f" (version {found}, this one knows up to {len(migrations)})",
            hint="install that newer poolnode here, or give another path for the store",
        )
    if found == len(migrations):
        return found, found
    connection.execute("BEGIN IMMEDIATE")
    try:
        for steps in migrations[found:]:
            for statement in steps:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return found, len(migrations)
