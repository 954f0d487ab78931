"""Work flows played through on paper: the order of nodes, what their ends lead to, and restarts at every step."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pool.policy.workflow import (
    DagStatus,
    DeferScript,
    FinishDag,
    NextTurn,
    NodeRun,
    NodeState,
    PlanNode,
    PlanScript,
    RemoveNode,
    StartScript,
    SubmitNode,
    WorkflowEngine,
    WorkflowPlan,
)
from pool.policy.workflow.engine import STEP
from pool.policy.workflow.plan import NodeJobs, NodeTemplate

PRE, POST = PlanScript("pre"), PlanScript("post")


def node(name: str, *, count: int = 1, **more: Any) -> PlanNode:
    return PlanNode(name, jobs=(NodeJobs(0, 0, count),), **more)


def plan_of(nodes: Sequence[PlanNode], *edges: tuple[str, str], **more: Any) -> WorkflowPlan:
    names = [one.name for one in nodes]
    numbered = [
        (tuple(map(names.index, parents.split())), tuple(map(names.index, children.split())))
        for parents, children in edges
    ]
    return WorkflowPlan("/d/it.dag", "/d", list(nodes), numbered, [NodeTemplate({}, None)], **more)


class Player:
    """Carries out actions on paper, and can lose all memory but the durable states.

    Args:
        code: the exit code of a node's job or script: by its name, `JOB`, `PRE` or `POST`, and the attempt.
    """

    def __init__(self, plan: WorkflowPlan, code: Callable[[str, str, int], int] = lambda *_: 0, seed: int = 0) -> None:
        self.plan = plan
        self.code = code
        self.chance = random.Random(seed)
        self.engine = WorkflowEngine(plan)
        self.stored: dict[int, list[int | None]] = {}
        self.given_up: tuple[DagStatus, int] | None = None
        self.queue: dict[int, tuple[int, str, int]] = {}  # by cluster: node, moment, jobs left
        self.effects: list[tuple[str, str, int]] = []
        self.clusters = 0
        self.most = 0
        self.end: FinishDag | None = None
        self.engine.begin()

    def restart(self) -> None:
        """Forget all that is not durable."""
        self.engine = WorkflowEngine(self.plan)
        active = self.engine.begin({at: NodeRun.from_wire(wire) for at, wire in self.stored.items()}, self.given_up)
        for at in active:
            run = self.engine.runs[at]
            found = self.queue.get(run.cluster)
            assert found is not None, "what is recorded as queued is queued"
            for _ in range(run.count - found[2] if found[1] == "JOB" else 0):
                self.engine.job_ended(at, 0)

    def store(self) -> None:
        self.stored |= {at: run.to_wire() for at, run in self.engine.take_changes().items()}
        self.given_up = self.engine.given_up

    def carry_out(self) -> None:
        while (action := self.engine.next_action()) is not None:
            match action:
                case SubmitNode(at) | StartScript(at, _):
                    moment = "JOB" if isinstance(action, SubmitNode) else action.moment
                    self.clusters += 1
                    left = self.engine.jobs_of(at) if moment == "JOB" else 1
                    self.queue[self.clusters] = (at, moment, left)
                    self.effects.append((self.plan.nodes[at].name, moment, self.engine.runs[at].attempt))
                    self.engine.submitted(at, self.clusters)
                    self.most = max(self.most, sum(one[1] == "JOB" for one in self.queue.values()))
                case RemoveNode(at, cluster):
                    self.store()
                    if cluster in self.queue:
                        _, moment, left = self.queue.pop(cluster)
                        for _ in range(left):
                            if moment == "JOB":
                                self.engine.job_ended(at, -1002)
                            else:
                                self.engine.script_ended(at, -1002)
                case DeferScript(at, moment, _):
                    self.engine.script_due(at, moment)
                case FinishDag():
                    self.end = action
            self.store()

    def step(self) -> bool:
        """Something in the queue ends."""
        self.carry_out()
        if self.end is not None or not self.queue:
            return False
        cluster = self.chance.choice(sorted(self.queue))
        at, moment, left = self.queue.pop(cluster)
        code = self.code(self.plan.nodes[at].name, moment, self.engine.runs[at].attempt)
        if moment == "JOB":
            if left > 1:
                self.queue[cluster] = (at, moment, left - 1)
            self.engine.job_ended(at, code)
        else:
            self.engine.script_ended(at, code)
        self.store()
        return True

    def play(self) -> FinishDag:
        while self.step():
            pass
        assert self.end is not None, "it never ends"
        assert not [run for run in self.engine.runs if run.is_active and run.cluster and run.left]
        return self.end

    def states(self) -> dict[str, str]:
        return {one.name: run.state.name for one, run in zip(self.plan.nodes, self.engine.runs, strict=True)}


DIAMOND = ("A", "B C"), ("B C", "D")


def diamond(**of: Any) -> list[PlanNode]:
    return [node(name, **of.get(name, {})) for name in "ABCD"]


def failing(*names: str, code: int = 1) -> Callable[[str, str, int], int]:
    return lambda name, moment, attempt: code if f"{name}.{moment}" in names else 0


def test_parents_first() -> None:
    played = Player(plan_of(diamond(), *DIAMOND))
    assert played.play() == FinishDag(0, rescue=False)
    order = [name for name, _, _ in played.effects]
    assert (order[0], sorted(order[1:3]), order[3]) == ("A", ["B", "C"], "D")


@pytest.mark.parametrize(
    ("pre", "job", "post", "result"),
    [
        (None, 0, None, "DONE"),
        (None, 1, None, "ERROR"),
        (None, 0, 0, "DONE"),
        (None, 0, 1, "ERROR"),
        (None, 1, 0, "DONE"),
        (None, 1, 1, "ERROR"),
        (0, 0, None, "DONE"),
        (0, 1, None, "ERROR"),
        (0, 0, 0, "DONE"),
        (0, 0, 1, "ERROR"),
        (0, 1, 0, "DONE"),
        (0, 1, 1, "ERROR"),
        (1, None, None, "ERROR"),
        (1, None, 0, "ERROR"),
    ],
)
def test_the_table_of_success(pre: int | None, job: int | None, post: int | None, result: str) -> None:
    scripts = ({"PRE": PRE} if pre is not None else {}) | ({"POST": POST} if post is not None else {})
    codes = {"PRE": pre, "JOB": job, "POST": post}
    played = Player(plan_of([node("A", scripts=scripts)]), lambda _, moment, __: codes[moment] or 0)
    assert played.play().code == (result == "ERROR")
    assert played.states() == {"A": result}
    assert ("A", "JOB", 0) not in played.effects or job is not None


@pytest.mark.parametrize(("post", "result"), [(0, "DONE"), (1, "ERROR")])
def test_post_scripts_that_always_run(post: int, result: str) -> None:
    plan = plan_of([node("A", scripts={"PRE": PRE, "POST": POST})], always_run_post=True)
    played = Player(plan, lambda _, moment, __: {"PRE": 1, "POST": post}[moment])
    played.play()
    assert played.states() == {"A": result}
    assert played.effects == [("A", "PRE", 0), ("A", "POST", 0)]
    assert played.engine.runs[0].job_code == -1004


def test_a_failure_stops_descendants_only() -> None:
    played = Player(plan_of([*diamond(), node("E")], *DIAMOND), failing("B.JOB"))
    assert played.play() == FinishDag(1, rescue=True)
    assert played.states() == {"A": "DONE", "B": "ERROR", "C": "DONE", "D": "FUTILE", "E": "DONE"}
    assert played.engine.status is DagStatus.NODE_FAILED


def test_retries() -> None:
    plan = plan_of([node("A", retries=3, scripts={"PRE": PRE})])
    played = Player(plan, lambda _, moment, attempt: int(moment == "JOB" and attempt < 2))
    assert played.play().code == 0
    assert [attempt for _, moment, attempt in played.effects if moment == "JOB"] == [0, 1, 2]
    assert len(played.effects) == 6


def test_an_exit_code_that_ends_retries() -> None:
    played = Player(plan_of([node("A", retries=3, unless_exit=4)]), lambda *_: 4)
    assert played.play().code == 1
    assert len(played.effects) == 1


def test_an_eviction_costs_no_attempt() -> None:
    engine = WorkflowEngine(plan_of([node("A"), node("B")], max_idle=1))
    engine.begin()
    assert engine.next_action() == SubmitNode(0)
    engine.submitted(0, 1)
    assert engine.next_action() is None
    engine.job_started(0)
    assert engine.next_action() == SubmitNode(1)
    engine.job_stopped(0)
    engine.job_stopped(0)
    engine.job_started(0)
    assert engine.runs[0].attempt == 0
    engine.job_ended(0, 0)
    assert engine.runs[0].state is NodeState.DONE


@pytest.mark.parametrize(("result", "code", "rescue"), [(None, 10, True), (0, 0, False), (3, 3, True)])
def test_aborting_the_whole(result: int | None, code: int, rescue: bool) -> None:
    nodes = diamond(C={"retries": 3, "abort_on": 10, "abort_return": result})
    played = Player(plan_of([*nodes, node("E")], *DIAMOND), failing("C.JOB", code=10), seed=3)
    assert played.play() == FinishDag(code, rescue=rescue)
    assert played.states()["C"] == "ERROR"
    assert played.states()["D"] != "DONE"
    assert played.engine.status is DagStatus.ABORTED


def test_a_post_script_decides_about_aborting() -> None:
    nodes = [node("A", abort_on=10, scripts={"POST": POST}), node("B")]
    played = Player(plan_of(nodes, ("A", "B")), failing("A.JOB", code=10))
    assert played.play().code == 0


def test_the_final_node_runs_after_all_and_decides() -> None:
    nodes = [*diamond(), node("F", kind="FINAL")]
    played = Player(plan_of(nodes, *DIAMOND), failing("B.JOB"))
    assert played.play() == FinishDag(0, rescue=False)
    assert played.effects[-1][0] == "F"
    played = Player(plan_of(nodes, *DIAMOND), failing("F.JOB"))
    assert played.play() == FinishDag(1, rescue=True)


def test_removal() -> None:
    played = Player(plan_of([*diamond(), node("F", kind="FINAL")], *DIAMOND))
    played.step()
    played.carry_out()
    played.engine.abort(DagStatus.REMOVED)
    played.play()
    assert played.effects[-1][0] == "F"
    assert ("D", "JOB", 0) not in played.effects
    played = Player(plan_of(diamond(), *DIAMOND))
    played.carry_out()
    played.engine.abort(DagStatus.REMOVED)
    assert played.play() == FinishDag(2, rescue=True)


def test_a_service_ends_with_the_rest() -> None:
    engine = WorkflowEngine(plan_of([node("A"), node("S", kind="SERVICE")]))
    engine.begin()
    assert engine.next_action() == SubmitNode(1)
    engine.submitted(1, 1)
    assert engine.next_action() == SubmitNode(0)
    engine.submitted(0, 2)
    assert engine.next_action() is None
    engine.job_ended(0, 0)
    assert engine.next_action() == NextTurn()
    assert engine.next_action() == RemoveNode(1, 1)
    assert engine.next_action() == FinishDag(0, rescue=False)


def test_limits_and_priorities() -> None:
    nodes = [node(f"n{number}", category="c", priority=number % 3) for number in range(12)]
    played = Player(plan_of(nodes, limits={"c": 2}))
    played.play()
    assert played.most == 2
    assert [name for name, _, _ in played.effects][:4] == ["n2", "n5", "n8", "n11"]
    played = Player(plan_of([node(f"n{number}") for number in range(12)], max_jobs=3))
    played.play()
    assert (played.most, len(played.effects)) == (3, 12)


def test_scripts_are_limited_and_deferred() -> None:
    asked = []

    def code(name: str, moment: str, attempt: int) -> int:
        asked.append(moment)
        return 4 if moment == "PRE" and len(asked) == 1 else 0

    script = PlanScript("pre", defer_status=4, defer_seconds=60)
    plan = plan_of([node(f"n{number}", scripts={"PRE": script}) for number in range(3)], max_pre=1)
    played = Player(plan, code)
    assert played.play().code == 0
    assert asked.count("PRE") == 4


def test_a_skipped_node() -> None:
    played = Player(plan_of([node("A", pre_skip=7, scripts={"PRE": PRE, "POST": POST})]), lambda *_: 7)
    assert played.play().code == 0
    assert played.effects == [("A", "PRE", 0)]


def test_nodes_that_are_done_or_have_no_job() -> None:
    nodes = [node(f"n{number}", noop=True) for number in range(5000)]
    edges = [(f"n{number}", f"n{number + 1}") for number in range(4999)]
    played = Player(plan_of([*nodes[:3], node("B", done=True)], *edges[:2]))
    assert played.play().code == 0
    assert played.effects == []
    chain = WorkflowPlan("/d", "/d", nodes, [((at,), (at + 1,)) for at in range(4999)], [NodeTemplate({}, None)])
    assert Player(chain).play().code == 0


def test_several_jobs_of_a_node() -> None:
    played = Player(plan_of([node("A", count=3), node("B")], ("A", "B")), failing("A.JOB"))
    assert played.play().code == 1
    assert played.states() == {"A": "ERROR", "B": "FUTILE"}


def test_nodes_that_wait_in_a_circle_are_no_success() -> None:
    played = Player(plan_of([node("A"), node("B"), node("C")], ("B", "C"), ("C", "B")))
    assert played.play() == FinishDag(1, rescue=True)
    assert played.states() == {"A": "DONE", "B": "NOT_READY", "C": "NOT_READY"}


def test_halted() -> None:
    engine = WorkflowEngine(plan_of(diamond(), *DIAMOND))
    engine.begin()
    engine.halt(True)
    assert engine.next_action() is None
    engine.halt(False)
    assert engine.next_action() == SubmitNode(0)


@pytest.mark.parametrize("seed", range(25))
def test_a_restart_at_any_step_changes_no_effect(seed: int) -> None:
    chance = random.Random(seed)
    nodes = []
    for number in range(50):
        scripts = {moment: script for moment, script in (("PRE", PRE), ("POST", POST)) if chance.random() < 0.3}
        nodes.append(
            node(
                f"n{number}",
                count=chance.choice((1, 1, 3)),
                retries=chance.choice((0, 2)),
                scripts=scripts,
                category=chance.choice(("", "c")),
                noop=chance.random() < 0.1,
                abort_on=9 if chance.random() < 0.05 else None,
            )
        )
    nodes.append(node("F", kind="FINAL"))
    edges = [(f"n{chance.randrange(at)}", f"n{at}") for at in range(1, 50) for _ in range(chance.choice((1, 2)))]
    weak = frozenset(number for number in range(len(edges)) if chance.random() < 0.2)
    codes: dict[tuple[str, str, int], int] = {}

    def code(name: str, moment: str, attempt: int) -> int:
        return codes.setdefault((name, moment, attempt), chance.choice((0, 0, 0, 0, 0, 1, 1, 9)))

    played = Player(plan_of(nodes, *edges, limits={"c": 3}, max_jobs=8, weak=weak), code, seed)
    while played.step():
        played.restart()
    assert played.end is not None
    assert len(set(played.effects)) == len(played.effects), "each effect once"
    assert played.effects[-1][0] == "F"


def test_long_graphs_are_walked_through_in_short_steps() -> None:
    """A node with very many children, and a chain of nodes without jobs: no answer takes more than some of them."""
    many = 5 * STEP
    engine = WorkflowEngine(plan_of([node("A", noop=True), *(node(f"B{at}") for at in range(many))]))
    engine.plan.edges.append(((0,), tuple(range(1, many + 1))))
    engine = WorkflowEngine(engine.plan)
    engine.begin()
    steps = 0
    while engine.next_action() == NextTurn():
        ready = sum(run.state is NodeState.READY for run in engine.runs)
        assert ready <= STEP * steps
        steps += 1
    assert steps >= 5
    chain = plan_of([node(f"N{at}", noop=True) for at in range(50)], *((f"N{at}", f"N{at + 1}") for at in range(49)))
    engine = WorkflowEngine(chain)
    engine.begin()
    for done in range(50):
        while engine.runs[done].state is not NodeState.DONE:
            assert engine.next_action() == NextTurn()
        assert all(run.state is not NodeState.DONE for run in engine.runs[done + 1 :])
