"""All work flows of one schedd: how they come in, which events are whose, and what a restart finds.

Most schedds have none: the modules that carry one out are imported with the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pool.decimals import whole_number
from pool.errors import PoolError
from pool.jobs.events import AlikeEvents, EventKind, JobEvent
from pool.policy.packed import pack, unpack
from pool.policy.queue import JobQueue, QueuedCluster, QueuedJob, Wire
from pool.policy.workflow import NodeState, WorkflowEngine, WorkflowPlan
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.intake import TURN
from pool.roles.schedd.workflows.large import beside
from pool.roles.schedd.workflows.records import PREFIX, plan_key, read_records
from pool.roles.schedd.workflows.written_files import WorkflowFiles, own_path
from pool.shadow.files import FilesOf
from pool.store import Change, SetMeta

if TYPE_CHECKING:
    from pool.roles.schedd.workflows.workflow import QueueNode, RunningWorkflow

#: Leftover names that are removed in one step.
SOME = 500
#: The attributes of a work flow's own job, beside those of its plan: no program is run for it.
OWN_AD: Wire = {
    "JobUniverse": 7,
    "Cmd": "/usr/bin/condor_dagman",
    "In": "/dev/null",
    "Out": "/dev/null",
    "Err": "/dev/null",
    "Requirements": ["true"],
    "RequestCpus": 0,
    "RequestMemory": 0,
    "RequestDisk": 0,
    "JobPrio": 0,
    "JobNotification": 0,
    "ShouldTransferFiles": "NO",
    "LeaveJobInQueue": False,
}


async def read_plan(wire: Any) -> WorkflowPlan:
    """A plan from the wire. Raises PoolError."""
    nodes = wire.get("nodes") if isinstance(wire, dict) else None
    return await beside(len(nodes) if isinstance(nodes, list) else 0, WorkflowPlan.from_wire, wire)


class Workflows:
    """The work flows of one schedd.

    Args:
        queue_node: queues a cluster for a user.
        remove: removes a cluster from the queue, with a reason.
    """

    def __init__(
        self,
        context: ScheddContext,
        files: FilesOf,
        *,
        queue_node: QueueNode,
        remove: Callable[[int, str, str], Coroutine[Any, Any, None]],
    ) -> None:
        self._context = context
        self._queue: JobQueue = context.queue
        self._ledger = context.ledger
        self._queue_node = queue_node
        self._remove = remove
        self._files_of = files
        self._files = WorkflowFiles(
            files,
            context.outside,
            context.log,
            recall=self._ledger.meta.get,
            keep=self._store_value,
        )
        self.running: dict[int, RunningWorkflow] = {}
        self._coming: list[str] = []
        self._nodes: dict[int, tuple[RunningWorkflow, int]] = {}
        self._ledger.listen(self._on_events, self._on_alike_events)

    async def _store_value(self, key: str, value: bytes) -> None:
        self._ledger.meta[key] = value
        await self._ledger.write_changes(SetMeta(key, value))

    # -- life --------------------------------------------------------------------------------------------------

    async def restore(self) -> None:
        """After a start of the schedd: go on with all that are in the queue; what is left of others is removed."""
        meta = self._ledger.meta
        runs, given_up = await beside(len(meta), read_records, dict(meta))
        known: set[int] = set()
        for count, cluster in enumerate(self._queue.clusters.values(), 1):
            if not count % TURN:
                await asyncio.sleep(0)
            if not cluster.is_workflow:
                continue
            packed = meta.get(plan_key(cluster.id))
            if packed is None or not cluster.jobs:
                continue
            known.add(cluster.id)
            plan = await read_plan(unpack(packed))
            workflow = await self._make(next(iter(cluster.jobs.values())), plan)
            await workflow.begin(runs.get(cluster.id, {}), given_up.get(cluster.id))
        orphans = {number for key in meta if key.startswith(PREFIX) and (number := _number(key)) not in known}
        if orphans:  # they were removed, and the schedd died before all of their jobs were
            for cluster in self._queue.clusters.values():
                if cluster.wire.get("DAGManJobId") in orphans:
                    removing = self._remove(cluster.id, cluster.owner, "its work flow was removed")
                    self._context.spawn(removing, "work flow", alone=True)
        left = [key for key in meta if key.startswith(PREFIX) and _number(key) not in known]
        for start in range(0, len(left), SOME):
            await self._ledger.write_changes(*(SetMeta(key, None) for key in left[start : start + SOME]))
        for key in [key for key in meta if key.startswith(PREFIX) and not key.endswith(".rescue")]:
            del meta[key]

    async def submit(
        self,
        owner: str,
        wire: Wire,
        shared: Wire | None = None,
        also: Callable[[int], list[Change]] = lambda number: [],
    ) -> QueuedCluster:
        """Queue a work flow; durable when this returns.

        Args:
            wire: its plan.
            shared: attributes of its job, where it is a node of another work flow.
            also: further changes in the same durable step, of its cluster's number.

        Raises:
            PoolError: it is no work flow, or is refused.
        """
        wire = wire | {"files": {**wire["files"], "apart": False} if isinstance(wire.get("files"), dict) else {}}
        plan = await read_plan(wire)
        self._coming.append(plan.file)
        try:
            if self._coming.count(plan.file) > 1 or self._others(plan.file):
                wire["files"]["apart"] = True
                plan = replace(plan, files=wire["files"])
            return await self._submit(owner, wire, plan, shared, also)
        finally:
            self._coming.remove(plan.file)

    async def _submit(
        self,
        owner: str,
        wire: Wire,
        plan: WorkflowPlan,
        shared: Wire | None,
        also: Callable[[int], list[Change]],
    ) -> QueuedCluster:
        packed = await beside(len(plan.nodes), pack, wire)
        ad = {**plan.ad, **OWN_AD, "Iwd": plan.iwd, "DAG_NodesTotal": len(plan.nodes), **(shared or {})}
        if isinstance(plan.ad.get("JobPrio"), int):
            ad["JobPrio"] = plan.ad["JobPrio"]
        ad.setdefault("JobBatchName", plan.file.rpartition("/")[2])

        def changes(number: int) -> list[Change]:
            return [SetMeta(plan_key(number), packed), *also(number)]

        cluster = await self._queue_node(owner, ad, None, 1, changes, workflow=plan.file)
        workflow = await self._make(cluster.jobs[0], plan)
        await workflow.begin()
        return cluster

    def _others(self, file: str, but: int = 0) -> list[int]:
        """The work flows of a DAG file that are in the queue."""
        return sorted(number for number, one in self.running.items() if one.plan.file == file and number != but)

    def beside_which(self, number: int) -> dict[str, Any]:
        """Of a work flow with files of its own, since another one of the same DAG file runs: {beside, files}."""
        workflow = self.running.get(number)
        if workflow is None or workflow.plan.files.get("apart") is not True:
            return {}
        others = self._others(workflow.plan.file, number)
        return {"beside": others[0] if others else 0, "files": own_path(workflow.plan, number, workflow.plan.file)}

    def owned(self, number: int, owner: str) -> RunningWorkflow:
        """A user's work flow that runs. Raises PoolError."""
        workflow = self.running.get(number)
        if workflow is None:
            raise _none_such(number)
        if workflow.owner != owner:
            raise PoolError(f"work flow {number} belongs to {workflow.owner}")
        return workflow

    async def _make(self, job: QueuedJob, plan: WorkflowPlan) -> RunningWorkflow:
        from pool.roles.schedd.workflows.workflow import RunningWorkflow

        workflow = RunningWorkflow(
            job,
            await beside(len(plan.nodes), WorkflowEngine, plan),
            self._context,
            self._files,
            self._files_of(job.cluster.owner),
            queue_node=self._queue_node,
            queue_workflow=self.submit,
            remove=self._remove,
            queued=self._queued,
            over=self._over,
        )
        self.running[job.cluster.id] = workflow
        return workflow

    def _queued(self, cluster: int, workflow: RunningWorkflow, at: int) -> None:
        self._nodes[cluster] = workflow, at

    def _over(self, workflow: RunningWorkflow) -> None:
        self.running.pop(workflow.id, None)
        for number in [one for one, (whose, _) in self._nodes.items() if whose is workflow]:
            if not workflow.keeps_output_of(number):
                del self._nodes[number]
        self._ledger.meta.pop(f"{plan_key(workflow.id)}.rescue", None)

    # -- events --------------------------------------------------------------------------------------------------

    def _on_events(self, events: Sequence[JobEvent]) -> None:
        for event in events:
            if (own := self.running.get(event.cluster)) is not None:
                own.on_own_event(event)
            if (found := self._nodes.get(event.cluster)) is None or event.kind is EventKind.SUBMIT:
                continue
            workflow, at = found
            workflow.on_event(at, event)
            if event.kind.ends and not workflow.waits_for(at, event.cluster):
                del self._nodes[event.cluster]

    def _on_alike_events(self, events: AlikeEvents, jobs: Sequence[QueuedJob]) -> None:
        if events.cluster in self.running or events.cluster in self._nodes:
            self._on_events(list(events))

    async def stop(self, job: QueuedJob) -> bool:
        """Do with a work flow's job, which runs, as its user wishes; False where it is none."""
        workflow = self.running.get(job.cluster.id)
        if workflow is None:
            return False
        await workflow.stop()
        return True

    # -- views ---------------------------------------------------------------------------------------------------

    async def status(self, number: int, *, nodes: bool) -> dict[str, Any]:
        """How far a work flow is.

        Args:
            nodes: each node's state, too.

        Raises:
            PoolError: there is none of this number that runs.
        """
        workflow = self.running.get(number)
        if workflow is None:
            raise _none_such(number)
        now = self._context.outside.wall()
        return await beside(len(workflow.plan.nodes), _status_of, workflow, nodes, now)


