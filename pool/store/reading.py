"""Reading the store: the whole queue at the start, and history and events in bounded pieces.

Functions over a connection. Each piece is a statement of its own that starts after the last row of the one
before, so that a slow reader never holds a read transaction open and the log can always be folded in.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice

import msgpack

from pool.store.apply import KEPT_HERE
from pool.store.changes import (
    MOST_ALIKE,
    WHOLE_CLUSTER,
    ClusterRow,
    EventRow,
    HistoryRow,
    Loaded,
    ProcRow,
    UsageRow,
)

PIECE = 500
#: Processes of the queue that are read in one go.
PROCS = 2000
#: SQLite's number of the way to vacuum by which a file shrinks in slices.
INCREMENTAL = 2


def load(connection: sqlite3.Connection, next_cluster: int, next_event: int) -> Loaded:
    """The clusters of the queue, and the named values."""
    run = connection.execute
    clusters = {
        row[0]: ClusterRow(*row) for row in run("SELECT cluster, owner, ad, count, time FROM cluster ORDER BY cluster")
    }
    for cluster, data in run("SELECT cluster, data FROM cluster JOIN delta USING(cluster) ORDER BY cluster, block"):
        clusters[cluster].blocks.append(data)
    meta = {key: value for key, value in run("SELECT key, value FROM meta") if key not in KEPT_HERE}
    return Loaded(next_cluster, next_event, list(clusters.values()), meta)


def proc_piece(after: tuple[int, int], size: int, connection: sqlite3.Connection) -> list[ProcRow]:
    """The next `size` rows of processes behind that one, by cluster and process."""
    rows = connection.execute(
        "SELECT cluster, proc, status, state, count FROM proc WHERE (cluster, proc) > (?, ?)"
        " ORDER BY cluster, proc LIMIT ?",
        (*after, size),
    )
    return rows.fetchall()


def history_piece(
    jobs: Sequence[tuple[int, int | None]] | None,
    owner: str | None,
    before: int | None,
    size: int,
    connection: sqlite3.Connection,
) -> list[HistoryRow]:
    """The newest `size` ended processes with a number below `before`, newest first.

    Args:
        jobs: only these; (cluster, None) is a whole cluster. At most a few hundred.
        owner: only this owner's.
    """
    where, values = [], list[object]()
    if before is not None:
        where.append("number < ? AND number - count + 1 < ?")
        values += [before + MOST_ALIKE, before]
    if owner is not None:
        where.append("owner = ?")
        values.append(owner)
    if jobs is not None:
        one_of = []
        for cluster, proc in jobs:
            if proc is None:
                one_of.append("cluster = ?")
                values.append(cluster)
            else:
                one_of.append("(cluster = ? AND proc = ?)")
                one_of.append("(cluster = ? AND count > 1 AND proc BETWEEN ? AND ? AND proc + count > ?)")
                values += [cluster, proc, cluster, proc - MOST_ALIKE + 1, proc, proc]
        where.append("(" + (" OR ".join(one_of) or "0") + ")")
    text = "SELECT number, cluster, proc, owner, status, time, ad, count FROM history"
    if where:
        text += " WHERE " + " AND ".join(where)
    # One row at most holds some that are wanted and some that are not: it may give none.
    wanted = None if jobs is None else frozenset(jobs)
    shared: dict[int, bytes] = {}
    found: list[HistoryRow] = []
    with closing(connection.execute(text + " ORDER BY number DESC LIMIT ?", (*values, size + 1))) as rows:
        for row in rows:
            if row[1] not in shared:
                shared[row[1]] = _shared_by(row[1], connection)
            each = _each_ended(row, before, shared[row[1]])
            found += islice((one for one in each if wanted is None or _is_among(one, wanted)), size - len(found))
            if len(found) == size:
                break
    return found


def _each_ended(
    row: tuple[int, int, int, str, int, float, bytes, int], before: int | None, shared: bytes
) -> Iterator[HistoryRow]:
    """The processes of a row of the history with a number below `before`, the last one first."""
    number, cluster, proc, owner, status, time, ad, count = row
    skipped = 0 if before is None else max(0, number - before + 1)
    for place in range(count - 1 - skipped, -1, -1):
        own = ad if count == 1 else ad + msgpack.packb(proc + place)
        yield HistoryRow(number - count + 1 + place, cluster, proc + place, owner, status, time, own, shared)


def _is_among(row: HistoryRow, jobs: frozenset[tuple[int, int | None]]) -> bool:
    return (row.cluster, row.proc) in jobs or (row.cluster, None) in jobs


def _shared_by(cluster: int, connection: sqlite3.Connection) -> bytes:
    """The ad that a cluster's processes share, in the queue or not; empty where only older rows speak of it."""
    for table in ("cluster", "past_cluster"):
        row = connection.execute(f"SELECT ad FROM {table} WHERE cluster = ?", (cluster,)).fetchone()
        if row is not None:
            return bytes(row[0])
    return b""


def event_piece(
    cluster: int | None, proc: int | None, after: int, size: int, connection: sqlite3.Connection
) -> list[EventRow]:
    """The next `size` events with a number above `after`, oldest first.

    With a process given, the events of its whole cluster are among them.
    """
    where, values = ["number > ?"], [after]
    if cluster is not None:
        where.append("cluster = ?")
        values.append(cluster)
    if proc is not None:
        where.append(f"(proc = {WHOLE_CLUSTER} OR ? BETWEEN proc AND proc + count - 1)")
        values.append(proc)
    # One row at most holds events up to `after` and others, too: it may give none.
    rows = connection.execute(
        "SELECT number, cluster, proc, kind, time, data, count FROM event"
        f" WHERE {' AND '.join(where)} ORDER BY number LIMIT ?",
        (*values, size + 1),
    )
    with closing(rows):
        found = (one for row in rows for one in _each_event(row, after))
        wanted = (WHOLE_CLUSTER, proc)
        return list(islice((one for one in found if proc is None or one.proc in wanted), size))


def _each_event(row: tuple[int, int, int, str, float, bytes, int], after: int) -> Iterator[EventRow]:
    """The events of a row with a number above `after`."""
    number, cluster, proc, kind, time, data, count = row
    first = number - count + 1
    for place in range(max(0, after - first + 1), count):
        yield EventRow(first + place, cluster, proc + place, kind, time, data)


def free_pages(connection: sqlite3.Connection) -> tuple[int, int]:
    """Pages of the file, and how many of them nothing is kept in."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    return int(pages), int(free)


def shrinks(connection: sqlite3.Connection) -> bool:
    """Whether free pages can be given back in slices."""
    (way,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    return int(way) == INCREMENTAL


def usage(connection: sqlite3.Connection) -> list[UsageRow]:
    """The use by each owner's ended jobs, by name."""
    rows = connection.execute(f"SELECT {', '.join(UsageRow._fields)} FROM usage ORDER BY owner")
    return [UsageRow._make(row) for row in rows.fetchall()]
