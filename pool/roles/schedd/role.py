"""The schedd: joins the rooms below it, whose methods it serves under its name.

The queue changes through `Ledger`, running jobs through `Placement`; `JobActions` changes jobs for people, `JobViews`
shows jobs to them. This is the only file that knows all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar

from pool.classad import parse_expr
from pool.decimals import whole_number
from pool.errors import PoolError
from pool.images import ImageStore
from pool.jobs.events import EventKind
from pool.policy.queue import JobQueue, QueuedJob
from pool.roles.advertise import Advertiser
from pool.roles.base import Role, quota_of
from pool.roles.schedd.checkpoints.checkpoint_server import CheckpointServer
from pool.roles.schedd.checkpoints.images import StoredCheckpoints
from pool.roles.schedd.checkpoints.pending_checkpoints import PendingCheckpoints
from pool.roles.schedd.checkpoints.place import CheckpointPlace
from pool.roles.schedd.core.claim_settings import ClaimSettings
from pool.roles.schedd.core.claims import ClaimTable
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.ended_jobs import EndedJobs
from pool.roles.schedd.core.intake import TURN
from pool.roles.schedd.core.ledger import JobChange, Ledger
from pool.roles.schedd.core.notes import Notes
from pool.roles.schedd.core.startd_calls import StartdCalls
from pool.roles.schedd.core.store_upkeep import shrink_now_and_again
from pool.roles.schedd.core.submit_side_costs import SubmitSideCosts
from pool.roles.schedd.dedicated.calls import SchedulerCalls
from pool.roles.schedd.dedicated.methods import DedicatedMethods
from pool.roles.schedd.dedicated.preemption import PreemptionRules
from pool.roles.schedd.dedicated.preemption import trouble as preemption_trouble
from pool.roles.schedd.dedicated.reservations import Reservations
from pool.roles.schedd.dedicated.scheduler import DedicatedScheduler
from pool.roles.schedd.dedicated.settings import dedicated_settings
from pool.roles.schedd.files.output_streams import OutputStreams
from pool.roles.schedd.files.remote_io import RemoteFiles
from pool.roles.schedd.files.spool import Spool
from pool.roles.schedd.files.spool_methods import SpoolMethods
from pool.roles.schedd.files.spool_outputs import SpooledOutputs
from pool.roles.schedd.notices.reporting import Reporting
from pool.roles.schedd.parallel.between_pools import BetweenPools
from pool.roles.schedd.parallel.third_node import ThirdNode
from pool.roles.schedd.placement.deferral import Deferrals, defer
from pool.roles.schedd.placement.direct_claims import DirectMethods
from pool.roles.schedd.placement.methods import NegotiatorMethods, StartdMethods
from pool.roles.schedd.placement.pacing import Pacing
from pool.roles.schedd.placement.placement import Placement
from pool.roles.schedd.placement.start_pauses import StartPauses
from pool.roles.schedd.placement.submitters import Submitters
from pool.roles.schedd.submit.action_methods import ActionMethods
from pool.roles.schedd.submit.job_actions import JobActions
from pool.roles.schedd.submit.local_universe import LocalJobs
from pool.roles.schedd.submit.rules import Rules
from pool.roles.schedd.submit.submit_methods import SubmitMethods
from pool.roles.schedd.views.forwarding import JobForwarding
from pool.roles.schedd.views.inspecting import JobInspection
from pool.roles.schedd.views.job_views import JobViews
from pool.roles.schedd.views.listings import Listings
from pool.roles.schedd.views.why import JobExplanations
from pool.roles.schedd.workflows.methods import WorkflowMethods
from pool.roles.schedd.workflows.workflows import Workflows
from pool.shadow.executables import ExecutableStore
from pool.shadow.shadow import PLACING, Shadow
from pool.store import SetMeta, Trim
from pool.wire import Service

#: Seconds for which an executable is kept that no job in the queue needs: the next submit often does.
KEEP_UNUSED = 86400.0


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
        self.pacing.restore(running)
        self.output_streams.restore(running)
        self.tidy()
        cut_short = {name: note for name, note in self.ledger.meta.items() if name.startswith(PLACING)}
        if cut_short:
            self.spawn(self.shadow.finish(cut_short), "outputs")
        self.reporting.begin()
        await self.local.adopt([job for job in running if job.cluster.is_local])
        for job in running:
            if not job.cluster.is_local:
                self.placement.reconnect.adopt(job)
        await self.workflows.restore()
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
        self.queue = JobQueue(self._prio(), keeps_back=self._waits_for_server, keeps_some_back=self._some_may_wait)
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
            forget_images=self.images.forget,
        )
        self.ledger.listen(ended.on_events, ended.on_alike_events)
        self.local = LocalJobs(
            context,
            self.given,
            self.settings,
            self.claim_settings,
            ended,
            changed=self._changed,
            waits=lambda job: self.deferrals.waits(job) or self.start_pauses.waits(job),
            delay=self.deferrals.delay,
            stop_workflow=lambda job: self.workflows.stop(job),
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
        self.submitters = Submitters(
            context,
            self.advertiser,
            self.given.address,
            movers=self.placement.movers,
            domain=lambda: self.settings.text("UID_DOMAIN"),
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
        ended.listen(self.reporting.finished)

    def _make_dedicated(self) -> None:
        """The dedicated scheduler, which sleeps until there is a dedicated job."""
        given, placement = self.given, self.placement

        async def set_meta(name: str, value: bytes) -> None:
            await self.store.write(SetMeta(name, value))

        reservations = Reservations(set_meta, self.spawn, self.log)
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
        self.third_node = ThirdNode(self.context)
        between_pools = BetweenPools(self.context, placement.gangs.start_of)
        startd_methods = StartdMethods(
            placement.claim_reports,
            placement.ended,
            placement.reports,
            placement.gangs,
            self.shadow,
            self.remote,
            self.images,
            self.costs,
            self.third_node,
            between_pools,
        )
        submits = SubmitMethods(
            self.context,
            costs=self.costs,
            spool=self.spool,
            remote=self.remote,
            images=self.images,
            executables=self.executables,
            acts=self.acts,
            local=self.local,
            rules=lambda: self.rules,
            user=given.user,
            files=given.files,
            domain=lambda: self.settings.text("UID_DOMAIN"),
            offer=self._offer,
            defer=defer,
        )
        self.workflows = Workflows(
            self.context, given.files, queue_node=submits.queue_node, remove=self._remove_cluster
        )
        self._services = (
            self,
            submits,
            WorkflowMethods(self.workflows, submits.submitter),
            ActionMethods(
                self.acts,
                self.notes,
                self.images,
                named=self.listings.named,
                offer=self._offer,
                wake_spool=self.spool.wake,
            ),
            JobViews(
                self.ledger, self.listings, explaining, inspection, forwarding, self.reporting.until_logged, given.turns
            ),
            SpoolMethods(self.spool, SpooledOutputs(self.ledger, self.spool, self.reporting.until_ends_logged)),
            NegotiatorMethods(
                self.context, placement.matches, gathering, self.costs, self._add_references, self.dedicated.requests
            ),
            DedicatedMethods(self.dedicated, self.outside, lambda: self.settings),
            startd_methods,
            DirectMethods(self.context, startd_methods, between_pools, lambda: given.address, self.spawn),
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
        await self.reporting.close()
        await self.third_node.close()
        await self.remote.close()
        self.deferrals.close()
        self.start_pauses.close()
        self.costs.close()
        self.pacing.close()
        await self.local.close(kill=not handover)
        await super().stop(handover=handover)
        await self.store.close()

    async def die(self) -> None:
        await self.third_node.close()
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
        return self._waits_for_itself(job) or self.dedicated.keeps(job)

    def _some_may_wait(self, job: QueuedJob) -> bool:
        """Whether any may be kept back of the jobs that are like an idle one and differ in their numbers only."""
        cluster = job.cluster
        alone = cluster.is_local or cluster.is_workflow or cluster.deferred or cluster.dedicated
        return alone or bool(job.delta or job.notes) or self.checkpoint_place.may_have_jobs_wait

    def _waits_for_itself(self, job: QueuedJob) -> bool:
        cluster = job.cluster
        if cluster.is_local or cluster.is_workflow:
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

    async def _remove_cluster(self, cluster: int, owner: str, why: str) -> None:
        await self.acts.act({"action": "remove", "ids": [[cluster]], "reason": why}, None, owner)

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
