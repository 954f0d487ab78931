"""The nodes of a parallel job: which end of a node ends the job, and what the ends of all of them come to.

    policy (ParallelShutdownPolicy)   the job ends with      its end is
    WAIT_FOR_NODE0                    node 0                 node 0's
    WAIT_FOR_ALL                      the last node          node 0's
    WAIT_FOR_ANY                      the first node         that node's

A node whose program dies of a signal ends the job at once, whatever the policy (WR 5), unless `on_process_failure` says
`wait` (the others go on, and the job ends as the first such node did) or `ignore`. An exit code other than 0 is no
failure: programs of node 1 and above often end so when node 0 has gone. Of an MPI job the first rank that fails, by a
code or a signal, ends the job with its node's end (`rank_failed`: its ranker says so). A node that is lost with its
machine, or cannot be started, ends the job's run: the job runs as a whole or not at all. Plain data, pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pool.jobs.gangs import ANY, NODE0
from pool.jobs.pipes.model import MOST_PROCESSES
from pool.policy.gangs import BY_ITSELF, LARGEST, SUMS, Report

#: The part of a node's report that is kept until the job's end.
_KEPT = (
    *("cause", "code", "signal", "core", "user_cpu", "system_cpu", "wall", "suspended", "max_rss", "sent", "received"),
    *("started", "started_event", "output_error", "checkpoint_error", "said", "why", "reason", "subcode"),
    *("rank_failed", "singletons", "keeper_lost"),
    *("where", "error", "retry", "step", "unfit", "checkpoint", "checkpointed", "taken_over"),
)


def stored_report(report: Mapping[str, Any], slot: str, at: float) -> Report:
    """A node's report as it is kept with the job: where it ran, and when its end came (wall seconds)."""
    found = {name: report[name] for name in _KEPT if report.get(name) not in (None, 0, 0.0, False, "")}
    if report.get("code") == 0:
        found["code"] = 0
    return {**found, "slot": slot, "at": round(at, 3)}


def ends_job(node: int, report: Mapping[str, Any], policy: str, on_failure: str) -> bool:
    """Whether the end of a node ends the job's run."""
    if report.get("cause") not in BY_ITSELF or report.get("output_error") or report.get("cause") == "misuse":
        return True
    if report.get("rank_failed"):
        return True
    if report.get("signal") is not None and on_failure == "end":
        return True
    return policy == ANY or (policy == NODE0 and node == 0)


def merged(reports: Sequence[tuple[int, Report]], root: int | None, on_failure: str) -> Report:
    """One report of all nodes' ends, as `pool.roles.schedd.core.job_ends` takes it.

    Args:
        reports: the node and its report, in the order in which they came.
        root: the index of the report that ended the job's run; None when all nodes ended by themselves.
        on_failure: see above.
    """
    chosen = root
    if on_failure == "wait" and (root is None or _is_end(reports[root][1])):
        chosen = next((i for i, (_, one) in enumerate(reports) if _died(one)), chosen)
    if chosen is None:
        chosen = next((i for i, (node, _) in enumerate(reports) if node == 0), len(reports) - 1)
    first = reports[chosen][1]
    result = dict(first)
    by_itself = _is_end(first)
    if by_itself:
        failed = chosen if _died(first) and on_failure != "ignore" else None
        result["ends"] = rows(reports, failed, root)
        if failed is not None:
            what = f"node {reports[failed][0]} on {first['slot']} died because of signal {first['signal']}"
            result["said"] = first.get("said") or what
        late = next((one for _, one in reports if one.get("output_error") and _is_end(one)), None)
        if late is not None:
            result["output_error"] = late["output_error"]
    values = [one for _, one in reports]
    result |= {name: sum(float(one.get(name) or 0) for one in values) for name in SUMS}
    result |= {name: max(float(one.get(name) or 0) for one in values) for name in LARGEST}
    result["max_rss"] = int(result["max_rss"])
    if starts := [one["started"] for one in values if one.get("started")]:
        result["started"] = min(starts)
    result["core"] = bool(first.get("core"))
    for name in ("slot", "at", "taken_over", "started_event"):  # of the one node
        result.pop(name, None)
    return result


def rows(reports: Sequence[tuple[int, Report]], failed: int | None, root: int | None) -> list[dict[str, Any]]:
    """The ends of all nodes, as `pool.jobs.pipes.model.ENDS` has them, by number.

    At most as many as a job has processes: of more nodes those that ended alike are one row, but for node 0 and those
    that died.
    """
    ordered = sorted((node, index) for index, (node, _) in enumerate(reports))
    made = [_row(node, reports[index][1], index == failed, root) for node, index in ordered]
    if len(made) <= MOST_PROCESSES:
        return made
    alone = [row for row in made if row["node"] == 0 or row["failed"] or (row["signal"] and not row["with_job"])]
    alone = alone[: MOST_PROCESSES // 2]
    shown = {row["node"] for row in alone}
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in made:
        if row["node"] not in shown:
            groups.setdefault((row["code"], row["signal"], row["core"], row["with_job"]), []).append(row)
    together = sorted(groups.values(), key=len)
    kept_apart = MOST_PROCESSES - len(alone)
    while len(together) > kept_apart:  # hundreds of exit codes: the rarest are one row
        together = sorted([together[0] + together[1], *together[2:]], key=len)
    found = alone + [_merge_rows(group) for group in together]
    return sorted(found, key=lambda row: int(row["node"]))


def _row(node: int, report: Mapping[str, Any], failed: bool, root: int | None) -> dict[str, Any]:
    with_job = root is not None and report.get("cause") not in BY_ITSELF
    return {
        "node": node,
        "name": f"node {node}",
        "host": str(report.get("slot") or ""),
        "at": report.get("at"),
        "code": report.get("code"),
        "signal": report.get("signal"),
        "core": bool(report.get("core")),
        "with_job": with_job,
        "failed": failed,
        "user_cpu": float(report.get("user_cpu") or 0),
        "system_cpu": float(report.get("system_cpu") or 0),
        "wall": float(report.get("wall") or 0),
        "max_rss": int(report.get("max_rss") or 0),
    }


def _merge_rows(group: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if len(group) == 1:
        return group[0]
    numbers = [row["node"] for row in group]
    whole = {name: sum(row[name] for row in group) for name in ("user_cpu", "system_cpu", "max_rss")}
    last = {"wall": max(row["wall"] for row in group), "at": max(row["at"] or 0 for row in group)}
    return {**group[0], **whole, **last, "name": f"nodes {ranges(numbers)}", "host": f"{len(numbers)} slots"}


def ranges(numbers: Iterable[int]) -> str:
    """`1-3,7` for 1, 2, 3, 7; cut off where it is long."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in found]
    return ",".join(texts[:8]) + (f",... ({len(texts)} ranges)" if len(texts) > 8 else "")


def taken_over(report: Mapping[str, Any]) -> Report:
    """The end of a node, for a start that goes on from a checkpoint later than that: what it used has been counted."""
    return {**{name: value for name, value in report.items() if name not in (*SUMS, *LARGEST)}, "taken_over": True}


def _is_end(report: Mapping[str, Any]) -> bool:
    return report.get("cause") in BY_ITSELF


def _died(report: Mapping[str, Any]) -> bool:
    return _is_end(report) and report.get("signal") is not None
