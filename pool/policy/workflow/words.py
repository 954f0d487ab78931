"""Texts about a work flow: the words of its scripts, its rescue file, its drawing, the files that tools read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pool.policy.workflow.engine import WorkflowEngine
from pool.policy.workflow.plan import REMOVED, WorkflowPlan
from pool.policy.workflow.states import DagStatus, NodeState

#: Words of scripts, and the states whose nodes they count.
_COUNTS = {
    "$NODE_COUNT": tuple(NodeState),
    "$QUEUED_COUNT": (NodeState.SUBMITTED,),
    "$DONE_COUNT": (NodeState.DONE,),
    "$FUTILE_COUNT": (NodeState.FUTILE,),
}


def script_words(engine: WorkflowEngine, at: int, moment: str, workflow: int = 0) -> list[str]:
    """A script's arguments, with `$JOB` and the like replaced where they are words by themselves, in any case.

    Args:
        workflow: its number.
    """
    node, run = engine.plan.nodes[at], engine.runs[at]
    words = node.scripts[moment].arguments
    if not any(word.startswith("$") for word in words):
        return list(words)
    status = DagStatus.HALTED if engine.halted else engine.status
    values: dict[str, object] = {
        "$JOB": node.name,
        "$NODE": node.name,
        "$RETRY": run.attempt,
        "$MAX_RETRIES": node.retries,
        "$DAG_STATUS": int(status),
        "$FAILED_COUNT": engine.failed,
        "$DAGID": workflow,
    }
    if any(word.upper() in _COUNTS for word in words):
        counts = engine.counts()
        values |= {name: sum(counts[state] for state in states) for name, states in _COUNTS.items()}
    if moment != "PRE":
        codes = dict(sorted(run.codes.items()))
        ended = [code for code in codes.values() if code != REMOVED]
        values |= {
            "$JOBID": f"{run.jobs}.{max(0, run.count - 1)}" if run.jobs else "-1.-1",
            "$CLUSTERID": run.jobs or -1,
            "$JOB_COUNT": run.count,
            "$JOB_ABORT_COUNT": len(codes) - len(ended),
            "$SUCCESS": str(not run.job_code),
            "$RETURN": run.job_code,
            "$EXIT_CODES": ",".join(map(str, sorted(set(ended)))),
            "$EXIT_CODE_LIST": ",".join("" if code == REMOVED else str(code) for code in codes.values()),
            "$EXIT_CODE_COUNTS": ",".join(f"{code}:{ended.count(code)}" for code in sorted(set(ended))),
            "$PRE_SCRIPT_RETURN": -1 if run.pre_code is None else run.pre_code,
        }
    return [str(values.get(word.upper(), word)) if word.startswith("$") else word for word in words]


def script_banner(node: str, moment: str, code: int, ended: int, command: str) -> str:
    """The line before the output of a script that SCRIPT DEBUG keeps, as DAGMan writes it.

    Args:
        code: its exit code, or a signal's number below 0.
        ended: wall seconds.
    """
    how = f"ExitCode={code}" if code >= 0 else f"Signal={-code}"
    return f"*** Node={node} Type={moment} {how} Completion={ended} Cmd='{command}'\n"


def rescue_text(plan: WorkflowPlan, engine: WorkflowEngine, moment: str, number: int) -> str:
    """A partial rescue file, as DAGMan reads and writes it.

    Args:
        moment: now, in words.
        number: of this rescue file.
    """
    counts = engine.counts()
    there = [
        (at, node, run) for at, (node, run) in enumerate(zip(plan.nodes, engine.runs, strict=True)) if not node.removed
    ]
    failed = [node.name for _, node, run in there if run.state is NodeState.ERROR]
    lines = [
        "# Rescue DAG file, created after running",
        f"#   the {plan.file} DAG file",
        f"# Created {moment}",
        "# Rescue DAG version: 2.0.1 (partial)",
        "#",
        f"# Total number of Nodes: {len(there)}",
        f"# Nodes premarked DONE: {counts[NodeState.DONE]}",
        f"# Nodes that failed: {len(failed)}",
        f"#   {','.join([*failed, '<ENDLIST>'])}",
        f"# Rescue number: {number}",
        "",
    ]
    for at, node, run in there:
        if run.state is NodeState.DONE and node.kind in ("JOB", "SUBDAG"):
            lines.append(f"DONE {node.name}")
        elif run.state is NodeState.ERROR and engine.feeds_weakly(at):
            lines += ["# It failed, and nodes that wait for it only needed it to run:", f"DONE {node.name}"]
        elif node.retries and not plan.reset_retries and run.attempt > run.base:
            unless = "" if node.unless_exit is None else f" UNLESS-EXIT {node.unless_exit}"
            lines.append(f"RETRY {node.name} {max(0, node.retries - run.attempt + run.base)}{unless}")
    return "\n".join(lines) + "\n"


def metrics_text(
    plan: WorkflowPlan, engine: WorkflowEngine, workflow: int, parent: int, code: int, began: float, ended: float
) -> str:
    """The metrics file: JSON with the names that DAGMan gives."""
    found: dict[str, Any] = {
        "client": "condor_dagman",
        "version": "25.14.1",
        "type": "metrics",
        "metrics_version": 2,
        "start_time": round(began, 3),
        "end_time": round(ended, 3),
        "duration": round(ended - began, 3),
        "exitcode": code,
        "dagman_id": str(workflow),
        "parent_dagman_id": str(parent) if parent else "",
        "rescue_dag_number": plan.rescue,
    }
    there = [(node.kind, run.state) for node, run in zip(plan.nodes, engine.runs, strict=True) if not node.removed]
    kinds = {"nodes": ("JOB", "FINAL", "PROVISIONER"), "dag_nodes": ("SUBDAG",), "service_nodes": ("SERVICE",)}
    states = {name: [state for kind, state in there if kind in some] for name, some in kinds.items()}
    total = {"total_nodes": len(there), "total_nodes_run": 0}
    if plan.files.get("metrics") == 1:
        for name, old in (("nodes", "jobs"), ("dag_nodes", "dag_jobs")):
            found |= _metrics_of(old, states[name])
        total = {"total_jobs": len(there) - len(states["service_nodes"]), "total_jobs_run": 0}
        found["metrics_version"] = 1
        del states["service_nodes"]
    else:
        found["has_final_node"] = any(kind == "FINAL" for kind, _ in there)
        for name, some in states.items():
            found |= _metrics_of(name, some)
        found["provisioner_nodes"] = sum(kind == "PROVISIONER" for kind, _ in there)
    run_now = sum(some.count(NodeState.ERROR) + some.count(NodeState.DONE) for some in states.values())
    found |= dict(zip(total, (next(iter(total.values())), run_now), strict=True))
    if plan.files.get("metrics") != 1:
        submitted, succeeded, failed = engine.job_counts
        found |= {"jobs_submitted": submitted, "jobs_succeeded": succeeded, "jobs_failed": failed}
    found |= {"dag_status": int(engine.status), "DagStatus": int(engine.status)}
    return json.dumps(found, indent=4) + "\n"


def _metrics_of(name: str, states: Sequence[NodeState]) -> dict[str, int]:
    failed, done = states.count(NodeState.ERROR), states.count(NodeState.DONE)
    return {name: len(states), f"{name}_failed": failed, f"{name}_succeeded": done}


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
        f"  NodesTotal = {sum(counts.values())};\n"
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
        if node.removed:
            continue
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
