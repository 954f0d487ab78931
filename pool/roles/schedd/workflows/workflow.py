"""One work flow that runs: its engine's actions carried out, its nodes' ends brought to it.

A node's cluster and the record that it is queued are one durable step. Ends are durable with their jobs: after a
restart they are looked up, in the queue or in the history. So each node's effect happens once, whenever the schedd
dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Protocol

from pool.errors import PoolError
from pool.jobs.arguments import join_words
from pool.jobs.dag.marks import bind_marks
from pool.jobs.events import EventKind, JobEvent
from pool.jobs.states import Happening
from pool.policy.packed import pack, unpack_over
from pool.policy.queue import HELD, IDLE, RUNNING, QueuedCluster, QueuedJob, Wire
from pool.policy.workflow import (
    DagStatus,
    DeferScript,
    FinishDag,
    NextTurn,
    NodeRun,
    NodeState,
    RemoveNode,
    StartScript,
    SubmitNode,
    WorkflowEngine,
    WorkflowPlan,
)
from pool.policy.workflow.logs import JOB_EVENTS
from pool.policy.workflow.plan import REMOVED, SUBMIT_FAILED, NodeTemplate
from pool.policy.workflow.words import script_words
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.job_ends import hold_step
from pool.roles.schedd.core.ledger import JobChange
from pool.roles.schedd.workflows.edits import WorkflowEdits
from pool.roles.schedd.workflows.event_logs import WorkflowLogs
from pool.roles.schedd.workflows.large import beside
from pool.roles.schedd.workflows.pictures import WorkflowPictures
from pool.roles.schedd.workflows.records import given_up_key, keys_of, node_key, plan_key
from pool.roles.schedd.workflows.script_output import ScriptOutput
from pool.roles.schedd.workflows.written_files import WorkflowFiles, own_path
from pool.shadow.files import UserFiles
from pool.store import Change, SetMeta

#: Submits of one work flow that are under way at once: they are written together.
SUBMITS = 64
#: Seconds after which a node that found no room in the queue is tried again.
AGAIN = 5.0
#: Records that are removed in one step.
MANY = 500
#: Parents that a job's ad names.
MOST_PARENTS = 50
#: The value of a PROVISIONER job's attribute ProvisionerState by which other nodes may begin.
PROVISIONED = 2


class QueueNode(Protocol):
    """Queues a cluster for a user, with further changes in the same durable step."""

    async def __call__(
        self,
        owner: str,
        ad: Wire,
        deltas: list[Wire | None] | None,
        count: int,
        also: Callable[[int], list[Change]],
        *,
        workflow: str = "",
    ) -> QueuedCluster: ...


class QueueWorkflow(Protocol):
    """Queues an inner work flow for a user, with further changes in the same durable step."""

    async def __call__(
        self, owner: str, wire: Wire, shared: Wire | None, also: Callable[[int], list[Change]]
    ) -> QueuedCluster: ...


class RunningWorkflow:
    """One work flow.

    Args:
        job: its own job in the queue.
        engine: of its plan.
        own_files: of its owner.
        queue_node: queues jobs for its owner.
        queue_workflow: queues an inner work flow.
        remove: removes a cluster from the queue, with a reason.
        queued: called with each cluster that comes into being for it.
        over: called when it has ended, and nothing of it is left.
    """

    def __init__(
        self,
        job: QueuedJob,
        engine: WorkflowEngine,
        context: ScheddContext,
        files: WorkflowFiles,
        own_files: UserFiles,
        *,
        queue_node: QueueNode,
        queue_workflow: QueueWorkflow,
        remove: Callable[[int, str, str], Coroutine[Any, Any, None]],
        queued: Callable[[int, RunningWorkflow, int], None],
        over: Callable[[RunningWorkflow], None],
    ) -> None:
        self.job = job
        self.engine = engine
        self._has_begun = False
        #: Events of its nodes' clusters that come before it is known what became of all of them; None afterwards.
        self._early: list[tuple[int, JobEvent]] | None = []
        #: Jobs of which it is known by then that they have begun, or ended: (cluster, proc).
        self._begun_before: set[tuple[int, int]] = set()
        self._ended_before: set[tuple[int, int]] = set()
        self.owner = job.cluster.owner
        self.id = job.cluster.id
        self._context = context
        self._ledger = context.ledger
        self._files = files
        self._queue_node = queue_node
        self._queue_workflow = queue_workflow
        self._remove = remove
        self._queued = queued
        self._over = over
        self._starting: set[int] = set()
        self._submits = asyncio.Semaphore(SUBMITS)
        self._again = False
        self._pumping = False
        self._given_up_stored = False
        self._own_files = own_files
        self._held: dict[int, set[int]] = {}
        self._hold_count = 0
        self._hold_scripts: dict[int, tuple[int, ScriptOutput]] = {}
        self.edits = WorkflowEdits(self.id, engine, context, wake=self.wake)
        plan = engine.plan
        jobstate = plan.files.get("jobstate")
        self._logs = WorkflowLogs(
            self.id,
            engine,
            own_files,
            context.outside,
            context.log,
            own_path(plan, self.id, plan.file),
            own_path(plan, self.id, jobstate) if isinstance(jobstate, str) and jobstate.startswith("/") else "",
        )
        self._pictures = WorkflowPictures(self.id, self.owner, engine, context, files, self._held_counts)

    @property
    def plan(self) -> WorkflowPlan:
        """As it is now: it may have been edited."""
        return self.engine.plan

    def _held_counts(self) -> dict[int, int]:
        return {at: len(procs) for at, procs in self._held.items()}

    # -- life --------------------------------------------------------------------------------------------------

    async def begin(self, known: Mapping[int, NodeRun] | None = None, given_up: tuple[int, int] | None = None) -> None:
        """Begin, or go on from the records of an earlier run of the schedd."""
        self._given_up_stored = given_up is not None
        if self.job.status is IDLE:
            now = int(self._context.outside.wall())
            changes = {
                "RemoteHost": f"workflow@{self._context.name}",
                "NumJobStarts": 1,
                "JobStartDate": now,
                "JobCurrentStartDate": now,
            }
            data = {"slot": changes["RemoteHost"], "started": now}
            await self._ledger.commit(JobChange(self.job, Happening.START, changes, EventKind.EXECUTE, data))
        self.engine.now = self._context.outside.wall()
        gone = (DagStatus(given_up[0]), given_up[1]) if given_up is not None else None
        active = await beside(len(self.plan.nodes), self.engine.begin, known, gone)
        self._has_begun = True
        self.engine.halt(self.job.status is HELD)
        for at in active:
            self._queued(self.engine.runs[at].cluster, self, at)
        for at in active:
            await self._catch_up(at)
        self._handle_early()
        if known is not None:
            self._logs.resumed()
        if (self.job.stored_note("_wish") or {}).get("what") == "remove":
            self.engine.abort(DagStatus.REMOVED)
        self.wake()

    def _handle_early(self) -> None:
        """Handle the events that came while it was learnt what had become of the nodes, if they are news."""
        early, self._early = self._early or [], None
        for at, event in early:
            job = event.cluster, max(0, event.proc)
            known = job in self._ended_before or (event.kind is EventKind.EXECUTE and job in self._begun_before)
            if not known:
                self.on_event(at, event)
        self._begun_before.clear()
        self._ended_before.clear()

    async def _catch_up(self, at: int) -> None:
        """Learn what became of a node's cluster before this run of the schedd. A job whose end is being written is not
        in the history yet: the event of its end will come.
        """
        engine, run = self.engine, self.engine.runs[at]
        cluster = self._context.queue.clusters.get(run.cluster)
        there: set[int] = set(cluster.jobs) if cluster is not None else set()
        there |= {proc for number, proc in self._ledger.not_yet_in_history if number == run.cluster}
        is_job = run.state is NodeState.SUBMITTED
        for proc in range(run.count if is_job else 0):
            engine.add_note(at, "SUBMIT", proc=proc)
        for job in cluster.jobs.values() if cluster is not None else ():
            if job.status is RUNNING and is_job:
                engine.add_note(at, "EXECUTE", proc=job.id[1])
                engine.job_started(at)
                self._begun_before.add(job.id)
            elif job.status is HELD:
                self._held.setdefault(at, set()).add(job.id[1])
            if self._is_provisioned(at, job.get("ProvisionerState")):
                engine.provision()
        if there and (len(there) >= max(1, run.count) or not is_job):
            return
        ends: dict[int, tuple[int, float]] = {}
        async for rows in self._ledger.store.history(jobs=[(run.cluster, None)]):
            for row in rows:
                ad = unpack_over(row.ad, row.shared)
                ends[row.proc] = _code_of(ad), float(ad.get("CompletionDate") or engine.now)
                if self._is_provisioned(at, ad.get("ProvisionerState")):
                    engine.provision()
                if is_job and ad.get("NumJobStarts"):
                    engine.add_note(at, "EXECUTE", proc=row.proc)
        number = run.cluster
        for proc in range(max(1, run.count)):
            if proc in there or self.engine.runs[at].cluster != number:
                continue
            self._ended_before.add((number, proc))
            code, ended = ends.get(proc, (REMOVED, engine.now))
            if is_job:
                engine.add_note(at, "JOB_ABORTED" if code == REMOVED else "JOB_TERMINATED", proc=proc, code=code)
            elif (kept := self._output_of(at, _moment_of(run.state))) is not None:
                await self._collect(kept, code, ended, again=True)
            self._ended(at, code, proc)

    def _is_provisioned(self, at: int, value: Any) -> bool:
        return self.plan.nodes[at].kind == "PROVISIONER" and value == PROVISIONED

    def wake(self) -> None:
        """Do what is to be done now."""
        self._again = True
        if not self._pumping and self._early is None:
            self._pumping = True
            self._context.spawn(self._pump(), "work flow", alone=True)

    # -- events --------------------------------------------------------------------------------------------------

    def on_event(self, at: int, event: JobEvent) -> None:
        """Something happened to a cluster of one of its nodes."""
        if self._early is not None:
            self._early.append((at, event))
            return
        engine, run = self.engine, self.engine.runs[at]
        engine.now = event.time
        kind = event.kind
        if kind.ends and (found := self._hold_scripts.pop(event.cluster, None)) is not None:
            spawn = self._context.spawn
            spawn(self._collect(found[1], _end_of(event), event.time), "work flow", alone=True)
        if run.cluster != event.cluster:
            return
        if run.state is not NodeState.SUBMITTED:
            self._on_script_event(at, event)
            return
        code = _end_of(event)
        if kind in JOB_EVENTS:
            why = str(event.data.get("why") or "")
            engine.add_note(at, JOB_EVENTS[kind], proc=max(0, event.proc), code=code if kind.ends else None, text=why)
        if kind is EventKind.HELD:
            self._held.setdefault(at, set()).add(event.proc)
            if "HOLD" in self.plan.nodes[at].scripts:
                self._context.spawn(self._run_hold_script(at), "work flow", alone=True)
        elif at in self._held and kind in (EventKind.RELEASED, EventKind.TERMINATED, EventKind.ABORTED):
            self._held[at].discard(event.proc)
        if kind is EventKind.EXECUTE:
            engine.job_started(at)
        elif kind in (EventKind.EVICTED, EventKind.SHADOW_EXCEPTION):
            engine.job_stopped(at)
        elif kind.ends:
            self._ended(at, code, event.proc)
        elif kind is EventKind.NOTICE and self.plan.nodes[at].kind == "PROVISIONER":
            job = self._context.queue.find(event.cluster, event.proc)
            if job is not None and self._is_provisioned(at, job.get("ProvisionerState")):
                engine.provision()
        elif kind not in JOB_EVENTS:
            return
        self.wake()

    def waits_for(self, at: int, cluster: int) -> bool:
        """Whether further events of a cluster of a node are of interest."""
        return self.engine.runs[at].cluster == cluster or self.keeps_output_of(cluster)

    def keeps_output_of(self, cluster: int) -> bool:
        """Whether a cluster is a HOLD script whose output is kept when it has ended."""
        return cluster in self._hold_scripts

    def _on_script_event(self, at: int, event: JobEvent) -> None:
        if event.kind is EventKind.HELD:
            why = str(event.data.get("why", ""))
            removing = self._remove(event.cluster, self.owner, f"the script cannot run: {why}")
            self._context.spawn(removing, "work flow", alone=True)
        elif event.kind.ends:
            code, state = _end_of(event), self.engine.runs[at].state
            if (kept := self._output_of(at, _moment_of(state))) is not None:
                self._context.spawn(self._end_script(at, kept, code, event), "work flow", alone=True)
                return
            self._ended(at, code)
            self.wake()

    async def _end_script(self, at: int, kept: ScriptOutput, code: int, event: JobEvent) -> None:
        await self._collect(kept, code, event.time)
        self.engine.now = event.time
        self._ended(at, code)
        self.wake()

    async def _collect(self, kept: ScriptOutput, code: int, ended: float, *, again: bool = False) -> None:
        try:
            await kept.collect(self._own_files, code, ended, again=again)
        except PoolError as error:
            self._context.log.warning(
                "a script's output cannot be kept", extra={"workflow": self.id, "file": kept.file, "why": str(error)}
            )

    def _output_of(self, at: int, moment: str, mark: str = "") -> ScriptOutput | None:
        """Where the output of a script of the present attempt goes; None where it is not kept."""
        node, run = self.plan.nodes[at], self.engine.runs[at]
        script = node.scripts.get(moment)
        if script is None or not script.debug_file:
            return None
        base = f"{script.debug_file}.{self.id}.{at}.{moment}.{run.attempt}{mark}"
        command = " ".join([script.program, *script_words(self.engine, at, moment, self.id)])
        return ScriptOutput(script.debug_file, base, script.debug_streams, node.name, moment, command)

    async def _run_hold_script(self, at: int) -> None:
        """Nothing follows from its end, and nothing from its failure."""
        self._hold_count += 1
        kept = self._output_of(at, "HOLD", f".{self._hold_count}")

        def also(number: int) -> list[Change]:
            if kept is not None:
                self._hold_scripts[number] = at, kept
                self._queued(number, self, at)
            return []

        ad = self._script_of(at, "HOLD") | (kept.attributes() if kept is not None else {})
        await self._queue_node(self.owner, ad, None, 1, also)

    def _ended(self, at: int, code: int, proc: int = 0) -> None:
        if self.engine.runs[at].state is NodeState.SUBMITTED:
            self.engine.job_ended(at, code, max(0, proc))
        else:
            self.engine.script_ended(at, code)

    def on_own_event(self, event: JobEvent) -> None:
        """Something happened to its own job; before it has begun, `begin` sees it."""
        if not self._has_begun:
            return
        if event.kind is EventKind.RELEASED:
            self._context.spawn(self._resume(), "work flow", alone=True)
        elif event.kind is EventKind.HELD:
            self.engine.halt(True)
        elif event.kind is EventKind.ABORTED:
            self.engine.halt(False)
            self.engine.abort(DagStatus.REMOVED)
            self.wake()

    async def _resume(self) -> None:
        if self.job.status is IDLE:
            changes = {"RemoteHost": f"workflow@{self._context.name}"}
            await self._ledger.commit(JobChange(self.job, Happening.START, changes))
        self.engine.halt(False)
        self.wake()

    async def stop(self) -> None:
        """Do with its own job, which runs, as its user wishes."""
        wish = self.job.stored_note("_wish") or {}
        if wish.get("what") == "remove" and self._has_begun:
            self.engine.abort(DagStatus.REMOVED)
            self.wake()
        elif wish.get("what") == "hold":
            self.engine.halt(True)
            changes: dict[str, Any] = {"_wish": None, "RemoteHost": None}
            await self._ledger.commit(hold_step(self.job, str(wish.get("why")), int(wish.get("code", 1)), changes))
        else:
            await self._ledger.commit(JobChange(self.job, None, {"_wish": None}))

    # -- actions ---------------------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        try:
            while self._again:
                self._again = False
                self.engine.now = self._context.outside.wall()
                async with self._context.turns.work(self.owner, "run a work flow") as turn:
                    while not self.edits.under_way and (action := self.engine.next_action()) is not None:
                        if turn.is_over:
                            await turn.pause()
                        if isinstance(action, SubmitNode | StartScript):
                            self._starting.add(action.node)
                            if self._submits.locked():
                                await turn.wait_outside(self._submits.acquire())
                            else:
                                await self._submits.acquire()
                            self._context.spawn(self._start(action), "work flow node", alone=True)
                        else:
                            self._carry_out(action)
                await self._store_changes()
        finally:
            self._pumping = False

    def _carry_out(self, action: DeferScript | RemoveNode | NextTurn | FinishDag) -> None:
        spawn = self._context.spawn
        if isinstance(action, NextTurn):
            return
        if isinstance(action, DeferScript):
            asyncio.get_running_loop().call_later(action.seconds, self._due, action)
        elif isinstance(action, RemoveNode):
            spawn(self._remove(action.cluster, self.owner, f"by its work flow, {self.id}"), "work flow", alone=True)
        else:
            spawn(self._finish(action), "work flow", alone=True)

    def _due(self, action: DeferScript) -> None:
        self.engine.now = self._context.outside.wall()
        self.engine.script_due(action.node, action.moment)
        self.wake()

    async def _store_changes(self) -> None:
        """Make the states of nodes durable; those that are being queued become so with what is queued.

        No state is stored before the logs tell of it: one that changes while they are written has its turn with the
        next call.
        """
        states = {at: pack(run.to_wire()) for at, run in self.engine.take_changes().items()}
        await self._logs.flush()
        changes: list[Change] = []
        if self.engine.given_up is not None and not self._given_up_stored:
            self._given_up_stored = True
            changes.append(SetMeta(given_up_key(self.id), pack([int(part) for part in self.engine.given_up])))
        for at, state in states.items():
            if at in self._starting:
                continue
            if pack(self.engine.runs[at].to_wire()) != state:
                self.engine.keep_change(at)
                continue
            changes.append(SetMeta(node_key(self.id, at), state))
            if len(changes) >= MANY:
                await self._ledger.write_changes(*changes)
                changes = []
        if changes:
            await self._ledger.write_changes(*changes)
        self._pictures.changed()

    async def _start(self, action: SubmitNode | StartScript) -> None:
        at = action.node
        engine = self.engine
        number = 0

        def also(cluster: int) -> list[Change]:
            nonlocal number
            number = cluster
            run = replace(engine.runs[at], cluster=cluster)
            if isinstance(action, SubmitNode):
                run.jobs = cluster
            self._queued(cluster, self, at)
            return [SetMeta(node_key(self.id, at), pack(run.to_wire()))]

        try:
            await self._logs.flush()
            await self._write_save(action)
            inner = self.plan.nodes[at].plan
            if isinstance(action, StartScript):
                await self._queue_node(self.owner, self._script_of(at, action.moment), None, 1, also)
            elif inner is not None:
                shared = self._shared(at) | {"JobPrio": self._priority(at)}
                await self._queue_workflow(self.owner, inner, shared, also)
            else:
                await self._queue_node(self.owner, *self._jobs_of(at), also)
        except PoolError as error:
            self._starting.discard(at)
            if error.retry and not self._is_given_up(at):  # no room, or a full disk: it waits for its turn
                asyncio.get_running_loop().call_later(AGAIN, self._try_again, action)
                return
            name = self.plan.nodes[at].name
            self._context.log.warning(
                "a node was not queued", extra={"workflow": self.id, "node": name, "why": str(error)}
            )
            engine.now = self._context.outside.wall()
            engine.submit_failed(at, SUBMIT_FAILED)
        else:
            self._starting.discard(at)
            engine.now = self._context.outside.wall()
            engine.submitted(at, number)
        finally:
            self._submits.release()
        self.wake()

    async def _write_save(self, action: SubmitNode | StartScript) -> None:
        """At a node's first start the progress so far is written, where the node is a save point."""
        node = self.plan.nodes[action.node]
        first = "PRE" if "PRE" in node.scripts else "JOB"
        step = action.moment if isinstance(action, StartScript) else "JOB"
        if node.save and step == first and not self.engine.runs[action.node].attempt:
            await self._files.write_save(self.owner, self.plan, self.engine, node.save)

    def _try_again(self, action: SubmitNode | StartScript) -> None:
        if self._is_given_up(action.node):
            self.engine.submit_failed(action.node, REMOVED)
        else:
            self._starting.add(action.node)
            self._context.spawn(self._start_later(action), "work flow node", alone=True)
        self.wake()

    def _is_given_up(self, at: int) -> bool:
        return self.engine.ending and self.plan.nodes[at].kind != "FINAL"

    async def _start_later(self, action: SubmitNode | StartScript) -> None:
        await self._submits.acquire()
        await self._start(action)

    def _shared(self, at: int) -> Wire:
        node, run = self.plan.nodes[at], self.engine.runs[at]
        shared: Wire = {
            "DAGManJobId": self.id,
            "DAGNodeName": node.name,
            "DAGManNodeRetry": run.attempt,
            "JobBatchName": str(self.job.get("JobBatchName") or f"{self.plan.file.rpartition('/')[2]}+{self.id}"),
        }
        if parents := self.engine.parents_of(at, MOST_PARENTS):
            shared["DAGParentNodeNames"] = ",".join(self.plan.nodes[parent].name for parent in parents)
        if node.kind == "FINAL":
            shared["DAG_Status"] = int(self.engine.status)
        return shared

    def _jobs_of(self, at: int) -> tuple[Wire, list[Wire | None] | None, int]:
        node, run = self.plan.nodes[at], self.engine.runs[at]
        jobs = node.jobs[min(run.attempt, len(node.jobs) - 1)]
        template: NodeTemplate = self.plan.templates[jobs.template]
        values = {"DAG_STATUS": int(self.engine.status), "FAILED_COUNT": self.engine.failed, "DAGManJobId": self.id}
        ad, deltas = dict(template.ad), None
        own = template.deltas[jobs.first : jobs.first + jobs.count] if template.deltas is not None else []
        if jobs.count == 1 and own and own[0]:
            ad |= own[0]
        elif any(own):
            deltas = [delta and bind_marks(delta, values) for delta in own]
        ad = bind_marks(ad, values) | self._shared(at)
        if priority := self._priority(at):
            ad["JobPrio"] = priority
        return ad, deltas, jobs.count

    def _priority(self, at: int) -> int:
        return self.plan.nodes[at].priority + int(self.job.get("JobPrio") or 0)

    def _script_of(self, at: int, moment: str) -> Wire:
        """A script is a job of the local universe: it runs as its user, beside the schedd, once."""
        node = self.plan.nodes[at]
        script, iwd = node.scripts[moment], node.directory or self.plan.iwd
        program = script.program if script.program.startswith("/") else f"{iwd.rstrip('/')}/{script.program}"
        words = script_words(self.engine, at, moment, self.id)
        own = {
            "JobUniverse": 12,
            "Cmd": program,
            "Arguments": join_words(words),
            "Iwd": iwd,
            "DAGScript": moment,
            "Requirements": ["true"],
            "JobPrio": node.priority,
        }
        if moment != "HOLD" and (kept := self._output_of(at, moment)) is not None:
            own |= kept.attributes()
        return dict(self.plan.script_ad) | self._shared(at) | own

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _finish(self, action: FinishDag) -> None:
        await self._store_changes()
        counts = await beside(len(self.plan.nodes), self.engine.counts)
        now = self._context.outside.wall()
        if action.rescue:
            await self._files.write_rescue(self.owner, self.id, self.plan, self.engine)
        began, parent = float(self.job.get("JobStartDate") or now), int(self.job.get("DAGManJobId") or 0)
        await self._files.write_metrics(self.owner, self.id, self.engine, action.code, began, parent)
        await self._pictures.write_last()
        await self._logs.flush(end=action.code)
        changes: dict[str, Any] = {
            "ExitCode": action.code,
            "ExitBySignal": False,
            "CompletionDate": int(now),
            "RemoteHost": None,
            "_wish": None,
            "DAG_Status": int(self.engine.status),
            "DAG_NodesTotal": len(self.plan.nodes),
            "DAG_NodesDone": counts[NodeState.DONE],
            "DAG_NodesFailed": counts[NodeState.ERROR],
            "DAG_NodesFutile": counts[NodeState.FUTILE],
            "DAG_NodesUnready": counts[NodeState.NOT_READY],
        }
        if self._context.queue.find(*self.job.id) is self.job:
            removed = (self.job.stored_note("_wish") or {}).get("what") == "remove"
            if removed:
                why = str((self.job.stored_note("_wish") or {}).get("why") or "")
                step = JobChange(
                    self.job, Happening.REMOVE, changes | {"RemoveReason": why}, EventKind.ABORTED, {"why": why}
                )
            else:
                step = JobChange(self.job, Happening.EXIT, changes, EventKind.TERMINATED, {"code": action.code})
            await self._ledger.commit(step)
        self._over(self)
        keys = keys_of(self.id, len(self.plan.nodes))
        some: list[Change] = []
        for key in keys:
            some.append(SetMeta(key, None))
            if len(some) >= MANY:
                await self._ledger.write_changes(*some)
                some = []
        await self._ledger.write_changes(*some, SetMeta(plan_key(self.id), None))


def _code_of(ad: Wire) -> int:
    """The end of a job in the history as DAGMan counts it."""
    if ad.get("ExitBySignal") is True:
        return -int(ad.get("ExitSignal") or 0) or REMOVED
    code = ad.get("ExitCode")
    return code if isinstance(code, int) else REMOVED


def _moment_of(state: NodeState) -> str:
    return "PRE" if state is NodeState.PRERUN else "POST"


def _end_of(event: JobEvent) -> int:
    """The end of a job as DAGMan counts it."""
    if event.kind is not EventKind.TERMINATED:
        return REMOVED
    return -int(event.data["signal"]) if event.data.get("signal") else int(event.data.get("code") or 0)
