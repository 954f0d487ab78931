"""Shows the queue, the history, the accounts, the events and a job's output.

Reads only. Long listings go out in batches with the loop free in between; nothing here keeps a copy of anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from pool.classad import ClassAd, Expr, evaluate, parse_expr
from pool.errors import PoolError
from pool.jobs.events import AlikeEvents, EventKind, JobEvent
from pool.jobs.gangs import file_of
from pool.jobs.privacy import may_see, public
from pool.jobs.tail import start_of
from pool.outside import OutsideWorld
from pool.policy.packed import unpack, unpack_over
from pool.policy.queue import ACTIVE, COMPLETED, QueuedJob, Wire
from pool.roles.cooperative import WorkTurn, WorkTurns
from pool.roles.links import Links
from pool.roles.schedd.core.claims import HeldClaim
from pool.roles.schedd.core.ledger import Ledger
from pool.roles.schedd.core.queue_walk import jobs_named, visible_ad, walk_jobs
from pool.roles.schedd.files.spool import SENT_ALONG
from pool.roles.schedd.views.grouped_listing import GroupedListing, project
from pool.shadow.files import FilesOf
from pool.store import WHOLE_CLUSTER
from pool.wire import Stream

BATCH = 500
#: A watcher with this many events waiting is too slow and is cut off; it asks again from where it was.
MOST_WAITING = 100_000
#: Seconds after events were sent to a watcher for which further ones gather, to be sent together.
GATHER = 0.01
#: Seconds between two looks at a growing output file on this machine.
LOOK = 0.2
CHUNK = 64 * 1024


class Listings:
    """The read side of a schedd.

    Args:
        user_name: a user as the queue names it.
        locate: where on this machine a file of a cluster's lies.
    """

    def __init__(
        self,
        ledger: Ledger,
        outside: OutsideWorld,
        files: FilesOf,
        links: Links,
        turns: WorkTurns,
        *,
        user_name: Callable[[str], str],
        locate: Callable[[int, str], str] = lambda cluster, path: path,
    ) -> None:
        self._user_name = user_name
        self._turns = turns
        self._ledger = ledger
        self._queue = ledger.queue
        self._outside = outside
        self._files = files
        self._locate = locate
        self._links = links

    def named(self, params: dict[str, Any]) -> dict[str, Any]:
        """How jobs are chosen, with their user named as in the queue."""
        return params | {"owner": self._user_name(params["owner"])} if params.get("owner") else params

    async def query(self, params: dict[str, Any], stream: Stream, viewer: str | None, asker: str) -> None:
        """Jobs in the queue: {constraint, ids, owner, attributes, limit, columns} -> batches of ads.

        With `columns` and `attributes` they are batches of groups of jobs (`pool.jobs.job_columns`).

        Args:
            viewer: as whom (`pool.jobs.privacy.may_see`); what others may not see, they cannot ask by either.
            asker: the user who asks; users take turns.
        """
        params = self.named(params)
        constraint = _parsed(params.get("constraint"))
        wanted = params.get("attributes")
        left = int(params.get("limit") or 0) or -1
        now = self._outside.wall()
        batch: list[Wire] = []
        alike = GroupedListing(wanted) if wanted and params.get("columns") else None
        async with self._turns.work(asker, "list jobs") as turn:
            async for job in self._select(params, turn):
                hidden = not may_see(viewer, job.cluster.owner)
                if constraint is not None and not _true(evaluate(constraint, visible_ad(job, hidden), None, now)):
                    continue
                if alike is not None:
                    alike.add(job, hidden)
                else:
                    ad = project(job, wanted) if wanted else job.wire() | job.negotiation_answer()
                    batch.append(public(ad) if hidden else ad)
                left -= 1
                if left == 0:
                    break
                if alike is not None and alike.full:
                    await turn.send(stream, alike.pop_groups())
                if len(batch) >= BATCH:
                    await turn.send(stream, batch)
                    batch = []
        if alike is not None:
            await stream.send(alike.pop_groups())
        if batch:
            await stream.send(batch)
        await stream.finish()

    async def history(self, params: dict[str, Any], stream: Stream, viewer: str | None, asker: str) -> None:
        """Ended jobs, newest first: the same parameters as `query`."""
        params = self.named(params)
        constraint = _parsed(params.get("constraint"))
        wanted = params.get("attributes")
        left = int(params.get("limit") or 0) or -1
        now = self._outside.wall()
        ids = params.get("ids")
        jobs = [(int(one[0]), int(one[1]) if len(one) > 1 else None) for one in ids] if ids else None
        async for rows in self._ledger.store.history(
            jobs=jobs, owner=params.get("owner"), limit=None if constraint or left < 0 else left
        ):
            batch: list[Wire] = []
            async with self._turns.work(asker, "list ended jobs") as turn:
                for row in rows:
                    if turn.is_over:
                        await turn.pause()
                    wire: Wire = unpack_over(row.ad, row.shared)
                    if not may_see(viewer, row.owner):
                        wire = public(wire)
                    if constraint is not None and not _true(evaluate(constraint, ClassAd.from_wire(wire), None, now)):
                        continue
                    batch.append({name: wire[name] for name in wanted if name in wire} if wanted else wire)
                    left -= 1
                    if left == 0:
                        break
            if batch:
                await stream.send(batch)
            if left == 0:
                break
        await stream.finish()

    async def summary(self) -> list[dict[str, Any]]:
        """Per user: jobs, local and remote processor seconds, leverage (EV 2.8); work done and lost, checkpoints."""
        rows = await self._ledger.store.usage()
        return [
            {
                "owner": row.owner,
                "jobs": row.jobs,
                "local_cpu": row.local_cpu,
                "remote_cpu": row.remote_cpu,
                "leverage": row.remote_cpu / row.local_cpu if row.local_cpu else None,
                "work": row.work,
                "lost": row.lost,
                "checkpoint_seconds": row.saving,
                "checkpoint_bytes": row.saved,
            }
            for row in rows
        ]

    async def _select(self, params: dict[str, Any], turn: WorkTurn) -> AsyncIterator[QueuedJob]:
        ids, owner = params.get("ids"), params.get("owner")
        leaving = list(self._ledger.not_yet_in_history.values())
        if not ids:
            for job in leaving:
                if not owner or job.cluster.owner == owner:
                    yield job
            async for job in walk_jobs(self._queue, turn, owner):
                yield job
            return
        for job in leaving:
            if any(job.id[: len(one)] == tuple(one) for one in ids):
                yield job
        for found in jobs_named(self._queue, ids, []):
            if turn.is_over:
                await turn.pause()
            if found is not None:
                yield found

    # -- events ------------------------------------------------------------------------------------------

    async def watch(self, params: dict[str, Any], stream: Stream) -> None:
        """Events, oldest first, then live: {cluster?, ids?, after} -> lists of events."""
        cluster = int(params["cluster"]) if params.get("cluster") is not None else None
        ids = {(int(one[0]), int(one[1]) if len(one) > 1 else -2) for one in params.get("ids") or ()}
        after = int(params.get("after") or 0)
        waiting: list[JobEvent] = []
        wake = asyncio.Event()

        def is_wanted(event: JobEvent) -> bool:
            if cluster is not None and event.cluster != cluster:
                return False
            if not ids:
                return True
            return (
                (event.cluster, event.proc) in ids
                or (event.cluster, -2) in ids
                or (event.proc == WHOLE_CLUSTER and any(one[0] == event.cluster for one in ids))
            )

        def listener(events: Sequence[JobEvent]) -> None:
            waiting.extend(event for event in events if is_wanted(event))
            if waiting:
                wake.set()

        def alike_listener(events: AlikeEvents, jobs: Sequence[QueuedJob]) -> None:
            if cluster is None or events.cluster == cluster:
                listener(list(events))

        stop = self._ledger.listen(listener, alike_listener)
        try:
            last = after
            if params.get("after") is None or after < self._ledger.last_event:
                async for rows in self._ledger.store.events(cluster, after=after):
                    old = [
                        JobEvent(
                            row.number,
                            row.cluster,
                            row.proc,
                            EventKind(row.kind),
                            row.time,
                            unpack(row.data),
                        )
                        for row in rows
                    ]
                    last = rows[-1].number
                    chosen = [event.to_wire() for event in old if is_wanted(event)]
                    if chosen:
                        await stream.send(chosen)
            await stream.send([])
            while True:
                await wake.wait()
                wake.clear()
                if len(waiting) > MOST_WAITING:
                    raise PoolError(
                        "too slow a reader of events",
                        hint="watch again from the last number seen",
                        retry=True,
                    )
                fresh, waiting[:] = [event for event in waiting if (event.number or 0) > last], []
                for start in range(0, len(fresh), BATCH):
                    await stream.send([event.to_wire() for event in fresh[start : start + BATCH]])
                await asyncio.sleep(GATHER)
        finally:
            stop()

    # -- output ------------------------------------------------------------------------------------------

    async def tail(self, params: dict[str, Any], stream: Stream, only_owner: str | None) -> None:
        """A job's output: {id, file: out|err, offset | lines, follow, node} -> bytes; ends when an ended job's is sent.

        With `lines` it begins so many before the end; with `with_offset`, the byte where that is comes first.
        """
        number = (int(params["id"][0]), int(params["id"][1]))
        which = "err" if params.get("file") == "err" else "out"
        reported = not params.get("with_offset")
        follow, node = bool(params.get("follow")), int(params.get("node") or 0)
        offset = int(params.get("offset") or 0)
        lines: int | None = int(params["lines"]) if params.get("lines") is not None else None
        while True:
            job = self._queue.find(*number)
            ad = job.wire() if job is not None else await self._ended_ad(number)
            owner = str(ad.get("Owner"))
            if only_owner is not None and owner != only_owner:
                raise PoolError(f"job {number[0]}.{number[1]} belongs to {owner}")
            iwd = str(ad.get("Iwd") or "/")
            path = file_of(ad, "Out" if which == "out" else "Err", node) or "/dev/null"
            if path == "/dev/null":
                raise PoolError(
                    f"job {number[0]}.{number[1]} keeps no {'output' if which == 'out' else 'error'} file",
                    hint=f"set {'output' if which == 'out' else 'error'} in the description file",
                )
            full = self._locate(number[0], path if path.startswith("/") else f"{iwd}/{path}")
            if ad.get(SENT_ALONG) is not None and job is None:
                hint = "look for it where the job was submitted"
                raise PoolError(f"the output of job {number[0]}.{number[1]} is kept here no longer", hint=hint)
            running = job is not None and job.status in ACTIVE
            claim: HeldClaim | None = job.run if job is not None else None
            if claim is not None and claim.gang is not None and claim.gang.parallel:
                claim = claim.gang.claims.get(node)
            if running and claim is not None and claim.start is not None and claim.start.mode == "transfer":
                offset = await self._tail_remote(claim, which, offset, stream, lines, reported)
            else:
                offset = await self._tail_here(owner, full, offset, stream, lines, reported)
            lines = None
            over = job is None or job.status == COMPLETED
            if not follow or over:
                if follow or over or not running:
                    offset = await self._tail_here(owner, full, offset, stream)
                break
            await asyncio.sleep(LOOK)
        await stream.finish()

    async def _ended_ad(self, number: tuple[int, int]) -> Wire:
        async for rows in self._ledger.store.history(jobs=[number], limit=1):
            wire: Wire = unpack_over(rows[0].ad, rows[0].shared)
            return wire
        raise PoolError(
            f"there is no job {number[0]}.{number[1]}", hint="`poolnode q` and `poolnode history` list jobs"
        )

    async def _tail_here(
        self,
        owner: str,
        full: str,
        offset: int,
        stream: Stream,
        lines: int | None = None,
        reported: bool = True,
    ) -> int:
        files = self._files(owner)

        async def read(start: int, size: int) -> bytes:
            return b"".join([chunk async for chunk in files.read(full, offset=start, length=size)])

        try:
            if lines is not None:
                offset = await start_of(lines, (await files.stat(full)).size, read)
                if not reported:
                    await stream.send(offset)
            async for chunk in files.read(full, offset=offset):
                await stream.send(chunk)
                offset += len(chunk)
        except PoolError as error:
            if "no such file" not in str(error).lower():
                raise
        return offset

    async def _tail_remote(
        self,
        claim: HeldClaim,
        which: str,
        offset: int,
        stream: Stream,
        lines: int | None = None,
        reported: bool = True,
    ) -> int:
        link = await self._links.connect(claim.startd)
        remote = await link.stream("startd.tail", {"claim": claim.id, "file": which, "offset": offset, "lines": lines})
        async for chunk in remote:
            if isinstance(chunk, int):
                offset = chunk
                if not reported:
                    await stream.send(offset)
                continue
            await stream.send(chunk)
            offset += len(chunk)
        return offset


def _parsed(text: Any) -> Expr | None:
    return parse_expr(str(text), syntax="old") if text else None


def _true(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) and bool(value)
