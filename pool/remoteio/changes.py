"""A number for each file that jobs of this file server change, the next one after each change of its content.

Times tell too little: a file system's clock ticks every few milliseconds, and a counter under a lock is written more
often.
Changes by programs of the submit machine are seen by times and sizes only.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from pool.remoteio.journal import Identity

#: Files of which a number is kept; of others it is 0, which looks like a change to who knew another one.
MOST = 65536
#: The next number of a file that was dropped meanwhile is greater by this: no number that it had before.
APART = 1 << 32


class Changes:
    """The changes of all jobs of one file server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: OrderedDict[Identity, int] = OrderedDict()
        self._first = 0

    def number(self, identity: Identity) -> int:
        return self._numbers.get(identity, 0)

    def mark_changed(self, identity: Identity) -> None:
        """A file's content has changed; called when it has, so that who sees the number sees the content."""
        with self._lock:
            self._numbers[identity] = self._numbers.get(identity, self._first) + 1
            self._numbers.move_to_end(identity)
            if len(self._numbers) > MOST:
                self._numbers.popitem(last=False)
                self._first += APART
