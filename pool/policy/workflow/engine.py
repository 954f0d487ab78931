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
from dataclasses import dataclass
from enum import IntEnum

from pool.policy.workflow.plan import NO_JOB, PlanNode, WorkflowPlan

#: The exit code of a work flow some of whose nodes failed, and of one that was removed.
EXIT_FAILED, EXIT_REMOVED = 1, 2
#: Children that become ready in one step.
STEP = 200


class NodeState(IntEnum):
    """States of a node, by DAGMan's numbers."""

    NOT_READY = 0
    READY = 1
    PRERUN = 2
    SUBMITTED = 3
    POSTRUN = 4
    DONE = 5
    ERROR = 6
    FUTILE = 7


class DagStatus(IntEnum):
    """DAG_Status, by DAGMan's numbers."""

    OK = 0
    ERROR = 1
    NODE_FAILED = 2
    ABORTED = 3
    REMOVED = 4
    HALTED = 6


@dataclass(frozen=True, slots=True)
class StartScript:
    """Run a node's script."""

    node: int
    moment: str


@dataclass(frozen=True, slots=True)
class DeferScript:
    """Call `script_due` for a script after so many seconds."""

    node: int
    moment: str
    seconds: int


@dataclass(frozen=True, slots=True)
class SubmitNode:
    """Queue a node's jobs."""

    node: int


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """Remove what a node has in the queue."""

    node: int
    cluster: int


@dataclass(frozen=True, slots=True)
class NextTurn:
    """Nothing to be done: ask again, after others had their turn. Long graphs are walked through in such steps."""


@dataclass(frozen=True, slots=True)
class FinishDag:
    """All is over: the work flow ends with this exit code. `rescue`: what is left is worth a rescue file."""

    code: int
    rescue: bool


WorkflowAction = StartScript | DeferScript | SubmitNode | RemoveNode | NextTurn | FinishDag


@dataclass(slots=True)
class NodeRun:
    """The progress of one node.

    Attributes:
        attempt: 0 at first.
        cluster: of its job or script in the queue; 0 where it has none there.
        jobs: the cluster of its last job, for $JOBID.
        left: jobs of the cluster that have not ended.
        count: jobs of the cluster.
        started: of those that are left, how many run.
        pre_code: the PRE script's exit code in this attempt; None before it.
        job_code: the first exit code of its jobs other than 0.
    """

    state: NodeState = NodeState.NOT_READY
    attempt: int = 0
    cluster: int = 0
    jobs: int = 0
    left: int = 0
    count: int = 0
    started: int = 0
    pre_code: int | None = None
    job_code: int = 0

    def to_wire(self) -> list[int | None]:
        """For the store."""
        return [int(self.state), self.attempt, self.cluster, self.jobs, self.count, self.pre_code, self.job_code]

    @classmethod
    def from_wire(cls, wire: list[int | None]) -> NodeRun:
        """The same again; all of its jobs count as left."""
        state, attempt, cluster, jobs, count, pre_code, job_code = wire
        run = cls(NodeState(state or 0), attempt or 0, cluster or 0, jobs or 0, count or 0, count or 0)
        run.pre_code, run.job_code = pre_code, job_code or 0
        return run

    @property
    def is_active(self) -> bool:
        """Whether it has something in the queue, or waits for its POST script."""
        return self.state in (NodeState.PRERUN, NodeState.SUBMITTED, NodeState.POSTRUN)


