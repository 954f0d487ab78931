"""Texts about a work flow: the words of its scripts, its rescue file, its drawing, the files that tools read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pool.policy.workflow.engine import DagStatus, NodeState, WorkflowEngine
from pool.policy.workflow.plan import WorkflowPlan


def script_words(engine: WorkflowEngine, at: int, moment: str) -> list[str]:
    """A script's arguments, with `$JOB` and the like replaced where they are words by themselves."""
    node, run = engine.plan.nodes[at], engine.runs[at]
    status = DagStatus.HALTED if engine.halted else engine.status
    values: dict[str, object] = {
        "$JOB": node.name,
        "$NODE": node.name,
        "$RETRY": run.attempt,
        "$MAX_RETRIES": node.retries,
        "$DAG_STATUS": int(status),
        "$FAILED_COUNT": engine.failed,
    }
    if moment == "POST":
        values |= {
            "$JOBID": f"{run.jobs}.{max(0, run.count - 1)}" if run.jobs else "-1.-1",
            "$RETURN": run.job_code,
            "$PRE_SCRIPT_RETURN": -1 if run.pre_code is None else run.pre_code,
        }
    return [str(values.get(word, word)) for word in node.scripts[moment].arguments]


def rescue_text(plan: WorkflowPlan, engine: WorkflowEngine, moment: str, number: int) -> str:
    """A partial rescue file, as DAGMan reads and writes it.

    Args:
        moment: now, in words.
        number: of this rescue file.
    """
    counts = engine.counts()
    failed = [node.name for node, run in zip(plan.nodes, engine.runs, strict=True) if run.state is NodeState.ERROR]
    lines = [
        "# Rescue DAG file, created after running",
        f"#   the {plan.file} DAG file",
        f"# Created {moment}",
        "# Rescue DAG version: 2.0.1 (partial)",
        "#",
        f"# Total number of Nodes: {len(plan.nodes)}",
        f"# Nodes premarked DONE: {counts[NodeState.DONE]}",
        f"# Nodes that failed: {len(failed)}",
        f"#   {','.join([*failed, '<ENDLIST>'])}",
        f"# Rescue number: {number}",
        "",
    ]
    for node, run in zip(plan.nodes, engine.runs, strict=True):
        if run.state is NodeState.DONE and node.kind in ("JOB", "SUBDAG"):
            lines.append(f"DONE {node.name}")
        elif node.retries and not plan.reset_retries and run.attempt:
            unless = "" if node.unless_exit is None else f" UNLESS-EXIT {node.unless_exit}"
            lines.append(f"RETRY {node.name} {max(0, node.retries - run.attempt)}{unless}")
    return "\n".join(lines) + "\n"


def metrics_text(
    plan: WorkflowPlan, engine: WorkflowEngine, workflow: int, parent: int, code: int, began: float, ended: float
) -> str:
    """The metrics file: JSON with the names that DAGMan gives."""
    kinds = {"dag_jobs": "SUBDAG", "jobs": "JOB"}
    found: dict[str, Any] = {
        "client": "condor_dagman",
        "version": "25.14.1",
        "type": "metrics",
        "start_time": round(began, 3),
        "end_time": round(ended, 3),
        "duration": round(ended - began, 3),
        "exitcode": code,
        "dagman_id": str(workflow),
        "parent_dagman_id": str(parent) if parent else "",
        "rescue_dag_number": plan.rescue,
    }
    run_now = 0
    for name, kind in kinds.items():
        is_dag = kind == "SUBDAG"
        states = [
            run.state for node, run in zip(plan.nodes, engine.runs, strict=True) if (node.kind == "SUBDAG") == is_dag
        ]
        found[name] = len(states)
        found[f"{name}_failed"] = states.count(NodeState.ERROR)
        found[f"{name}_succeeded"] = states.count(NodeState.DONE)
        run_now += found[f"{name}_failed"] + found[f"{name}_succeeded"]
    found |= {"total_jobs": len(plan.nodes), "total_jobs_run": run_now, "dag_status": int(engine.status)}
    return json.dumps(found, indent=4) + "\n"


def status_text(files: Sequence[str], engine: WorkflowEngine, now: int, following: int, held: Mapping[int, int]) -> str:
    """The node status file: ads in new syntax.

    Args:
        files: the DAG files' names.
        following: when it is written next, wall seconds; 0 for never.
        held: of nodes' jobs, how many are held.
    """
    counts = engine.counts()
    failed = bool(counts[NodeState.ERROR])
    status = NodeState.SUBMITTED
    if engine.finished:
        status = NodeState.ERROR if failed or engine.status is not DagStatus.OK else NodeState.DONE
    idle = sum(run.left - run.started for run in engine.runs if run.state is NodeState.SUBMITTED)
    names = "".join(f"\n    {json.dumps(name)}{',' if at < len(files) - 1 else ''}" for at, name in enumerate(files))
    parts = [
        "[\n"
        '  Type = "DagStatus";\n'
        f"  DagFiles = {{{names}\n  }};\n"
        f"  Timestamp = {now};\n"
        f"  DagStatus = {int(status)};\n"
        f"  NodesTotal = {len(engine.runs)};\n"
        f"  NodesDone = {counts[NodeState.DONE]};\n"
        f"  NodesPre = {counts[NodeState.PRERUN]};\n"
        f"  NodesQueued = {counts[NodeState.SUBMITTED]};\n"
        f"  NodesPost = {counts[NodeState.POSTRUN]};\n"
        f"  NodesReady = {counts[NodeState.READY]};\n"
        f"  NodesUnready = {counts[NodeState.NOT_READY]};\n"
        f"  NodesFutile = {counts[NodeState.FUTILE]};\n"
        f"  NodesFailed = {counts[NodeState.ERROR]};\n"
        f"  JobProcsHeld = {sum(held.values())};\n"
        f"  JobProcsIdle = {max(0, idle - sum(held.values()))};\n"
        "]\n"
    ]
    for at, (node, run) in enumerate(zip(engine.plan.nodes, engine.runs, strict=True)):
        queued = run.left if run.state is NodeState.SUBMITTED else 0
        details = "" if not queued else "not_idle" if run.started else "idle"
        parts.append(
            "[\n"
            '  Type = "NodeStatus";\n'
            f"  Node = {json.dumps(node.name)};\n"
            f"  NodeStatus = {int(run.state)};\n"
            f'  StatusDetails = "{details}";\n'
            f"  RetryCount = {run.attempt};\n"
            f"  JobProcsQueued = {queued};\n"
            f"  JobProcsHeld = {held.get(at, 0)};\n"
            "]\n"
        )
    parts.append(f'[\n  Type = "StatusEnd";\n  EndTime = {now};\n  NextUpdate = {following};\n]\n')
    return "".join(parts)
