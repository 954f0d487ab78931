"""The schedd: joins the rooms below it, and serves the methods with which users queue and change jobs.

The queue changes through `Ledger`, running jobs through `Placement`; `JobActions` changes jobs for people, `JobViews`
shows jobs to them. This is the only file that knows all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar

from pool.classad import ClassAd, parse_expr
from pool.decimals import whole_number
from pool.errors import PoolError
from pool.images import ImageStore
from pool.jobs.events import EventKind
from pool.policy.managed import is_reserved
from pool.policy.queue import JobQueue, QueuedCluster, QueuedJob, Wire
from pool.roles.advertise import Advertiser
from pool.roles.base import Role, quota_of
from pool.roles.schedd.checkpoints.checkpoint_server import CheckpointServer
from pool.roles.schedd.checkpoints.images import StoredCheckpoints
from pool.roles.schedd.checkpoints.pending_checkpoints import PendingCheckpoints
from pool.roles.schedd.checkpoints.place import CheckpointPlace
from pool.roles.schedd.core.callers import CHOICE, owner_of
from pool.roles.schedd.core.claim_settings import ClaimSettings
from pool.roles.schedd.core.claims import ClaimTable
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.ended_jobs import EndedJobs
from pool.roles.schedd.core.intake import TURN, ClusterIntake, at_rest
from pool.roles.schedd.core.ledger import JobChange, Ledger
from pool.roles.schedd.core.notes import Notes
from pool.roles.schedd.core.startd_calls import StartdCalls
from pool.roles.schedd.core.store_upkeep import shrink_now_and_again
from pool.roles.schedd.core.submit_side_costs import SubmitSideCosts
from pool.roles.schedd.core.validation import check_kind, clean
from pool.roles.schedd.dedicated.methods import DedicatedMethods
from pool.roles.schedd.dedicated.preemption import PreemptionRules
from pool.roles.schedd.dedicated.preemption import trouble as preemption_trouble
from pool.roles.schedd.dedicated.reservations import Reservations
from pool.roles.schedd.dedicated.scheduler import DedicatedScheduler, SchedulerCalls
from pool.roles.schedd.dedicated.settings import dedicated_settings
from pool.roles.schedd.files.output_streams import OutputStreams
from pool.roles.schedd.files.remote_io import RemoteFiles
from pool.roles.schedd.files.spool import SPOOLING, Spool
from pool.roles.schedd.files.spool_methods import SpoolMethods
from pool.roles.schedd.files.spool_outputs import SpooledOutputs
from pool.roles.schedd.notices.reporting import Reporting
from pool.roles.schedd.placement.deferral import Deferrals, defer
from pool.roles.schedd.placement.methods import NegotiatorMethods, StartdMethods
from pool.roles.schedd.placement.pacing import Pacing
from pool.roles.schedd.placement.placement import Placement
from pool.roles.schedd.placement.start_pauses import StartPauses
from pool.roles.schedd.placement.submitters import Submitters
from pool.roles.schedd.submit.job_actions import JobActions
from pool.roles.schedd.submit.local_universe import LocalJobs
from pool.roles.schedd.submit.rules import Rules
from pool.roles.schedd.views.forwarding import JobForwarding
from pool.roles.schedd.views.inspecting import JobInspection
from pool.roles.schedd.views.job_views import JobViews
from pool.roles.schedd.views.listings import Listings
from pool.roles.schedd.views.why import JobExplanations
from pool.shadow.executables import ExecutableStore
from pool.shadow.shadow import PLACING, Shadow
from pool.store import SetMeta, Trim
from pool.wire import Call, Right, Service, Stream, method, streaming
from pool.wire.parameter_checks import TEXTS, Takes

#: Seconds for which an executable is kept that no job in the queue needs: the next submit often does.
KEEP_UNUSED = 86400.0
#: Attributes that expressions of submit files rely on, where the client did not measure them. Sizes in MB and KiB.
UNLESS_SAID = {"TransferInputSizeMB": 0, "ImageSize": 0, "DiskUsage": 0}

#: Seconds between two reports on the progress of a long change of jobs.
TELL_EVERY = 1.0

#: Parameters beside the jobs when they are queued; `spool`: their files come from another machine.
QUEUING: Takes = {"cluster": int | None, "owner": str | None, "spool": bool | None}


class QueuedJobNames:
    """The names of the jobs in a queue, CLUSTER.PROCESS, without a copy of them.

    Args:
        queue: whose.
    """

    def __init__(self, queue: JobQueue) -> None:
        self._queue = queue

    def __contains__(self, name: object) -> bool:
        cluster, _, proc = str(name).partition(".")
        numbers = whole_number(cluster), whole_number(proc)
        if numbers[0] is None or numbers[1] is None:
            return False
        return self._queue.find(numbers[0], numbers[1]) is not None


class Schedd(Role):
    """The schedd role."""

    name: ClassVar[str] = "schedd"
    questions: ClassVar[frozenset[str]] = frozenset({"query", "history", "why", "summary"})

    async def start(self) -> None:
        given, settings = self.given, self.settings
        self._loaded = False
        self.rules = Rules.from_settings(settings)
        self.store = given.store()
        self._make_core()
        self._make_files()
        self._make_placement()
        self._make_methods()
        await self.checkpoint_server.connect()
        running = await self.ledger.load()
        self._loaded = True
        self.spool.restore(self.ledger.meta)
        self.notes.restore(self.ledger.meta, self.executables.restore)
        self.pacing.restore()
        self.output_streams.restore()
        self.tidy()
        cut_short = {name: note for name, note in self.ledger.meta.items() if name.startswith(PLACING)}
        if cut_short:
            self.spawn(self.shadow.finish(cut_short), "outputs")
        self.reporting.begin()
        await self.local.adopt([job for job in running if job.cluster.is_local])
        for job in running:
            if not job.cluster.is_local:
                self.placement.reconnect.adopt(job)
        self.dedicated.restore(self.ledger.meta)
        self.spawn(self.dedicated.machines.run(), "dedicated machines")
        self.spawn(self.dedicated.run(), "dedicated")
        self.spawn(self.dedicated.accounts.run(), "dedicated accounts")
        self.dedicated.wake()
        self.spawn(self.advertiser.run(), "advertise")
        self.spawn(self.placement.watch_leases(), "leases")
        self.spawn(self.reporting.run(), "reporting")
        self.spawn(self.acts.watch_expressions(settings.number("PERIODIC_INTERVAL")), "periodic")
        self.spawn(self.spool.run(), "spool")
        self.spawn(self._forget_old(), "history")
        self.spawn(shrink_now_and_again(self.store, self.log), "shrink")
        for owner in self.queue.owners():
            self._changed(owner, True)
        self.submitters.publish_schedd()
        if running:
            self.log.info("taking up running jobs", extra={"jobs": len(running)})

    def _make_core(self) -> None:
        """The queue and the claims, their ledger, their notes, and the means that all rooms work with."""
        given, settings = self.given, self.settings
        claims = ClaimTable()
        self.costs = SubmitSideCosts(claims, self.outside, given.aside)
        self.queue = JobQueue(
            self._prio(),
            keeps_back=self._waits_for_server,
            pauses=lambda cluster: self.pacing.pause(cluster),
            gave_turns=lambda cluster: self.pacing.gave_turns(cluster),
        )
        self.ledger = Ledger(self.store, self.queue, self.outside, self.log, self.costs.step)
        self.context = ScheddContext(
            name=given.node,
            ledger=self.ledger,
            claims=claims,
            calls=StartdCalls(given.links, claims),
            links=given.links,
            outside=self.outside,
            log=self.log,
            turns=given.turns,
            spawn=self.spawn,
        )
        self.claim_settings = ClaimSettings.from_settings(settings)
        self.notes = Notes(self.store, self.log, self.spawn)
        self.advertiser = Advertiser(
            given.links,
            given.collector,
            self.outside,
            settings.number("UPDATE_INTERVAL"),
            settings.number("AD_LIFETIME"),
            self.log,
            given.instance,
        )
        self.submitters = Submitters(
            self.context,
            self.advertiser,
            given.address,
            movers=lambda owner: self.placement.movers(owner),
            domain=lambda: self.settings.text("UID_DOMAIN"),
        )

    def _make_files(self) -> None:
        """Checkpoints, and the other files of jobs on the submit side."""
        given, settings, context = self.given, self.settings, self.context
        spool = given.state / "spool" if given.state else None
        waiting = PendingCheckpoints(spool / "waiting", quota_of(settings)) if spool else None
        self.checkpoint_place = CheckpointPlace(self._own_checkpoints(), waiting, self.log)
        self.checkpoint_server = CheckpointServer(
            self.checkpoint_place,
            given,
            settings,
            self.log,
            self.spawn,
            keep_back=self.review_withheld,
            let_go=self.review_withheld,
            tidy=self.tidy,
        )
        self.remote = RemoteFiles(context, self.checkpoint_place, given.state, settings, user=given.user)
        self.images = StoredCheckpoints(
            context,
            self.checkpoint_place,
            announced=self.remote.secure,
            kept=self.remote.checkpoint_stored,
            lost=self.checkpoint_server.mark_unreachable,
            late=self.checkpoint_server.bring_waiting,
        )
        self.spool = Spool(context, given, self._spooled)
        self.executables = ExecutableStore(
            spool / "executables" if spool else None, given.files, self.notes.remember, self.spool.locate
        )
        self.output_streams = OutputStreams(context, self.spool.files, self.costs)
        self.shadow = Shadow(
            context,
            self.executables,
            given.files,
            self.notes.store_note,
            self._mail_owner,
            self.spool,
            self.output_streams.end,
        )

    def _make_placement(self) -> None:
        """Jobs that wait, start, run and end."""
        context = self.context
        self.deferrals = Deferrals(context, self._is_due)
        self.start_pauses = StartPauses(self.outside, self._is_due)
        ended = EndedJobs(
            self.costs,
            self.spawn,
            gone=lambda: self.ledger.gone,
            finished=lambda ad: self.reporting.finished(ad),
            forget_images=self.images.forget,
        )
        self.ledger.listen(ended.on_events)
        self.local = LocalJobs(
            context,
            self.given,
            self.settings,
            self.claim_settings,
            ended,
            changed=self._changed,
            waits=lambda job: self.deferrals.waits(job) or self.start_pauses.waits(job),
            delay=self.deferrals.delay,
        )
        self.placement = Placement(
            context,
            self.claim_settings,
            executables=self.executables,
            images=self.images,
            costs=self.costs,
            ended=ended,
            local=self.local,
            remote=self.remote,
            files=self.given.files,
            changed=self._changed,
            delay=self.deferrals.delay,
            refused=self.notes.refused,
        )
        self.acts = JobActions(
            self.ledger,
            self.placement.running,
            self.outside,
            self.given.turns,
            offer=self.placement.offer,
            changed=self.placement.changed,
            keep_checkpoint=self.images.retain_last,
            waits_for_inputs=self.spool.waits,
            rules=lambda: self.rules,
        )
        self._make_dedicated()
        self.pacing = Pacing(context, offer=self._offer, judge=self.acts.judge)
        self.reporting = Reporting(self.ledger, self.given, self.log, self.acts.act, self.spool)

    def _make_dedicated(self) -> None:
        """The dedicated scheduler, which sleeps until there is a dedicated job."""
        given, placement = self.given, self.placement

        async def set_meta(name: str, value: bytes) -> None:
            await self.store.write(SetMeta(name, value))

        reservations = Reservations(set_meta, self.spawn, self.log, lambda: self.dedicated.wake())
        calls = SchedulerCalls(
            gatherings=placement.gangs.gathering,
            obtain=placement.claiming.obtain_for,
            begin_gang=placement.gangs.begin,
            start_job=placement.start_on,
            save=self._save_gang,
            fits_lease=lambda claim, job: self.claim_settings.lease_of(job.get("JobLeaseDuration")) == claim.lease,
            kept_back=lambda job: self._waits_for_itself(job) or self.queue.is_out_of_turn(job),
            regroup=self.review_withheld,
            negotiator_heard=placement.negotiator_heard,
            keep=set_meta,
            account_of=lambda owner: f"{owner}@{self.settings.text('UID_DOMAIN')}",
            preemption=lambda: PreemptionRules.read(self.settings),
        )
        self._say_preemption()
        self.dedicated = DedicatedScheduler(
            self.context,
            lambda: dedicated_settings(self.settings),
            self.advertiser,
            calls,
            reservations,
            address=given.address,
            collector=given.collector,
            lifetime=lambda: self.settings.number("AD_LIFETIME"),
        )

    def _say_preemption(self) -> None:
        if why := preemption_trouble(self.settings):
            self.log.warning("a setting does nothing", extra={"why": why})

    async def _save_gang(self, job: QueuedJob, because: str) -> None:
        """Have a dedicated job leave its machines, saved, for another."""
        await self.placement.running.stop(job, {"what": "vacate", "why": because}, True)

    def _make_methods(self) -> None:
        """The parts of the schedd that are served beside this one, under the same name."""
        given, placement = self.given, self.placement
        self.listings = Listings(
            self.ledger,
            self.outside,
            given.files,
            given.links,
            given.turns,
            user_name=self._user_name,
            locate=self.spool.locate,
        )
        gathering = placement.gangs.gathering
        explaining = JobExplanations(
            self.context,
            self.checkpoint_place,
            placement.matches,
            gathering,
            lambda: self.local.limit,
            self.dedicated.why,
        )
        inspection = JobInspection(self.context.calls, placement.gangs.claims_of, self.local)
        forwarding = JobForwarding(self.given.links, placement.gangs.claims_of)
        self._services = (
            self,
            JobViews(self.ledger, self.listings, explaining, inspection, forwarding, self.reporting.until_logged),
            SpoolMethods(self.spool, SpooledOutputs(self.ledger, self.spool)),
            NegotiatorMethods(
                self.context, placement.matches, gathering, self.costs, self._add_references, self.dedicated.requests
            ),
            DedicatedMethods(self.dedicated, self.outside, lambda: self.settings),
            StartdMethods(
                placement.claim_reports,
                placement.ended,
                placement.reports,
                placement.gangs,
                self.shadow,
                self.remote,
                self.images,
                self.costs,
            ),
        )

    async def stop(self, *, handover: bool) -> None:
        idle = self.placement.release_all()
        try:
            async with asyncio.timeout(2.0):
                for address, claim in idle:
                    await self.given.links.call(address, "startd.release", {"claims": [claim]}, timeout=1.0)
                await self.advertiser.withdraw_all()
        except (PoolError, OSError, TimeoutError):
            pass
        await self.reporting.flush()
        await self.remote.close()
        self.deferrals.close()
        self.start_pauses.close()
        self.costs.close()
        self.pacing.close()
        await self.local.close(kill=not handover)
        await super().stop(handover=handover)
        await self.store.close()

    async def die(self) -> None:
        await self.remote.close()
        self.deferrals.close()
        self.start_pauses.close()
        self.costs.close()
        self.pacing.close()
        await self.local.close(kill=False)
        await super().die()
        await self.store.close()

    def reload(self, settings: Any) -> None:
        rules = Rules.from_settings(settings)
        super().reload(settings)
        had, self.rules = self.rules.periodic, rules
        if rules.periodic and not had:
            self.acts.judge_all()
        if self.queue.reprioritise(self._prio()):
            self.regroup()
        self.claim_settings.reload(settings)
        self._say_preemption()
        self.dedicated.wake()
        self.remote.reload(settings)
        self.checkpoint_server.reload(settings)
        self.local.reload(settings)
        self.advertiser.interval = settings.number("UPDATE_INTERVAL")
        self.advertiser.lifetime = settings.number("AD_LIFETIME")

    # -- users -------------------------------------------------------------------------------------------

    @method(Right.SUBMIT, takes={"owner": str | None})
    async def reserve(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """An id for a cluster whose description mentions $(Cluster): {} -> {cluster}"""
        return {"cluster": self.ledger.reserve(owner_of(call, params))}

    @method(
        Right.SUBMIT,
        takes={"ad": dict, "count": int, "deltas": list | None, **QUEUING},
    )
    async def submit(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Accept a cluster: {ad, count, deltas, cluster?, spool?} -> {cluster, count}. Durable when answered."""
        owner, deltas = self._submitter(call, params), params.get("deltas")
        intake = ClusterIntake(self._accept(params, owner), params["count"], differs=deltas is not None)
        with at_rest(intake.count):
            for start in range(0, len(deltas or ()), TURN):
                if start:
                    await asyncio.sleep(0)
                intake.add_deltas(deltas[start : start + TURN] if deltas else None)
            return await self._queue_jobs(intake, owner, params)

    @streaming(Right.SUBMIT, takes={"ad": dict, "count": int, **QUEUING})
    async def submit_large(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Accept a cluster of any size: {ad, count, cluster?}, then its differences in lists, then "done".

        Answers {cluster, count}, durably, or nothing has happened: a stream that ends before "done" leaves nothing.
        """
        owner = self._submitter(call, params)
        intake = ClusterIntake(self._accept(params, owner), params["count"], differs=True)
        with at_rest(intake.count):
            async for item in stream:
                if item == "done":
                    break
                if not isinstance(item, list):
                    raise PoolError("cannot queue: the differences are no list")
                for start in range(0, len(item), TURN):
                    intake.add_deltas(item[start : start + TURN])
                    await asyncio.sleep(0)
            else:
                raise PoolError("the submit broke off; nothing was queued", retry=True)
            await stream.send(await self._queue_jobs(intake, owner, params))
        await stream.finish()

    def _submitter(self, call: Call, params: dict[str, Any]) -> str:
        owner = owner_of(call, params)
        if is_reserved(owner):
            raise PoolError(f"cannot queue jobs of {owner}: that is the dedicated scheduler", hint="submit as a user")
        if self.given.user is not None and owner != self.given.user:
            raise PoolError(
                f"cannot queue jobs of {owner}: this schedd runs as {self.given.user} and serves nobody else",
                hint="submit as that user, or to a schedd that root runs",
            )
        self.given.files(owner)  # raises for who has no account here
        return owner

    async def _queue_jobs(self, intake: ClusterIntake, owner: str, params: dict[str, Any]) -> dict[str, Any]:
        self.costs.mark_busy()
        number, spool = params.get("cluster"), params.get("spool") is True
        intake.complete()
        if spool:
            for place, delta in enumerate(intake.deltas or ()):
                if not place % TURN:
                    await asyncio.sleep(0)
                self.spool.check_difference(delta or {})
            intake.hold_all(SPOOLING)
        self.rules.check_room(self.queue, owner, intake.count)
        await self.rules.transform_and_check(intake, self.outside.wall())
        self.remote.check_wish(intake.ad)
        if number is None:
            number = self.ledger.next_cluster
            self.ledger.next_cluster += 1
        elif not self.ledger.use_reserved(number, owner):
            raise PoolError(f"cluster {number} was not reserved by {owner}", hint="submit again", retry=True)
        # Work that has begun is done to its end, also where nobody waits for the answer any more.
        work = self.costs.submitted(self._queued(intake, owner, number, spool))
        cluster = await asyncio.shield(asyncio.get_running_loop().create_task(work))
        return {"cluster": cluster.id, "count": intake.count}

    async def _queued(self, intake: ClusterIntake, owner: str, number: int, spool: bool) -> QueuedCluster:
        origin, images = intake.ad.get("StartFromCheckpoint"), self.images
        if spool:
            await self.spool.begin(number, owner)
        try:
            if origin is not None:
                await images.begin_with(origin, owner, number, intake.count)
                intake.ad["NumCkpts"] = 1
            cluster = await self.ledger.submit(number, owner, intake)
        finally:
            if origin is not None:
                images.queued(number, intake.count)
            if spool:
                self.spool.queued(number)
        self.acts.added(cluster, intake.names)
        self.local.added(cluster)
        if not spool:
            self.executables.store_soon(cluster)
        if len(intake.held) < intake.count:
            self._offer(owner)
        return cluster

    def _accept(self, params: dict[str, Any], owner: str) -> Wire:
        accepted = clean(params["ad"]) or {}
        check_kind(accepted)
        self.remote.check_wish(accepted)
        for name, value in UNLESS_SAID.items():
            accepted.setdefault(name, value)
        accepted |= {
            "Owner": owner,
            "User": f"{owner}@{self.settings.text('UID_DOMAIN')}",
            "QDate": int(self.outside.wall()),
        }
        if params.get("spool") is True:
            self.spool.accept(accepted)
        defer(accepted, self.outside.wall())
        # Of each process, and as it is when it is asked for.
        accepted["GlobalJobId"] = [f'strcat("{self.given.node}#", ClusterId, ".", ProcId, "#", QDate)']
        accepted.setdefault("MemoryUsage", ["((ResidentSetSize + 1023) / 1024)"])
        if self.rules.requirements and not self.rules.transforms:
            self.rules.check(ClassAd.from_wire(accepted), self.outside.wall())
        return accepted

    @method(Right.SUBMIT, takes={"action": str, **CHOICE})
    async def act(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Remove, hold, release, vacate jobs or change their priority: see `JobActions.act`."""
        return await self._act(call, params, [0])

    @streaming(Right.SUBMIT, takes={"action": str, **CHOICE})
    async def act_stream(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """As `act`: how many jobs are done, now and again, which may take long; the answer comes last."""
        count = [0]
        acting = asyncio.get_running_loop().create_task(self._act(call, params, count))
        try:
            while not (await asyncio.wait([acting], timeout=TELL_EVERY))[0]:
                await stream.send(count[0])
        except BaseException:  # nobody waits any more; it is done to its end
            acting.add_done_callback(lambda task: task.cancelled() or task.exception())
            raise
        await stream.send(acting.result())
        await stream.finish()

    async def _act(self, call: Call, params: dict[str, Any], count: list[int]) -> dict[str, Any]:
        everybody = Right.ADMINISTER in call.identity.rights
        only, params = None if everybody else owner_of(call, {}), self.listings.named(params)
        done = await self.acts.act(params, only, call.identity.name, count)
        for owner in done["owners"]:
            self._offer(owner)
        self.spool.wake()
        return done

    @method(Right.SUBMIT, takes={"programs": TEXTS})
    async def refusals(self, call: Call, params: dict[str, Any]) -> dict[str, str]:
        """Why one's programs could not be checkpointed when they ran last: {programs} -> program to reason"""
        return self.notes.refusals(owner_of(call, {}), params["programs"])

    @method(Right.SUBMIT)
    async def checkpoints(self, call: Call, params: dict[str, Any]) -> list[dict[str, Any]]:
        """The checkpoints that `rm --checkpoint` has kept: one's own, an administrator's answer is everybody's."""
        everybody = Right.ADMINISTER in call.identity.rights
        return self.images.kept_ones(None if everybody else owner_of(call, {}))

    @method(Right.SUBMIT, takes={"jobs": TEXTS})
    async def drop_checkpoints(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Delete kept checkpoints: {jobs: ids of the removed jobs} -> {done, refused}"""
        everybody = Right.ADMINISTER in call.identity.rights
        return await self.images.drop_kept(params["jobs"], None if everybody else owner_of(call, {}))

    @property
    def services(self) -> tuple[Service, ...]:
        return self._services

    # -- own ---------------------------------------------------------------------------------------------

    def _own_checkpoints(self) -> ImageStore | None:
        """Where jobs' images are kept, where that is here."""
        if self.settings.text("CHECKPOINT_SERVER") or not self.given.state:
            return None
        return ImageStore(self.given.state / "spool" / "checkpoints", quota=quota_of(self.settings))

    def _waits_for_server(self, job: QueuedJob) -> bool:
        """Whether no machine is to be asked for an idle job: it runs here, its time has not come, it waits for its
        checkpoint, or the dedicated scheduler sees to it."""
        return self._waits_for_itself(job) or self.dedicated.takes(job)

    def _waits_for_itself(self, job: QueuedJob) -> bool:
        cluster = job.cluster
        if cluster.is_local:
            return True
        deferred = cluster.deferred or (job.delta is not None and "DeferralTime" in job.delta)
        if (deferred and self.deferrals.waits(job)) or self.start_pauses.waits(job):
            return True
        return self.checkpoint_place.waits_for_server(job)

    def _changed(self, owner: str, more: bool) -> None:
        """An owner's numbers changed; `more` when there is new work that a slot must be found for."""
        self.submitters.changed(owner, more)
        self.dedicated.wake()

    def _is_due(self, job: QueuedJob) -> None:
        """A job may be started now that could not be before: its moment has come, or a pause is over."""
        if job.cluster.is_local:
            self.local.start_soon()
            return
        self.queue.admit(job)
        self._offer(job.cluster.owner)

    def _prio(self) -> Any:
        return parse_expr(self.settings.text("PRIO"), syntax="old")

    def _user_name(self, user: str) -> str:
        """A user as the queue names him: alice for alice@UID_DOMAIN, as priorities and slots have it."""
        name, _, domain = user.rpartition("@")
        return name if name and domain == self.settings.text("UID_DOMAIN") else user

    async def _mail_owner(self, job: QueuedJob, text: str) -> None:
        await self.ledger.commit(JobChange(job, None, {}, EventKind.NOTICE, {"text": text}))

    def _offer(self, owner: str) -> None:
        """An owner has idle jobs that may be started."""
        self.placement.offer(owner)
        self._changed(owner, True)

    def _spooled(self, number: int) -> None:
        """All files of a cluster have come from its submitter's machine."""
        cluster = self.queue.clusters.get(number)
        if cluster is not None:
            self.executables.store_soon(cluster)
            self._offer(cluster.owner)

    def _add_references(self, names: frozenset[str]) -> None:
        """Machines' expressions refer to these attributes of jobs."""
        if self.queue.add_references(names):
            self.regroup()

    def review_withheld(self) -> None:
        """Jobs may have to wait for their checkpoints, or may wait for them no more."""
        self.queue.withdraw_withheld()
        self.regroup()

    def regroup(self) -> None:
        """Have idle jobs put into the groups that are theirs by now: at once, or in slices where they are many."""
        work = self.queue.regroup()
        for _ in islice(work, TURN):
            pass
        self._offer_all()
        if next(work, self) is None:
            self.spawn(self._regroup(work), "groups")

    async def _regroup(self, work: Iterator[None]) -> None:
        async with self.given.turns.work("", "put idle jobs into groups") as turn:
            for _ in work:
                if turn.is_over:
                    await turn.pause()
        self._offer_all()

    def _offer_all(self) -> None:
        for owner in self.queue.owners():
            self._offer(owner)

    def tidy(self) -> None:
        """Remove stored files that belong to no job of the queue, once the whole queue is known."""
        if not self._loaded:
            return
        queued = QueuedJobNames(self.queue)
        self.executables.tidy(self.queue.clusters, self.outside.wall() - KEEP_UNUSED)
        kept_for = self.settings.number("KEPT_CHECKPOINTS")
        self.spawn(self.images.tidy(queued, kept_for), "checkpoints", alone=True)
        self.spawn(self.remote.tidy(queued), "remote", alone=True)

    async def _forget_old(self) -> None:
        while True:
            await asyncio.sleep(3600.0)
            self.tidy()
            await self._remove_abandoned()
            before = self.outside.wall() - 86400.0 * self.settings.number("HISTORY_DAYS")
            left = True
            while left:
                left = any(await self.store.write(Trim(before)))

    async def _remove_abandoned(self) -> None:
        """Remove the jobs whose inputs never came."""
        if abandoned := [[number] for number in self.spool.abandoned()]:
            why = "its input files did not come within SPOOL_KEPT"
            await self.acts.act({"action": "remove", "ids": abandoned, "reason": why}, None, "")
