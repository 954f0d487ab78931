"""Edits of a plan that runs, and what is to be expected of one: on paper, with restarts at every step."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pool.policy.workflow import FinishDag, NodeRun, NodeState, PlanNode, SubmitNode, WorkflowEngine, WorkflowPlan
from pool.policy.workflow.edit import begin_anew, edit_plan
from pool.policy.workflow.forecast import forecast
from pool.policy.workflow.plan import NodeJobs, NodeTemplate
from pool.policy.workflow.words import rescue_text
from tests.policy.workflow.test_engine import POST, PRE, Player, node, plan_of

CHAIN = ("A", "B"), ("B", "C")


def sourced(name: str, source: str = "one", **more: Any) -> PlanNode:
    return node(name, source=source, **more)


def edited(player: Player, new: WorkflowPlan, **more: Any) -> Any:
    """Edit as the schedd does; what was refused."""
    edit = edit_plan(player.plan, player.engine.runs, new, **more)
    if not edit.refused:
        player.store()
        player.stored |= {at: run.to_wire() for at, run in edit.revived.items()}
        player.plan = WorkflowPlan.from_wire(edit.plan.to_wire())
        player.engine.adopt(player.plan, edit.revived)
    return edit


def chain(*names: str, **of: Any) -> WorkflowPlan:
    nodes = [sourced(name, **of.get(name, {})) for name in names]
    return plan_of(nodes, *itertools.pairwise(names))


def test_the_same_again_changes_nothing() -> None:
    player = Player(chain("A", "B", "C"))
    player.step()
    assert edit_plan(player.plan, player.engine.runs, chain("A", "B", "C")).is_empty


def test_nodes_are_added_behind_and_before_others() -> None:
    player = Player(chain("A", "C"))
    player.step()
    new = plan_of([sourced(name) for name in "ABCD"], ("A B", "C"), ("C", "D"))
    edit = edited(player, new)
    assert (edit.added, edit.removed, edit.changed) == (["B", "D"], [], [("C", ["parents"])])
    assert player.play() == FinishDag(0, rescue=False)
    assert [name for name, _, _ in player.effects] == ["A", "B", "C", "D"]


def test_a_ready_node_waits_again_for_a_new_parent() -> None:
    plan = chain("A")
    player = Player(replace(plan, max_jobs=1, nodes=[*plan.nodes, sourced("B")]))
    player.carry_out()
    new = plan_of([sourced("A"), sourced("B"), sourced("X")], ("X", "B"))
    edited(player, new)
    player.play()
    assert [name for name, _, _ in player.effects] == ["A", "X", "B"]


def test_a_node_is_taken_out_and_never_runs() -> None:
    player = Player(chain("A", "B", "C"))
    player.step()
    edit = edited(player, chain("A", "C"))
    assert edit.removed == ["B"]
    player.restart()
    assert player.play() == FinishDag(0, rescue=False)
    assert [name for name, _, _ in player.effects] == ["A", "C"]
    assert "Total number of Nodes: 2" in rescue_text(player.plan, player.engine, "now", 1)
    assert sum(player.engine.counts().values()) == 2


def test_a_name_that_was_taken_out_can_come_back() -> None:
    player = Player(chain("A", "B"))
    player.step()
    edited(player, chain("A"))
    assert edited(player, chain("A", "B")).added == ["B"]
    player.play()
    assert [name for name, _, _ in player.effects] == ["A", "B"]
    assert len(player.plan.nodes) == 3


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (NodeRun(NodeState.SUBMITTED, cluster=7, jobs=7, left=1, count=1), "it has begun, as 7"),
        (NodeRun(NodeState.DONE, jobs=7), "it is done"),
        (NodeRun(NodeState.READY, pre_code=0), "it has begun, and is tried again"),
        (NodeRun(NodeState.READY, attempt=1), "it has begun, and is tried again"),
    ],
)
def test_nodes_that_have_begun_stay_as_they_are(state: NodeRun, why: str) -> None:
    old = chain("A", "B")
    runs = [state, NodeRun()]

    def refused(new: WorkflowPlan, **more: Any) -> list[tuple[str, str]]:
        return edit_plan(old, runs, new, **more).refused

    assert refused(chain("B")) == [("A", f"{why}, so it cannot be taken out")]
    assert refused(chain("A", "B", A={"source": "two"})) == [("A", f"{why}: its description cannot be changed")]
    scripts = {"scripts": {"POST": POST}, "directory": "/other"}
    assert refused(chain("A", "B", A=scripts)) == [("A", f"{why}: its directory and scripts cannot be changed")]
    assert refused(chain("X", "A", "B")) == [("A", f"{why}, so it cannot wait for X")]
    assert refused(chain("A", "B", A={"retries": 3, "priority": 4})) == []
    both = chain("A", "B", A={"source": "two"}, B={"source": "two"})
    kept = edit_plan(old, runs, both, keeps_begun=True)
    assert (kept.refused, kept.kept, kept.changed) == ([], ["A"], [("B", ["description"])])
    assert [one.source for one in kept.plan.nodes] == ["one", "two"]
    assert edit_plan(old, runs, chain("B"), keeps_begun=True).plan.nodes[0].name == "A"


def test_the_progress_of_a_rescue_is_no_change() -> None:
    old = plan_of([PlanNode("A", noop=True, done=True), sourced("B")], ("A", "B"))
    player = Player(old)
    assert edit_plan(old, player.engine.runs, chain("A", "B")).is_empty


def test_a_failed_node_that_is_changed_begins_anew() -> None:
    codes = {0: 1, 1: 1, 2: 0}
    plan = plan_of([sourced("A"), sourced("B"), sourced("S", retries=0)], ("A", "B"))
    player = Player(plan, lambda name, _, attempt: codes.get(attempt, 0) if name == "A" else 0)
    player.carry_out()
    while player.engine.runs[0].state is not NodeState.ERROR:
        player.step()
    assert player.states()["B"] == "FUTILE"
    player.queue[99] = (2, "JOB", 1)  # something else still runs
    player.engine.finished, player.end = False, None
    new = plan_of([sourced("A", retries=1), sourced("B"), sourced("S")], ("A", "B"))
    edit = edited(player, new)
    assert list(edit.revived) == [0]
    assert player.engine.failed == 0
    player.queue.pop(99)
    assert player.play().code == 0
    assert [one for one in player.effects if one[0] == "A"] == [("A", "JOB", 0), ("A", "JOB", 1), ("A", "JOB", 2)]
    assert player.states()["B"] == "DONE"


def test_failed_nodes_are_tried_again_with_all_their_retries() -> None:
    run = begin_anew(NodeRun(NodeState.ERROR, attempt=2, jobs=9))
    assert (run.attempt, run.base, run.state, run.jobs) == (3, 3, NodeState.NOT_READY, 9)
    again = NodeRun.from_wire(run.to_wire())
    assert (again.attempt, again.base, again.has_begun) == (3, 3, False)


def test_what_is_written_about_it_stays() -> None:
    old = replace(chain("A"), files={"status": "/d/s", "apart": True}, limits={"c": 1}, ad={"X": 1})
    new = replace(chain("A"), files={"dot": {"path": "/d/x"}}, limits={"c": 2}, max_idle=4, rescue=0)
    edit = edit_plan(old, [NodeRun()], new)
    assert [name for name, _ in edit.refused] == ["NODE_STATUS_FILE", "DOT", "SET_JOB_ATTR"]
    edit = edit_plan(old, [NodeRun()], replace(new, files=old.files, ad=old.ad))
    assert (edit.other, edit.refused) == (["MAXJOBS", "max_idle"], [])
    assert edit.plan.files["apart"] is True
    assert edit.to_wire()["counts"]["other"] == 2


def test_only_the_rows_that_are_used_are_kept() -> None:
    old = WorkflowPlan("/d/a", "/d", [node("A")], [], [NodeTemplate({"x": 1}, None)])
    rows: list[Any] = [{"n": at} for at in range(100)]
    nodes = [PlanNode(name, jobs=(NodeJobs(0, at, 1),)) for name, at in (("A", 4), ("B", 50), ("C", 70))]
    edit = edit_plan(old, [NodeRun()], WorkflowPlan("/d/a", "/d", nodes, [], [NodeTemplate({}, rows)]))
    assert edit.plan.templates[1].deltas == [{"n": 50}, {"n": 70}]
    assert [one.jobs for one in edit.plan.nodes[1:]] == [(NodeJobs(1, 0, 1),), (NodeJobs(1, 1, 1),)]
    assert WorkflowPlan.from_wire(edit.plan.to_wire()) == edit.plan


@pytest.mark.parametrize("seed", range(20))
def test_edits_and_restarts_at_any_step_keep_each_effect_once(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"n{at}" for at in range(30)]
    edges: list[tuple[str, str]] = []
    nodes: dict[str, PlanNode] = {}

    def grow(many: Sequence[str]) -> None:
        for name in many:
            if nodes:
                edges.append((chance.choice(list(nodes)), name))
            scripts = {moment: script for moment, script in (("PRE", PRE), ("POST", POST)) if chance.random() < 0.3}
            nodes[name] = sourced(name, retries=chance.choice((0, 2)), scripts=scripts, count=chance.choice((1, 2)))

    def current() -> WorkflowPlan:
        there = [(a, b) for a, b in edges if a in nodes and b in nodes]
        return plan_of([*nodes.values(), sourced("F", kind="FINAL")], *there, max_jobs=4)

    grow(names[:10])
    codes: dict[tuple[str, str, int], int] = {}

    def code(name: str, moment: str, attempt: int) -> int:
        return codes.setdefault((name, moment, attempt), chance.choice((0, 0, 0, 1)))

    player = Player(current(), code, seed)
    left = names[10:]
    taken_out = set()
    while player.step():
        if left and chance.random() < 0.7:
            grow([left.pop()])
        free = [
            player.plan.nodes[at].name
            for at, run in enumerate(player.engine.runs)
            if run.state is NodeState.NOT_READY and player.plan.nodes[at].kind == "JOB"
        ]
        if free and chance.random() < 0.1:
            gone = chance.choice(free)
            del nodes[gone]
            taken_out.add(gone)
        edit = edited(player, current(), keeps_begun=True)
        assert not edit.refused
        if chance.random() < 0.5:
            player.restart()
    assert player.end is not None
    assert len(set(player.effects)) == len(player.effects), "each effect once"
    assert player.effects[-1][0] == "F"
    assert not taken_out & {name for name, _, _ in player.effects}
    states = player.states()
    done = {name for name, state in states.items() if state == "DONE"} - taken_out
    reached = {name for name in nodes if states[name] == "DONE"}
    assert reached <= done
    waiting = [name for name in nodes if states[name] in ("NOT_READY", "READY")]
    assert not waiting, "nothing that could run is left"


# -- forecasts ---------------------------------------------------------------------------------------------------


def timed(engine: WorkflowEngine, at: int, began: float, ended: float) -> None:
    engine.runs[at] = NodeRun(NodeState.DONE, began=began, ended=ended)


def test_a_forecast_is_made_of_nodes_that_have_ended() -> None:
    nodes = [sourced("A"), sourced("B"), sourced("C"), node("D", noop=True)]
    engine = WorkflowEngine(plan_of(nodes, ("A", "B"), ("B", "C"), ("C", "D")))
    engine.begin()
    first = forecast(engine, 1000.0)
    assert (first.path, first.unknown, first.end, first.seconds) == (["A", "B", "C", "D"], 3, None, 0.0)
    timed(engine, 0, 1000.0, 1060.0)
    engine.runs[1] = NodeRun(NodeState.SUBMITTED, began=1060.0, left=1, started=1, count=1)
    found = forecast(engine, 1080.0)
    assert (found.path, found.seconds, found.unknown, found.end) == (["B", "C", "D"], 100.0, 0, 1180.0)
    late = forecast(engine, 1200.0)
    assert (late.overdue, late.seconds, late.end) == (1, 60.0, 1260.0)
    assert forecast(engine, 1080.0, halted=True).end is None


def test_nodes_of_other_descriptions_are_not_known() -> None:
    nodes = [sourced("A", text="x"), sourced("B", text="x"), sourced("C", text="y")]
    engine = WorkflowEngine(plan_of(nodes, ("A", "B C")))
    engine.begin()
    timed(engine, 0, 0.5, 10.5)
    found = forecast(engine, 20.0)
    assert (found.unknown, found.end, found.path, found.seconds) == (1, None, ["B"], 10.0)


def test_as_many_run_at_once_as_have_so_far() -> None:
    engine = WorkflowEngine(plan_of([sourced(f"n{at}") for at in range(21)]))
    engine.begin()
    timed(engine, 0, 1.0, 11.0)
    assert forecast(engine, 100.0).end == 110.0, "nothing has waited for a machine yet"
    for at in range(1, 5):
        engine.runs[at] = NodeRun(NodeState.SUBMITTED, began=100.0 if at < 3 else 0.0, left=1, started=int(at < 3))
    engine.peak = 2
    assert forecast(engine, 100.0).end == 200.0
    assert forecast(engine, 105.0).end == 200.0


def test_the_final_node_comes_last_and_services_do_not_count() -> None:
    nodes = [sourced("A"), sourced("B"), sourced("F", kind="FINAL"), sourced("S", kind="SERVICE")]
    engine = WorkflowEngine(plan_of(nodes))
    engine.begin()
    timed(engine, 0, 1.0, 11.0)
    found = forecast(engine, 50.0)
    assert (found.path, found.seconds, found.end) == (["B", "F"], 20.0, 70.0)


def test_a_forecast_of_many_nodes_is_quick() -> None:
    nodes = [sourced(f"n{at}") for at in range(2000)]
    plan = plan_of(nodes)
    wide = WorkflowPlan("/d/x", "/d", nodes, [(tuple(range(1000)), tuple(range(1000, 2000)))], plan.templates)
    engine = WorkflowEngine(wide)
    engine.begin()
    assert engine.next_action() == SubmitNode(0)
    timed(engine, 0, 1.0, 2.0)
    assert forecast(engine, 10.0).seconds == 2.0
