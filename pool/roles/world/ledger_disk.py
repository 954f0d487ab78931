"""The world's ledgers on their way to the disk: rows gather, and are written together, the last of each key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from pool.errors import PoolError
from pool.policy.flock.ledger import ClaimUse, SignedEntry
from pool.roles.base import Spawn
from pool.store.flock_ledger import FlockLedgerStore, Row


class LedgerDisk:
    """Writes rows of a store.

    Attributes:
        trouble: why the last write failed; empty where it did not.
    """

    def __init__(self, store: FlockLedgerStore, spawn: Spawn, log: logging.Logger) -> None:
        self._store = store
        self._spawn = spawn
        self._log = log
        self._rows: dict[tuple[str, str], Row] = {}
        self._task: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self.trouble = ""

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Write these with the next save."""
        for row in rows:
            self._rows.pop(row[:2], None)
            self._rows[row[:2]] = row

    def put_soon(self, rows: Iterable[Row]) -> None:
        """Write these in the background; trouble is logged, and the next save tries again."""
        self.add_rows(rows)
        if self._task is None or self._task.done():
            self._task = self._spawn(self.try_save(), "save", alone=True)

    async def try_save(self) -> None:
        """Save, and log trouble once."""
        before = self.trouble
        try:
            await self.save()
        except PoolError as error:
            if not before:
                self._log.error("the flock's ledger is not saved", extra={"why": str(error)})

    async def save(self, rows: Iterable[Row] = ()) -> None:
        """Return when these rows, and all before them, are on disk.

        Raises:
            StoreError: they cannot be written; the next save tries again.
        """
        self.add_rows(rows)
        async with self._writing:
            found, self._rows = self._rows, {}
            if not found:
                return
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._store.save, list(found.values()))
                self.trouble = ""
            except BaseException as error:
                self._rows = {**found, **self._rows}
                if isinstance(error, PoolError):
                    self.trouble = str(error)
                raise

    def close(self, rows: Iterable[Row], *, killed: bool) -> None:
        """Write what is not written, and these rows, unless the process was killed; close the file."""
        self.add_rows(rows)
        try:
            if not killed:
                self._store.save(self._rows.values())
        except PoolError as error:
            self._log.error("the flock's ledger is not saved", extra={"why": str(error)})
        self._store.close()


def partner_row(pool: str, value: dict[str, Any]) -> Row:
    return ("pool", pool, value)


def entry_row(pool: str, signed: SignedEntry, *, gone: bool = False) -> Row:
    return ("entry", f"{pool}|{signed.entry.lender}|{signed.entry.claim}", None if gone else signed.to_wire())


def use_row(use: ClaimUse, *, gone: bool = False) -> Row:
    return ("use", f"{use.pool}|{int(use.lends)}|{use.claim}", None if gone else use.to_wire())


def settling_row(pool: str, claim: str, value: dict[str, Any] | None) -> Row:
    return ("settling", f"{pool}|{claim}", value)
