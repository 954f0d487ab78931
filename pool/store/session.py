"""The writing connection: transactions over whole calls, undone as a whole, and proof that they are on disk.

A *call* is the changes of one `write()`: all of them happen or none. A *batch* is the calls that share one
transaction and one synchronisation of the disk (group commit). When a batch fails, its calls are tried one by
one, so that one caller's mistake, or one too large for the space left, is not the others' failure.

The session is used by one thread at a time; who that is, is the writer's affair.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence

from pool.store.apply import Applier, Result
from pool.store.changes import Change, RewriteFile
from pool.store.errors import StoreError, StoreFull, StoreGone, StoreRefused, from_sqlite
from pool.store.highwater import HighWater
from pool.store.reading import shrinks
from pool.store.schema import APPLICATION, MIGRATIONS, migrate

Call = Sequence[Change]
Outcome = list[Result] | StoreError

_REWRITTEN = 64 << 20  # bytes kept in an older store that is written anew when it is opened: a second or so
_ROOM = 2.2  # a store that is written anew needs so many times the room of what is kept in it, for a moment
_GIVE_UP_AFTER = 3  # failures of the disk in a row, after which the rest of a batch is not tried


class StoreSession:
    """An open store, writable. `path` may be ':memory:'.

    Args:
        factory: makes the connection.

    Attributes:
        shrinks: whether pages that become free can be given back in slices.

    Raises:
        StoreTooNew, StoreDamaged, StoreLost, StoreUnwritable: it cannot be opened.
    """

    def __init__(self, path: str, factory: Callable[..., sqlite3.Connection] = sqlite3.Connection) -> None:
        self.path = path
        self.in_memory = path == ":memory:"
        self._high_water = None if self.in_memory else HighWater(path)
        try:
            if not self.in_memory:
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self.connection = factory(path, isolation_level=None, check_same_thread=False)
        except OSError as error:
            code = sqlite3.OperationalError(error.strerror)
            code.sqlite_errorcode = 14 if error.errno != 28 else 13
            raise from_sqlite(code, "open store", path) from error
        except sqlite3.Error as error:
            raise from_sqlite(error, "open store", path) from error
        try:
            self._let_it_shrink()
            self.shrinks = shrinks(self.connection)
            for pragma in (
                "journal_mode = WAL",
                "synchronous = FULL",
                "locking_mode = NORMAL",
                "busy_timeout = 2000",
                "journal_size_limit = 16777216",
                "temp_store = MEMORY",
            ):
                self.connection.execute(f"PRAGMA {pragma}")
            self.found, self.version = migrate(self.connection, path)
            # Proves that it can be written, and makes the log whose identity is watched below.
            self.connection.execute("BEGIN IMMEDIATE")
            self.connection.execute("COMMIT")
            self.applier = Applier(self.connection)
            self._go_on_above_what_was_given()
        except sqlite3.Error as error:
            self.connection.close()
            raise from_sqlite(error, "open store", path) from error
        except StoreError:
            self.connection.close()
            raise
        self._files = [] if self.in_memory else [path, path + "-wal"]
        self._identity = self._identify()

    def _let_it_shrink(self) -> None:
        """Have pages that become free given back in slices (`Shrink`); an older store is written anew once for that.

        One that keeps too much to be written anew while a schedd starts is left for `RewriteFile`.
        """
        run = self.connection.execute
        if shrinks(self.connection):
            return
        (pages,), kept = run("PRAGMA page_count").fetchone(), self._used_bytes()
        (version,) = run("PRAGMA user_version").fetchone()
        if kept > _REWRITTEN or not self._has_room(kept) or not 0 <= version <= len(MIGRATIONS):
            return
        run("PRAGMA auto_vacuum = INCREMENTAL")
        if pages and run("PRAGMA application_id").fetchone() == (APPLICATION,):
            run("VACUUM")

    def _used_bytes(self) -> int:
        """Bytes of the file in which something is kept."""
        run = self.connection.execute
        (pages,), (free,) = run("PRAGMA page_count").fetchone(), run("PRAGMA freelist_count").fetchone()
        (size,) = run("PRAGMA page_size").fetchone()
        return int((pages - free) * size)

    def _has_room(self, kept: int) -> bool:
        if self.in_memory:
            return True
        status = os.statvfs(os.path.dirname(os.path.abspath(self.path)))
        return kept * _ROOM <= status.f_bavail * status.f_frsize

    def _rewrite(self) -> list[Result]:
        """Write the file anew, in a transaction of SQLite's own: after a crash it is as before or done."""
        kept = self._used_bytes()
        if not self._has_room(kept):
            raise StoreFull(
                f"cannot write store {self.path} anew: there is no room for it",
                hint=f"make {kept * _ROOM / 2**20:,.0f} MB free",
            )
        run = self.connection.execute
        try:
            self._still_there()
            run("PRAGMA auto_vacuum = INCREMENTAL")
            run("PRAGMA temp_store = FILE")
            try:
                run("VACUUM")
                run("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                run("PRAGMA temp_store = MEMORY")
            self.shrinks = shrinks(self.connection)
        except sqlite3.Error as error:
            raise from_sqlite(error, "write anew store", self.path) from error
        self._still_there()
        return [None]

    def _go_on_above_what_was_given(self) -> None:
        if self._high_water is not None:
            numbers = self._high_water.compare(*self.applier.mark())
            self.applier.skip_to(numbers.cluster, numbers.event)
            self._high_water.begin(numbers)

    def stage(self, batch: Sequence[Call]) -> list[list[Result]]:
        """Open a transaction and write the batch into it; on an error nothing of it is left."""
        mark = self.applier.mark()
        apply = self.applier.apply_all
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            return [apply(call) for call in batch]
        except sqlite3.Error as error:
            self._undo(mark)
            raise from_sqlite(error, "write store", self.path) from error
        except BaseException:
            self._undo(mark)
            raise

    def commit(self, mark: tuple[int, int]) -> None:
        """End the transaction and see it on disk, under the name the store was opened by.

        A process whose directory was removed can go on writing into files that nobody will find again; that
        is not durable, so it is an error here.
        """
        with self._undone_on_error(mark):
            self._still_there()
            if self._high_water is not None:
                self._high_water.reserve(self.applier.next_cluster)
            self.connection.execute("COMMIT")
        self.confirm_commit()

    def prepare_commit(self, mark: tuple[int, int]) -> bool:
        """The first part of `commit`, without a wait for the disk; false where that has to be waited for."""
        with self._undone_on_error(mark):
            self._still_there()
        return self._high_water is None or self._high_water.is_reserved(self.applier.next_cluster)

    def commit_prepared(self, mark: tuple[int, int]) -> None:
        """The second part, which waits for the disk and for nothing else."""
        with self._undone_on_error(mark):
            self.connection.execute("COMMIT")

    def confirm_commit(self) -> None:
        """The last part: raises where what was committed will not be found again.

        Its numbers are not given again then: the directory may be put back.
        """
        self._still_there()
        if self._high_water is not None:
            self._high_water.update(*self.applier.mark())

    @contextlib.contextmanager
    def _undone_on_error(self, mark: tuple[int, int]) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            self._undo(mark)
            raise from_sqlite(error, "write store", self.path) from error
        except BaseException:
            self._undo(mark)
            raise

    def write_batch(self, batch: Sequence[Call]) -> list[Outcome]:
        """Write the calls, together if that goes, else each for itself; never raises a StoreError."""
        if len(batch) > 1 and not any(map(_is_rewrite, batch)):
            try:
                mark = self.applier.mark()
                results = self.stage(batch)
                self.commit(mark)
                return list(results)
            except StoreError:
                pass
        return self.write_each(batch)

    def write_each(self, batch: Sequence[Call]) -> list[Outcome]:
        """Write each call in a transaction of its own."""
        outcomes: list[Outcome] = []
        failures = 0
        for call in batch:
            if failures >= _GIVE_UP_AFTER:
                outcomes.append(outcomes[-1])
                continue
            try:
                if _is_rewrite(call):
                    outcomes.append(self._rewrite())
                    continue
                mark = self.applier.mark()
                results = self.stage([call])
                self.commit(mark)
                outcomes.append(results[0])
                failures = 0
            except StoreError as error:
                outcomes.append(error)
                failures += not isinstance(error, StoreRefused)
        return outcomes

    def close(self) -> None:
        """Close the connection; the log is folded into the store when nobody else reads it."""
        try:
            self.connection.close()
        except sqlite3.Error:
            pass  # what was acknowledged is in the log already
        if self._high_water is not None:
            self._high_water.close()

    def _undo(self, mark: tuple[int, int]) -> None:
        self.applier.rewind(mark)
        # SQLite ends the transaction by itself on some errors (full disk, failing disk) and not on others.
        if self.connection.in_transaction:
            try:
                self.connection.execute("ROLLBACK")
            except sqlite3.Error:
                pass

    def _identify(self) -> list[tuple[int, int]]:
        found = []
        for name in self._files:
            status = os.stat(name)
            found.append((status.st_dev, status.st_ino))
        return found

    def _still_there(self) -> None:
        try:
            same = self._identify() == self._identity
        except OSError:
            same = False
        if not same:
            raise StoreGone(
                f"cannot write store {self.path}: it is no longer there",
                hint="put the directory back as it was, or restart the schedd",
                retry=True,
            )


def _is_rewrite(call: Call) -> bool:
    return len(call) == 1 and isinstance(call[0], RewriteFile)
