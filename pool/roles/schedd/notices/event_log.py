"""Users' logs after a schedd that was killed: what had become durable, and not been written into them, is written.

Which events the logs have is kept in the store, now and again; from there on each event is looked for in its log,
by its text, and appended where it is missing. So a log tells each event once, whenever the schedd dies.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from pool.errors import PoolError
from pool.jobs.events import EventKind, JobEvent
from pool.jobs.userlog import END, render
from pool.policy.packed import unpack, unpack_over
from pool.policy.queue import Wire
from pool.roles.cooperative import WorkTurn, WorkTurns
from pool.roles.schedd.core.ledger import Ledger
from pool.roles.schedd.files.spool import SENT_ALONG
from pool.shadow.files import FilesOf
from pool.store import WHOLE_CLUSTER

#: The name under which the store keeps the number of the newest event that users' logs are known to have.
LOGGED = "logged"
#: So much of a log's end is searched, bytes: what is missing happened just before the end.
SEARCHED = 4 << 20

#: Attributes of a job's ad that say where its log is.
LOG_NAMES = ("UserLog", "Iwd", SENT_ALONG)
Target = tuple[str, str]
Locate = Callable[[int, str], str]
T = TypeVar("T")


def target_of(owner: str, cluster: int, wire: Wire, locate: Locate) -> Target | None:
    """A job's log: its owner and the path; None where it has none, or none on this machine any more.

    Args:
        locate: where on this machine a file of a cluster's lies.
    """
    path = wire.get("UserLog")
    if not isinstance(path, str) or not path:
        return None
    full = path if path.startswith("/") else f"{wire.get('Iwd') or '/'}/{path}"
    where = locate(cluster, full)
    if wire.get(SENT_ALONG) is not None and where == full:
        return None  # its submitter has it, on another machine
    return owner, where


async def missing(
    ledger: Ledger, files: FilesOf, host: str, since: int, until: int, turns: WorkTurns, locate: Locate
) -> dict[Target, list[str]]:
    """For each log the texts it lacks of the events after number `since`, up to `until`, oldest first.

    Args:
        host: this machine, as SUBMIT events name it.
    """
    found: dict[Target, list[str]] = {}
    targets: dict[tuple[int, int], Target | None] = {}
    async with turns.work("", "look for what users' logs lack") as turn:
        async for event in _events(ledger, since, until, turn):
            key = (event.cluster, event.proc)
            if key not in targets:
                targets[key] = await _find(ledger, *key, turn, locate)
            target = targets[key]
            if target is not None:
                found.setdefault(target, []).append(render(event, host=host))
        lacking: dict[Target, list[str]] = {}
        for target, texts in found.items():
            end = await turn.wait_outside(_end_of(files, target))
            there = set(end.split(END))
            for text in (f"{part}{END}" for whole in texts for part in whole.split(END) if part):
                if turn.is_over:
                    await turn.pause()
                if text.removesuffix(END) not in there:
                    lacking.setdefault(target, []).append(text)
    return lacking


async def _events(ledger: Ledger, since: int, until: int, turn: WorkTurn) -> AsyncIterator[JobEvent]:
    read = aiter(ledger.store.events(after=since))
    while rows := await turn.wait_outside(_next(read)):
        for row in rows:
            if row.number > until:
                return
            event = JobEvent(row.number, row.cluster, row.proc, EventKind(row.kind), row.time, unpack(row.data))
            if turn.is_over:
                await turn.pause()
            if row.proc != WHOLE_CLUSTER:
                yield event
                continue
            for proc in range(int(event.data.get("count", 0))):
                if turn.is_over:
                    await turn.pause()
                yield event.for_proc(proc)


async def _next(read: AsyncIterator[Sequence[T]]) -> Sequence[T]:
    """The next rows, none at the end."""
    async for rows in read:
        return rows
    return ()


async def _find(ledger: Ledger, cluster: int, proc: int, turn: WorkTurn, locate: Locate) -> Target | None:
    job = ledger.queue.find(cluster, proc)
    if job is not None:
        return target_of(job.cluster.owner, cluster, {name: job.get(name) for name in LOG_NAMES}, locate)
    rows = await turn.wait_outside(_next(ledger.store.history(jobs=[(cluster, proc)], limit=1)))
    return target_of(rows[0].owner, cluster, unpack_over(rows[0].ad, rows[0].shared), locate) if rows else None


async def _end_of(files: FilesOf, target: Target) -> str:
    owner, path = target
    user = files(owner)
    try:
        size = (await user.stat(path)).size
        pieces = [piece async for piece in user.read(path, offset=max(0, size - SEARCHED))]
    except PoolError:
        return ""  # it is not there yet, or cannot be read; writing will tell
    return b"".join(pieces).decode(errors="replace")
