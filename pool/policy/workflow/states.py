"""States and progress of a work flow's nodes, and the actions that its engine asks for. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


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


@dataclass(frozen=True, slots=True)
class NodeNote:
    """Something that logs tell about a node.

    Attributes:
        event: the name of a job's event as DAGMan's logs have it, or of what DAGMan itself tells: PRE_SCRIPT_STARTED.
        time: wall seconds.
        cluster: of the node's jobs; 0 where it has had none. proc: the job of it.
        code: an exit code, or a number that the event is about.
        text: a reason.
    """

    node: int
    attempt: int
    event: str
    time: float
    cluster: int = 0
    proc: int = 0
    code: int | None = None
    text: str = ""


@dataclass(slots=True)
class NodeRun:
    """The progress of one node.

    Attributes:
        attempt: 0 at first.
        base: attempts before this one do not count for RETRY: the node was begun anew by its user.
        cluster: of its job or script in the queue; 0 where it has none there.
        jobs: the cluster of its last job, for $JOBID.
        left: jobs of the cluster that have not ended.
        count: jobs of the cluster.
        started: of those that are left, how many run.
        failures: of those that have ended, how many failed.
        pre_code: the PRE script's exit code in this attempt; None before it.
        job_code: the first exit code of its jobs other than 0.
        codes: exit codes by process, where a script asks for them.
        began, ended: wall seconds of its first work in this attempt, and of its end; 0 before that.
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
    base: int = 0
    failures: int = 0
    codes: dict[int, int] = field(default_factory=dict)
    began: float = 0.0
    ended: float = 0.0

    def to_wire(self) -> list[Any]:
        """For the store."""
        first = [int(self.state), self.attempt, self.cluster, self.jobs, self.count, self.pre_code, self.job_code]
        return [*first, self.base, int(self.began), int(self.ended), [list(pair) for pair in self.codes.items()]]

    @classmethod
    def from_wire(cls, wire: list[Any]) -> NodeRun:
        """The same again; all of its jobs count as left. Records of earlier releases are shorter."""
        state, attempt, cluster, jobs, count, pre_code, job_code, *more = wire
        run = cls(NodeState(state or 0), attempt or 0, cluster or 0, jobs or 0, 0, count or 0)
        run.left = run.count if run.state is NodeState.SUBMITTED else 0
        run.pre_code, run.job_code = pre_code, job_code or 0
        if len(more) >= 4:
            run.base, run.began, run.ended = int(more[0]), float(more[1]), float(more[2])
            run.codes = dict(more[3])
        return run

    @property
    def is_active(self) -> bool:
        """Whether it has something in the queue, or waits for its POST script."""
        return self.state in (NodeState.PRERUN, NodeState.SUBMITTED, NodeState.POSTRUN)

    @property
    def has_begun(self) -> bool:
        """Whether any part of it has been started, and it has not failed for good."""
        return self.is_active or self.state is NodeState.DONE or self.pre_code is not None or self.attempt > self.base
