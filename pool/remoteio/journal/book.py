"""The notes of a job's changes, in the order in which they were made, and what is known from them.

A note is a list: its kind, its sequence number, the number of the request it is about (0 for none), and the fields of
its kind. A note whose action then fails is cancelled ('-'). When the file server was killed, the notes tell what a
request had begun when it comes again. Knows nothing of what notes mean.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pool.remoteio.journal import log
from pool.remoteio.journal.volumes import Volumes

#: The identity of a file: device and inode.
Identity = tuple[int, int]
Note = list[Any]
#: Kinds that begin with the path of a name that was made, removed or changed.
NAMES = frozenset("cdyknurm")
#: Kinds that are noted though nothing can be undone: where files lie that are in nobody's sight, and the rest of that.
_ALWAYS = frozenset("umvHR-r")


def removed_for_good(record: Note) -> Identity:
    """The file that a removal or a rename takes away without a hidden name, as one that the job has made since the last
    mark; (0, 0) for none. Another file may have its inode number next.
    """
    if record[0] == "u" and not record[4]:
        return record[6], record[7]
    if record[0] == "m" and not record[5] and not record[6] and record[8:10] != record[10:12]:
        return record[10], record[11]
    return 0, 0


class Book:
    """One job's notes.

    Args:
        directory: descriptor of the journal's own directory.
        limit: bytes that are kept at most.
        gave_up: called when changes can be undone no longer; `why` says why, and is written down by whoever is called.
    """

    def __init__(self, directory: int, limit: int, gave_up: Callable[[], None]) -> None:
        self.lock = threading.RLock()
        self._syncing = threading.Lock()
        #: The segment that the disk has the name of.
        self._listed = -1
        self.directory = directory
        self._limit = limit
        self._gave_up = gave_up
        #: Files made since the last mark: what becomes of them need not be noted.
        self.fresh: set[Identity] = set()
        self.volumes = Volumes()
        #: Called when there is something that the disk may not have.
        self.behind: Callable[[], None] = lambda: None
        #: Bytes of files that are kept though they were removed.
        self.held_bytes = 0
        self._begun: dict[int, Note] = {}
        self._sequence = 0
        state = log.read_state(directory)
        self.run: int = state.get("run", 0)
        self.first: int = state.get("first", 0)
        self.why: str = state.get("why", "")
        self._boot: str = state.get("boot", log.boot())
        self.segments = log.segments(directory) or [log.Segment(directory, 0)]

    @property
    def current(self) -> log.Segment:
        return self.segments[-1]

    @property
    def is_before_boot(self) -> bool:
        """Whether the machine was started anew since the run began that this is about."""
        return self._boot != log.boot()

    def begin_run(self, run: int) -> None:
        """Another start of the job: what an earlier one asked for is not asked again."""
        self._begun.clear()
        self.run = run
        self._boot = log.boot()
        self.write_state()
        self.write_record(["R", self.next(), 0, run])

    def write_state(self) -> None:
        state = {"run": self.run, "first": self.first, "why": self.why, "boot": self._boot}
        log.write_state(self.directory, state)
        self._listed = -1

    @property
    def unsynced(self) -> bool:
        """Whether there is something that the disk may not have."""
        return any(segment.is_unsynced for segment in list(self.segments))

    def sync(self) -> None:
        """Have on the disk what undoes all that was changed until now; who comes meanwhile waits. Raises OSError."""
        with self._syncing:
            with self.lock:
                unsynced = [segment for segment in self.segments if segment.is_unsynced]
                fds = [fd for segment in unsynced for fd in segment.unsynced()]
                if self.segments and self._listed != self.current.number:
                    fds.append(os.dup(self.directory))
                    self._listed = self.current.number
            try:
                for fd in fds:
                    os.fsync(fd)
            except OSError:
                self._listed = -1
                for segment in unsynced:
                    segment.not_synced()
                raise
            finally:
                for fd in fds:
                    os.close(fd)

    def close(self) -> None:
        """Let go of the files; everything stays as it is."""
        with self.lock:
            for segment in self.segments:
                segment.close()
            self.segments = []

    # -- notes -------------------------------------------------------------------------------------------

    def next(self) -> int:
        """A new sequence number."""
        self._sequence += 1
        return self._sequence

    def write_record(self, record: Note) -> None:
        """Write down what is going to be done."""
        self.write_records([record])

    def write_records(self, records: list[Note]) -> None:
        """The same for several notes at once."""
        if self.why:
            records = [record for record in records if record[0] in _ALWAYS]
        if not records:
            return
        try:
            self.current.add(*records)
            self.behind()
        except OSError as error:
            self.disable(f"its undo journal cannot be written: {error.strerror}")

    @contextmanager
    def recorded(self, kind: str, unique: int, *fields: Any) -> Iterator[None]:
        """Note what is done inside, for as long as it does not fail."""
        sequence = self.next()
        self.write_record([kind, sequence, unique, *fields])
        try:
            yield
        except OSError:
            self.cancel(sequence)
            raise

    def intend(self, kind: str, unique: int, path: bytes, known: Note | None) -> int:
        """Note that something is going to be made; the number that it is confirmed or cancelled by.

        Args:
            known: what the request had begun.
        """
        if known is not None and known[0] == kind:
            return int(known[1])
        sequence = self.next()
        self.write_record([kind, sequence, unique, path])
        return sequence

    def confirm(self, sequence: int, path: bytes, identity: Identity, *, fresh: bool) -> None:
        """The action that was noted is done."""
        self.volumes.changed(identity[0], path)
        self.write_record(["C", self.next(), 0, sequence, *identity, fresh])
        if fresh and not self.why:
            self.fresh.add(identity)

    def cancel(self, sequence: int) -> None:
        """The action that was noted was not done."""
        self.write_record(["-", self.next(), 0, sequence])

    def pop_begun(self, unique: int) -> Note | None:
        """The beginnings of a request when the file server was killed; asked once."""
        return self._begun.pop(unique, None)

    def load_record(self, record: Note) -> None:
        """Take up a note that is there."""
        kind, sequence, unique = record[:3]
        self._sequence = max(self._sequence, sequence)
        if unique:
            self._begun[unique] = record
        if kind == "R":
            self._begun.clear()
        elif kind == "C" and record[6]:
            self.fresh.add((record[4], record[5]))
        else:
            self.fresh.discard(removed_for_good(record))

    def directories(self) -> set[bytes]:
        """Where anything was changed."""
        with self.lock:
            paths = (record[3] for segment in self.segments for record in segment.records() if len(record) > 3)
            return {path.rpartition(b"/")[0] or b"/" for path in paths if isinstance(path, bytes)}

    def forget(self) -> None:
        """Know nothing of the notes that are there."""
        self.fresh.clear()
        self._begun.clear()
        self.held_bytes = 0

    # -- bounds ------------------------------------------------------------------------------------------

    def full(self, more: int) -> bool:
        """Whether nothing can be undone any more, or could be if so many bytes more were kept."""
        used = sum(segment.size for segment in self.segments) + self.held_bytes
        if used + more > self._limit:
            self.disable(f"it has changed more than {self._limit} bytes (REMOTE_IO_UNDO)")
        return bool(self.why)

    def disable(self, why: str) -> None:
        """The job goes on without: free what was kept for going back."""
        if self.why:
            return
        self.why = why
        for segment in self.segments:
            segment.empty_data()
        self._gave_up()
