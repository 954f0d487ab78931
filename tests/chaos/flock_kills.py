"""kill -9 of every kind of process in the flock of real pools, chosen at random."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from tests.chaos.flock_pools import FlockPools
from tests.chaos.real_faults import LEASE
from tests.chaos.real_machines import Machine, command_line, parent, send


class Victim(StrEnum):
    """The kinds of processes."""

    HEAD = "a head (collector, negotiator, schedd, world)"
    STARTD = "a startd"
    KEEPER = "a keeper"
    FORK_SERVER = "a fork server"
    FILE_SERVER = "a user's file server"
    JOB = "a process of a job"


#: How often each is chosen.
WEIGHTS = {
    Victim.HEAD: 3,
    Victim.STARTD: 3,
    Victim.KEEPER: 4,
    Victim.FORK_SERVER: 2,
    Victim.FILE_SERVER: 2,
    Victim.JOB: 3,
}
#: Part of the killed nodes that stay away for longer than a lease.
LONG_AWAY = 0.15


class Killer:
    """Kills one process after the other.

    Attributes:
        killed: how many of each kind.
    """

    def __init__(self, pools: FlockPools, seed: int) -> None:
        self.killed: Counter[Victim] = Counter()
        self._pools = pools
        self._chance = random.Random(f"flock kills {seed}")
        self._away: set[asyncio.Task[None]] = set()

    def kill(self) -> str:
        """Kill a process of a kind by chance, or of the next kind of which there is one; where, and what."""
        kinds = list(WEIGHTS)
        (first,) = self._chance.choices(kinds, list(WEIGHTS.values()))
        for kind in [first, *self._chance.sample(kinds, len(kinds))]:
            if (found := self._kill(kind)) is not None:
                self.killed[kind] += 1
                return found
        return "nothing was there"

    async def over(self) -> None:
        """Wait until all nodes that were killed may run again."""
        await asyncio.gather(*self._away)

    def _kill(self, kind: Victim) -> str | None:
        if kind in (Victim.HEAD, Victim.STARTD):
            nodes = self._pools.heads if kind is Victim.HEAD else self._pools.machines
            if not (there := [node for node in nodes.values() if node.is_well]):
                return None
            node = self._chance.choice(there)
            is_long = self._chance.random() < LONG_AWAY
            seconds = self._chance.uniform(1.2, 2.0) * LEASE if is_long else self._chance.uniform(0.0, 0.5)
            self._away.add(task := asyncio.create_task(node.kill(seconds)))
            task.add_done_callback(self._away.discard)
            return f"{node.name} {kind}, for {seconds:.1f} s"
        found = [(node, pid) for node in self._pools.nodes if node.is_well for pid in _processes(node, kind)]
        if not found:
            return None
        node, pid = self._chance.choice(found)
        words = command_line(pid).replace(b"\0", b" ").decode(errors="replace")[:80]
        return f"{node.name} {kind}, {pid} {words}" if send([pid], signal.SIGKILL) else None


def _processes(node: Machine, kind: Victim) -> Iterator[int]:
    """The processes of a kind that run at a node."""
    fork_server = node.fork_server()
    for pid in node.processes():
        if kind is Victim.FORK_SERVER:
            fits = pid == fork_server
        elif kind is Victim.FILE_SERVER:
            fits = b"pool.remoteio.file_server" in command_line(pid)
        elif kind is Victim.KEEPER:
            fits = pid != fork_server and is_keeper(pid)
        else:
            fits = not is_keeper(pid) and any(is_keeper(above) for above in _above(pid) if above != fork_server)
        if fits:
            yield pid


def is_keeper(pid: int) -> bool:
    """Whether a process is the program that keeps jobs: a fork server, a keeper or a helper of one."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith(("keeper", "mapping"))
    except OSError:
        return False


def _above(pid: int) -> Iterator[int]:
    up = parent(pid)
    while up is not None and up > 1:
        yield up
        up = parent(up)
