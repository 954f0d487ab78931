"""Keepers that wait for another job: which there are, what kind of job each may be given, and for how long they stay.

A start through a waiting keeper costs a message and the program's own fork and exec: the namespaces are there
(pool/checkpoint/keeper/reuse.c says when a keeper may wait). Sends nothing itself.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from pool.starter.spec import KeeperSpec

#: Seconds a keeper waits before it is retired.
STAY = 3.0

Key = tuple[object, ...]


def kind_of(spec: KeeperSpec) -> Key | None:
    """The properties that two jobs must share to run in one keeper, one after the other: all that they see and may do.

    The scratch directory counts as what it is, not only by its name: the keeper holds it. None when it is not
    there, and for a job that sees another machine's files or has a root or a network of its own. The claim counts too,
    so that nothing of one owner's jobs can wait for another's.
    """
    scratch: tuple[int, ...] = ()
    if spec.remote or spec.binds or spec.root or spec.network_setup:
        return None
    if spec.scratch:
        try:
            status = os.stat(spec.scratch)
        except OSError:
            return None
        scratch = (status.st_dev, status.st_ino)
    own_tmp = spec.private_tmp or spec.isolation == "full"
    return (
        spec.uid,
        spec.gid,
        spec.groups,
        spec.isolation,
        spec.hidden,
        spec.devices,
        spec.private_tmp,
        spec.network,
        spec.memory if own_tmp else None,  # it limits /tmp
        spec.scratch,
        spec.fixed,
        scratch,
        spec.claim.get("claim"),
    )


@dataclass(frozen=True, slots=True)
class Idle:
    """A keeper that waits: its cell, its process id, and the number of its last run."""

    cell: int
    pid: int
    number: int
    since: float


class IdleKeepers:
    """The waiting keepers of one node.

    Args:
        retire: called with one that nobody needed for a while.
    """

    def __init__(self, retire: Callable[[Idle], None]) -> None:
        self._retire = retire
        self._loop = asyncio.get_running_loop()
        self._by_kind: defaultdict[Key, list[Idle]] = defaultdict(list)
        self._kinds: dict[int, Key] = {}  # cell -> kind
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._kinds)

    def add_keeper(self, kind: Key, cell: int, pid: int, number: int) -> None:
        """One has begun to wait."""
        self._by_kind[kind].append(Idle(cell, pid, number, self._loop.time()))
        self._kinds[cell] = kind
        if self._timer is None:
            self._timer = self._loop.call_later(STAY, self._retire_due)

    def take_keeper(self, kind: Key | None) -> Idle | None:
        """One for a job of that kind, which has it from now on; the last that came."""
        idle = self._by_kind.get(kind) if kind is not None else None
        if not idle:
            return None
        one = idle.pop()
        del self._kinds[one.cell]
        if not idle:
            assert kind is not None
            del self._by_kind[kind]
        return one

    def remove(self, cell: int) -> bool:
        """The keeper of a cell died; whether it was one of these."""
        kind = self._kinds.pop(cell, None)
        if kind is None:
            return False
        left = [one for one in self._by_kind[kind] if one.cell != cell]
        if left:
            self._by_kind[kind] = left
        else:
            del self._by_kind[kind]
        return True

    def clear(self) -> None:
        """Retire all."""
        everybody = [one for idle in self._by_kind.values() for one in idle]
        self._by_kind.clear()
        self._kinds.clear()
        for one in everybody:
            self._retire(one)

    def close(self) -> None:
        """Look no more after them."""
        if self._timer is not None:
            self._timer.cancel()

    def _retire_due(self) -> None:
        self._timer = None
        now = self._loop.time()
        due = [one for idle in self._by_kind.values() for one in idle if now - one.since >= STAY]
        for one in due:
            self.remove(one.cell)
            self._retire(one)
        if self._kinds:
            first = min(one.since for idle in self._by_kind.values() for one in idle)
            self._timer = self._loop.call_later(max(first + STAY - now, 0.1), self._retire_due)
