"""Decisions about work flows: which node comes next, how a node and the whole of them end. Pure."""

from pool.policy.workflow.engine import (
    DagStatus,
    DeferScript,
    FinishDag,
    NextTurn,
    NodeRun,
    NodeState,
    RemoveNode,
    StartScript,
    SubmitNode,
    WorkflowAction,
    WorkflowEngine,
)
from pool.policy.workflow.plan import NO_JOB, NodeJobs, NodeTemplate, PlanNode, PlanScript, WorkflowPlan

__all__ = [
    "NO_JOB",
    "DagStatus",
    "DeferScript",
    "FinishDag",
    "NextTurn",
    "NodeTemplate",
    "NodeJobs",
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
