"""The numbers that a store has given, in a small file beside it: proof that there was a queue, whatever becomes of it.

SQLite opens an empty file, or a store whose log was taken away, without a word: as an empty queue, or as the queue of
some time ago. Its numbers would be given again then (A3: an id is never reused). So `queue.db.ids` keeps

    given     the next cluster and the next event, written after each commit and not synchronised: they survive the
              end of the process, and a power failure most of the time
    reserved  a cluster number that has not been given yet, synchronised before it is reached

A store that is behind `given` has lost something. If it has a log, the disk lost the end of it in a crash: the store
goes on, above all numbers that may have been given. If it has none, the log or the store was removed: that is refused,
until somebody puts them back or gives the jobs up by renaming the file to `queue.db.given-up`.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from pool.store.errors import StoreDamaged, StoreFull, StoreLost, StoreUnwritable

#: Clusters that are reserved at a time: one synchronisation for so many.
AHEAD = 1000
_FORM = "cluster {:020d}\nevent {:020d}\nreserved {:020d}\n"
_READ = re.compile(r"cluster ([0-9]{20})\nevent ([0-9]{20})\nreserved ([0-9]{20})\n")


@dataclass(frozen=True, slots=True)
class Numbers:
    """The next cluster and the next event, and the first cluster that was certainly never given."""

    cluster: int = 1
    event: int = 1
    reserved: int = 1


class HighWater:
    """The file of one store. Made before the store is opened, while its lock is held.

    Attributes:
        path: of the file.

    Raises:
        StoreLost: the store is empty or not there, and had given numbers.
        StoreDamaged: the file is something else.
        StoreUnwritable, StoreFull: it cannot be read or written.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        self.path = Path(store + ".ids")
        self._given_up = Path(store + ".given-up")
        self._descriptor = -1
        self._log_was_there = _size(store + "-wal") > 0
        self._known = self._read(self.path)
        self._abandoned = self._read(self._given_up) if self._known is None else None
        if _size(store) == 0 and self._abandoned is None:
            if self._log_was_there:
                raise self._lost("it is empty, and its log is not", f"put {Path(store).name} back beside its -wal file")
            if self._known is not None and (self._known.cluster, self._known.event) != (1, 1):
                raise self._lost("it is empty or not there", "restore it with its -wal file")

    def compare(self, cluster: int, event: int) -> Numbers:
        """Compare with the numbers that the opened store gives next.

        Returns:
            The numbers from which it has to go on.

        Raises:
            StoreLost: the store is behind and has no log: it is not whole.
        """
        known = self._known or self._abandoned or Numbers()
        if cluster < known.cluster or event < known.event:
            if self._abandoned is None and not self._log_was_there:
                raise self._lost("it is older than it was, and its log is not there", "put its -wal file back")
            cluster, event = max(cluster, known.reserved), max(event, known.event)
        return Numbers(cluster, event, max(cluster, known.reserved))

    def begin(self, numbers: Numbers) -> None:
        """Keep numbers from here on, once the store itself goes on from them."""
        try:
            self._create(numbers)
            if self._abandoned is not None:
                self._given_up.unlink()
        except OSError as error:
            raise self._as_store_error("write", error) from error
        self._known = numbers

    def is_reserved(self, cluster: int) -> bool:
        """Whether all clusters below a number count as given already, or nothing is kept of them."""
        known = self._known
        return self._descriptor < 0 or known is None or cluster <= known.reserved

    def reserve(self, cluster: int) -> None:
        """Before a commit: see to it that all clusters below a number count as given after any crash.

        Raises:
            StoreFull, StoreUnwritable: the disk does not take it.
        """
        if self.is_reserved(cluster):
            return
        known = self._known
        assert known is not None
        reserved = Numbers(known.cluster, known.event, cluster + AHEAD)
        try:
            self._write_numbers(reserved)
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise self._as_store_error("write", error) from error
        self._known = reserved

    def update(self, cluster: int, event: int) -> None:
        """After a commit: these are the next numbers. A failed write here does not undo the commit."""
        known = self._known
        if self._descriptor < 0 or known is None or (cluster, event) == (known.cluster, known.event):
            return
        self._known = Numbers(cluster, event, known.reserved)
        with contextlib.suppress(OSError):
            self._write_numbers(self._known)

    def close(self) -> None:
        """Keep nothing open."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _create(self, numbers: Numbers) -> None:
        """The file with these numbers: there as a whole or not at all, after any crash."""
        if not self.path.exists():
            fresh = Path(f"{self.path}.new")
            fresh.unlink(missing_ok=True)
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, _text(numbers))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            fresh.rename(self.path)
            directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        self._write_numbers(numbers)
        os.fdatasync(self._descriptor)

    def _write_numbers(self, numbers: Numbers) -> None:
        os.pwrite(self._descriptor, _text(numbers), 0)

    def _read(self, path: Path) -> Numbers | None:
        try:
            text = path.read_text("ascii", "replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._as_store_error("read", error) from error
        found = _READ.fullmatch(text)
        if found is None:
            raise StoreDamaged(
                f"cannot open store {self._store}: {path} is damaged, which says which ids were given",
                hint="restore it, or remove it if no job is lost",
            )
        return Numbers(*map(int, found.groups()))

    def _lost(self, what: str, better: str) -> StoreLost:
        known = self._known
        given = f": jobs up to cluster {known.cluster - 1} were queued here" if known is not None else ""
        away = f"`mv {self.path} {self._given_up}`" if known is not None else f"`rm {self._store}-wal`"
        return StoreLost(
            f"cannot open store {self._store}: {what}{given}",
            hint=f"{better}; or give up what it held, and go on with new ids: {away}",
        )

    def _as_store_error(self, verb: str, error: OSError) -> StoreUnwritable | StoreFull:
        kind = StoreFull if error.errno == 28 else StoreUnwritable
        hint = "check the rights and the free space of its directory"
        return kind(f"cannot {verb} {self.path}: {error.strerror}", hint=hint, retry=True)


def _text(numbers: Numbers) -> bytes:
    return _FORM.format(numbers.cluster, numbers.event, numbers.reserved).encode()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
