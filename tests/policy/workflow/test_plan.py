"""Plans of work flows from clients that mean harm: each field is what it may be, or the whole is refused in words."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from pool.errors import PoolError
from pool.policy.packed import pack
from pool.policy.workflow import NextTurn, StartScript, SubmitNode, WorkflowEngine, WorkflowPlan

SCRIPT = {"program": "s.sh", "arguments": ["$JOB"], "defer_status": 3, "defer_seconds": 5}
GARBAGE: list[Any] = [
    None,
    True,
    -1,
    2**31,
    -(2**62),
    2**63,
    1.5,
    float("nan"),
    "",
    "x\0y",
    "A" * 5000,
    b"x",
    [],
    [[]],
    {},
]
WIRE: dict[str, Any] = {
    "file": "/home/alice/it.dag",
    "iwd": "/home/alice",
    "edges": [[[0], [1, 2]], [[1, 2], [3]]],
    "limits": {"few": 1},
    "templates": [{"ad": {"Cmd": "/bin/true"}, "deltas": [{"Args": "a"}, None]}],
    "nodes": [
        {"name": "A", "jobs": [[0, 0, 1]], "retries": 2, "unless_exit": 3, "priority": 7, "category": "few"},
        {
            "name": "B",
            "jobs": [[0, 1, 1]],
            "scripts": {"PRE": SCRIPT, "POST": SCRIPT},
            "abort_on": 1,
            "abort_return": 4,
        },
        {"name": "C", "noop": True, "done": False, "pre_skip": 1, "directory": "/tmp", "save": "/tmp/save"},
        {"name": "D", "kind": "FINAL", "jobs": [[0, 0, 2]]},
    ],
    "max_jobs": 2,
    "max_idle": 1,
    "max_pre": 1,
    "max_post": 1,
    "always_run_post": True,
    "reset_retries": False,
    "script_ad": {"JobUniverse": 12},
    "ad": {"Mine": 1},
    "rescue": 1,
    "most_rescues": 3,
    "files": {"status": "/home/alice/status", "seconds": 5, "always": True},
}


def places(wire: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all parts of a plan."""
    if path:
        yield path
    for key in wire if isinstance(wire, dict) else range(len(wire)) if isinstance(wire, list) else ():
        yield from places(wire[key], (*path, key))


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The plan with another value at one place."""
    wire = copy.deepcopy(WIRE)
    inner: Any = wire
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return wire


def play(plan: WorkflowPlan) -> None:
    """Run it, with jobs and scripts that fail, and see that all of it can be stored."""
    engine = WorkflowEngine(plan)
    engine.begin()
    cluster = 0
    for _ in range(200):
        action = engine.next_action()
        for run in engine.take_changes().values():
            pack(run.to_wire())
        if action is None or engine.finished:
            break
        if isinstance(action, (SubmitNode, StartScript)):
            cluster += 1
            engine.submitted(action.node, cluster)
            if isinstance(action, StartScript):
                engine.script_ended(action.node, cluster % 3)
            else:
                for _ in range(engine.jobs_of(action.node)):
                    engine.job_ended(action.node, cluster % 2)


def test_the_plan_itself_is_one() -> None:
    play(WorkflowPlan.from_wire(WIRE))


@pytest.mark.parametrize("path", list(places(WIRE)), ids=lambda path: ".".join(map(str, path)))
def test_garbage_in_a_field_is_refused_or_harmless(path: tuple[Any, ...]) -> None:
    refused: list[str] = []
    for value in GARBAGE:
        try:
            plan = WorkflowPlan.from_wire(changed(path, value))
        except PoolError as error:
            refused.append(error.message)
            continue
        play(plan)
        for number in (plan.max_jobs, plan.rescue, *(node.priority for node in plan.nodes)):
            assert abs(number) < 2**31
    assert all("no work flow" in message for message in refused)


def test_work_flows_in_each_other_have_a_bottom() -> None:
    wire = copy.deepcopy(WIRE)
    for _ in range(60):
        wire = {**copy.deepcopy(WIRE), "nodes": [{"name": "S", "kind": "SUBDAG", "plan": wire}], "edges": []}
    with pytest.raises(PoolError, match="in too many others"):
        WorkflowPlan.from_wire(wire)


def test_a_skipped_step_is_nothing_to_do() -> None:
    engine = WorkflowEngine(WorkflowPlan.from_wire({**WIRE, "nodes": [{"name": "A", "noop": True}], "edges": []}))
    engine.begin()
    assert engine.next_action() == NextTurn()
