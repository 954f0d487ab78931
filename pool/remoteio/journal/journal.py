"""A job's undo journal as a whole: its marks, and what they let go of."""

from __future__ import annotations

import os
from collections.abc import Callable

from pool.remoteio.journal import log
from pool.remoteio.journal.book import NAMES, Book, Identity
from pool.remoteio.journal.contents import Contents
from pool.remoteio.journal.names import JournaledNames
from pool.remoteio.journal.removed_files import RemovedFiles
from pool.remoteio.journal.settings import KINDS, AttributeChanges
from pool.remoteio.journal.sync_thread import SyncThread
from pool.remoteio.journal.volumes import Flushes
from pool.remoteio.path_lookup import Places


class MarkForgotten(Exception):
    """The changes since this mark are not known any more."""


class ChangeJournal:
    """The changes of one job.

    Args:
        directory: descriptor of the journal's own directory.
        name: of the job, for hidden names.
        places: what the job sees.
        limit: bytes that are kept at most.
        opened: whether a file is open in the job.
        gave_up: called with the reason when changes can be undone no longer.
    """

    def __init__(
        self,
        directory: int,
        name: str,
        places: Places,
        limit: int,
        opened: Callable[[Identity], bool],
        gave_up: Callable[[str], None] = lambda why: None,
    ) -> None:
        self.places = places
        self._gave_up = gave_up
        self.book = Book(directory, limit, self._given_up)
        self.aside = RemovedFiles(self.book, name, places, opened)
        self.contents = Contents(self.book)
        self.settings = AttributeChanges(self.book)
        self.names = JournaledNames(self.book, self.aside, places)
        for segment in self.book.segments:
            self._load_segment(segment)
        self._ahead = SyncThread(self.book.sync, lambda: self.book.unsynced)

    def write_ahead(self) -> None:
        """From now on have on the disk soon what undoes a change."""
        self.book.behind = self._ahead.wake_up

    @property
    def why(self) -> str:
        """Why changes can be undone no longer; empty where they can."""
        return self.book.why

    @property
    def run(self) -> int:
        """The start of the job that this is about; 0 before the first."""
        return self.book.run

    @property
    def first(self) -> int:
        """The oldest mark that there is a way back to."""
        return self.book.first

    def begin_run(self, run: int) -> None:
        """Another start of the job."""
        with self.book.lock:
            self.book.begin_run(run)

    def sync(self) -> None:
        """Have on the disk what undoes all that was changed until now. Raises OSError."""
        self.book.sync()

    def secure(self, flushes: Flushes, *, mark: int = 0, run: int = 0) -> bool:
        """Have on the disk what was done until now, and the way back to it; false where the journal is closed.

        Blocks, while the job may go on. Changes that the job makes meanwhile may reach the disk with it or not.

        Args:
            mark: that of the checkpoint which this is for. It is there already but for a job that opens all its files
                directly: nobody on its machine speaks to the submit side then, and nothing was changed through the
                submit side since.
            run: the start of the job which made it; a later one has marks of its own.

        Raises:
            OSError: it could not be written.
        """
        with self.book.lock:
            if not self.book.segments:
                return False
            if mark and run == self.run:
                self.mark(mark)
        self.sync()
        with self.book.lock:
            if not self.book.segments:
                return False
            fds = self.book.volumes.opened(self.places)
        if fds is None:
            os.sync()
        else:
            try:
                for fd in fds:
                    flushes.flush(fd)
            finally:
                for fd in fds:
                    os.close(fd)
        self.sync()
        return True

    def close(self) -> None:
        """Let go of the files; everything stays as it is."""
        self._ahead.close()
        self.book.close()

    # -- marks -------------------------------------------------------------------------------------------

    def mark(self, number: int) -> None:
        """Changes from here on are younger than this mark. A mark that is there is there."""
        book = self.book
        with book.lock:
            if number <= book.current.number:
                return
            given_up = bool(book.why)
            if given_up:
                book.why, book.first = "", number
            book.segments.append(log.Segment(book.directory, number))
            self.contents.forget()
            self.settings.forget()
            book.fresh.clear()
            book.write_record(["H", book.next(), 0, self.aside.open_ones()])
            if given_up:
                book.write_state()

    def commit(self, number: int) -> None:
        """Nobody goes back beyond this mark any more."""
        book = self.book
        with book.lock:
            old = [segment for segment in book.segments if segment.number < number]
            if not old or old[-1] is book.current:
                return  # such a mark never came
            book.first = max(book.first, number)
            book.write_state()
            held: set[int] = set()
            for segment in book.segments[len(old) :]:
                held |= {int(item[0]) for record in segment.records() if record[0] == "H" for item in record[3]}
            self.aside.drop(older=number, but=held)
            for segment in old:
                segment.remove()
            del book.segments[: len(old)]

    def keep_changes(self, number: int) -> None:
        """Changes until now are there to stay: commits a new mark, this one where it is younger than all."""
        with self.book.lock:
            number = max(number, self.book.current.number + 1)
            self.mark(number)
            self.commit(number)

    def finish(self) -> None:
        """The job is over: everything stays as it is, and nothing of the journal."""
        book = self.book
        with book.lock:
            self.aside.drop()
            for segment in book.segments:
                segment.remove()
            book.segments = []
            for name in os.listdir(book.directory):
                os.unlink(name, dir_fd=book.directory)

    def forget(self) -> None:
        """Begin anew: everything stays as it is, and what comes is all that can be undone."""
        book = self.book
        with book.lock:
            self.finish()
            book.segments = [log.Segment(book.directory, 0)]
            book.first, book.why = 0, ""
            self.reread()
            book.write_state()

    # -- what is there -----------------------------------------------------------------------------------

    def reread(self) -> None:
        """Know again what is in the files, after undoing."""
        self.aside.forget()
        self.book.forget()
        for segment in self.book.segments:
            self._load_segment(segment)

    def _load_segment(self, segment: log.Segment) -> None:
        self.contents.forget()
        self.settings.forget()
        self.book.fresh.clear()
        records = segment.records()
        cancelled = {record[3] for record in records if record[0] == "-"}
        for record in records:
            if record[1] not in cancelled:
                self.book.load_record(record)
                if record[0] in NAMES or record[0] in KINDS:
                    self.book.volumes.load_path(record[3])
                self.contents.load_record(record)
                self.settings.load_record(record)
                self.aside.load_record(record, segment.number)

    def _given_up(self) -> None:
        self.aside.drop(opened=False)
        self.book.write_state()
        self._gave_up(self.book.why)
