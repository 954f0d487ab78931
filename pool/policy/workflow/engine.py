"""The state machine of one work flow: events of its nodes' jobs and scripts in, actions out.

It does nothing and reads no clock. The caller carries out each action and reports what came of it; the state of each
node that changed is in `take_changes`, to be made durable. `restored` goes on from such states.

    NOT_READY -> READY -> PRERUN -> READY -> SUBMITTED -> POSTRUN -> DONE
                   ^------------- another attempt -----------------> ERROR      (its descendants: FUTILE)

A job that is evicted, or whose machine was at fault, is still the same job: it runs elsewhere, and costs no attempt.
Only the end of a program, or the removal of its job by somebody else, is an end of a node's job.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from pool.policy.workflow.plan import NO_JOB, SUBMIT_FAILED, PlanNode, WorkflowPlan
from pool.policy.workflow.states import (
    DagStatus,
    DeferScript,
    FinishDag,
    NextTurn,
    NodeNote,
    NodeRun,
    NodeState,
    RemoveNode,
    StartScript,
    SubmitNode,
    WorkflowAction,
)

#: The exit code of a work flow some of whose nodes failed, and of one that was removed.
EXIT_FAILED, EXIT_REMOVED = 1, 2
#: Nodes of these kinds that fail make the work flow fail.
_COUNTED = ("JOB", "SUBDAG", "PROVISIONER")
#: Children that become ready in one step.
STEP = 200


class WorkflowEngine:
    """One work flow.

    Attributes:
        runs: the progress of each node.
        status: as scripts and the FINAL node see it.
        failed: how many nodes have failed.
        halted: nothing new is started.
        ending: the whole is being given up: nothing but the FINAL node is started.
        provisioned: other nodes may begin: there is no PROVISIONER, or its job has said so.
        now: wall seconds of the event that is being handled; the caller sets it.
        notes: what has happened to nodes since the caller last took them, for the logs.
        running, peak: nodes whose job or script runs, and the most of them so far.
    """

    def __init__(self, plan: WorkflowPlan) -> None:
        self.plan = plan
        self.runs = [NodeRun() for _ in plan.nodes]
        self.status = DagStatus.OK
        self.failed = 0
        self.halted = False
        self.ending = False
        self.finished = False
        self._abort_code = 0
        self.now = 0.0
        self.notes: list[NodeNote] = []
        self.running = self.peak = 0
        #: Jobs of nodes: submitted, succeeded, failed; in this run of the caller.
        self.job_counts = [0, 0, 0]
        self._connect()
        self._queues: dict[str, list[tuple[int, int]]] = {"PRE": [], "JOB": [], "POST": []}
        self._parked: dict[str, list[tuple[int, int]]] = {}
        self._in_category: dict[str, int] = {}
        self._scripts = {"PRE": 0, "POST": 0}
        self._deferred = 0
        self._submitted = 0
        self._idle = 0
        self._active = 0
        self._actions: deque[WorkflowAction] = deque()
        self._satisfied: deque[Iterator[int]] = deque()
        self._changed: set[int] = set()

    def _connect(self) -> None:
        """The tables of edges and of nodes of which there is one."""
        plan = self.plan
        self._waits = [0] * len(plan.nodes)
        self._feeds: dict[int, list[int]] = {}
        self._fed_by: dict[int, list[int]] = {}
        self._open = [len(parents) for parents, _ in plan.edges]
        for number, (parents, children) in enumerate(plan.edges):
            for parent in parents:
                self._feeds.setdefault(parent, []).append(number)
            for child in children:
                self._waits[child] += bool(parents)
                self._fed_by.setdefault(child, []).append(number)
        self._final = self._only("FINAL")
        self._provisioner = self._only("PROVISIONER")
        self.provisioned = self._provisioner is None or self.runs[self._provisioner].state is NodeState.DONE

    def _only(self, kind: str) -> int | None:
        return next((at for at, node in enumerate(self.plan.nodes) if node.kind == kind and not node.removed), None)

    # -- beginning -----------------------------------------------------------------------------------------

    def begin(
        self, known: Mapping[int, NodeRun] | None = None, given_up: tuple[DagStatus, int] | None = None
    ) -> list[int]:
        """Begin, or go on from states that were durable.

        Args:
            given_up: how the whole had been given up: what `given_up` answered then.

        Returns:
            The nodes with something in the queue, whose fate the caller finds out.
        """
        found = known or {}
        for at, node in enumerate(self.plan.nodes):
            run = found.get(at)
            if run is not None:
                self.runs[at] = run
            elif node.done:
                self.runs[at].state = NodeState.DONE
            if node.removed:
                self.runs[at] = NodeRun(NodeState.DONE)
        self._count_parents()
        active = []
        for at, run in enumerate(self.runs):
            node = self.plan.nodes[at]
            if run.state is NodeState.ERROR and node.kind in _COUNTED:
                self.failed += 1
                self.status = DagStatus.NODE_FAILED
                self._doom(at)
            elif run.state is NodeState.READY:
                self._queue_up(at, "JOB" if run.pre_code is not None else self._first_step(node))
            elif run.is_active:
                self._active += not self._is_service(at)
                self._count_in(at, run)
                if run.cluster:
                    active.append(at)
                else:
                    self._queue_up(at, "PRE" if run.state is NodeState.PRERUN else "POST")
        self._begin_free()
        if given_up is not None:
            self.abort(*given_up)
        return active

    def _count_parents(self) -> None:
        """How many sets of parents each node waits for, by the states of all nodes."""
        if self._provisioner is not None:
            self.provisioned = self.runs[self._provisioner].state in (NodeState.DONE, NodeState.ERROR)
        for at, run in enumerate(self.runs):
            if run.state in (NodeState.DONE, NodeState.ERROR):
                self._satisfy(at, failed=run.state is NodeState.ERROR)
        for children in self._satisfied:
            for child in children:
                self._waits[child] -= 1
        self._satisfied.clear()

    def _begin_free(self) -> None:
        """Nodes that wait for nothing become ready; before the PROVISIONER is, no other does."""
        for at, run in enumerate(self.runs):
            waits = run.state is not NodeState.NOT_READY or self._waits[at] or at == self._final
            if not waits and (self.provisioned or at == self._provisioner):
                self._make_ready(at)

    def provision(self) -> None:
        """The PROVISIONER's job has said that all is there."""
        if not self.provisioned and not self.ending:
            self.provisioned = True
            self._begin_free()

    # -- an edited plan ------------------------------------------------------------------------------------

    def adopt(self, plan: WorkflowPlan, revived: Mapping[int, NodeRun]) -> None:
        """Go on with an edited plan, whose first nodes are those of the plan so far.

        Args:
            revived: failed nodes that are begun anew, with their progress.
        """
        waiting = [(step, at) for step, queue in self._queues.items() for _, at in sorted(queue)]
        waiting += [("JOB", at) for queue in self._parked.values() for _, at in queue]
        self.plan = plan
        self.runs += [NodeRun() for _ in range(len(plan.nodes) - len(self.runs))]
        provisioned = self.provisioned
        for at, run in revived.items():
            self.runs[at] = run
            self._changed.add(at)
        for at, (node, run) in enumerate(zip(plan.nodes, self.runs, strict=True)):
            if node.removed:
                self.runs[at] = NodeRun(NodeState.DONE)
                self._changed.discard(at)
            elif run.state is NodeState.FUTILE:
                run.state = NodeState.NOT_READY
            elif node.done and run.state is NodeState.NOT_READY and not run.attempt:
                run.state = NodeState.DONE
        self._satisfied.clear()
        self._connect()
        self._count_parents()
        self.provisioned = self.provisioned or provisioned
        for queue in (*self._queues.values(), *self._parked.values()):
            queue.clear()
        for step, at in waiting:
            run = self.runs[at]
            if plan.nodes[at].removed:
                continue
            if run.state is NodeState.READY and not run.has_begun and self._waits[at]:
                run.state = NodeState.NOT_READY
            else:
                self._queue_up(at, step)
        failed = [at for at, run in enumerate(self.runs) if run.state is NodeState.ERROR]
        self.failed = sum(plan.nodes[at].kind in _COUNTED for at in failed)
        if not self.failed and self.status is DagStatus.NODE_FAILED:
            self.status = DagStatus.OK
        for at in failed:
            self._doom(at)
        if not self.ending:
            self._begin_free()

    @property
    def given_up(self) -> tuple[DagStatus, int] | None:
        """How the whole was given up, for `begin` after a restart; None where it was not."""
        return (self.status, self._abort_code) if self.ending else None

    def _count_in(self, at: int, run: NodeRun) -> None:
        if run.state is NodeState.SUBMITTED:
            self._take_place(at, run)
        elif run.cluster:
            self._scripts["PRE" if run.state is NodeState.PRERUN else "POST"] += 1

    def take_changes(self) -> dict[int, NodeRun]:
        """The nodes whose state is another since the last call."""
        changed, self._changed = self._changed, set()
        return {at: self.runs[at] for at in changed}

    def keep_change(self, at: int) -> None:
        """A node that `take_changes` has answered is to be answered again."""
        self._changed.add(at)

    def has_changes(self) -> bool:
        """Whether `take_changes` would answer anything."""
        return bool(self._changed)

    # -- the next actions ----------------------------------------------------------------------------------

    def next_action(self) -> WorkflowAction | None:
        """One thing to be done now; None where nothing is, until the next event."""
        if self._actions:
            return self._actions.popleft()
        if self._satisfied:
            self._open_children()
            return NextTurn()
        if self.halted or self.finished:
            return None
        for moment, limit in (("POST", self.plan.max_post), ("PRE", self.plan.max_pre)):
            queue = self._queues[moment]
            if queue and (not limit or self._scripts[moment] < limit):
                return self._start_script(heapq.heappop(queue)[1], moment)
        at = self._next_job()
        if at is None:
            if not self._can_finish():
                return None
            self._finish()
            return NextTurn()
        run = self.runs[at]
        self._enter(at, NodeState.SUBMITTED)
        if self.plan.nodes[at].noop:
            run.began = self.now
            for event in ("SUBMIT", "EXECUTE", "JOB_TERMINATED"):
                self.add_note(at, event, proc=at + 1, code=0)
            self._job_over(at, 0)
            return NextTurn()
        self.add_note(at, "SUBMITTING")
        run.count = run.left = self.jobs_of(at)
        self._take_place(at, run)
        return SubmitNode(at)

    def jobs_of(self, at: int) -> int:
        """How many jobs a node queues in its present attempt."""
        node = self.plan.nodes[at]
        return node.jobs[min(self.runs[at].attempt, len(node.jobs) - 1)].count if node.jobs else 1

    def parents_of(self, at: int, most: int) -> list[int]:
        """The parents of a node; none where there are more than `most`."""
        edges = [self.plan.edges[number][0] for number in self._fed_by.get(at, ())]
        return [parent for parents in edges for parent in parents] if sum(map(len, edges)) <= most else []

    def _start_script(self, at: int, moment: str) -> StartScript:
        self._scripts[moment] += 1
        self._runs_more(1)
        self.add_note(at, f"{moment}_SCRIPT_STARTED")
        self._enter(at, NodeState.PRERUN if moment == "PRE" else NodeState.POSTRUN)
        return StartScript(at, moment)

    def _next_job(self) -> int | None:
        queue, plan = self._queues["JOB"], self.plan
        while queue:
            if plan.max_jobs and self._submitted >= plan.max_jobs:
                return None
            if plan.max_idle and self._idle >= plan.max_idle:
                return None
            entry = heapq.heappop(queue)
            category = plan.nodes[entry[1]].category
            limit = plan.limits.get(category) if category else None
            if limit is None or self._in_category.get(category, 0) < limit:
                return entry[1]
            self._parked.setdefault(category, []).append(entry)
        return None

    def _can_finish(self) -> bool:
        waiting = self._active or self._deferred or self._satisfied or (self.plan.open and not self.ending)
        return not (waiting or any(self._queues.values()) or any(self._parked.values()))

    def _finish(self) -> None:
        """Nothing is left but the FINAL node, or nothing at all."""
        final = self._final
        if final is not None and self.runs[final].state is NodeState.NOT_READY:
            self._make_ready(final)
            return
        self.finished = True
        for at, run in enumerate(self.runs):
            if self._is_service(at) and run.is_active and run.cluster:
                self._actions.append(RemoveNode(at, run.cluster))
        self._actions.append(FinishDag(*self._verdict()))

    def _verdict(self) -> tuple[int, bool]:
        if self._final is not None:
            done = self.runs[self._final].state is NodeState.DONE
            return (0, False) if done else (EXIT_FAILED, True)
        if self.status is DagStatus.ABORTED:
            return self._abort_code & 0xFF, bool(self._abort_code)
        if self.status is DagStatus.REMOVED:
            return EXIT_REMOVED, True
        if self.status is DagStatus.ERROR:
            return EXIT_FAILED, True
        stuck = any(run.state is NodeState.NOT_READY for run in self.runs)  # nodes of a client's that wait in a circle
        return (EXIT_FAILED, True) if self.failed or stuck else (0, False)

    # -- events --------------------------------------------------------------------------------------------

    def submitted(self, at: int, cluster: int) -> None:
        """A node's jobs, or its script, are in the queue, durably."""
        run = self.runs[at]
        run.cluster = cluster
        if run.state is NodeState.SUBMITTED:
            run.jobs = cluster
            self.job_counts[0] += run.count
            for proc in range(run.count):
                self.add_note(at, "SUBMIT", proc=proc)
        if self.ending and at != self._final:
            self._actions.append(RemoveNode(at, cluster))

    def submit_failed(self, at: int, code: int) -> None:
        """A node's jobs or script could not be queued at all."""
        run = self.runs[at]
        if run.state is NodeState.SUBMITTED:
            self.add_note(at, "SUBMIT_FAILURE", code=code)
            run.job_code = code
            self._leave_place(at, run)
            self._job_over(at, code)
        else:
            self.script_ended(at, code)

    def job_started(self, at: int) -> None:
        """One of its jobs runs."""
        run = self.runs[at]
        if run.started < run.left:
            run.started += 1
            self._idle -= 1
            run.began = run.began or self.now
            if run.started == 1:
                self._runs_more(1)

    def job_stopped(self, at: int) -> None:
        """One of its jobs waits again: evicted, or its machine was at fault."""
        run = self.runs[at]
        if run.started:
            run.started -= 1
            self._idle += 1
            if not run.started:
                self._runs_more(-1)

    def _runs_more(self, change: int) -> None:
        self.running += change
        self.peak = max(self.peak, self.running)

    def job_ended(self, at: int, code: int, proc: int = 0) -> None:
        """One of its jobs has left the queue.

        Args:
            code: its exit code, a signal's number below 0, or REMOVED.
            proc: its number in its cluster.
        """
        run, node = self.runs[at], self.plan.nodes[at]
        if run.state is not NodeState.SUBMITTED or not run.left:
            return
        if run.started:
            run.started -= 1
            if not run.started:
                self._runs_more(-1)
        else:
            self._idle -= 1
        run.left -= 1
        self.job_counts[2 if code else 1] += 1
        if node.keeps_codes:
            run.codes[proc] = code
        tolerated = node.tolerated(run.count, self.plan.tolerance)
        if code:
            run.job_code = run.job_code or code
            run.failures += 1
            removes = node.on_failure == "FAIL-FAST" if node.on_failure else self.plan.removes_rest
            if run.left and run.failures == tolerated + 1 and removes:
                self._actions.append(RemoveNode(at, run.cluster))
        if not run.left:
            self._leave_place(at, run)
            self._job_over(at, run.job_code if run.failures > tolerated else 0)

    def script_ended(self, at: int, code: int) -> None:
        """Its script has ended."""
        run, node = self.runs[at], self.plan.nodes[at]
        moment = "PRE" if run.state is NodeState.PRERUN else "POST"
        if run.state not in (NodeState.PRERUN, NodeState.POSTRUN):
            return
        self._scripts[moment] -= 1
        self._runs_more(-1)
        run.cluster = 0
        script = node.scripts[moment]
        if script.defer_status is not None and code == script.defer_status and not (self.ending and at != self._final):
            self._deferred += 1
            self._changed.add(at)
            self._actions.append(DeferScript(at, moment, script.defer_seconds))
            return
        if moment == "POST":
            self.add_note(at, "POST_SCRIPT_TERMINATED", code=code)
        self.add_note(at, f"{moment}_SCRIPT_{'FAILURE' if code else 'SUCCESS'}", code=code)
        if moment == "POST":
            self._node_over(at, code)
            return
        run.pre_code = code
        given_up = self.ending and at != self._final
        if code == 0 and given_up:
            self._enter(at, NodeState.NOT_READY)
        elif code == 0:
            self._enter(at, NodeState.READY)
            self._queue_up(at, "JOB")
        elif code == node.pre_skip:
            self.add_note(at, "PRESKIP", code=code)
            self._node_over(at, 0)
        elif code != node.abort_on and self.plan.always_run_post and "POST" in node.scripts and not given_up:
            run.job_code = NO_JOB
            self._enter(at, NodeState.POSTRUN)
            self._queue_up(at, "POST")
        else:
            self._node_over(at, code)

    def script_due(self, at: int, moment: str) -> None:
        """The pause of a script that asked to be run again is over."""
        self._deferred -= 1
        if self.ending and at != self._final:
            self._node_over(at, NO_JOB)
        else:
            self._queue_up(at, moment)

    def halt(self, halted: bool) -> None:
        """Start nothing new, or go on."""
        self.halted = halted

    def abort(self, status: DagStatus, code: int = 0) -> None:
        """Give the whole up: what is in the queue is removed; the FINAL node still runs."""
        if self.ending or self.finished:
            return
        self.ending, self.status, self._abort_code = True, status, code
        for queue in (*self._queues.values(), *self._parked.values()):
            dropped = [at for _, at in queue if at != self._final]
            queue[:] = [entry for entry in queue if entry[1] == self._final]
            for at in dropped:
                self._enter(at, NodeState.NOT_READY)
        for at, run in enumerate(self.runs):
            if run.is_active and run.cluster and at != self._final:
                self._actions.append(RemoveNode(at, run.cluster))

    # -- how parts of a node end -----------------------------------------------------------------------------

    def _job_over(self, at: int, code: int) -> None:
        run = self.runs[at]
        if code != SUBMIT_FAILED:
            self.add_note(at, "JOB_FAILURE" if code else "JOB_SUCCESS", code=code)
        run.cluster, run.job_code = 0, code
        if "POST" in self.plan.nodes[at].scripts and not (self.ending and at != self._final):
            self._enter(at, NodeState.POSTRUN)
            self._queue_up(at, "POST")
        else:
            self._node_over(at, code)

    def _node_over(self, at: int, code: int) -> None:
        run, node = self.runs[at], self.plan.nodes[at]
        if self.ending and at != self._final and code:
            self._enter(at, NodeState.NOT_READY)
            return
        aborts = node.abort_on is not None and code == node.abort_on
        if at == self._provisioner and not self.provisioned:
            code = code or NO_JOB
        if code == 0:
            self._enter(at, NodeState.DONE)
            if not aborts:
                self._satisfy(at)
        elif not aborts and run.attempt - run.base < node.retries and code != node.unless_exit:
            self.add_note(at, "RETRY", code=run.attempt - run.base + 1)
            again = NodeRun(NodeState.NOT_READY, run.attempt + 1, jobs=run.jobs, base=run.base)
            self._active -= run.is_active and not self._is_service(at)
            self.runs[at] = again
            self._make_ready(at)
        else:
            self._enter(at, NodeState.ERROR)
            if node.kind in _COUNTED:
                self.failed += 1
                if self.status is DagStatus.OK:
                    self.status = DagStatus.NODE_FAILED
                self._doom(at)
                self._satisfy(at, failed=True)
            if at == self._provisioner and not self.provisioned:
                self.abort(DagStatus.ERROR)
        if aborts:
            self.abort(DagStatus.ABORTED, code if node.abort_return is None else node.abort_return)

    def _satisfy(self, at: int, *, failed: bool = False) -> None:
        """A node is done: its children wait for one node less, from the next steps on. If it has failed, those do
        for which it is enough that it has run.
        """
        for number in self._feeds.get(at, ()):
            if failed and number not in self.plan.weak:
                continue
            self._open[number] -= 1
            if not self._open[number]:
                self._satisfied.append(iter(self.plan.edges[number][1]))

    def _open_children(self, most: int = STEP) -> None:
        """Go on with children of which one more set of parents is done, so many of them."""
        for _ in range(most):
            child = next(self._satisfied[0], None) if self._satisfied else None
            if child is None:
                if not self._satisfied:
                    return
                self._satisfied.popleft()
                continue
            self._waits[child] -= 1
            if not (self._waits[child] or self.ending) and self.runs[child].state is NodeState.NOT_READY:
                self._make_ready(child)

    def _doom(self, at: int) -> None:
        """The descendants of a failed node never run, but for children to which it is enough that it has run."""
        todo = [at]
        while todo:
            parent = todo.pop()
            for number in self._feeds.get(parent, ()):
                if parent == at and number in self.plan.weak:
                    continue
                for child in self.plan.edges[number][1]:
                    if self.runs[child].state is NodeState.NOT_READY:
                        self.runs[child].state = NodeState.FUTILE
                        todo.append(child)

    # -- places ------------------------------------------------------------------------------------------------

    @staticmethod
    def _first_step(node: PlanNode) -> str:
        return "PRE" if "PRE" in node.scripts else "JOB"

    def _make_ready(self, at: int) -> None:
        self._enter(at, NodeState.READY)
        self._queue_up(at, self._first_step(self.plan.nodes[at]))

    def _queue_up(self, at: int, step: str) -> None:
        node = self.plan.nodes[at]
        first = 0 if node.kind == "SERVICE" else 1
        heapq.heappush(self._queues[step], (-node.priority if first else -(2**32), at))

    def _enter(self, at: int, state: NodeState) -> None:
        run = self.runs[at]
        before = run.is_active
        run.state = state
        if state is NodeState.PRERUN:
            run.began = run.began or self.now
        elif state in (NodeState.DONE, NodeState.ERROR):
            run.began, run.ended = run.began or self.now, self.now
        if state is not NodeState.READY or run.pre_code is not None or run.attempt:
            self._changed.add(at)
        if not self._is_service(at):
            self._active += run.is_active - before

    def _is_service(self, at: int) -> bool:
        return self.plan.nodes[at].kind == "SERVICE"

    def _take_place(self, at: int, run: NodeRun) -> None:
        category = self.plan.nodes[at].category
        if category:
            self._in_category[category] = self._in_category.get(category, 0) + 1
        self._submitted += 1
        self._idle += run.left

    def _leave_place(self, at: int, run: NodeRun) -> None:
        category = self.plan.nodes[at].category
        self._idle -= run.left - run.started
        if run.started:
            self._runs_more(-1)
        run.left = run.started = 0
        self._submitted -= 1
        if category:
            self._in_category[category] -= 1
            if parked := self._parked.get(category):
                heapq.heappush(self._queues["JOB"], parked.pop(0))

    # -- numbers -------------------------------------------------------------------------------------------------

    def counts(self) -> dict[NodeState, int]:
        """How many nodes are in each state."""
        found = dict.fromkeys(NodeState, 0)
        for node, run in zip(self.plan.nodes, self.runs, strict=True):
            if not node.removed:
                found[run.state] += 1
        return found

    def add_note(self, at: int, event: str, *, proc: int = 0, code: int | None = None, text: str = "") -> None:
        """Something that logs tell about a node."""
        run = self.runs[at]
        cluster = run.cluster if run.state is NodeState.SUBMITTED else run.jobs
        self.notes.append(NodeNote(at, run.attempt, event, self.now, cluster, proc, code, text))

    def take_notes(self) -> list[NodeNote]:
        """The notes since the last call."""
        taken, self.notes = self.notes, []
        return taken

    def feeds_weakly(self, at: int) -> bool:
        """Whether nodes wait for this one, and to each of them it is enough that it has run."""
        edges = self._feeds.get(at, ())
        strong = {child for edge in edges if edge not in self.plan.weak for child in self.plan.edges[edge][1]}
        return bool(edges) and not strong

    def in_queue(self) -> Iterable[tuple[int, NodeRun]]:
        """The nodes that have something in the queue."""
        return ((at, run) for at, run in enumerate(self.runs) if run.cluster and run.is_active)
