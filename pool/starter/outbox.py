"""The messages that wait until a socket takes them: one queue for one descriptor.

An event loop keeps one callback for a descriptor that becomes writable. Many coroutines that each waited for it would
take it from each other, and all but the last wait for ever; so nobody waits here, and one callback sends for all.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from pool.starter.messages import TOO_BIG


@dataclass(slots=True, eq=False)
class Letter:
    """A message on its way.

    Attributes:
        taken: called when the socket has it.
        lost: called with the reason where it never will.
    """

    message: bytes
    taken: Callable[[], None]
    lost: Callable[[str], None]


class Outbox:
    """The messages for one socket, in the order in which they came.

    Args:
        end: one that does not block.
        patience: seconds without any progress after which nothing that waits is sent any more.
    """

    def __init__(self, end: socket.socket, patience: float) -> None:
        self._end = end
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Letter] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def send(self, letter: Letter) -> None:
        """Send a message, now or as soon as those before it have gone."""
        self._waiting.append(letter)
        if len(self._waiting) == 1 and not self._flush():
            self._loop.add_writer(self._end.fileno(), self._writable)
            self._be_patient()

    def withdraw(self, letter: Letter) -> bool:
        """Not to send it any more; False where it has gone."""
        if letter not in self._waiting:
            return False
        self._waiting.remove(letter)
        if not self._waiting:
            self._stop_writing()
        return True

    def close(self) -> None:
        """Send nothing more."""
        self._waiting.clear()
        self._stop_writing()

    def _writable(self) -> None:
        before = len(self._waiting)
        if self._flush():
            self._stop_writing()
        elif len(self._waiting) < before:
            self._be_patient()

    def _flush(self) -> bool:
        """Send what the socket takes; whether that was all."""
        while self._waiting:
            letter = self._waiting[0]
            try:
                _send(self._end, letter.message)
            except BlockingIOError:
                return False
            except OSError as error:
                self._waiting.popleft()
                letter.lost(os.strerror(error.errno or 0).lower())
            else:
                self._waiting.popleft()
                letter.taken()
        return True

    def _stop_writing(self) -> None:
        self._loop.remove_writer(self._end.fileno())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _be_patient(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._patience, self._drop_all)

    def _drop_all(self) -> None:
        letters = list(self._waiting)
        self.close()
        for letter in letters:
            letter.lost(f"nothing has taken it for {self._patience:g} s")


def _send(end: socket.socket, message: bytes) -> None:
    if len(message) < TOO_BIG:
        end.send(message)
        return
    fd = os.memfd_create("start", os.MFD_CLOEXEC)
    try:
        os.write(fd, message)
        socket.send_fds(end, [b"+"], [fd])
    finally:
        os.close(fd)
