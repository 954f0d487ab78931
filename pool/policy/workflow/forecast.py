"""How long a work flow will take: its critical path, and when it is expected to end. Pure.

A node that has ended tells how long nodes of the same description take: the median of them. A node whose description
has not run yet is not known, and a work flow with such nodes has no expected end.
"""

from __future__ import annotations

import heapq
import statistics
from dataclasses import dataclass

from pool.policy.workflow.engine import WorkflowEngine
from pool.policy.workflow.states import NodeState

#: Names of the critical path that an answer has.
MOST_NAMES = 100
#: The nodes that are not done, parents first, and the sets of parents that each waits for.
_Order = tuple[list[int], dict[int, list[int]]]
_ENDED = (NodeState.DONE, NodeState.ERROR, NodeState.FUTILE)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The outlook of a work flow.

    Attributes:
        path: the nodes of the critical path that are not done, in their order.
        seconds: its length; a lower bound where `unknown` is not 0.
        unknown: nodes to come for whose description no run time is known.
        overdue: nodes that run already for longer than those of the same description took.
        end: wall seconds of the expected end; None where it is not known.
    """

    path: list[str]
    seconds: float
    unknown: int
    overdue: int
    end: float | None


def forecast(engine: WorkflowEngine, now: float, *, halted: bool = False) -> Forecast:
    """The critical path and the expected end of a work flow.

    Args:
        now: wall seconds.
        halted: it is held: then its end is not known.
    """
    plan, runs = engine.plan, engine.runs
    kinds = [_kind(engine, at) for at in range(len(runs))]
    taken: dict[object, list[float]] = {}
    for at, run in enumerate(runs):
        if run.state is NodeState.DONE and run.began and run.ended:
            taken.setdefault(kinds[at], []).append(run.ended - run.began)
    typical = {kind: statistics.median(times) for kind, times in taken.items()}
    left: dict[int, float | None] = {}
    overdue = 0
    for at, run in enumerate(runs):
        node = plan.nodes[at]
        if node.removed or run.state in _ENDED or node.kind == "SERVICE":
            continue
        known = 0.0 if node.noop and not node.scripts else typical.get(kinds[at])
        if known is not None and run.is_active and run.began:
            overdue += now - run.began > known
            known = max(0.0, known - (now - run.began))
        left[at] = known
    unknown = sum(known is None for known in left.values())
    order = _order(engine, left)
    path, seconds = _critical_path(engine, left, order)
    end = None
    if not unknown and not halted and not plan.open:
        end = now + _played(engine, {at: known or 0.0 for at, known in left.items()}, order)
    names = [plan.nodes[at].name for at in path[:MOST_NAMES]]
    return Forecast(names, seconds, unknown, overdue, end)


def _kind(engine: WorkflowEngine, at: int) -> object:
    """Nodes of the same kind: the same description, as many jobs of it, and the same scripts."""
    node = engine.plan.nodes[at]
    jobs = node.jobs[0] if node.jobs else None
    programs = tuple(sorted((moment, one.program) for moment, one in node.scripts.items())) if node.scripts else ()
    if jobs is None:
        return node.text or node.name, programs
    return node.text or jobs.template, jobs.count, programs


def _order(engine: WorkflowEngine, left: dict[int, float | None]) -> _Order:
    """The nodes that are not done, parents first, and the sets of parents that each waits for."""
    edges = engine.plan.edges
    waits: dict[int, list[int]] = {}
    feeds: dict[int, list[int]] = {}
    open_parents = [0] * len(edges)
    for number, (parents, children) in enumerate(edges):
        mine = [parent for parent in parents if parent in left]
        open_parents[number] = len(mine)
        if not mine:
            continue
        for parent in mine:
            feeds.setdefault(parent, []).append(number)
        for child in children:
            if child in left:
                waits.setdefault(child, []).append(number)
    count = {at: len(numbers) for at, numbers in waits.items()}
    ready = [at for at in left if at not in count]
    order = []
    while ready:
        at = ready.pop()
        order.append(at)
        for number in feeds.get(at, ()):
            open_parents[number] -= 1
            if open_parents[number]:
                continue
            for child in edges[number][1]:
                if child in count:
                    count[child] -= 1
                    if not count[child]:
                        ready.append(child)
    return order, waits


def _critical_path(engine: WorkflowEngine, left: dict[int, float | None], ordered: _Order) -> tuple[list[int], float]:
    """The longest chain of nodes that are not done, an unknown one counted as no time."""
    order, waits = ordered
    final = next((at for at in order if engine.plan.nodes[at].kind == "FINAL"), None)
    order = [at for at in order if at != final] + ([final] if final is not None else [])
    ends: dict[int, float] = {}
    before: dict[int, int | None] = {}
    depth: dict[int, int] = {}
    of_edge: dict[int, int | None] = {}
    for at in order:
        last: int | None = None
        for number in waits.get(at, ()):
            if number not in of_edge:
                mine = [parent for parent in engine.plan.edges[number][0] if parent in ends]
                of_edge[number] = max(mine, key=ends.__getitem__, default=None)
            parent = of_edge[number]
            if parent is not None and (last is None or ends[parent] > ends[last]):
                last = parent
        if at == final and ends:
            last = max(ends, key=ends.__getitem__)
        ends[at] = (ends[last] if last is not None else 0.0) + (left[at] or 0.0)
        before[at] = last
        depth[at] = depth[last] + 1 if last is not None else 0
    if not ends:
        return [], 0.0
    at = max(ends, key=lambda one: (ends[one], depth[one]))
    path: list[int] = []
    step: int | None = at
    while step is not None:
        path.append(step)
        step = before[step]
    return path[::-1], ends[at]


def _played(engine: WorkflowEngine, left: dict[int, float], ordered: _Order) -> float:
    """Seconds until the end, where as many nodes run at once as have so far, if others have waited for machines."""
    plan, runs = engine.plan, engine.runs
    order, waits = ordered
    waiting = sum(run.state is NodeState.SUBMITTED and not run.started for run in runs)
    places = engine.peak if waiting and engine.peak else len(left)
    places = max(1, min(places, plan.max_jobs or places))
    count = {at: len(waits.get(at, ())) for at in order}
    open_parents = [sum(parent in left for parent in parents) for parents, _ in plan.edges]
    feeds: dict[int, list[int]] = {}
    for number, (parents, _) in enumerate(plan.edges):
        for parent in parents:
            if parent in left:
                feeds.setdefault(parent, []).append(number)
    final = next((at for at in order if plan.nodes[at].kind == "FINAL"), None)
    ready = [(not (runs[at].is_active and runs[at].began), -plan.nodes[at].priority, at) for at in order]
    ready = [one for one in ready if not count[one[2]] and one[2] != final]
    heapq.heapify(ready)
    running: list[tuple[float, int]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < places:
            at = heapq.heappop(ready)[2]
            heapq.heappush(running, (now + left[at], at))
        now, at = heapq.heappop(running)
        for number in feeds.get(at, ()):
            open_parents[number] -= 1
            if open_parents[number]:
                continue
            for child in plan.edges[number][1]:
                if child in count:
                    count[child] -= 1
                    if not count[child]:
                        heapq.heappush(ready, (True, -plan.nodes[child].priority, child))
    return now + (left[final] if final is not None else 0.0)
