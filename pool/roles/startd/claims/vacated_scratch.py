"""The scratch directories of claims that have ended: removed one by one, between which the node does other things.

A file system that other programs write to takes some ten milliseconds for one. Where thousands of claims end at once,
their removal at the end of each claim would hold the node up for as many of them as end in one turn of its loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from pool.roles.base import Spawn
from pool.roles.cooperative import WorkTurns
from pool.starter import scratch


class VacatedScratch:
    """Removes the scratch directories of one machine's slots after their claims.

    Args:
        execute: the directory of the scratch directories.
        is_over: the role has ended: the role that follows it removes what is left.
    """

    def __init__(
        self, execute: Path, turns: WorkTurns, spawn: Spawn, is_over: Callable[[], bool], log: logging.Logger
    ) -> None:
        self._execute = execute
        self._turns = turns
        self._spawn = spawn
        self._is_over = is_over
        self._log = log
        self._left: dict[str, None] = {}
        self._removing = False

    def leave(self, slot: str) -> None:
        """A slot's claim is over: its directory is removed soon, and at the latest when another job begins there."""
        self._left[slot] = None
        if not self._removing:
            self._removing = True
            self._spawn(self._remove_all(), "remove scratch directories", alone=True)

    def remove_now(self, slot: str) -> None:
        """A job is to begin in a slot: nothing of the last claim is there any more when this returns.

        Raises:
            OSError: it cannot be removed.
        """
        if slot in self._left:
            scratch.discard(self._execute / slot)
            del self._left[slot]

    async def _remove_all(self) -> None:
        try:
            failed = set[str]()
            async with self._turns.work("", "remove scratch directories") as turn:
                while waiting := [slot for slot in self._left if slot not in failed]:
                    for slot in waiting:
                        if self._is_over():
                            return
                        try:
                            self.remove_now(slot)
                        except OSError as error:
                            failed.add(slot)
                            self._log.warning("a scratch directory is left", extra={"slot": slot, "why": str(error)})
                        if turn.is_over:
                            await turn.pause()
        finally:
            self._removing = False
