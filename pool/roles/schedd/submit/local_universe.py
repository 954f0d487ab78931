"""Jobs of the universes `local` and `scheduler`: started beside the schedd, with their owner's rights, in no slot.

The start contract is that of every job. The intended start is durable before a keeper is asked; the keeper outlives the
node and is found again by job and run; an end is durable before the keeper forgets it. Nothing travels, so that there
is no claim: a job that the queue says runs here and that has no keeper is not running.

Requirements are asked of an ad of this machine. How many run at once is MAX_LOCAL_JOBS.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pool.classad import ClassAd
from pool.config import Settings
from pool.config.places import PRIVATE
from pool.errors import PoolError
from pool.jobs.activation import Activation, CannotStart, FileMode, activation
from pool.jobs.events import EventKind
from pool.jobs.reasons import Hold
from pool.jobs.states import Happening
from pool.jobs.substitution import CannotFill, fill, needs_filling
from pool.machine.huge_pages import offered_huge_pages
from pool.policy.queue import IDLE, QueuedCluster, QueuedJob
from pool.policy.starter import Event
from pool.roles.base import LANGUAGE, RoleContext
from pool.roles.schedd.core.claim_settings import ClaimSettings
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.ended_jobs import EndedJobs
from pool.roles.schedd.core.intake import TURN
from pool.roles.schedd.core.job_ends import BEGAN, After, end_steps, hold_step, usage_changes
from pool.roles.schedd.core.ledger import JobChange
from pool.starter.accounts import NoJobAccount, account_for
from pool.starter.keeper import Keeper, Keepers
from pool.starter.place import ExecutionSite, StartRefused, UnixAccount
from pool.starter.spec import EndReport
from pool.starter.starter import Starter

#: A lease is renewed so many times before it ends; what a job uses is looked at as often.
RENEWALS = 4
#: Where its directories are, below the node's state.
DIRECTORY = "local"


class LocalSubmitSide:
    """The submit side of a job that runs there: nothing has to be carried."""

    reachable = False
    is_direct = False

    def __getattr__(self, name: str) -> Any:
        raise PoolError(f"a job that runs on the submit machine has no use for {name}")


class LocalJob:
    """One of them that runs."""

    def __init__(self, job: QueuedJob, start: Activation, starter: Starter) -> None:
        self.job = job
        self.start = start
        self.starter = starter
        #: It was asked to end.
        self.vacated = False


class LocalJobs:
    """All of them of one schedd.

    Args:
        leases: the settings that say how long a lease lives.
        ended: called when the end of a run is durable.
        changed: called when an owner's numbers changed; with True when there is new work.
        waits: whether an idle job's time has not come, or its last start has just failed.
        delay: seconds until the program of a job that is started now may begin.
        stop_workflow: does with a work flow's own job as its user wishes; False for a job that is none.
    """

    def __init__(
        self,
        context: ScheddContext,
        given: RoleContext,
        settings: Settings,
        leases: ClaimSettings,
        ended: EndedJobs,
        *,
        changed: Callable[[str, bool], None],
        waits: Callable[[QueuedJob], bool],
        delay: Callable[[QueuedJob], float],
        stop_workflow: Callable[[QueuedJob], Awaitable[bool]],
    ) -> None:
        self._given = given
        self._settings = settings
        self._leases = leases
        self._ended = ended
        self._changed = changed
        self._waits = waits
        self._delay = delay
        self._stop_workflow = stop_workflow
        self._spawn, self._outside = context.spawn, context.outside
        self._ledger, self._queue = context.ledger, context.queue
        self._clusters: dict[int, QueuedCluster] = {}
        self._running: dict[tuple[int, int], LocalJob] = {}
        self._keepers: Keepers | None = None
        self._machine: ClassAd | None = None
        self._looking = False
        self._again = False
        self._closing = False
        self._adopted = False

    @property
    def name(self) -> str:
        """Where they are said to run."""
        return f"local@{self._given.node}"

    @property
    def limit(self) -> int:
        """How many may run at once."""
        return int(self._settings.number("MAX_LOCAL_JOBS"))

    def reload(self, settings: Settings) -> None:
        """Take in settings that were read again; they count for the next start."""
        self._settings = settings

    # -- life ----------------------------------------------------------------------------------------------

    async def adopt(self, running: list[QueuedJob]) -> None:
        """After a start of the schedd: go on with those whose keepers are there; the others are idle again."""
        for count, cluster in enumerate(self._queue.clusters.values(), 1):
            if not count % TURN:
                await asyncio.sleep(0)
            self.added(cluster)
        state = self._given.state
        if running or (state is not None and (state / DIRECTORY).exists()):
            found = {(tuple(k.spec.claim["job"]), k.spec.claim["run"]): k for k in await self._open()}
            for job in running:
                keeper = found.pop((job.id, int(job.stored_note("_run")["run"])), None)
                if keeper is None:
                    await self._lost(job)
                else:
                    self._found(job, keeper)
            for keeper in found.values():  # their ends are durable, or their starts never were
                self._spawn(self._discard(keeper), "local")
        self._adopted = True  # nothing is started before: the keepers of jobs that run would be opened twice
        self.start_soon()

    async def close(self, *, kill: bool) -> None:
        """Let go of the keepers; the jobs run on in them unless they are to be killed."""
        self._closing = True
        if self._keepers is not None:
            keepers, self._keepers = self._keepers, None
            with contextlib.suppress(PoolError, OSError):
                await keepers.close(kill=kill)

    def added(self, cluster: QueuedCluster) -> None:
        """A cluster is in the queue."""
        if cluster.is_local:
            self._clusters[cluster.id] = cluster
            self.start_soon()

    def start_soon(self) -> None:
        """Start what can be started, soon."""
        if not self._clusters or self._closing or not self._adopted:
            return
        self._again = True
        if not self._looking:
            self._looking = True
            self._spawn(self._start_waiting(), "local")

    async def stop(self, job: QueuedJob, graceful: bool, signal: int | None = None) -> bool:
        """Have a job end that runs here; its wish is kept with it. False for one that does not."""
        found = self._running.get(job.id)
        if found is None:
            return job.cluster.is_workflow and await self._stop_workflow(job)
        found.vacated = True
        found.starter.asked_by = signal
        await found.starter.handle_event(Event.VACATE if graceful else Event.DIE)
        return True

    def starter_of(self, job: QueuedJob) -> tuple[str, Starter] | None:
        """Where a job runs that runs here, and its starter; None for another."""
        found = self._running.get(job.id)
        return (self.name, found.starter) if found is not None else None

    # -- starting --------------------------------------------------------------------------------------------

    async def _start_waiting(self) -> None:
        try:
            while self._again and not self._closing:
                self._again = False
                for number, cluster in list(self._clusters.items()):
                    if self._queue.clusters.get(number) is not cluster:
                        del self._clusters[number]
                        continue
                    for job in cluster.jobs.values():
                        if len(self._running) >= self.limit:
                            return
                        if job.status == IDLE and not self._waits(job):
                            await self._start(job)
        finally:
            self._looking = False

    async def _start(self, job: QueuedJob) -> None:
        """Make the intended start durable, then begin; what can never start here is held."""
        trouble: str | None = None
        code = Hold.START_FAILED
        try:
            if not self._accepts(job):
                code = Hold.UNSPECIFIED
                trouble = "it runs on the submit machine, and its Requirements do not hold there"
            start, account = self._activation(job), self._account(job)
            keepers = await self._opened()
        except (CannotStart, CannotFill, NoJobAccount) as error:
            trouble = str(error)
            code = Hold.NO_ACCOUNT if isinstance(error, NoJobAccount) else code
        if job.status != IDLE:
            return
        if trouble is not None:
            await self._ledger.commit(hold_step(job, f"cannot start: {trouble}", code))
            return
        now = int(self._outside.wall())
        changes: dict[str, Any] = {
            "NumJobStarts": start.run,
            "JobCurrentStartDate": now,
            "RemoteHost": self.name,
            BEGAN: None,
            "_run": {"local": True, "run": start.run},
        }
        if job.get("JobStartDate") is None:
            changes["JobStartDate"] = now
        starter = Starter(start, account, self._slot_place(start), keepers, LocalSubmitSide())
        running = self._running[job.id] = LocalJob(job, start, starter)
        await self._ledger.commit(JobChange(job, Happening.START, changes))
        self._changed(job.cluster.owner, False)
        self._spawn(self._run(running), "local")

    async def _run(self, running: LocalJob) -> None:
        job, start, starter = running.job, running.start, running.starter
        lease = self._leases.lease
        note = {"job": list(job.id), "run": start.run}
        try:
            await starter.start(lambda: lease, note)
        except (StartRefused, PoolError) as error:
            retry = bool(getattr(error, "retry", False))
            report = {"cause": "start", "where": getattr(error, "where", "start"), "error": str(error), "retry": retry}
            report["step"] = getattr(error, "step", "")
            await self._finish(running, {"cause": "vacated", "why": "it was stopped"} if running.vacated else report)
            return
        await self._go_on(running)

    async def _go_on(self, running: LocalJob) -> None:
        job, starter = running.job, running.starter
        if job.get(BEGAN) is None:
            wall = int(self._outside.wall())
            began = JobChange(job, None, {BEGAN: wall}, EventKind.EXECUTE, {"slot": self.name, "started": wall})
            await self._ledger.commit(began)
        renewing = self._spawn(self._renew(running), "local lease")
        try:
            end = await starter.wait()
        finally:
            renewing.cancel()
        await starter.handle_event(Event.CHILD_EXIT)
        await starter.handle_event(Event.DEFAULT)
        await self._finish(running, _report(end, running.vacated))

    async def _renew(self, running: LocalJob) -> None:
        keeper, job = running.starter.keeper, running.job
        assert keeper is not None
        while True:
            lease = self._leases.lease
            keeper.renew(lease)
            await asyncio.sleep(lease / RENEWALS)
            with contextlib.suppress(PoolError, TimeoutError):
                usage = await keeper.usage()
                changes = usage_changes({"max_rss": usage.max_rss})
                if any(job.get(name) != value for name, value in changes.items()):
                    data = {"max_rss": usage.max_rss, "user_cpu": usage.user_cpu, "system_cpu": usage.system_cpu}
                    await self._ledger.commit(JobChange(job, None, changes, EventKind.IMAGE_SIZE, data))

    async def _finish(self, running: LocalJob, report: dict[str, Any]) -> None:
        """Its end is made durable, and only then forgotten by its keeper."""
        job = running.job
        del self._running[job.id]
        await self._ledger.commit(*end_steps(job, self.name, report, self._outside.wall(), After()))
        self._ended.end_recorded(job)
        await running.starter.handle_event(Event.SUCCESS)
        self._changed(job.cluster.owner, job.status == IDLE)
        self.start_soon()

    # -- after a restart ---------------------------------------------------------------------------------------

    def _found(self, job: QueuedJob, keeper: Keeper) -> None:
        start = self._activation(job, int(keeper.spec.claim["run"]))
        account = UnixAccount(keeper.spec.uid, keeper.spec.gid, None, "", "", False)
        assert self._keepers is not None
        starter = Starter.found(keeper, start, account, self._slot_place(start), self._keepers, LocalSubmitSide())
        running = self._running[job.id] = LocalJob(job, start, starter)
        self._spawn(self._resume(running), "local")

    async def _resume(self, running: LocalJob) -> None:
        await running.starter.handle_event(Event.FOUND)
        if running.job.stored_note("_wish"):
            running.vacated = True
            await running.starter.handle_event(Event.VACATE)
        await self._go_on(running)

    async def _lost(self, job: QueuedJob) -> None:
        wish = job.stored_note("_wish")
        report = {"cause": "vacated", "why": "the machine was started anew, or its node was killed at its start"}
        await self._ledger.commit(*end_steps(job, self.name, report, self._outside.wall(), After()))
        if wish:
            self._ended.end_recorded(job)

    @staticmethod
    async def _discard(keeper: Keeper) -> None:
        await keeper.kill()
        await keeper.ended
        await keeper.forget()

    # -- what a start is made of ---------------------------------------------------------------------------------

    def _activation(self, job: QueuedJob, run: int | None = None) -> Activation:
        """Everything is where it is; nothing is copied."""
        run = int(job.get("NumJobStarts", 0)) + 1 if run is None else run
        ad = job.ad()
        if needs_filling(ad):
            ad = fill(ad, self._ad(), self._outside.wall())
        here = ClassAd.from_wire({"FileSystemDomain": "here", "HasRemoteIO": False})
        ad["FileSystemDomain"], ad["ShouldTransferFiles"], ad["RemoteIO"] = "here", "NO", False
        delay = self._delay(job)
        return replace(activation(ad, here, run, None), mode=FileMode.SHARED, inputs=(), outputs=None, not_before=delay)

    def _account(self, job: QueuedJob) -> UnixAccount:
        """The owner's own account: nobody's rights would be of no use on the machine where its files are."""
        settings = self._settings
        domain = settings.text("UID_DOMAIN")
        rule = "node" if self._given.user is not None else settings.text("RUN_AS")
        return account_for(job.cluster.owner, domain, domain, "refuse" if rule == "owner" else rule, same_node=True)

    def _slot_place(self, start: Activation) -> ExecutionSite:
        given, settings = self._given, self._settings
        state = given.state
        return ExecutionSite(
            slot=start.name,
            execute=self._directory("execute"),
            executables=self._directory("executables"),
            cpus=1,
            memory=None,
            hidden=tuple(str(state / name) for name in (*PRIVATE, DIRECTORY)) if state is not None else (),
            system_calls=settings.text("JOB_SYSTEM_CALLS"),
            network=settings.text("JOB_NETWORK"),
            private_tmp=settings.flag("PRIVATE_TMP"),
            huge_pages=offered_huge_pages(),
            processes=int(settings.number("JOB_PROCESSES")) or None,
        )

    def _directory(self, name: str) -> Path:
        state = self._given.state
        base = state / DIRECTORY if state is not None else Path(self._settings.text("EXECUTE_DIR")) / DIRECTORY
        (base / name).mkdir(parents=True, exist_ok=True)
        return base / name

    async def _opened(self) -> Keepers:
        if self._keepers is None:
            for keeper in await self._open():
                self._spawn(self._discard(keeper), "local")
        assert self._keepers is not None
        return self._keepers

    async def _open(self) -> list[Keeper]:
        keepers = self._given.local_keepers()
        found = list(await keepers.open())
        self._keepers = keepers
        return found

    def _accepts(self, job: QueuedJob) -> bool:
        """Whether the job's Requirements hold on this machine, as far as they can be told by its ad."""
        ad = job.ad()
        if ad.get("Requirements") is None:
            return True
        return ad.value("Requirements", False, self._ad(), self._outside.wall()) is True

    def _ad(self) -> ClassAd:
        """This machine as a job's Requirements see it."""
        if self._machine is None:
            given, settings = self._given, self._settings
            facts = given.sensors().read(self._outside.wall())
            domain = settings.text("FILESYSTEM_DOMAIN")
            more = {"MyType": "Machine", "Machine": given.node, "Name": self.name, "FileSystemDomain": domain}
            able = {"HasFileTransfer": True, "HasJobDeferral": True, "CondorVersion": LANGUAGE}
            self._machine = ClassAd.from_wire({**facts, **more, **able})
        return self._machine


def _report(end: EndReport, stopped: bool) -> dict[str, Any]:
    """The end of a run as a startd would report it."""
    report = end.report()
    if end.cause == "start":
        report |= {"where": "start", "error": end.error, "retry": False}
    elif stopped:
        report |= {"cause": "vacated", "why": "it was stopped"}
    return report
