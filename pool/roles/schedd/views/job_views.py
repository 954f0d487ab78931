"""The schedd's methods that only show jobs and change nothing."""

from __future__ import annotations

from typing import Any

from pool.errors import PoolError
from pool.policy.queue import QueuedJob
from pool.roles.cooperative import WorkTurns
from pool.roles.schedd.core.callers import CHOICE, owner_of, viewer_of
from pool.roles.schedd.core.ledger import Ledger
from pool.roles.schedd.views.following import EventStream, UntilLogged
from pool.roles.schedd.views.forwarding import JobForwarding
from pool.roles.schedd.views.inspecting import JobInspection
from pool.roles.schedd.views.listings import Listings
from pool.roles.schedd.views.own_work import OwnWork
from pool.roles.schedd.views.why import JobExplanations
from pool.starter.inspecting import bounded
from pool.starter.shells import WISH
from pool.wire import Call, Right, Service, Stream, method, streaming
from pool.wire.parameter_checks import JOB_ID, JOB_IDS, optional


class JobViews(Service):
    """The methods with which jobs are looked at, served under the schedd's name."""

    def __init__(
        self,
        ledger: Ledger,
        listings: Listings,
        explaining: JobExplanations,
        inspection: JobInspection,
        forwarding: JobForwarding,
        until_logged: UntilLogged,
        turns: WorkTurns,
    ) -> None:
        self._until_logged = until_logged
        self._turns = turns
        self._ledger = ledger
        self._listings = listings
        self._explaining = explaining
        self._inspection = inspection
        self._forwarding = forwarding

    @streaming(Right.READ, takes={**CHOICE, "columns": bool | None})
    async def query(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Jobs in the queue, in batches of ads."""
        await self._listings.query(params, stream, viewer_of(call), call.identity.name)

    @streaming(Right.READ, takes=CHOICE)
    async def history(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Jobs that have left the queue, newest first."""
        await self._listings.history(params, stream, viewer_of(call), call.identity.name)

    @method(Right.READ, takes={"id": JOB_ID})
    async def why(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Why a job does not run, as far as its schedd knows: {id} -> {findings, request, time}"""
        return await self._explaining.why(int(params["id"][0]), int(params["id"][1]))

    @method(Right.READ)
    async def summary(self, call: Call, params: dict[str, Any]) -> list[dict[str, Any]]:
        """The use of each user's ended jobs (EV 2.8)."""
        return await self._listings.summary()

    @streaming(Right.READ, takes={"cluster": int | None, "ids": optional(JOB_IDS), "after": int | None})
    async def watch(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Events of jobs: those since `after`, then each as it happens."""
        await self._listings.watch(params, stream)

    @streaming(Right.READ)
    async def follow(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Events of jobs for any number of watches: `following` has the messages."""
        await EventStream(self._ledger, stream, self._until_logged).run()

    @streaming(Right.EXECUTE)
    async def own_work(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """All jobs that want machines, as they come and end, for this pool's world: `own_work` has the items."""
        await OwnWork(self._ledger, self._turns).run(stream)

    @streaming(
        Right.SUBMIT,
        takes={"id": JOB_ID, "file": str | None, "offset": int | None, "lines": int | None, "node": int | None},
    )
    async def tail(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A job's output as it grows."""
        await self._listings.tail(params, stream, self._visible_owner(call))

    @method(Right.SUBMIT, cancellable=True, takes={"id": JOB_ID, "seconds": float | int | None})
    async def inspect(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The present state of a running job: {id, seconds} -> {parts}; for its owner and administrators."""
        job = self._found(params["id"], self._visible_owner(call))
        return {"parts": await self._inspection.inspect(job, bounded(params.get("seconds")))}

    @streaming(Right.SUBMIT, takes={"id": JOB_ID, "port": int, "node": int | None})
    async def forward(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A connection to a port of a running job in its own network: {id, port, node}; for its owner only."""
        job = self._found(params["id"], owner_of(call, {}))
        await self._forwarding.forward(job, int(params.get("node") or 0), int(params["port"]), stream)

    @streaming(Right.SUBMIT, takes={"id": JOB_ID, "node": int | None, "shell": WISH})
    async def shell(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A shell in a running job: {id, node, shell}; for its owner only. `pool.starter.shells` has the items."""
        job = self._found(params["id"], owner_of(call, {}))
        await self._forwarding.shell(job, int(params.get("node") or 0), params["shell"], stream)

    def _found(self, job_id: Any, only: str | None) -> QueuedJob:
        """A job in the queue.

        Raises:
            PoolError: there is none, or it is not of the user `only`.
        """
        cluster, proc = int(job_id[0]), int(job_id[1])
        job = self._ledger.queue.find(cluster, proc)
        if job is None:
            hint = f"`poolnode q` lists them; `poolnode history {cluster}.{proc}` has it if it has ended"
            raise PoolError(f"there is no job {cluster}.{proc} in the queue", hint=hint)
        if only is not None and only != job.cluster.owner:
            raise PoolError(f"job {cluster}.{proc} belongs to {job.cluster.owner}")
        return job

    @staticmethod
    def _visible_owner(call: Call) -> str | None:
        """The user whose jobs the caller may look into: its own name; None for all users."""
        return None if Right.ADMINISTER in call.identity.rights else owner_of(call, {})
