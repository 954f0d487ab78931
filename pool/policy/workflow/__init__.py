"""Decisions about work flows: which node comes next, how a node and the whole of them end. Pure."""

from pool.policy.workflow.engine import WorkflowEngine
from pool.policy.workflow.plan import NO_JOB, NodeJobs, NodeTemplate, PlanNode, PlanScript, WorkflowPlan
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

__all__ = [
    "NO_JOB",
    "DagStatus",
    "DeferScript",
    "FinishDag",
    "NextTurn",
    "NodeTemplate",
    "NodeJobs",
    "NodeNote",
    "NodeRun",
    "NodeState",
    "PlanNode",
    "PlanScript",
    "RemoveNode",
    "StartScript",
    "SubmitNode",
    "WorkflowAction",
    "WorkflowEngine",
    "WorkflowPlan",
]
