"""Leases: while one stands, the submit side tells of what changes in a directory, and the job's side need not ask (EV
2.2).

A lease is on one directory: its names, and the attributes and content of their files. It stands as long as everything
on the way from the tree to it stays as it is, rights included, and the kernel reports every change to this process
(inotify). That works only on file systems that are this machine's own, and in so many directories as may be watched. A
reported change is not reported again until the file has been asked for again, so that a file that is written all the
time costs one message.

The kernel does not report writes through a shared mapping before it is unmapped, nor changes of a file by its other
names. So the job's side believes a lease for a minute at most, and only for files of one name.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from pool.remoteio import frames, kernel
from pool.remoteio.path_lookup import UNDO, Places

#: File systems that tell of all their changes: nobody changes them but through this kernel.
_TELLING = {
    *(0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x858458F6, 0x794C7630),  # ext, xfs, btrfs, tmpfs, ramfs, overlay
    *(0xF2F52010, 0x2FC12FC1, 0xCA451A4E, 0x3153464A),  # f2fs, zfs, bcachefs, jfs
}
# Of <sys/inotify.h>.
_MODIFY, _ATTRIB, _CLOSE_WRITE, _FROM, _TO = 0x2, 0x4, 0x8, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_UNMOUNT, _OVERFLOW, _IGNORED = 0x2000, 0x4000, 0x8000
_ONLYDIR, _EXCL_UNLINK = 0x01000000, 0x04000000
_CHANGES = _MODIFY | _ATTRIB | _CLOSE_WRITE | _FROM | _TO | _CREATE | _DELETE
_WATCHED = _CHANGES | _DELETE_SELF | _MOVE_SELF | _ONLYDIR | _EXCL_UNLINK
#: The events of a directory after which a way through it may lead elsewhere, or be forbidden.
_WAY = _ATTRIB | _FROM | _TO | _CREATE | _DELETE
#: A part of what is sent.
Part = bytes | memoryview
_EVENT = struct.Struct("<iIII")
#: Bytes of events that are read at a time.
_ROOM = 64 * 1024
#: Milliseconds between two looks of the watching thread: a job's own changes are read as they are answered, and each
#: wake of another thread would hold up the one that answers.
_PAUSE_MS = 20
#: Names of a directory that are reported and not asked for again; at more its lease ends.
_MOST_REPORTED = 4096
#: The most names that one message reports.
_ITEMS = 256


class _Lease:
    __slots__ = ("holder", "names", "number", "path", "reported", "ways")

    def __init__(self, holder: FileLeases, number: int, path: bytes) -> None:
        self.holder = holder
        self.number = number
        self.path = path
        self.reported: set[bytes] = set()
        #: The watches from the tree to the directory itself, and the names that lead from each to the next.
        self.ways: list[int] = []
        self.names: list[bytes] = []


class _WatchedDirectory:
    """A watched directory: its own leases, and those below it by the name that leads there."""

    __slots__ = ("below", "own")

    def __init__(self) -> None:
        self.own: set[_Lease] = set()
        self.below: dict[bytes, set[_Lease]] = {}


class DirectoryWatches:
    """The watches of one file server, for all of its jobs.

    Args:
        mounts: what the kernel tells mounts by.

    Attributes:
        limit: directories at most; 0 for no leases at all.
    """

    def __init__(self, limit: int = 0, mounts: str = "/proc/self/mountinfo") -> None:
        self.limit = limit
        self._mounts = mounts
        self._lock = threading.Lock()
        self._watched: dict[int, _WatchedDirectory] = {}
        self._events = -1
        self._room = memoryview(bytearray(_ROOM))
        #: Holders that have something to report and were not woken for it.
        self._told: set[FileLeases] = set()

    def grant(self, lease: _Lease, places: Places) -> bool:
        """Whether everything on the way to a lease's directory is watched from now on."""
        with self._lock:
            try:
                self._begin()
                with contextlib.closing(places.walk_to(lease.path)) as way:
                    for name, directory in way:
                        self._step(lease, name, directory)
                self._watched[lease.ways[-1]].own.add(lease)
            except OSError:
                self._forget(lease)
                return False
            return True

    def why_not(self, path: bytes, places: Places) -> str:
        """Why changes in a tree would not be reported; empty if they would, for as long as there are watches."""
        if not self.limit:
            return "REMOTE_IO_WATCHES is 0"
        try:
            with contextlib.closing(places.walk_to(path)) as way:
                reported = kernel.magic(next(way)[1]) in _TELLING
        except OSError as error:
            return (error.strerror or str(error)).lower()
        return "" if reported else "its file system does not report all changes"

    def end(self, leases: Iterable[_Lease]) -> None:
        """They are not needed any more; no holder is notified."""
        with self._lock:
            for lease in leases:
                self._forget(lease)

    def close(self) -> None:
        """All of them are over."""
        with self._lock:
            self.end_all(self._all_leases())
            self._wake_told()
            if self._events >= 0:
                os.close(self._stop)  # the thread closes the rest
                self._events = -1

    def held(self) -> contextlib.AbstractContextManager[object]:
        """While this is held no change is reported and no lease granted."""
        return self._lock

    def _begin(self) -> None:
        if self._events >= 0:
            return
        if not self.limit:
            raise OSError
        self._events = kernel.inotify()
        self._queue = io.FileIO(self._events, closefd=False)  # which says without an exception that there is nothing
        ended, self._stop = os.pipe()
        mounts = os.open(self._mounts, os.O_RDONLY | os.O_CLOEXEC)
        threading.Thread(target=self._listen, args=(self._events, mounts, ended), daemon=True).start()

    def _step(self, lease: _Lease, name: bytes, directory: int) -> None:
        """One directory further. It is watched before what lies in it is looked at, so that no change is missed."""
        if kernel.magic(directory) not in _TELLING:
            raise OSError
        if lease.ways:
            self._watched[lease.ways[-1]].below.setdefault(name, set()).add(lease)
            lease.names.append(name)
        number = kernel.inotify_add_watch(self._events, b"/proc/self/fd/%d" % directory, _WATCHED)
        if number not in self._watched:
            if len(self._watched) >= self.limit:
                kernel.inotify_rm_watch(self._events, number)
                raise OSError
            self._watched[number] = _WatchedDirectory()
        lease.ways.append(number)

    def _forget(self, lease: _Lease) -> None:
        for place, number in enumerate(lease.ways):
            watch = self._watched.get(number)
            if watch is None:
                continue
            watch.own.discard(lease)
            if place < len(lease.names):
                below = watch.below.get(lease.names[place], set())
                below.discard(lease)
                if not below:
                    watch.below.pop(lease.names[place], None)
            if not watch.own and not watch.below:
                del self._watched[number]
                with contextlib.suppress(OSError):  # the kernel has taken it away itself
                    kernel.inotify_rm_watch(self._events, number)
        lease.ways, lease.names = [], []

    # -- what the kernel tells ---------------------------------------------------------------------------

    def read_events(self, by: FileLeases) -> None:
        """Take in the kernel's reports until now; the caller sends its own part."""
        with self._lock:
            if self._events >= 0:
                self._read()
            self._told.discard(by)
            self._wake_told()

    def add_told(self, holder: FileLeases) -> None:
        """It has something to report; under the lock."""
        self._told.add(holder)

    def _wake_told(self) -> None:
        while self._told:
            self._told.pop().wake()

    def _read(self) -> None:
        size = self._queue.readinto(self._room)
        if size:  # else another thread was quicker, or there are none
            self._handle_events(bytes(self._room[:size]))

    def _listen(self, events: int, mounts: int, ended: int) -> None:
        waits = select.poll()
        waits.register(events, select.POLLIN)
        waits.register(mounts, select.POLLERR | select.POLLPRI)
        waits.register(ended, select.POLLIN)
        pause = select.poll()
        pause.register(ended, select.POLLIN)
        while True:
            ready = {fd for fd, _ in waits.poll()}
            with self._lock:
                if ended in ready:
                    break
                if mounts in ready:  # something may hide what a way led to
                    self.end_all(self._all_leases())
                if events in ready and self._events >= 0:
                    self._read()
                self._wake_told()
            pause.poll(_PAUSE_MS)
        for fd in (events, mounts, ended):
            os.close(fd)

    def _handle_events(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            number, mask, _, size = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            name = data[at : at + size].rstrip(b"\0")
            at += size
            if mask & _OVERFLOW:
                self.end_all(self._all_leases())
                continue
            watch = self._watched.get(number)
            if watch is None or name.startswith(UNDO):
                continue
            if not name:
                gone = mask & (_ATTRIB | _DELETE_SELF | _MOVE_SELF | _UNMOUNT | _IGNORED)
                self.end_all([*watch.own, *(one for each in watch.below.values() for one in each)] if gone else ())
                continue
            for lease in list(watch.own):
                lease.holder.changed(lease, name)
            if mask & _WAY:
                self.end_all(list(watch.below.get(name, ())))

    def end_all(self, leases: Iterable[_Lease]) -> None:
        """They are over, and their holders are notified; under the lock."""
        for lease in leases:
            self._forget(lease)
            lease.holder.end_lease(lease)

    def _all_leases(self) -> set[_Lease]:
        return {one for watch in self._watched.values() for one in watch.own}


class FileLeases:
    """The leases of one job.

    Args:
        send: sends a frame to the job's side, if there is one; may wait.
    """

    def __init__(self, watches: DirectoryWatches, places: Places, send: Callable[[bytes], None]) -> None:
        self._watches = watches
        self._places = places
        self._send = send
        self._numbers: dict[int, _Lease] = {}
        self._paths: dict[bytes, _Lease] = {}
        self._news: deque[tuple[int, bytes]] = deque()
        self._there = threading.Event()
        self._sending = threading.Lock()
        self._telling = self._closed = False

    def grant(self, number: int, path: bytes) -> bool:
        """Promise to tell of changes in a directory, under a number of the job side's choice."""
        before = self._paths.get(path)
        self._drop([before] if before is not None else [])
        if not self._telling:
            self._telling = True
            threading.Thread(target=self._send_notices, daemon=True).start()
        lease = _Lease(self, number, path)
        self._numbers[number] = self._paths[path] = lease
        if self._watches.grant(lease, self._places) and not self._closed:
            return True
        self._drop([lease])
        return False

    def release(self, number: int) -> None:
        """The job's side needs one no more."""
        lease = self._numbers.get(number)
        self._drop([lease] if lease is not None else [])

    def end(self) -> None:
        """The job's side has forgotten them: its connection is another."""
        self._drop(list(self._numbers.values()))

    def close(self) -> None:
        """End them, and who tells of them."""
        self._closed = True
        self.end()
        self._there.set()

    def send_before(self, answer: Sequence[Part], send: Callable[[Sequence[Part]], None]) -> None:
        """Send what has changed until now with an answer behind it, by which the job learns that another one has gone
        on.
        """
        if self._numbers:
            self._watches.read_events(self)
        if not self._news and not self._sending.locked():
            send(answer)
            return
        with self._sending:  # what another thread has taken is sent by then
            send((*self._taken_news(), *answer))

    def wake(self) -> None:
        """Have the thread of the holder send what there is to report."""
        self._there.set()

    def rearm(self, path: bytes) -> None:
        """The file at a path is about to be read: changes from now on are reported again."""
        above, _, name = path.rpartition(b"/")
        lease = self._paths.get(above)
        if lease is not None:
            lease.reported.discard(name)
        lease = self._paths.get(path)
        if lease is not None:
            lease.reported.clear()

    def leave_out(self, directory: bytes, names: Iterable[bytes]) -> None:
        """The job's side knows nothing of these names in a directory: changes are not reported before it asks again."""
        lease = self._paths.get(directory)
        if lease is not None:
            lease.reported.update(names)

    def rearm_names(self, directory: bytes, names: Iterable[bytes]) -> None:
        """`rearm` for names in a directory."""
        lease = self._paths.get(directory)
        if lease is not None:
            lease.reported.difference_update(names)

    # -- called by the watches, which hold their lock ----------------------------------------------------

    def changed(self, lease: _Lease, name: bytes) -> None:
        """Something about a name has changed."""
        if name in lease.reported:
            return
        lease.reported.add(name)
        self._news.append((lease.number, name))
        self._watches.add_told(self)
        if len(lease.reported) > _MOST_REPORTED:
            self._watches.end_all([lease])

    def end_lease(self, lease: _Lease) -> None:
        """A lease is over."""
        self._drop_lease(lease)
        self._news.append((lease.number, b""))
        self._watches.add_told(self)

    # ----------------------------------------------------------------------------------------------------

    def _drop(self, leases: list[_Lease]) -> None:
        self._watches.end(leases)
        for lease in leases:
            self._drop_lease(lease)

    def _drop_lease(self, lease: _Lease) -> None:
        self._numbers.pop(lease.number, None)
        if self._paths.get(lease.path) is lease:
            self._paths.pop(lease.path, None)

    def _send_notices(self) -> None:
        while not self._closed:
            self._there.wait()
            self._there.clear()
            self._send_news()

    def _send_news(self) -> None:
        if not self._news:
            return
        with self._sending:
            for frame in self._taken_news():
                self._send(frame)

    def _taken_news(self) -> list[bytes]:
        found = []
        while self._news:
            found.append(frames.notice([self._news.popleft() for _ in range(min(len(self._news), _ITEMS))]))
        return found
