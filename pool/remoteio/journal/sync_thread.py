"""Notes on the disk ahead of what they undo.

The kernel writes changed names to disk after about five seconds and changed bytes after thirty, in no order. So notes
are written out at once, and then each second while there are more. After a power cut, only changes of the job's last
second can lack their note, as long as memory is not short.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

#: Seconds from one time to the next.
PACE = 1.0


class SyncThread:
    """Writes out in a thread of its own, which is there while there is something to write.

    Args:
        sync: has everything on the disk; raises OSError.
        more: whether there is something that is not.
    """

    def __init__(self, sync: Callable[[], None], more: Callable[[], bool]) -> None:
        self._sync = sync
        self._more = more
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def wake_up(self) -> None:
        """There is something to write."""
        with self._lock:
            if self._thread is None and not self._over.is_set():
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                self._sync()
            except OSError:
                pass  # callers that rely on it try again, and then get the error
            if self._over.wait(PACE):
                return
            with self._lock:
                if not self._more():
                    self._thread = None
                    return

    def close(self) -> None:
        """Write no more."""
        with self._lock:
            self._over.set()
            thread = self._thread
        if thread is not None:
            thread.join()
