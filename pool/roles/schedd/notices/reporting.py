"""Tells users about their jobs without being asked: the job's log file, and a notice at the end (A10, VS 6.3.3).

Follows the events as they become durable. Log lines are appended with the rights of the job's owner; a log file
that cannot be written is said once in the node's log and never stops a job; a log that is no file (a named pipe that
nobody reads) holds the jobs that name it. A notice goes by mail where there is a
mail system, and into the event log always.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import posixpath
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence, Set
from typing import Any

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.jobs.events import AlikeEvents, EventKind, JobEvent
from pool.jobs.notice import notice, should_notify
from pool.jobs.reasons import Hold
from pool.jobs.userlog import render
from pool.policy.queue import HELD, QueuedCluster, QueuedJob, Wire
from pool.roles.base import RoleContext
from pool.roles.schedd.core.intake import TURN
from pool.roles.schedd.core.ledger import Ledger
from pool.roles.schedd.files.spool import Spool
from pool.roles.schedd.notices.event_log import LOG_NAMES, LOGGED, Locate, Target, missing, target_of
from pool.shadow.files import FileProblem
from pool.store import WHOLE_CLUSTER, SetMeta

#: Seconds between two notes in the store of how far the users' logs are; it goes along with another write.
NOTE_EVERY = 5.0
#: Errors of a log that is no file: nobody reads from a pipe, or not quickly enough.
NO_FILE = (errno.ENXIO, errno.EAGAIN, errno.EISDIR)
JobKey = tuple[int, int]
#: As `JobActions.act`.
Act = Callable[[dict[str, Any], str | None, str], Awaitable[Any]]
#: Jobs of a cluster whose log lines are written at a time.
MANY = 10_000
#: Seconds for which followers of a job wait until its log has its end; a log on a file server that hangs does not
#: hold them longer.
LOG_PATIENCE = 1.0


class Reporting:
    """Writes user logs and sends notices, in the order things happened."""

    def __init__(
        self,
        ledger: Ledger,
        given: RoleContext,
        log: logging.Logger,
        act: Act,
        spool: Spool | None = None,
    ) -> None:
        self._spool = spool
        self._locate: Locate = spool.locate if spool is not None else lambda cluster, path: path
        self._act = act
        self._ledger = ledger
        self._given = given
        self._log = log
        self._waiting: dict[Target, list[str]] = {}
        self._stops: dict[Target, list[JobKey]] = {}
        self._unwritten: dict[JobKey, asyncio.Future[None]] = {}
        self._clusters: list[tuple[JobEvent, Iterator[QueuedJob]]] = []
        self._notices: list[Wire] = []
        self._wake = asyncio.Event()
        self._reported: set[str] = set()
        self._paths: dict[JobKey, Target | None] = {}
        #: The logs have what an earlier run of this schedd left out; flushes under way.
        self._caught_up, self._flushes = False, 0
        self._heard = self._known = 0
        self._noted_at = 0.0
        self._noting: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Listen to the ledger from now on."""
        self._heard = self._ledger.last_event
        self._known = int(self._ledger.meta.get(LOGGED, b"0"))
        self._ledger.listen(self._on_events, self._on_alike_events)

    def finished(self, ad: Wire) -> None:
        """A job whose owner may want a notice has ended for good."""
        self._notices.append(ad)
        self._wake.set()

    async def run(self) -> None:
        try:
            await self._catch_up(self._known, self._heard)
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self.flush()
                if self._is_progress_due():
                    self._note_progress()
        finally:
            if self._noting is not None:
                self._noting.cancel()

    async def close(self) -> None:
        """Write what is waiting, and how far the logs are."""
        await self.flush()
        await self._store_progress()

    async def _catch_up(self, since: int, until: int) -> None:
        """Write what an earlier run of this schedd left out as it died, before anything that happens now."""
        lacking = await self._missing(since, until)
        self._waiting = {
            target: lacking.get(target, []) + self._waiting.get(target, [])
            for target in (*lacking, *(target for target in self._waiting if target not in lacking))
        }
        await self.flush()
        self._caught_up = True
        self._note_progress()

    async def _missing(self, since: int, until: int) -> dict[Target, list[str]]:
        given = self._given
        if since >= until:
            return {}
        return await missing(self._ledger, given.files, given.node, since, until, given.turns, self._locate)

    def _is_progress_due(self) -> bool:
        """Whether how far the users' logs are should be noted again, also where no job of late has a log: a restart
        reads all events since."""
        return asyncio.get_running_loop().time() > self._noted_at + NOTE_EVERY

    def _note_progress(self) -> None:
        """Have it stored along with another write; no line waits for that."""
        if self._noting is None or self._noting.done():
            self._noting = asyncio.get_running_loop().create_task(self._store_progress(NOTE_EVERY))

    async def _store_progress(self, within: float = 0.0) -> None:
        """Keep in the store how far the users' logs are, unless something is still to be written into them.

        Args:
            within: seconds for which this waits for another write to go along with.
        """
        unwritten = self._waiting or self._clusters or self._flushes or not self._caught_up
        if unwritten or self._heard == self._known:
            return
        self._noted_at, self._known = asyncio.get_running_loop().time(), self._heard
        try:
            await self._ledger.store.write(SetMeta(LOGGED, b"%d" % self._known), within=within)
        except PoolError as error:
            self._log.warning("how far the users' logs are was not kept", extra={"error": str(error)})

    async def flush(self) -> None:
        """Write and send everything that is waiting."""
        clusters, self._clusters = self._clusters, []
        waiting, self._waiting = self._waiting, {}
        stops, self._stops = self._stops, {}
        self._flushes += 1
        try:
            for event, jobs in clusters:
                await self._submitted(event, jobs)
            for target, lines in waiting.items():
                await self._append(target, lines)
                self._release(stops.pop(target, ()))
        finally:
            self._flushes -= 1
            for jobs_of_log in stops.values():
                self._release(jobs_of_log)
        notices, self._notices = self._notices, []
        for wire in notices:
            await self._notify(wire)

    async def until_logged(self, events: Iterable[JobEvent]) -> None:
        """Wait until users' logs have the ends and holds among these events, for `LOG_PATIENCE` seconds at most.

        So a user who waits for a job, and reads its log then, finds its end there.
        """
        if self._unwritten:
            stops = (event for event in events if event.kind.ends or event.kind is EventKind.HELD)
            await self.until_ends_logged({(event.cluster, event.proc) for event in stops})

    async def until_ends_logged(self, keys: Set[JobKey]) -> None:
        """The same for the last ends and holds of these jobs, if they have just been."""
        unwritten = [self._unwritten[key] for key in keys if key in self._unwritten]
        if unwritten:
            await asyncio.wait(unwritten, timeout=LOG_PATIENCE)
            self._release(keys)  # a log that is late once is not waited for again

    def _release(self, keys: Iterable[JobKey]) -> None:
        for key in keys:
            written = self._unwritten.pop(key, None)
            if written is not None and not written.done():
                written.set_result(None)

    async def _submitted(self, event: JobEvent, jobs: Iterator[QueuedJob]) -> None:
        """Tell the logs of all jobs of a large cluster, with the loop free in between."""
        lines: dict[Target, list[str]] = {}
        for number, job in enumerate(jobs, 1):
            target = self._target(job)
            if target is not None:
                lines.setdefault(target, []).append(render(event.for_proc(job.proc), host=self._given.node))
            if not number % TURN:
                await asyncio.sleep(0)
            if not number % MANY:
                while lines:
                    await self._append(*lines.popitem())
        while lines:
            await self._append(*lines.popitem())

    def _target(self, job: QueuedJob) -> Target | None:
        if not job.get("UserLog"):
            return None
        wire = {name: job.get(name) for name in LOG_NAMES}
        return target_of(job.cluster.owner, job.cluster.id, wire, self._locate)

    async def _append(self, target: Target, lines: Sequence[str]) -> None:
        owner, path = target
        files, text = self._given.files(owner), "".join(lines).encode()
        try:
            kept = self._spool.has_cluster_of(path) if self._spool is not None else None
            if kept is False:
                return  # nobody can fetch it any more
            if kept:
                await files.makedirs(posixpath.dirname(path))
            await files.append(path, text)
        except PoolError as error:
            if path not in self._reported:
                self._reported.add(path)
                self._log.warning("a job log cannot be written", extra={"path": path, "error": str(error)})
            if isinstance(error, FileProblem) and error.errno in NO_FILE:
                await self._hold(target, str(error))

    async def _hold(self, target: Target, why: str) -> None:
        """Hold all jobs that name a log which can never be written."""
        found: list[list[int]] = []
        for cluster in self._ledger.queue.clusters.values():
            if cluster.owner != target[0] or not self._any_log(cluster, cluster.jobs.values()):
                continue
            for number, job in enumerate(cluster.jobs.values(), 1):
                if job.status != HELD and target == self._target(job):
                    found.append(list(job.id))
                if not number % TURN:
                    await asyncio.sleep(0)
        if found:
            what = {"action": "hold", "ids": found, "code": int(Hold.USER_LOG), "reason": f"its log: {why}"}
            await self._act(what, None, target[0])

    def _on_events(self, events: Sequence[JobEvent]) -> None:
        for event in events:
            self._heard = max(self._heard, event.number or 0)
            if event.proc == WHOLE_CLUSTER:
                came = self._ledger.came
                if came is None or not came.have("UserLog"):
                    continue
                if came.count > TURN:
                    self._clusters.append((event, came.jobs()))
                    self._wake.set()
                else:
                    for job in came.jobs():
                        self._line(event.for_proc(job.proc), job)
                continue
            self._line(event, self._ledger.queue.find(event.cluster, event.proc))
            if event.kind.ends:
                self._paths.pop((event.cluster, event.proc), None)
        if self._waiting or self._is_progress_due():
            self._wake.set()

    def _on_alike_events(self, events: AlikeEvents, jobs: Sequence[QueuedJob]) -> None:
        """The same event of many jobs; mostly none of them has a log."""
        known = self._paths and any((events.cluster, job.proc) in self._paths for job in jobs)
        if known or jobs[0].get("UserLog") or self._any_log(jobs[0].cluster, jobs):
            self._on_events(list(events))
            return
        self._heard = max(self._heard, events.last_number)
        if self._is_progress_due():
            self._wake.set()

    @staticmethod
    def _any_log(cluster: QueuedCluster, jobs: Iterable[QueuedJob]) -> bool:
        return bool(cluster.wire.get("UserLog")) or any(job.delta and "UserLog" in job.delta for job in jobs)

    def _line(self, event: JobEvent, job: QueuedJob | None) -> None:
        key = (event.cluster, event.proc)
        if key not in self._paths:
            job = job or self._ledger.gone.get(key)
            if job is None:
                return
            target = self._target(job)
            if target is None:
                return
            self._paths[key] = target
        target = self._paths[key]
        if target is not None:
            self._waiting.setdefault(target, []).append(render(event, host=self._given.node))
            if event.kind.ends or event.kind is EventKind.HELD:
                self._stops.setdefault(target, []).append(key)
                if key not in self._unwritten:
                    self._unwritten[key] = asyncio.get_running_loop().create_future()

    async def _notify(self, wire: Wire) -> None:
        ad = ClassAd.from_wire(wire)
        if not should_notify(ad):
            return
        text = notice(ad)
        await self._ledger.record_event(int(wire["ClusterId"]), int(wire["ProcId"]), EventKind.NOTICE, {"text": text})
        to = wire.get("NotifyUser")
        user = to if isinstance(to, str) and to else str(wire.get("Owner"))
        subject = f"poolnode job {wire.get('ClusterId')}.{wire.get('ProcId')}"
        try:
            if not await self._given.mail(user, subject, text):
                self._log.info("no mail system here; the notice is in the event log", extra={"user": user})
        except (PoolError, OSError) as error:  # whatever the mail system does, the queue goes on
            self._log.warning("a notice could not be mailed", extra={"user": user, "error": str(error)})
