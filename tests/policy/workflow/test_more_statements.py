"""WEAK, TOLERANCE, PROVISIONER, the words of scripts, rescue files and metrics of them: played through on paper."""

from __future__ import annotations

import json

import pytest

from pool.errors import PoolError
from pool.policy.workflow import (
    DagStatus,
    FinishDag,
    NodeRun,
    NodeState,
    PlanScript,
    RemoveNode,
    SubmitNode,
    WorkflowEngine,
    WorkflowPlan,
)
from pool.policy.workflow.words import metrics_text, rescue_text, script_words
from tests.policy.workflow.test_engine import POST, Player, failing, node, plan_of


def test_to_a_weak_child_it_is_enough_that_its_parent_has_run() -> None:
    plan = plan_of([node("A"), node("B"), node("C")], ("A", "B"), ("B", "C"), weak=frozenset({0}))
    played = Player(plan, failing("A.JOB"))
    assert played.play() == FinishDag(1, rescue=True)
    assert played.states() == {"A": "ERROR", "B": "DONE", "C": "DONE"}
    assert played.engine.failed == 1
    text = rescue_text(plan, played.engine, "now", 1)
    assert [line for line in text.splitlines() if line.startswith("DONE")] == ["DONE A", "DONE B", "DONE C"]


def test_what_never_ran_satisfies_no_child() -> None:
    plan = plan_of([node("A"), node("B"), node("C")], ("A", "B"), ("B", "C"), weak=frozenset({1}))
    played = Player(plan, failing("A.JOB"))
    played.play()
    assert played.states() == {"A": "ERROR", "B": "FUTILE", "C": "FUTILE"}
    assert "DONE" not in rescue_text(plan, played.engine, "now", 1).replace("premarked DONE", "")


@pytest.mark.parametrize("weak", [0, 1])
def test_of_two_statements_about_a_pair_the_strong_one_counts(weak: int) -> None:
    plan = plan_of([node("A"), node("B")], ("A", "B"), ("A", "B"), weak=frozenset({weak}))
    played = Player(plan, failing("A.JOB"))
    played.play()
    assert played.states() == {"A": "ERROR", "B": "FUTILE"}
    assert not played.engine.feeds_weakly(0)


def test_a_weak_child_waits_for_its_other_parents_and_for_retries() -> None:
    plan = plan_of([node("A", retries=1), node("B"), node("C")], ("A B", "C"), weak=frozenset({0}))
    played = Player(plan, failing("A.JOB", "B.JOB"))
    played.play()
    assert played.states() == {"A": "ERROR", "B": "ERROR", "C": "DONE"}
    assert played.effects[-1] == ("C", "JOB", 0)
    assert ("A", "JOB", 1) in played.effects


def ended(engine: WorkflowEngine, *codes: int) -> list[RemoveNode]:
    """The removals that follow from the ends of a node's jobs."""
    assert engine.next_action() == SubmitNode(0)
    engine.submitted(0, 7)
    for proc, code in enumerate(codes):
        engine.job_ended(0, code, proc)
    found = []
    while isinstance(action := engine.next_action(), RemoveNode):
        found.append(action)
    return found


@pytest.mark.parametrize(
    ("more", "whole", "codes", "state", "removals"),
    [
        ({}, {}, (0, 1, 0, 0), NodeState.ERROR, 1),
        ({"tolerance": 1}, {}, (0, 1, 0, 0), NodeState.DONE, 0),
        ({"tolerance": 1}, {}, (2, 1, 0, 0), NodeState.ERROR, 1),
        ({"tolerance": 1, "on_failure": "WAIT"}, {}, (2, 1, 0, 0), NodeState.ERROR, 0),
        ({"tolerance": 50, "is_percentage": True}, {}, (2, 1, 0, 0), NodeState.DONE, 0),
        ({"tolerance": 49, "is_percentage": True}, {}, (2, 1, 0, 0), NodeState.ERROR, 1),
        ({}, {"tolerance": 2}, (2, 1, 0, 0), NodeState.DONE, 0),
        ({"tolerance": 0}, {"tolerance": 2}, (2, 0, 0, 0), NodeState.ERROR, 1),
        ({}, {"removes_rest": False}, (2, 0, 0, 0), NodeState.ERROR, 0),
        ({"on_failure": "FAIL-FAST"}, {"removes_rest": False}, (2, 0, 0, 0), NodeState.ERROR, 1),
    ],
)
def test_so_many_jobs_of_a_node_may_fail(
    more: dict[str, object], whole: dict[str, object], codes: tuple[int, ...], state: NodeState, removals: int
) -> None:
    engine = WorkflowEngine(plan_of([node("A", count=4, **more)], **whole))
    engine.begin()
    assert len(ended(engine, *codes)) == removals
    assert engine.runs[0].state is state
    assert engine.runs[0].job_code == (next(code for code in codes if code) if state is NodeState.ERROR else 0)


def test_nothing_begins_before_the_provisioner_says_so() -> None:
    plan = plan_of([node("A"), node("P", kind="PROVISIONER"), node("S", kind="SERVICE")])
    engine = WorkflowEngine(plan)
    engine.begin()
    assert engine.next_action() == SubmitNode(1)
    engine.submitted(1, 5)
    engine.job_started(1)
    assert engine.next_action() is None
    engine.provision()
    assert {engine.next_action(), engine.next_action()} == {SubmitNode(0), SubmitNode(2)}
    again = WorkflowEngine(plan)
    wire = {at: run.to_wire() for at, run in engine.take_changes().items()}
    assert again.begin({1: NodeRun.from_wire(wire[1])}) == [1]
    assert again.next_action() is None, "whether it has said so is asked of its job"
    again.provision()
    assert {again.next_action(), again.next_action()} == {SubmitNode(0), SubmitNode(2)}


