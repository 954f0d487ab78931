"""The file systems that a job has changed, written out so that a checkpoint can rely on them."""

from __future__ import annotations

import os
import threading

from pool.remoteio import kernel
from pool.remoteio.path_lookup import Places

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Volumes:
    """Where one job has changed anything: a path for each device."""

    def __init__(self) -> None:
        self._paths: dict[int, bytes] = {}
        self._unknown = False

    def changed(self, device: int, path: bytes) -> None:
        """Something of this path was changed, or is going to be."""
        self._paths.setdefault(device, path)

    def load_path(self, path: bytes) -> None:
        """Something of this path was changed before the submit side was killed; on what device is not known."""
        try:
            self.changed(os.lstat(path.rpartition(b"/")[0] or b"/").st_dev, path)
        except OSError:
            self._unknown = True

    def opened(self, places: Places) -> list[int] | None:
        """A descriptor, the caller's, of each; None where the owner may not open anything of one any more."""
        found: list[int] = []
        for device, path in self._paths.items():
            fd = _descriptor_on(device, path, places)
            if fd is None:
                break
            found.append(fd)
        else:
            if not self._unknown:
                return found
        for fd in found:
            os.close(fd)
        return None


def _descriptor_on(device: int, path: bytes, places: Places) -> int | None:
    """A descriptor on this device: the directory that a path lies in, one further up, or what is there itself."""
    while path.strip(b"/"):
        try:
            with places.open_parent(path, own=True) as place:
                for name, flags in ((b".", _DIRECTORY), (place.name, _FILE)):
                    try:
                        fd = os.open(name, flags, dir_fd=place.directory)
                    except OSError:
                        continue
                    if os.fstat(fd).st_dev == device:
                        return fd
                    os.close(fd)
        except OSError:
            pass
        path = path.rpartition(b"/")[0]
    return None


class Flushes:
    """Writes file systems out, in turns: whoever asks while one is being written out shares the next turn of it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._begun: dict[int, int] = {}
        self._done: dict[int, int] = {}
        self._waiting: dict[int, int] = {}
        self._failed: dict[tuple[int, int], OSError] = {}

    def flush(self, fd: int) -> None:
        """Have on the disk all that was written to a descriptor's file system until now; blocks.

        Raises:
            OSError: it could not be written.
        """
        device = os.fstat(fd).st_dev
        with self._changed:
            turn = self._begun.get(device, 0) + 1  # one that has begun may have passed what we mean
            self._waiting[device] = self._waiting.get(device, 0) + 1
            self._changed.wait_for(lambda: self._done.get(device, 0) >= min(turn, self._begun.get(device, 0)))
            self._waiting[device] -= 1
            if self._done.get(device, 0) >= turn:
                if (device, turn) in self._failed:
                    raise self._failed[device, turn]
                return
            self._begun[device] = turn
        try:
            kernel.syncfs(fd)
        except OSError as error:
            self._failed[device, turn] = error
            raise
        finally:
            with self._changed:
                self._done[device] = turn
                self._changed.notify_all()

    def waiting(self, fd: int) -> int:
        """How many wait for their turn, or for its end."""
        with self._changed:
            return self._waiting.get(os.fstat(fd).st_dev, 0)