class WorkflowEngine:
    """One work flow.

    Attributes:
        runs: the progress of each node.
        status: as scripts and the FINAL node see it.
        failed: how many nodes have failed.
        halted: nothing new is started.
        ending: the whole is being given up: nothing but the FINAL node is started.
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
        self._final = next((at for at, node in enumerate(plan.nodes) if node.kind == "FINAL"), None)
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
        for at, run in enumerate(self.runs):
            if run.state is NodeState.DONE:
                self._satisfy(at)
        for children in self._satisfied:
            for child in children:
                self._waits[child] -= 1
        self._satisfied.clear()
        active = []
        for at, run in enumerate(self.runs):
            node = self.plan.nodes[at]
            if run.state is NodeState.ERROR and node.kind in ("JOB", "SUBDAG"):
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
            elif run.state is NodeState.NOT_READY and not self._waits[at] and at != self._final:
                self._make_ready(at)
        if given_up is not None:
            self.abort(*given_up)
        return active

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
            self._job_over(at, 0)
            return NextTurn()
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
        waiting = self._active or self._deferred or self._satisfied
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
        stuck = any(run.state is NodeState.NOT_READY for run in self.runs)  # nodes of a client's that wait in a circle
        return (EXIT_FAILED, True) if self.failed or stuck else (0, False)

    # -- events --------------------------------------------------------------------------------------------

    def submitted(self, at: int, cluster: int) -> None:
        """A node's jobs, or its script, are in the queue, durably."""
        run = self.runs[at]
        run.cluster = cluster
        if run.state is NodeState.SUBMITTED:
            run.jobs = cluster
        if self.ending and at != self._final:
            self._actions.append(RemoveNode(at, cluster))

    def submit_failed(self, at: int, code: int) -> None:
        """A node's jobs or script could not be queued at all."""
        run = self.runs[at]
        if run.state is NodeState.SUBMITTED:
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

    def job_stopped(self, at: int) -> None:
        """One of its jobs waits again: evicted, or its machine was at fault."""
        run = self.runs[at]
        if run.started:
            run.started -= 1
            self._idle += 1

    def job_ended(self, at: int, code: int) -> None:
        """One of its jobs has left the queue.

        Args:
            code: its exit code, a signal's number below 0, or REMOVED.
        """
        run = self.runs[at]
        if run.state is not NodeState.SUBMITTED or not run.left:
            return
        if run.started:
            run.started -= 1
        else:
            self._idle -= 1
        run.left -= 1
        if code and not run.job_code:
            run.job_code = code
            if run.left:
                self._actions.append(RemoveNode(at, run.cluster))
        if not run.left:
            self._leave_place(at, run)
            self._job_over(at, run.job_code)

    def script_ended(self, at: int, code: int) -> None:
        """Its script has ended."""
        run, node = self.runs[at], self.plan.nodes[at]
        moment = "PRE" if run.state is NodeState.PRERUN else "POST"
        if run.state not in (NodeState.PRERUN, NodeState.POSTRUN):
            return
        self._scripts[moment] -= 1
        run.cluster = 0
        script = node.scripts[moment]
        if script.defer_status is not None and code == script.defer_status and not (self.ending and at != self._final):
            self._deferred += 1
            self._changed.add(at)
            self._actions.append(DeferScript(at, moment, script.defer_seconds))
            return
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
        if code == 0:
            self._enter(at, NodeState.DONE)
            if not aborts:
                self._satisfy(at)
        elif not aborts and run.attempt < node.retries and code != node.unless_exit:
            again = NodeRun(NodeState.NOT_READY, run.attempt + 1, jobs=run.jobs)
            self._active -= run.is_active and not self._is_service(at)
            self.runs[at] = again
            self._make_ready(at)
        else:
            self._enter(at, NodeState.ERROR)
            if node.kind in ("JOB", "SUBDAG"):
                self.failed += 1
                if self.status is DagStatus.OK:
                    self.status = DagStatus.NODE_FAILED
                self._doom(at)
        if aborts:
            self.abort(DagStatus.ABORTED, code if node.abort_return is None else node.abort_return)

    def _satisfy(self, at: int) -> None:
        """A node is done: its children wait for one node less, from the next steps on."""
        for number in self._feeds.get(at, ()):
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
        """The descendants of a failed node never run."""
        todo = [at]
        while todo:
            for number in self._feeds.get(todo.pop(), ()):
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
        for run in self.runs:
            found[run.state] += 1
        return found

    def in_queue(self) -> Iterable[tuple[int, NodeRun]]:
        """The nodes that have something in the queue."""
        return ((at, run) for at, run in enumerate(self.runs) if run.cluster and run.is_active)