def test_a_provisioner_that_ends_too_early_ends_all() -> None:
    played = Player(plan_of([node("A"), node("P", kind="PROVISIONER")]))
    assert played.play() == FinishDag(1, rescue=True)
    assert played.engine.status is DagStatus.ERROR
    assert played.states() == {"A": "NOT_READY", "P": "ERROR"}


def test_a_provisioner_is_one_job_and_one_node() -> None:
    wire = {
        "file": "/d/it.dag",
        "iwd": "/d",
        "nodes": [{"name": "P", "kind": "PROVISIONER", "jobs": [[0, 0, 2]]}],
        "templates": [{"ad": {}}],
    }
    with pytest.raises(PoolError, match="has several jobs"):
        WorkflowPlan.from_wire(wire)
    one = {"name": "P", "kind": "PROVISIONER", "jobs": [[0, 0, 1]]}
    with pytest.raises(PoolError, match="two PROVISIONER nodes"):
        WorkflowPlan.from_wire(wire | {"nodes": [one, one | {"name": "Q"}]})


def test_a_name_that_would_break_a_log_is_refused() -> None:
    wire = {"file": "/d/it.dag", "iwd": "/d", "nodes": [{"name": "A\n** PID = 1", "noop": True}]}
    with pytest.raises(PoolError, match="no such node as JOB A"):
        WorkflowPlan.from_wire(wire)


def test_words_of_scripts() -> None:
    said = (
        "$node $Retry $MAX_RETRIES $DAGID $NODE_COUNT $DONE_COUNT $CLUSTERID $JOBID $JOB_COUNT $JOB_ABORT_COUNT "
        "$SUCCESS $RETURN $EXIT_CODES $EXIT_CODE_LIST $EXIT_CODE_COUNTS $PRE_SCRIPT_RETURN $OTHER x$NODE"
    )
    words = said.split()
    scripts = {"POST": PlanScript("post", tuple(words)), "PRE": PlanScript("pre", ("$JOBID", "$NODE"))}
    engine = WorkflowEngine(plan_of([node("A", count=4, scripts=scripts, on_failure="WAIT", retries=2), node("B")]))
    engine.begin()
    assert script_words(engine, 0, "PRE", 9) == ["$JOBID", "A"]
    engine.next_action()
    engine.script_ended(0, 0)
    while engine.next_action() != SubmitNode(0):
        pass
    engine.submitted(0, 7)
    for proc, code in ((2, 3), (0, 0), (3, -1002), (1, 3)):
        engine.job_ended(0, code, proc)
    again = NodeRun.from_wire(engine.runs[0].to_wire())
    assert again.codes == engine.runs[0].codes
    found = " ".join(script_words(engine, 0, "POST", 9))
    assert found == "A 0 2 9 2 0 7 7.3 4 1 False 3 0,3 0,3,3, 0:1,3:2 0 $OTHER x$NODE"


@pytest.mark.parametrize("version", [1, 2])
def test_metrics_of_both_versions(version: int) -> None:
    nodes = [node("A"), node("S", kind="SERVICE"), node("F", kind="FINAL")]
    plan = plan_of(nodes, files={"metrics": version})
    played = Player(plan, failing("A.JOB"))
    played.play()
    found = json.loads(metrics_text(plan, played.engine, 7, 0, 1, 1000.0, 1010.5))
    assert (found["duration"], found["exitcode"], found["metrics_version"]) == (10.5, 1, version)
    if version == 1:
        assert (found["jobs"], found["jobs_failed"], found["total_jobs"], found["total_jobs_run"]) == (2, 1, 2, 2)
    else:
        assert (found["nodes"], found["nodes_failed"], found["service_nodes"]) == (2, 1, 1)
        assert (found["total_nodes"], found["has_final_node"], found["jobs_failed"]) == (3, True, 2)


def test_old_records_are_read() -> None:
    run = NodeRun.from_wire([3, 1, 12, 12, 2, None, 0])
    assert (run.state, run.attempt, run.left, run.base) == (NodeState.SUBMITTED, 1, 2, 0)


def test_a_post_script_decides_though_a_job_is_tolerated() -> None:
    plan = plan_of([node("A", count=2, tolerance=1, scripts={"POST": POST})])
    played = Player(plan, failing("A.POST"))
    played.play()
    assert played.states() == {"A": "ERROR"}


def test_a_script_is_no_idle_job_after_a_restart() -> None:
    plan = plan_of([node("A", scripts={"POST": POST}), node("B"), node("C")], max_idle=1)
    engine = WorkflowEngine(plan)
    engine.begin({0: NodeRun(NodeState.POSTRUN, cluster=9, jobs=8, count=1)})
    again = WorkflowEngine(plan)
    assert again.begin({0: NodeRun.from_wire(engine.runs[0].to_wire())}) == [0]
    again.job_started(0)
    assert isinstance(again.next_action(), SubmitNode)
    assert again.next_action() is None