def _status_of(workflow: RunningWorkflow, nodes: bool, now: float) -> dict[str, Any]:
    engine, plan = workflow.engine, workflow.plan
    there = [at for at, node in enumerate(plan.nodes) if not node.removed]
    from pool.policy.workflow.forecast import forecast

    expected = forecast(engine, now, halted=engine.halted)
    found: dict[str, Any] = {
        "cluster": workflow.id,
        "owner": workflow.owner,
        "file": plan.file,
        "files": own_path(plan, workflow.id, plan.file),
        "halted": engine.halted,
        "open": plan.open,
        "status": int(engine.status),
        "counts": {state.name: count for state, count in engine.counts().items()},
        "queued": [
            [plan.nodes[at].name, run.state.name, run.cluster, run.attempt] for at, run in list(engine.in_queue())[:100]
        ],
        "failed": [
            [plan.nodes[at].name, run.job_code, run.jobs]
            for at, run in enumerate(engine.runs)
            if run.state is NodeState.ERROR
        ][:100],
        "began": workflow.job.get("JobStartDate"),
        "now": now,
        "critical_path": expected.path,
        "critical_seconds": round(expected.seconds, 1),
        "unknown": expected.unknown,
        "overdue": expected.overdue,
        "expected_end": expected.end,
        "reading": plan.files.get("reading"),
        "iwd": plan.iwd,
    }
    if nodes:
        number = {at: new for new, at in enumerate(there)}
        found["nodes"] = [
            [plan.nodes[at].name, int(run.state), run.attempt, run.jobs]
            for at, run in ((at, engine.runs[at]) for at in there)
        ]
        found["edges"] = [[[number[at] for at in side] for side in edge] for edge in plan.edges]
    return found


def _none_such(number: int) -> PoolError:
    hint = f"`poolnode history {number}` has those that have ended"
    return PoolError(f"there is no work flow {number} in the queue", hint=hint)


def _number(key: str) -> int:
    return whole_number(key.split(".")[1]) or 0
