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
    MOST_ALIKE,
    AddEvent,
    AddEvents,
    Change,
    EndProc,
    EndProcs,
    ForgetRemoved,
    NewCluster,
    RemoveCluster,
    SetMeta,
    SetProc,
    SetProcs,
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

#: Rows of processes, and of their differences, that go with a cluster; the others go later.
WITH_CLUSTER, BLOCKS_WITH_CLUSTER = 1000, 20

Result = int | None


class Applier:
    """Writes changes through one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._run = connection.execute
        self.next_cluster = int(self._run("SELECT value FROM meta WHERE key = 'next_cluster'").fetchone()[0])
        newest = int(self._run("SELECT ifnull(max(number), 0) + 1 FROM event").fetchone()[0])
        skipped = self._run("SELECT value FROM meta WHERE key = 'next_event'").fetchone()
        self.next_event = max(newest, int(skipped[0]) if skipped else 1)
        #: The clusters in which a row may stand for several processes.
        self._several = self._with_several()
        self._verbs: dict[type[Any], Callable[[Any], Result]] = {
            NewCluster: self._new_cluster,
            SetProc: self._set_proc,
            SetProcs: self._set_alike,
            EndProc: self._end_proc,
            EndProcs: self._end_alike,
            AddEvent: self._add_event,
            AddEvents: self._add_alike_events,
            RemoveCluster: self._remove_cluster,
            ForgetRemoved: self._forget_removed,
            SetMeta: self._set_meta,
            Trim: self._trim,
            Shrink: self._shrink,
        }
        self._at_once: dict[type[Any], Callable[[list[Any]], Sequence[Result]]] = {
            SetProc: self._set_procs,
            EndProc: self._end_procs,
            AddEvent: self._add_events,
            RemoveCluster: self._remove_clusters,
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
            self._insert_procs(c.cluster, 0, c.count, *c.state)
        self.next_cluster = max(self.next_cluster, c.cluster + 1)
        self._run("UPDATE meta SET value = ? WHERE key = 'next_cluster'", (b"%d" % self.next_cluster,))

    def _was_given(self, cluster: int) -> bool:
        # Ids are handed out before the cluster arrives, so that one may come after a later one.
        return any(
            self._run(f"SELECT 1 FROM {table} WHERE cluster = ? LIMIT 1", (cluster,)).fetchone()
            for table in ("cluster", "history", "event")
        )

    def _with_several(self) -> set[int]:
        return {cluster for (cluster,) in self._run("SELECT DISTINCT cluster FROM proc WHERE count > 1")}

    def _insert_procs(self, cluster: int, first: int, count: int, status: int, state: bytes | None) -> None:
        """A row for processes that have none."""
        if count > 1:
            self._several.add(cluster)
        self._run(
            "INSERT INTO proc(cluster, proc, status, state, count) VALUES(?, ?, ?, ?, ?)",
            (cluster, first, status, state, count),
        )

    def _split(self, cluster: int, first: int, count: int = 1) -> None:
        """See to it that no row stands for processes in a range and for others, too."""
        if cluster not in self._several:
            return
        for proc in (first + count, first):
            row = self._run(
                "SELECT proc, count FROM proc WHERE cluster = ? AND count > 1 AND proc < ? ORDER BY proc DESC LIMIT 1",
                (cluster, proc),
            ).fetchone()
            if row is None:
                return
            start, size = row
            if start + size > proc:
                self._run(
                    "INSERT INTO proc SELECT cluster, ?3, status, state, ?4 FROM proc WHERE cluster = ?1 AND proc = ?2",
                    (cluster, start, proc, start + size - proc),
                )
                self._run("UPDATE proc SET count = ? WHERE cluster = ? AND proc = ?", (proc - start, cluster, start))

    def _take_out(self, verb: str, cluster: int, first: int, count: int) -> None:
        """Delete the rows of processes of which all are queued."""
        row = self._run("SELECT count FROM cluster WHERE cluster = ?", (cluster,)).fetchone()
        if row is None or not 0 <= first < first + count <= row[0] or count > MOST_ALIKE:
            raise StoreRefused(f"cannot {verb} {count} jobs from {cluster}.{first} on: they are not in the queue")
        self._split(cluster, first, count)
        of_them = "FROM proc WHERE cluster = ?1 AND proc BETWEEN ?2 AND ?2 + ?3 - 1"
        ended = self._run(f"SELECT proc {of_them} AND state IS NULL LIMIT 1", (cluster, first, count)).fetchone()
        if ended is not None:
            raise StoreRefused(f"cannot {verb} job {cluster}.{ended[0]}: it has ended already")
        self._run(f"DELETE {of_them}", (cluster, first, count))

    def _set_alike(self, c: SetProcs) -> None:
        self._take_out("change", c.cluster, c.first, c.procs)
        if c.status != IDLE or c.state:
            self._insert_procs(c.cluster, c.first, c.procs, c.status, c.state)

    def _set_proc(self, c: SetProc) -> None:
        self._split(c.cluster, c.proc)
        if c.status == IDLE and not c.state:
            done = self._run(
                "DELETE FROM proc WHERE cluster = ? AND proc = ? AND state IS NOT NULL", (c.cluster, c.proc)
            ).rowcount
            if not done:
                self._must_be_queued("change", c.cluster, c.proc)
            return
        done = self._run(
            "INSERT INTO proc(cluster, proc, status, state) SELECT ?1, ?2, ?3, ?4 FROM cluster"
            " WHERE cluster = ?1 AND ?2 BETWEEN 0 AND count - 1"
            " ON CONFLICT DO UPDATE SET status = ?3, state = ?4 WHERE state IS NOT NULL",
            (c.cluster, c.proc, c.status, c.state),
        ).rowcount
        if not done:
            self._must_be_queued("change", c.cluster, c.proc)

    def _end_proc(self, c: EndProc) -> None:
        self._split(c.cluster, c.proc)
        done = self._run(
            "INSERT INTO proc(cluster, proc, status, state) SELECT ?1, ?2, ?3, NULL FROM cluster"
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

    def _end_alike(self, c: EndProcs) -> None:
        self._take_out("end", c.cluster, c.first, c.procs)
        self._insert_procs(c.cluster, c.first, c.procs, c.status, None)
        if isinstance(c.ads, bytes):
            ad = c.ads if c.procs > 1 else c.ads + msgpack.packb(c.first)
            self._run(
                "INSERT INTO history(number, cluster, proc, owner, status, time, ad, count)"
                " SELECT (SELECT ifnull(max(number), 0) FROM history) + ?6, ?1, ?2, owner, ?3, ?4, ?5, ?6"
                " FROM cluster WHERE cluster = ?1",
                (c.cluster, c.first, c.status, c.time, ad, c.procs),
            )
        else:
            self._write_history(
                [(c.cluster, proc, c.status, c.time, ad) for proc, ad in zip(_procs(c), c.ads, strict=True)]
            )
        self._add_usage(c.cluster, c.procs * (c.status == COMPLETED), [c.procs * used for used in _used(c)])

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
        for c in changes:
            self._split(c.cluster, c.proc)
        done = self._write_rows(
            "INSERT INTO proc(cluster, proc, status, state) WITH new(cluster, proc, status, state) AS (VALUES {rows})"
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
        for c in changes:
            self._split(c.cluster, c.proc)
        done = self._write_rows(
            "INSERT INTO proc(cluster, proc, status, state) WITH new(cluster, proc, status) AS (VALUES {rows})"
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

    def _write_history(self, rows: Sequence[tuple[int, int, int, float, bytes]]) -> None:
        """Rows of single processes: cluster, process, status, time, ad."""
        self._write_rows(
            "INSERT INTO history(cluster, proc, owner, status, time, ad)"
            " WITH new(cluster, proc, status, time, ad) AS (VALUES {rows})"
            " SELECT new.cluster, proc, owner, status, new.time, new.ad FROM new JOIN cluster USING(cluster)",
            rows,
        )

    def _add_history(self, changes: list[EndProc]) -> None:
        self._write_history([(c.cluster, c.proc, c.status, c.time, c.ad) for c in changes])
        for cluster, some in groupby(changes, lambda c: c.cluster):
            ended = list(some)
            self._add_usage(
                cluster,
                sum(c.status == COMPLETED for c in ended),
                [sum(used) for used in zip(*map(_used, ended), strict=True)],
            )

    def _add_events(self, changes: list[AddEvent]) -> Sequence[Result]:
        first, self.next_event = self.next_event, self.next_event + len(changes)
        self._write_rows(
            "INSERT INTO event(number, cluster, proc, kind, time, data) VALUES {rows}",
            [(number, *c) for number, c in enumerate(changes, first)],
        )
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
        self._run("INSERT INTO event(number, cluster, proc, kind, time, data) VALUES(?, ?, ?, ?, ?, ?)", (number, *c))
        self.next_event = number + 1
        return number

    def _add_alike_events(self, c: AddEvents) -> int:
        if c.first < 0 or not 1 <= c.procs <= MOST_ALIKE:
            raise StoreRefused(f"cannot add events of {c.procs} jobs from {c.cluster}.{c.first} on")
        first, self.next_event = self.next_event, self.next_event + c.procs
        self._run(
            "INSERT INTO event(number, cluster, proc, kind, time, data, count) VALUES(?, ?, ?, ?, ?, ?, ?)",
            (self.next_event - 1, c.cluster, c.first, c.kind, c.time, c.data, c.procs),
        )
        return first

    def _remove_cluster(self, c: RemoveCluster) -> None:
        self._run(
            "INSERT INTO past_cluster SELECT cluster, ad FROM cluster WHERE cluster = ?1"
            " AND EXISTS(SELECT 1 FROM history WHERE cluster = ?1)",
            (c.cluster,),
        )
        if not self._run("DELETE FROM cluster WHERE cluster = ?", (c.cluster,)).rowcount:
            raise StoreRefused(f"cannot remove cluster {c.cluster}: it is not in the queue")
        if self._forget(c.cluster, WITH_CLUSTER, BLOCKS_WITH_CLUSTER)[1]:
            self._run("INSERT INTO removed_cluster VALUES(?)", (c.cluster,))

    def _remove_clusters(self, changes: list[RemoveCluster]) -> list[Result]:
        for start in range(0, len(changes), ROWS):
            some = [c.cluster for c in changes[start : start + ROWS]]
            these = f"WHERE cluster IN ({', '.join('?' * len(some))})"
            bounds = (("cluster", len(some)), ("proc", WITH_CLUSTER), ("delta", BLOCKS_WITH_CLUSTER))
            queued, procs, blocks = (
                self._run(f"SELECT count(*) FROM (SELECT 1 FROM {table} {these} LIMIT {most})", some).fetchone()[0]
                for table, most in bounds
            )
            if queued < len(some) or procs == WITH_CLUSTER or blocks == BLOCKS_WITH_CLUSTER:
                for c in changes[start : start + ROWS]:
                    self._remove_cluster(c)
                continue
            self._run(
                f"INSERT INTO past_cluster SELECT cluster, ad FROM cluster {these}"
                " AND EXISTS(SELECT 1 FROM history WHERE history.cluster = cluster.cluster)",
                some,
            )
            for table, _ in bounds:
                self._run(f"DELETE FROM {table} {these}", some)
        return [None] * len(changes)

    def _forget(self, cluster: int, procs: int, blocks: int) -> tuple[int, bool]:
        """Delete rows of a removed cluster's processes, at most so many, and blocks of their differences.

        Returns:
            How many are deleted, and whether any may be left.
        """
        procs_gone = self._run(
            "DELETE FROM proc WHERE cluster = ?1 AND proc IN (SELECT proc FROM proc WHERE cluster = ?1 LIMIT ?2)",
            (cluster, procs),
        ).rowcount
        blocks_gone = self._run(
            "DELETE FROM delta WHERE cluster = ?1 AND block IN (SELECT block FROM delta WHERE cluster = ?1 LIMIT ?2)",
            (cluster, blocks),
        ).rowcount
        return procs_gone + blocks_gone, procs_gone == procs or blocks_gone == blocks

    def _forget_removed(self, c: ForgetRemoved) -> int:
        row = self._run("SELECT cluster FROM removed_cluster LIMIT 1").fetchone()
        if row is None:
            self._several = self._with_several()  # of those that are gone none is asked for any more
            return 0
        gone, left = self._forget(row[0], c.limit, BLOCKS_WITH_CLUSTER)
        if not left:
            self._run("DELETE FROM removed_cluster WHERE cluster = ?", row)
        return max(gone, 1)

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


def _procs(c: EndProcs) -> range:
    return range(c.first, c.first + c.procs)


def _used(c: EndProc | EndProcs) -> tuple[float, ...]:
    """The resources that a process has used, in the order of the columns of `usage`."""
    return c.local_cpu, c.remote_cpu, c.work, c.lost, c.saving, c.saved


def _kind(change: Change) -> type[Any] | None:
    """Changes of one kind can be written together; what makes a process untouched again has no kind."""
    if isinstance(change, SetProc) and change.status == IDLE and not change.state:
        return None
    return type(change)
