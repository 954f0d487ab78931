"""One change, one or a few statements. Runs inside a transaction that somebody else opens and ends.

Many changes of one kind, one after the other in a call, are written by a few statements of many rows each. A statement
asks for the interpreter's lock once, and a thread that writes beside a busy loop waits for it each time.

An `Applier` also holds the two counters that hand out numbers: they are read once at the start, go on in
memory, and go back with `mark` and `rewind` when a transaction is undone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import msgpack

from pool.store.changes import (
    AddEvent,
    Change,
    EndProc,
    NewCluster,
    RemoveCluster,
    SetMeta,
    SetProc,
    Shrink,
    Trim,
)
from pool.store.errors import StoreRefused
from pool.store.schema import DELTA_BLOCK

IDLE, COMPLETED = 1, 4
#: Facts that the store keeps of itself, beside its users'.
KEPT_HERE = ("next_cluster", "next_event")

#: Rows of one statement, and changes of one kind from which on they are written so.
ROWS, MANY = 100, 20

Result = int | None


class Applier:
    """Writes changes through one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._run = connection.execute
        self.next_cluster = int(self._run("SELECT value FROM meta WHERE key = 'next_cluster'").fetchone()[0])
        newest = int(self._run("SELECT ifnull(max(number), 0) + 1 FROM event").fetchone()[0])
        skipped = self._run("SELECT value FROM meta WHERE key = 'next_event'").fetchone()
        self.next_event = max(newest, int(skipped[0]) if skipped else 1)
        self._verbs: dict[type[Any], Callable[[Any], Result]] = {
            NewCluster: self._new_cluster,
            SetProc: self._set_proc,
            EndProc: self._end_proc,
            AddEvent: self._add_event,
            RemoveCluster: self._remove_cluster,
            SetMeta: self._set_meta,
            Trim: self._trim,
            Shrink: self._shrink,
        }
        self._at_once: dict[type[Any], Callable[[list[Any]], Sequence[Result]]] = {
            SetProc: self._set_procs,
            EndProc: self._end_procs,
            AddEvent: self._add_events,
        }

    def apply(self, change: Change) -> Result:
        """Carry out one change. Raises StoreRefused or sqlite3.Error, after which the caller rolls back."""
        return self._verbs[type(change)](change)

    def apply_all(self, changes: Sequence[Change]) -> list[Result]:
        """Carry out changes in their order; raises as `apply`."""
        if len(changes) < MANY:
            return [self.apply(change) for change in changes]
        results: list[Result] = []
        for kind, some in groupby(changes, _kind):
            run: list[Any] = list(some)
            at_once = self._at_once.get(kind) if kind is not None and len(run) >= MANY else None
            if at_once is None:
                results += [self.apply(change) for change in run]
            else:
                results += at_once(run)
        return results

    def skip_to(self, cluster: int, event: int) -> None:
        """Give no number below these any more, after a restart neither."""
        if (cluster, event) == (self.next_cluster, self.next_event):
            return
        self._run("BEGIN IMMEDIATE")
        for key, value in (("next_cluster", cluster), ("next_event", event)):
            self._run("INSERT INTO meta VALUES(?1, ?2) ON CONFLICT DO UPDATE SET value = ?2", (key, b"%d" % value))
        self._run("COMMIT")
        self.next_cluster, self.next_event = cluster, event

    def mark(self) -> tuple[int, int]:
        """The counters, to be given to `rewind` if what follows is undone."""
        return self.next_cluster, self.next_event

    def rewind(self, mark: tuple[int, int]) -> None:
        """Put the counters back."""
        self.next_cluster, self.next_event = mark

    def _new_cluster(self, c: NewCluster) -> None:
        if c.cluster < self.next_cluster and self._was_given(c.cluster):
            raise StoreRefused(
                f"cannot store cluster {c.cluster}: that id was given before",
                hint=f"the next free one is {self.next_cluster}",
            )
        if c.count < 1 or (c.deltas and len(c.deltas) != c.count):
            raise StoreRefused(
                f"cannot store cluster {c.cluster}: {c.count} processes, {len(c.deltas or ())} differences"
            )
        self._run("INSERT INTO cluster VALUES(?, ?, ?, ?, ?)", (c.cluster, c.owner, c.ad, c.count, c.time))
        if c.deltas and any(d is not None for d in c.deltas):
            for start in range(0, c.count, DELTA_BLOCK):
                block = msgpack.packb(list(c.deltas[start : start + DELTA_BLOCK]))
                self._run("INSERT INTO delta VALUES(?, ?, ?)", (c.cluster, start // DELTA_BLOCK, block))
        if c.state is not None:
            self._run(
                "INSERT INTO proc WITH RECURSIVE every(proc) AS"
                " (SELECT 0 UNION ALL SELECT proc + 1 FROM every WHERE proc < ?2 - 1)"
                " SELECT ?1, proc, ?3, ?4 FROM every",
                (c.cluster, c.count, *c.state),
            )
        self.next_cluster = max(self.next_cluster, c.cluster + 1)
        self._run("UPDATE meta SET value = ? WHERE key = 'next_cluster'", (b"%d" % self.next_cluster,))

    def _was_given(self, cluster: int) -> bool:
        # Ids are handed out before the cluster arrives, so that one may come after a later one.
        return any(
            self._run(f"SELECT 1 FROM {table} WHERE cluster = ? LIMIT 1", (cluster,)).fetchone()
            for table in ("cluster", "history", "event")
        )

    def _set_proc(self, c: SetProc) -> None:
        if c.status == IDLE and not c.state:
            done = self._run(
                "DELETE FROM proc WHERE cluster = ? AND proc = ? AND state IS NOT NULL", (c.cluster, c.proc)
            ).rowcount
            if not done:
                self._must_be_queued("change", c.cluster, c.proc)
            return
        done = self._run(
            "INSERT INTO proc SELECT ?1, ?2, ?3, ?4 FROM cluster"
            " WHERE cluster = ?1 AND ?2 BETWEEN 0 AND count - 1"
            " ON CONFLICT DO UPDATE SET status = ?3, state = ?4 WHERE state IS NOT NULL",
            (c.cluster, c.proc, c.status, c.state),
        ).rowcount
        if not done:
            self._must_be_queued("change", c.cluster, c.proc)

    def _end_proc(self, c: EndProc) -> None:
        done = self._run(
            "INSERT INTO proc SELECT ?1, ?2, ?3, NULL FROM cluster"
            " WHERE cluster = ?1 AND ?2 BETWEEN 0 AND count - 1"
            " ON CONFLICT DO UPDATE SET status = ?3, state = NULL WHERE state IS NOT NULL",
            (c.cluster, c.proc, c.status),
        ).rowcount
        if not done:
            self._must_be_queued("end", c.cluster, c.proc)
        self._run(
            "INSERT INTO history(cluster, proc, owner, status, time, ad)"
            " SELECT ?1, ?2, owner, ?3, ?4, ?5 FROM cluster WHERE cluster = ?1",
            (c.cluster, c.proc, c.status, c.time, c.ad),
        )
        self._add_usage(c.cluster, int(c.status == COMPLETED), _used(c))

    def _add_usage(self, cluster: int, jobs: int, used: Sequence[float]) -> None:
        """Add to what the owner of a cluster has used: see `_used`."""
        self._run(
            "INSERT INTO usage SELECT owner, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM cluster WHERE cluster = ?1"
            " ON CONFLICT DO UPDATE"
            " SET jobs = jobs + ?2, local_cpu = local_cpu + ?3, remote_cpu = remote_cpu + ?4,"
            " work = work + ?5, lost = lost + ?6, saving = saving + ?7, saved = saved + ?8",
            (cluster, jobs, *used),
        )

    def _write_rows(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        """Run a statement over rows, which stand in it for `{rows}`; how many it wrote."""
        done = 0
        for start in range(0, len(rows), ROWS):
            some = rows[start : start + ROWS]
            row = f"({', '.join('?' * len(some[0]))})"
            values = [value for row in some for value in row]
            done += self._run(statement.format(rows=", ".join([row] * len(some))), values).rowcount
        return done

    def _set_procs(self, changes: list[SetProc]) -> list[Result]:
        done = self._write_rows(
            "INSERT INTO proc WITH new(cluster, proc, status, state) AS (VALUES {rows})"
            " SELECT new.cluster, proc, status, state FROM new JOIN cluster USING(cluster)"
            " WHERE proc BETWEEN 0 AND count - 1"
            " ON CONFLICT DO UPDATE SET status = excluded.status, state = excluded.state WHERE proc.state IS NOT NULL",
            changes,
        )
        if done < len(changes):
            for c in changes:
                self._must_be_queued("change", c.cluster, c.proc)
        return [None] * len(changes)

    def _end_procs(self, changes: list[EndProc]) -> list[Result]:
        self._run("SAVEPOINT ends")
        done = self._write_rows(
            "INSERT INTO proc WITH new(cluster, proc, status) AS (VALUES {rows})"
            " SELECT new.cluster, proc, status, NULL FROM new JOIN cluster USING(cluster)"
            " WHERE proc BETWEEN 0 AND count - 1"
            " ON CONFLICT DO UPDATE SET status = excluded.status, state = NULL WHERE proc.state IS NOT NULL",
            [(c.cluster, c.proc, c.status) for c in changes],
        )
        if done < len(changes):
            self._run("ROLLBACK TO ends")
            for c in changes:
                self._end_proc(c)  # refuses the one that it was
        else:
            self._add_history(changes)
        self._run("RELEASE ends")
        return [None] * len(changes)

    def _add_history(self, changes: list[EndProc]) -> None:
        self._write_rows(
            "INSERT INTO history(cluster, proc, owner, status, time, ad)"
            " WITH new(cluster, proc, status, time, ad) AS (VALUES {rows})"
            " SELECT new.cluster, proc, owner, status, new.time, new.ad FROM new JOIN cluster USING(cluster)",
            [(c.cluster, c.proc, c.status, c.time, c.ad) for c in changes],
        )
        for cluster, some in groupby(changes, lambda c: c.cluster):
            ended = list(some)
            self._add_usage(
                cluster,
                sum(c.status == COMPLETED for c in ended),
                [sum(used) for used in zip(*map(_used, ended), strict=True)],
            )

    def _add_events(self, changes: list[AddEvent]) -> Sequence[Result]:
        first, self.next_event = self.next_event, self.next_event + len(changes)
        self._write_rows("INSERT INTO event VALUES {rows}", [(number, *c) for number, c in enumerate(changes, first)])
        return range(first, self.next_event)

    def _must_be_queued(self, verb: str, cluster: int, proc: int) -> None:
        row = self._run("SELECT count FROM cluster WHERE cluster = ?", (cluster,)).fetchone()
        if row is None or not 0 <= proc < row[0]:
            raise StoreRefused(f"cannot {verb} job {cluster}.{proc}: it is not in the queue")
        row = self._run("SELECT state FROM proc WHERE cluster = ? AND proc = ?", (cluster, proc)).fetchone()
        if row is not None and row[0] is None:
            raise StoreRefused(f"cannot {verb} job {cluster}.{proc}: it has ended already")

    def _add_event(self, c: AddEvent) -> int:
        number = self.next_event
        self._run("INSERT INTO event VALUES(?, ?, ?, ?, ?, ?)", (number, c.cluster, c.proc, c.kind, c.time, c.data))
        self.next_event = number + 1
        return number

    def _remove_cluster(self, c: RemoveCluster) -> None:
        self._run(
            "INSERT INTO past_cluster SELECT cluster, ad FROM cluster WHERE cluster = ?1"
            " AND EXISTS(SELECT 1 FROM history WHERE cluster = ?1)",
            (c.cluster,),
        )
        if not self._run("DELETE FROM cluster WHERE cluster = ?", (c.cluster,)).rowcount:
            raise StoreRefused(f"cannot remove cluster {c.cluster}: it is not in the queue")
        self._run("DELETE FROM delta WHERE cluster = ?", (c.cluster,))
        self._run("DELETE FROM proc WHERE cluster = ?", (c.cluster,))

    def _set_meta(self, c: SetMeta) -> None:
        if c.key in KEPT_HERE:
            raise StoreRefused(f"cannot set '{c.key}': the store keeps it itself")
        if c.value is None:
            self._run("DELETE FROM meta WHERE key = ?", (c.key,))
        else:
            self._run("INSERT INTO meta VALUES(?1, ?2) ON CONFLICT DO UPDATE SET value = ?2", (c.key, c.value))

    def _shrink(self, c: Shrink) -> int:
        free = int(self._run("PRAGMA freelist_count").fetchone()[0])
        # The statement gives no rows, so that Python takes one step of it, which is one page, whatever its argument.
        for _ in range(min(c.pages, free)):
            self._run("PRAGMA incremental_vacuum(1)")
        return int(self._run("PRAGMA freelist_count").fetchone()[0])

    def _trim(self, c: Trim) -> int:
        gone = 0
        for table in ("history", "event"):
            # The newest event stays, so that numbers go on from it after a restart.
            old = (
                f"FROM {table} WHERE number IN (SELECT number FROM {table} WHERE time < ?1"
                f" AND cluster NOT IN (SELECT cluster FROM cluster)"
                f" AND number < (SELECT max(number) FROM {table}) ORDER BY number LIMIT ?2)"
            )
            clusters = []
            if table == "history":
                clusters = self._run(f"SELECT DISTINCT cluster {old}", (c.before, c.limit)).fetchall()
            gone += self._run(f"DELETE {old}", (c.before, c.limit)).rowcount
            for (cluster,) in clusters:
                self._run(
                    "DELETE FROM past_cluster WHERE cluster = ?1"
                    " AND NOT EXISTS(SELECT 1 FROM history WHERE cluster = ?1)",
                    (cluster,),
                )
        return gone


def _used(c: EndProc) -> tuple[float, ...]:
    """The resources that a process has used, in the order of the columns of `usage`."""
    return c.local_cpu, c.remote_cpu, c.work, c.lost, c.saving, c.saved


def _kind(change: Change) -> type[Any] | None:
    """Changes of one kind can be written together; what makes a process untouched again has no kind."""
    if isinstance(change, SetProc) and change.status == IDLE and not change.state:
        return None
    return type(change)
