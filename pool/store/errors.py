"""The errors of the store, split by what somebody can do about them.

StoreError                the store could not do what it was asked; nothing of it was acknowledged
|- StoreBusy              another schedd works on the same store
|- StoreTooNew            written by a newer program
|- StoreDamaged           not a store, or one whose pages do not fit together
|- StoreLost              it is empty or older than it was: what was queued is not in it
|- StoreFull              no space left; heals when space returns
|- StoreUnwritable        read-only, no permission, or the disk failed; may heal
|- StoreGone              the file under the open store was removed or its disk went away
`- StoreRefused           the change does not fit the queue (unknown or ended job, id given before)
"""

from __future__ import annotations

import sqlite3

from pool.errors import PoolError


class StoreError(PoolError):
    """The store could not do what it was asked."""


class StoreClosed(StoreError):
    """The store was closed before it had this; whoever opens it next may be asked again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry=True)


class StoreBusy(StoreError):
    """Another process has this store open."""


class StoreTooNew(StoreError):
    """The store's schema is newer than this program knows."""


class StoreDamaged(StoreError):
    """The file is no store, or is damaged."""


class StoreLost(StoreError):
    """The store is not there, empty, or older than it was: jobs that were accepted are not in it."""


class StoreFull(StoreError):
    """No space left on the store's disk."""


class StoreUnwritable(StoreError):
    """The store cannot be written or read: permission, read-only disk, or a failing one."""


class StoreGone(StoreError):
    """The store's file is no longer where it was opened."""


class StoreRefused(StoreError):
    """A change that does not fit what is stored."""


# SQLite's primary result codes (the low byte of an extended code).
_FULL, _READONLY, _IOERR, _CANTOPEN, _PERM, _AUTH = 13, 8, 10, 14, 3, 23
_CORRUPT, _NOTADB, _FORMAT = 11, 26, 24
_BUSY, _LOCKED = 5, 6


def from_sqlite(error: sqlite3.Error, operation: str, path: str) -> StoreError:
    """The error to show for one of SQLite's; `operation` reads after "cannot"."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    said = f"cannot {operation} {path}: "
    if code == _FULL:
        return StoreFull(said + "the disk is full", hint="free some space, nothing was lost", retry=True)
    if code in (_READONLY, _PERM, _AUTH):
        return StoreUnwritable(
            said + "it is read-only", hint="check the rights of the file and its directory", retry=True
        )
    if code == _CANTOPEN:
        return StoreUnwritable(
            said + "it cannot be opened",
            hint="check that its directory exists and may be written",
            retry=True,
        )
    if code == _IOERR:
        return StoreUnwritable(
            said + "the disk reports an error", hint="look at the system log and the free space", retry=True
        )
    if code in (_CORRUPT, _NOTADB, _FORMAT):
        return StoreDamaged(
            said + f"it is damaged or no store ({error})",
            hint="restore it, or move it away to begin an empty one",
        )
    if code in (_BUSY, _LOCKED):
        return StoreBusy(said + "another program has it locked", hint="end that program", retry=True)
    return StoreError(said + str(error))
