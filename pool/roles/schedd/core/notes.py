"""Short notes that a schedd keeps beside its jobs: which executable a cluster has, outputs that are being placed, and
why programs could not be checkpointed (C7), which their owner sees before the next run.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping

from pool.errors import PoolError
from pool.jobs.arguments import QuotingError, arguments_of
from pool.jobs.checkpoint_precheck import known_as
from pool.policy.queue import QueuedJob
from pool.roles.base import Spawn
from pool.store import SetMeta, Store

#: The name under which the store keeps the digest of a cluster's executable; the cluster's number follows.
EXECUTABLE = "executable "
#: The same for what a program was refused for; its owner and its name follow.
REFUSED = "refused "
#: Seconds that what can be found out again waits for another write to go along with.
UNHURRIED = 1.0
#: Programs that are remembered, and characters of a name and of a reason.
MOST_PROGRAMS, MOST_NAME, MOST_REASON = 1000, 1000, 500


class Notes:
    """The notes of one schedd."""

    def __init__(self, store: Store, log: logging.Logger, spawn: Spawn) -> None:
        self._store = store
        self._log = log
        self._spawn = spawn
        self._refused: dict[str, str] = {}

    def restore(self, meta: Mapping[str, bytes], recall: Callable[[int, str], None]) -> None:
        """Take up the notes that were made before this start.

        Args:
            recall: called with each cluster and the digest of its executable.
        """
        for name, value in meta.items():
            if name.startswith(EXECUTABLE):
                recall(int(name.removeprefix(EXECUTABLE)), value.decode())
            elif name.startswith(REFUSED):
                self._refused[name] = value.decode()

    def remember(self, cluster: int, digest: str | None) -> None:
        """Note a cluster's executable, or that it has none any more."""
        self._store_soon(f"{EXECUTABLE}{cluster}", digest, "an executable will be read again")

    async def store_note(self, name: str, value: bytes | None) -> None:
        """Note something for good before this returns, or drop it soon."""
        if value is not None:
            await self._store.write(SetMeta(name, value))
        else:
            self._store_soon(name, None, "a note stays until it can be removed")

    def refused(self, job: QueuedJob, why: str) -> None:
        """A job could not be checkpointed, or can be again: of its program the next submit is told."""
        program = str(job.get("Cmd") or "")
        if not program:  # of several programs no one is at fault
            return
        said = {name: job.get(name) for name in ("Arguments", "Args")}
        with contextlib.suppress(QuotingError):
            program = known_as(program, str(job.get("Iwd") or "/"), arguments_of(said))
        name = REFUSED + _key(job.cluster.owner, program)
        if len(name) > MOST_NAME or self._refused.get(name, "") == why[:MOST_REASON]:
            return
        self._refused.pop(name, None)
        if why:
            self._refused[name] = why[:MOST_REASON]
        self._store_soon(name, self._refused.get(name), "a refusal is not remembered")
        if len(self._refused) > MOST_PROGRAMS:
            oldest = next(iter(self._refused))
            del self._refused[oldest]
            self._store_soon(oldest, None, "a refusal is remembered for longer")

    def refusals(self, owner: str, programs: Iterable[str]) -> dict[str, str]:
        """Why an owner's programs could not be checkpointed when they ran last, of those that are known for it."""
        found = ((program, self._refused.get(REFUSED + _key(owner, program))) for program in programs)
        return {program: why for program, why in found if why is not None}

    def _store_soon(self, name: str, value: str | None, else_: str) -> None:
        async def write() -> None:
            try:
                await self._store.write(SetMeta(name, value.encode() if value else None), within=UNHURRIED)
            except PoolError as error:
                self._log.warning(else_, extra={"note": name, "why": str(error)})

        self._spawn(write(), "note")


def _key(owner: str, program: str) -> str:
    return f"{owner} {program}"
