"""The schedd's methods: what users and other roles may ask of it.

Thin: the queue changes through `Ledger`, running jobs are `Placement`'s, what people see of jobs is `JobViews`', what
they do to jobs is `JobActions`'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from itertools import islice
from typing import Any, ClassVar, TypeVar

from pool.classad import ClassAd, parse_expr
from pool.errors import PoolError
from pool.images import ImageStore
from pool.jobs.events import EventKind
from pool.jobs.reasons import Reason
from pool.policy.checkpoints import Rhythm
from pool.policy.moving import MovingTerms
from pool.policy.queue import HELD, IDLE, RUNNING, SUSPENDED, JobQueue, QueuedCluster, QueuedJob, Wire
from pool.roles.advertise import Advertiser
from pool.roles.base import bandwidth_of, quota_of
from pool.roles.schedd.checkpoints.checkpoint_server import CheckpointServer
from pool.roles.schedd.core.callers import CHOICE, owner_of
from pool.roles.schedd.core.intake import TURN, ClusterIntake, at_rest
from pool.roles.schedd.core.ledger import JobChange, Ledger
from pool.roles.schedd.core.notes import Notes
from pool.roles.schedd.core.validation import check_kind, clean
from pool.roles.schedd.files.output_streams import OutputStreams
from pool.roles.schedd.files.remote_io import RemoteFiles
from pool.roles.schedd.files.spool import SPOOLING
from pool.roles.schedd.notices.reporting import Reporting
from pool.roles.schedd.placement.deferral import Deferrals, defer
from pool.roles.schedd.placement.pacing import Pacing
from pool.roles.schedd.placement.placement import Placement
from pool.roles.schedd.placement.start_pauses import StartPauses
from pool.roles.schedd.placement.submitters import Submitters
from pool.roles.schedd.spool_methods import SpoolMethods
from pool.roles.schedd.submit.job_actions import JobActions
from pool.roles.schedd.submit.local_universe import LocalJobs
from pool.roles.schedd.submit.rules import Rules
from pool.roles.schedd.views.job_views import JobViews
from pool.roles.schedd.views.listings import Listings
from pool.roles.schedd.views.why import JobExplanations
from pool.shadow.executables import ExecutableStore
from pool.shadow.shadow import PLACING, Shadow
from pool.store import Rewrite, Shrink, Trim
from pool.wire import Call, Right, Service, Stream, method, streaming
from pool.wire.parameter_checks import JOB_ID, MAPPINGS, TEXTS, Takes, optional

T = TypeVar("T")
#: Characters of a reason that a negotiator gives.
MOST_REASON = 500
#: Seconds for which an executable is kept that no job in the queue needs: the next submit often does.
KEEP_UNUSED = 86400.0
#: Seconds between two looks at what the queue's file could give back, pages given back at a time, seconds in between,
#: and pages (of 4 KiB) that are not worth it.
SHRINK_EVERY, SHRINK_SLICE, SHRINK_PAUSE, FEW_PAGES = 600.0, 250, 0.02, 1000
#: The longest a claim stays idle in the hope of another job of its owner, seconds.
LINGER = 1.0
#: A negotiator that has not asked for so many of its longest intervals is not there.
CYCLES_MISSED = 2.0
#: What expressions of submit files rely on, where the client did not measure it. Sizes in MB and KiB.
UNLESS_SAID = {"TransferInputSizeMB": 0, "ImageSize": 0, "DiskUsage": 0}

#: Seconds between two words on how far a long change of jobs is.
TELL_EVERY = 1.0

#: What is said beside the jobs when they are queued; `spool`: their files come from another machine.
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
        if not (cluster.isdecimal() and proc.isdecimal()):
            return False
        return self._queue.find(int(cluster), int(proc)) is not None


class Schedd(SpoolMethods):
    """The schedd role."""

    name: ClassVar[str] = "schedd"
    questions: ClassVar[frozenset[str]] = frozenset({"query", "history", "why", "summary"})

    async def start(self) -> None:
        given = self.given
        self.store = given.store()
        self.queue = JobQueue(self._prio())
        self.ledger = Ledger(self.store, self.queue, self.outside, self.log)
        self.advertiser = Advertiser(
            given.links,
            given.collector,
            self.outside,
            self.settings.number("UPDATE_INTERVAL"),
            self.settings.number("AD_LIFETIME"),
            self.log,
            given.instance,
        )
        self.submitters = Submitters(self, self.advertiser)
        kept = given.state / "spool" / "executables" if given.state else None
        self.notes = Notes(self)
        self.executables = ExecutableStore(kept, given.files, self.notes.remember)
        self.placement = Placement(
            self.ledger,
            given.links,
            self.outside,
            self.log,
            name=given.node,
            executables=self.executables,
            checkpoints=self._own_checkpoints(),
            spawn=self.spawn,
            changed=self.submitters.changed,
            finished=self._finished,
            life=self.settings.number("CLAIM_LIFE"),
            lease=self.settings.number("CLAIM_LEASE"),
            longest_lease=self.settings.number("CLAIM_LEASE_MAX"),
            linger=LINGER,
            patience=self.settings.number("CLAIM_PATIENCE"),
            hold=self.settings.number("GANG_PATIENCE"),
            unheard=self._unheard(),
            turns=given.turns,
            refused=self.notes.refused,
            aside=given.aside,
        )
        self.placement.moving.terms = self._terms_of_moving()
        self.placement.gangs.sets.rhythm = self._rhythm()
        self.checkpoint_server = CheckpointServer(self)
        await self.checkpoint_server.reach()
        self.remote = RemoteFiles(
            self.ledger,
            self.placement.claims,
            given.state,
            self.placement.images,
            self.settings,
            self.outside,
            self.log,
            user=given.user,
            spawn=self.spawn,
        )
        self.placement.remote = self.remote
        self.placement.images.announced = self.remote.secure
        self.placement.images.kept = self.remote.kept
        self.listings = Listings(
            self.ledger, self.outside, self.placement, given.files, given.links, given.turns, self._user_name
        )
        self.rules = Rules.of(self.settings)
        self.acts = JobActions(self.ledger, self.placement, self.outside, given.turns, lambda: self.rules)
        self.deferrals = self.placement.deferrals = Deferrals(self, self._is_due)
        self.start_pauses = StartPauses(self.outside, self._is_due)
        self.local = self.placement.local = LocalJobs(self)
        self.pacing = Pacing(self, self.acts.judge)
        self.output_streams = OutputStreams(self)
        kept_back = self.queue.keeps_back
        self.queue.keeps_back = lambda job: self._keeps_back(job) or kept_back(job)
        self.explaining = JobExplanations(self.ledger, self.placement, self.outside, given.node, given.turns)
        self._views = JobViews(self.ledger, self.listings, self.explaining, self.placement)
        running = await self.ledger.load()
        self.make_spool()
        put, tell = self.notes.put, self._tell_owner
        self.shadow = Shadow(self.placement, self.executables, given.files, put, tell, self.spool)
        self.shadow.before_placing = self.output_streams.end
        self.reporting = Reporting(self.ledger, given, self.log, self.acts.act, self.spool)
        self.notes.take_up(self.ledger.meta)
        self.pacing.take_up()
        self.output_streams.take_up()
        self.tidy()
        cut_short = {name: note for name, note in self.ledger.meta.items() if name.startswith(PLACING)}
        if cut_short:
            self.spawn(self.shadow.finish(cut_short), "outputs")
        self.reporting.begin()
        await self.local.take_up([job for job in running if job.cluster.at_home])
        for job in running:
            if not job.cluster.at_home:
                self.placement.reaching.adopt(job)
        self.spawn(self.advertiser.run(), "advertise")
        self.spawn(self.placement.reaching.watch_leases(), "leases")
        self.spawn(self.reporting.run(), "reporting")
        self.spawn(self.acts.watch_expressions(self.settings.number("PERIODIC_INTERVAL")), "periodic")
        self.spawn(self.spool.run(), "spool")
        self.spawn(self._forget_old(), "history")
        self.spawn(self._shrink_store(), "shrink")
        for owner in self.queue.owners():
            self.submitters.changed(owner, True)
        self.advertiser.publish("Scheduler", given.node, self.own_ad())
        if running:
            self.log.info("taking up running jobs", extra={"jobs": len(running)})

    async def stop(self, *, handover: bool) -> None:
        idle = self.placement.release_all()
        try:
            async with asyncio.timeout(2.0):
                for address, claim in idle:
                    await self.given.links.call(address, "startd.release", {"claims": [claim]}, timeout=1.0)
                await self.advertiser.farewell()
        except (PoolError, OSError, TimeoutError):
            pass
        await self.reporting.flush()
        await self.remote.close()
        self.deferrals.close()
        self.start_pauses.close()
        self.placement.submit_side_costs.close()
        self.pacing.close()
        await self.local.close(kill=not handover)
        await super().stop(handover=handover)
        await self.store.close()

    async def die(self) -> None:
        await self.remote.close()
        self.deferrals.close()
        self.start_pauses.close()
        self.placement.submit_side_costs.close()
        self.pacing.close()
        await self.local.close(kill=False)
        await super().die()
        await self.store.close()

    def reload(self, settings: Any) -> None:
        rules = Rules.of(settings)
        super().reload(settings)
        had, self.rules = self.rules.periodic, rules
        if rules.periodic and not had:
            self.acts.judge_all()
        if self.queue.reprioritise(self._prio()):
            self.regroup()
        self.placement.life = settings.number("CLAIM_LIFE")
        self.placement.lease = settings.number("CLAIM_LEASE")
        self.placement.longest_lease = settings.number("CLAIM_LEASE_MAX")
        self.placement.patience = settings.number("CLAIM_PATIENCE")
        self.placement.unheard = self._unheard()
        self.placement.gangs.gathering.hold = settings.number("GANG_PATIENCE")
        self.remote.reload(settings)
        self.checkpoint_server.share.rate = bandwidth_of(settings)
        self.placement.moving.terms = self._terms_of_moving()
        self.placement.gangs.sets.rhythm = self._rhythm()
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
                intake.take(deltas[start : start + TURN] if deltas else None)
            return await self._take_in(intake, owner, params)

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
                    intake.take(item[start : start + TURN])
                    await asyncio.sleep(0)
            else:
                raise PoolError("the submit broke off; nothing was queued", retry=True)
            await stream.send(await self._take_in(intake, owner, params))
        await stream.finish()

    def _submitter(self, call: Call, params: dict[str, Any]) -> str:
        owner = owner_of(call, params)
        if self.given.user is not None and owner != self.given.user:
            raise PoolError(
                f"cannot queue jobs of {owner}: this schedd runs as {self.given.user} and serves nobody else",
                hint="submit as that user, or to a schedd that root runs",
            )
        self.given.files(owner)  # raises for who has no account here
        return owner

    async def _take_in(self, intake: ClusterIntake, owner: str, params: dict[str, Any]) -> dict[str, Any]:
        self.placement.submit_side_costs.stir()
        number, spool = params.get("cluster"), params.get("spool") is True
        intake.complete()
        if spool:
            for place, delta in enumerate(intake.deltas or ()):
                if not place % TURN:
                    await asyncio.sleep(0)
                self.spool.check_difference(delta or {})
            intake.hold_all(SPOOLING)
        self.rules.check_room(self.queue, owner, intake.count)
        await self.rules.take_in(intake, self.outside.wall())
        self.remote.check_wish(intake.ad)
        if number is None:
            number = self.ledger.next_cluster
            self.ledger.next_cluster += 1
        elif not self.ledger.take_reserved(number, owner):
            raise PoolError(f"cluster {number} was not reserved by {owner}", hint="submit again", retry=True)
        # What has been begun is done to its end, also where nobody waits for the answer any more.
        work = self.placement.submit_side_costs.submitted(self._queued(intake, owner, number, spool))
        cluster = await asyncio.shield(asyncio.get_running_loop().create_task(work))
        return {"cluster": cluster.id, "count": intake.count}

    async def _queued(self, intake: ClusterIntake, owner: str, number: int, spool: bool) -> QueuedCluster:
        origin, images = intake.ad.get("StartFromCheckpoint"), self.placement.images
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
            self.executables.keep_soon(cluster)
        if len(intake.held) < intake.count:
            self.placement.offer(owner)
            self.submitters.changed(owner, True)
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
    async def act_telling(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
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
            self.placement.offer(owner)
            self.submitters.changed(owner, True)
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
        return self.placement.images.kept_ones(None if everybody else owner_of(call, {}))

    @method(Right.SUBMIT, takes={"jobs": TEXTS})
    async def drop_checkpoints(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Delete kept checkpoints: {jobs: ids of the removed jobs} -> {done, refused}"""
        everybody = Right.ADMINISTER in call.identity.rights
        return await self.placement.images.drop_kept(params["jobs"], None if everybody else owner_of(call, {}))

    @property
    def services(self) -> tuple[Service, ...]:
        return (self, self._views)

    # -- negotiator --------------------------------------------------------------------------------------

    @method(Right.NEGOTIATE, takes={"submitter": str, "limit": int, "references": optional(TEXTS)})
    async def requests(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """What a submitter's idle jobs ask for: {submitter, limit, references} -> {requests, running}"""
        self.placement.submit_side_costs.stir()
        if self.queue.learn(frozenset(str(name) for name in params.get("references", ()))):
            self.regroup()
        owner = self._owner(params["submitter"])
        return {
            "requests": self.placement.matches.requests(owner, int(params["limit"])),
            "running": self.placement.matches.holds(owner),
        }

    @method(Right.NEGOTIATE, takes={"matches": MAPPINGS})
    async def matched(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Matches made for this schedd's submitters."""
        for match in params["matches"]:
            self.placement.matches.matched(match, self._owner(match["submitter"]))
        return {}

    @method(Right.NEGOTIATE, takes={"submitter": str, "time": float | int, "rejections": list})
    async def rejected(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """What a cycle left without a machine, and why: {submitter, time, rejections: [[request, reason]]}"""
        when = float(params["time"])
        for number, reason in params["rejections"]:
            self.placement.gangs.gathering.rejected(int(number), str(reason)[:MOST_REASON], when)
            group = self.queue.group(int(number))
            if group is not None and group.owner == self._owner(params["submitter"]):
                group.rejected = (str(reason)[:MOST_REASON], when)
        return {}

    # -- startds -----------------------------------------------------------------------------------------

    @method(Right.EXECUTE, takes={"claims": TEXTS})
    async def renew(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A startd asks for its leases to be renewed: {claims} -> {gone}"""
        return {"gone": self.placement.renew([str(claim) for claim in params["claims"]], call.identity.node)}

    @method(Right.EXECUTE, takes={"claim": str, "run": int, "kind": str, "data": dict})
    async def told(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Something happened to a running job."""
        claim = str(params["claim"])
        self.placement.check_node(claim, call.identity.node)
        await self._costing(params, self.placement.told(claim, int(params["run"]), str(params["kind"]), params["data"]))
        return {}

    @method(Right.EXECUTE, cancellable=True, takes={"claim": str, "run": int, "card": dict})
    async def meet(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A part of a job on several machines can begin: {claim, run, card} -> {cards}, when all parts can."""
        self.placement.check_node(params["claim"], call.identity.node)
        return await self._costing(params, self.placement.gangs.meet(params["claim"], params["run"], params["card"]))

    @method(Right.EXECUTE, takes={"claim": str, "reason": dict})
    async def revoked(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A startd has ended a claim that no job is on, or whose lease is over: {claim, reason}"""
        self.placement.check_node(params["claim"], call.identity.node)
        self.placement.revoked(params["claim"], Reason.from_wire(params["reason"]))
        return {}

    @method(Right.EXECUTE, takes={"claim": str, "job": JOB_ID, "run": int, "report": dict})
    async def ended(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A running job has ended: {claim, job, run, report} -> {next, keep}"""
        job = (int(params["job"][0]), int(params["job"][1]))
        self.placement.check_node(str(params["claim"]), call.identity.node)
        ended = self.placement.ended(str(params["claim"]), job, int(params["run"]), params["report"])
        return await self._costing(params, ended)

    @streaming(Right.EXECUTE, takes={"claim": str, "run": int, "executable": bool | None})
    async def fetch(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A job's input files, for its scratch directory."""
        self.placement.check_node(str(params.get("claim")), call.identity.node)
        await self._costing(params, self.shadow.fetch(params, stream))

    @streaming(Right.EXECUTE, takes={"claim": str, "run": int})
    async def bring(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A job's output files, to be put in place at home."""
        self.placement.check_node(str(params.get("claim")), call.identity.node)
        await self._costing(params, self.shadow.bring(params, stream))

    @streaming(Right.EXECUTE, takes={"claim": str, "run": int, "again": bool | None})
    async def remote_io(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A running job's file system asks its home."""
        self.placement.check_node(params["claim"], call.identity.node)
        await self._costing(params, self.remote.serve(params, stream))

    @streaming(Right.EXECUTE, takes={"claim": str, "run": int})
    async def keep_image(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A running job's checkpoint, to be kept."""
        self.placement.check_node(str(params.get("claim")), call.identity.node)
        await self._costing(params, self.placement.images.take(params, stream))

    @streaming(Right.EXECUTE, takes={"claim": str, "run": int, "generation": int})
    async def image(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """The checkpoint that a start goes on from."""
        self.placement.check_node(str(params.get("claim")), call.identity.node)
        await self._costing(params, self.placement.images.give(params, stream))

    async def _costing(self, params: dict[str, Any], work: Coroutine[Any, Any, T]) -> T:
        """Do something for the job on a claim, which counts as what the job costs at home (EV 2.8)."""
        return await self.placement.submit_side_costs.measured(str(params.get("claim")), work)

    # -- own ---------------------------------------------------------------------------------------------

    def _own_checkpoints(self) -> ImageStore | None:
        """Where jobs' images are kept, where that is here."""
        if self.settings.text("CHECKPOINT_SERVER") or not self.given.state:
            return None
        return ImageStore(self.given.state / "spool" / "checkpoints", quota=quota_of(self.settings))

    def own_ad(self) -> Wire:
        counts: dict[int, int] = {}
        for own in self.queue.counts.values():
            for status, number in own.items():
                counts[status] = counts.get(status, 0) + number
        return {
            "MyType": "Scheduler",
            "Name": self.given.node,
            "ScheddAddress": self.given.address,
            "TotalIdleJobs": counts.get(IDLE, 0),
            "TotalRunningJobs": counts.get(RUNNING, 0) + counts.get(SUSPENDED, 0),
            "TotalHeldJobs": counts.get(HELD, 0),
            "Users": len(self.queue.owners()),
        }

    def _keeps_back(self, job: QueuedJob) -> bool:
        """Whether no machine is to be asked for an idle job: it runs here, or its moment has not come."""
        cluster = job.cluster
        if cluster.at_home:
            return True
        deferred = cluster.deferred or (job.delta is not None and "DeferralTime" in job.delta)
        return (deferred and self.deferrals.waits(job)) or self.start_pauses.waits(job)

    def _is_due(self, job: QueuedJob) -> None:
        """A job may be started now that could not be before: its moment has come, or a pause is over."""
        if job.cluster.at_home:
            self.local.look()
            return
        self.queue.admit(job)
        self.placement.offer(job.cluster.owner)
        self.submitters.changed(job.cluster.owner, True)

    def _prio(self) -> Any:
        return parse_expr(self.settings.text("PRIO"), syntax="old")

    def _terms_of_moving(self) -> MovingTerms | None:
        settings = self.settings
        if not settings.flag("REMATCH"):
            return None
        gain, pause = settings.number("REMATCH_GAIN"), settings.number("REMATCH_PAUSE")
        return MovingTerms(gain, pause, int(settings.number("REMATCH_MOVES")))

    def _unheard(self) -> float:
        return CYCLES_MISSED * self.settings.number("NEGOTIATION_INTERVAL")

    def _rhythm(self) -> Rhythm:
        return Rhythm(self.settings.number("CHECKPOINT_FIRST"), self.settings.number("CHECKPOINT_MOST"))

    def _user_name(self, user: str) -> str:
        """A user as the queue names him: alice for alice@UID_DOMAIN, as priorities and slots have it."""
        name, _, domain = user.rpartition("@")
        return name if name and domain == self.settings.text("UID_DOMAIN") else user

    def _owner(self, submitter: str) -> str:
        return submitter.rsplit("@", 1)[0]

    def _finished(self, ad: Wire) -> None:
        self.reporting.finished(ad)

    async def _tell_owner(self, job: QueuedJob, text: str) -> None:
        await self.ledger.commit(JobChange(job, None, {}, EventKind.NOTICE, {"text": text}))

    def let_jobs_go(self) -> None:
        """What jobs were kept back for may be over."""
        self.queue.let_go()
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
                if turn.over:
                    await turn.pause()
        self._offer_all()

    def _offer_all(self) -> None:
        for owner in self.queue.owners():
            self.placement.offer(owner)
            self.submitters.changed(owner, True)

    def tidy(self) -> None:
        """Drop what belongs to no job."""
        queued = QueuedJobNames(self.queue)
        self.executables.tidy(self.queue.clusters, self.outside.wall() - KEEP_UNUSED)
        kept_for = self.settings.number("KEPT_CHECKPOINTS")
        self.spawn(self.placement.images.tidy(queued, kept_for), "checkpoints", alone=True)
        self.spawn(self.remote.tidy(queued), "remote", alone=True)

    async def _shrink_store(self) -> None:
        while True:
            await asyncio.sleep(SHRINK_EVERY)
            try:
                await self.shrink_store()
            except PoolError as error:
                self.log.warning("the queue's file could not be made smaller", extra={"error": str(error)})

    async def shrink_store(self) -> None:
        """Give the space of what was removed back to the file system, in slices; a fifth of what is used stays."""
        pages, free = await self.store.free()
        used = pages - free
        keep = max(FEW_PAGES, used // 5)
        if free > keep and not self.store.shrinks:
            if free < used:
                return  # it waits until there is less to write anew than to win
            self.log.info("an older queue's file is written anew, to become smaller", extra={"pages": used})
            await self.store.write(Rewrite())
            return
        while free > keep:
            left = (await self.store.write(Shrink(min(SHRINK_SLICE, free - keep))))[0]
            if left is None or left >= free:
                return
            free = left
            await asyncio.sleep(SHRINK_PAUSE)

    async def _forget_old(self) -> None:
        while True:
            await asyncio.sleep(3600.0)
            self.tidy()
            await self.remove_abandoned()
            before = self.outside.wall() - 86400.0 * self.settings.number("HISTORY_DAYS")
            left = True
            while left:
                left = any(await self.store.write(Trim(before)))
