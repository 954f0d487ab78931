"""The schedd's methods that queue jobs: what a user sends is checked, completed and written down as one cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.jobs.description.draft import bind_cluster
from pool.policy.managed import is_reserved
from pool.policy.queue import WORKFLOW, QueuedCluster, Wire
from pool.roles.garbage import at_rest
from pool.roles.schedd.checkpoints.images import StoredCheckpoints
from pool.roles.schedd.core.callers import owner_of
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.intake import TURN, ClusterIntake
from pool.roles.schedd.core.submit_side_costs import SubmitSideCosts
from pool.roles.schedd.core.validation import check_kind, clean
from pool.roles.schedd.files.remote_io import RemoteFiles
from pool.roles.schedd.files.spool import SPOOLING, Spool
from pool.roles.schedd.submit.job_actions import JobActions
from pool.roles.schedd.submit.local_universe import LocalJobs
from pool.roles.schedd.submit.rules import Rules
from pool.shadow.executables import ExecutableStore
from pool.store import Change
from pool.wire import Call, Right, Service, Stream, method, streaming
from pool.wire.parameter_checks import Takes

#: Attributes that expressions of submit files rely on, where the client did not measure them. Sizes in MB and KiB.
UNLESS_SAID = {"TransferInputSizeMB": 0, "ImageSize": 0, "DiskUsage": 0}

#: Parameters beside the jobs when they are queued; `spool`: their files come from another machine.
QUEUING: Takes = {"cluster": int | None, "owner": str | None, "spool": bool | None}


class SubmitMethods(Service):
    """The methods that queue jobs, served under the schedd's name.

    Args:
        rules: those in force.
        user: the only user that the schedd serves; None where it serves all.
        files: opens a user's files; raises for a user without an account here.
        domain: UID_DOMAIN.
        offer: called with an owner who has idle jobs that may be started.
        defer: gives an ad with a crontab its first moment, from a wall time on.
    """

    def __init__(
        self,
        context: ScheddContext,
        *,
        costs: SubmitSideCosts,
        spool: Spool,
        remote: RemoteFiles,
        images: StoredCheckpoints,
        executables: ExecutableStore,
        acts: JobActions,
        local: LocalJobs,
        rules: Callable[[], Rules],
        user: str | None,
        files: Callable[[str], object],
        domain: Callable[[], str],
        offer: Callable[[str], None],
        defer: Callable[[Wire, float], None],
    ) -> None:
        self._ledger = context.ledger
        self._outside = context.outside
        self._node = context.name
        self._costs = costs
        self._spool = spool
        self._remote = remote
        self._images = images
        self._executables = executables
        self._acts = acts
        self._local = local
        self._rules = rules
        self._user = user
        self._files = files
        self._domain = domain
        self._offer = offer
        self._defer = defer

    @method(Right.SUBMIT, takes={"owner": str | None})
    async def reserve(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """An id for a cluster whose description mentions $(Cluster): {} -> {cluster}"""
        return {"cluster": self._ledger.reserve(owner_of(call, params))}

    @method(
        Right.SUBMIT,
        takes={"ad": dict, "count": int, "deltas": list | None, **QUEUING},
    )
    async def submit(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Accept a cluster: {ad, count, deltas, cluster?, spool?} -> {cluster, count}. Durable when answered."""
        owner, deltas = self.submitter(call, params), params.get("deltas")
        intake = ClusterIntake(self._accept(params, owner), params["count"], differs=deltas is not None)
        with at_rest(intake.count):
            for start in range(0, len(deltas or ()), TURN):
                if start:
                    await asyncio.sleep(0)
                intake.add_deltas(deltas[start : start + TURN] if deltas else None)
            return await self._queue_jobs(intake, owner, params)

    @streaming(Right.SUBMIT, takes={"ad": dict, "count": int | None, **QUEUING})
    async def submit_large(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Accept a cluster of any size: {ad, count?, cluster?}, then its differences in lists, then "done".

        Answers {cluster, count}, durably, or nothing has happened: a stream that ends before "done" leaves nothing.
        """
        owner = self.submitter(call, params)
        intake = ClusterIntake(self._accept(params, owner), params.get("count"), differs=True)
        async for item in stream:  # for as long as its sender likes: the garbage of others is collected meanwhile
            if item == "done":
                break
            if not isinstance(item, list):
                raise PoolError("cannot queue: the differences are no list")
            with at_rest(intake.count):
                for start in range(0, len(item), TURN):
                    intake.add_deltas(item[start : start + TURN])
                    await asyncio.sleep(0)
        else:
            raise PoolError("the submit broke off; nothing was queued", retry=True)
        with at_rest(intake.count):
            await stream.send(await self._queue_jobs(intake, owner, params))
        await stream.finish()

    def submitter(self, call: Call, params: dict[str, Any]) -> str:
        """The user that a call queues jobs for. Raises PoolError for one who may not."""
        owner = owner_of(call, params)
        if is_reserved(owner):
            raise PoolError(f"cannot queue jobs of {owner}: that is the dedicated scheduler", hint="submit as a user")
        if self._user is not None and owner != self._user:
            raise PoolError(
                f"cannot queue jobs of {owner}: this schedd runs as {self._user} and serves nobody else",
                hint="submit as that user, or to a schedd that root runs",
            )
        self._files(owner)  # raises for who has no account here
        return owner

    async def _queue_jobs(self, intake: ClusterIntake, owner: str, params: dict[str, Any]) -> dict[str, Any]:
        self._costs.mark_busy()
        number, spool = params.get("cluster"), params.get("spool") is True
        intake.complete()
        if spool:
            for place, delta in enumerate(intake.deltas or ()):
                if not place % TURN:
                    await asyncio.sleep(0)
                self._spool.check_difference(delta or {})
            intake.hold_all(SPOOLING)
        rules = self._rules()
        rules.check_room(self._ledger.queue, owner, intake.count)
        await rules.transform_and_check(intake, self._outside.wall())
        self._remote.check_wish(intake.ad)
        if number is None:
            number = self._ledger.next_cluster
            self._ledger.next_cluster += 1
        elif not self._ledger.use_reserved(number, owner):
            raise PoolError(f"cluster {number} was not reserved by {owner}", hint="submit again", retry=True)
        # Work that has begun is done to its end, also where nobody waits for the answer any more.
        work = self._costs.submitted(self._queued(intake, owner, number, spool))
        cluster = await asyncio.shield(asyncio.get_running_loop().create_task(work))
        return {"cluster": cluster.id, "count": intake.count}

    async def queue_node(
        self,
        owner: str,
        ad: Wire,
        deltas: list[Wire | None] | None,
        count: int,
        also: Callable[[int], list[Change]],
        *,
        workflow: str = "",
    ) -> QueuedCluster:
        """Queue a cluster of a work flow for its owner; durable when this returns.

        Args:
            also: further changes in the same durable step, of the cluster's number.
            workflow: the DAG file, where it is a work flow's own job.

        Raises:
            PoolError: it is refused.
        """
        self._files(owner)
        number = self._ledger.next_cluster
        self._ledger.next_cluster += 1
        bound = [delta and bind_cluster(delta, number) for delta in deltas] if deltas is not None else None
        accepted = self._accept({"ad": bind_cluster(ad, number)}, owner)
        if workflow:
            accepted[WORKFLOW] = workflow
        intake = ClusterIntake(accepted, count, differs=bound is not None)
        for start in range(0, len(bound or ()), TURN):
            if start:
                await asyncio.sleep(0)
            intake.add_deltas(bound[start : start + TURN] if bound else None)
        intake.complete()
        rules = self._rules()
        rules.check_room(self._ledger.queue, owner, count)
        await rules.transform_and_check(intake, self._outside.wall())
        self._remote.check_wish(intake.ad)
        return await self._costs.submitted(self._queued(intake, owner, number, False, also(number)))

    async def _queued(
        self, intake: ClusterIntake, owner: str, number: int, spool: bool, also: Sequence[Change] = ()
    ) -> QueuedCluster:
        origin, images = intake.ad.get("StartFromCheckpoint"), self._images
        if spool:
            await self._spool.begin(number, owner)
        try:
            if origin is not None:
                await images.begin_with(origin, owner, number, intake.count)
                intake.ad["NumCkpts"] = 1
            cluster = await self._ledger.submit(number, owner, intake, also)
        finally:
            if origin is not None:
                images.queued(number, intake.count)
            if spool:
                self._spool.queued(number)
        self._acts.added(cluster, intake.names)
        self._local.added(cluster)
        if not spool:
            self._executables.store_soon(cluster)
        if intake.is_any_idle:
            self._offer(owner)
        return cluster

    def _accept(self, params: dict[str, Any], owner: str) -> Wire:
        accepted = clean(params["ad"]) or {}
        check_kind(accepted)
        self._remote.check_wish(accepted)
        for name, value in UNLESS_SAID.items():
            accepted.setdefault(name, value)
        accepted |= {
            "Owner": owner,
            "User": f"{owner}@{self._domain()}",
            "QDate": int(self._outside.wall()),
        }
        if params.get("spool") is True:
            self._spool.accept(accepted)
        self._defer(accepted, self._outside.wall())
        # Of each process, and as it is when it is asked for.
        accepted["GlobalJobId"] = [f'strcat("{self._node}#", ClusterId, ".", ProcId, "#", QDate)']
        accepted.setdefault("MemoryUsage", ["((ResidentSetSize + 1023) / 1024)"])
        rules = self._rules()
        if rules.requirements and not rules.transforms:
            rules.check(ClassAd.from_wire(accepted), self._outside.wall())
        return accepted
