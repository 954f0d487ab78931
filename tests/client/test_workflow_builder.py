"""Work flows written in Python: the file that they become, and what is refused."""

from __future__ import annotations

import operator
import pickle
import threading
from pathlib import Path

import pytest

from pool import Workflow
from pool.client.workers.one_call import main
from pool.client.workflow_builder import FlowNode
from pool.errors import PoolError
from pool.jobs.dag import read_dag


def diamond(place: Path) -> tuple[Workflow, list[FlowNode]]:
    """Two calls on the result of a third, their sum, and a job behind it."""
    flow = Workflow("diamond", place, paths=())
    first = flow.call(operator.add, 1, 2)
    left = flow.call(operator.mul, first, 10, commands={"request_memory": "64MB"})
    right = flow.call(operator.neg, first, name="right", retries=2)
    total = flow.call(sum, [left, right])
    last = flow.job("report", {"executable": "/bin/echo", "arguments": ["all", "done"]}, after=[total])
    return flow, [first, left, right, total, last]


def test_it_becomes_a_file_of_the_language(tmp_path: Path) -> None:
    flow, nodes = diamond(tmp_path)
    dag = read_dag([str(flow.write())], lambda path: Path(path).read_text())
    assert list(dag.nodes) == [node.name for node in nodes] == ["add-0", "mul-1", "right", "sum-3", "report"]
    found = {(parent, child) for edge in dag.dependencies for parent in edge.parents for child in edge.children}
    assert found == {
        ("add-0", "mul-1"),
        ("add-0", "right"),
        ("mul-1", "sum-3"),
        ("right", "sum-3"),
        ("sum-3", "report"),
    }
    assert dag.nodes["right"].retries == 2
    assert dag.nodes["sum-3"].variables["needed"].value == ",mul-1.result,right.result"


def test_its_calls_give_their_results_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow, nodes = diamond(tmp_path)
    flow.write()
    monkeypatch.chdir(tmp_path)
    for node in nodes[:-1]:
        main(f"{node.name}.call", node.result_file)
    with (tmp_path / "sum-3.result").open("rb") as file:
        assert pickle.load(file) == 27
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda flow, node: flow.job("add-0", {"executable": "x"}), "there is a node add-0 already"),
        (lambda flow, node: flow.job("a b", {"executable": "x"}), "cannot be the name of a node"),
        (lambda flow, node: flow.job("a", {"executable": "x", "queue": 2}), "says how many"),
        (lambda flow, node: flow.job("a", {"executable": "x"}, retries=-1), "cannot be tried again -1 times"),
        (lambda flow, node: flow.call(len, Workflow("other", "x").call(len, "a")), "len-0 has no result"),
        (
            lambda flow, node: flow.job("a", {"executable": "x"}, after=[Workflow("o", "x").call(len, "a")]),
            "is no node",
        ),
        (lambda flow, node: flow.call(print, threading.Lock()), "cannot send the call of print"),
    ],
)
def test_what_is_refused(tmp_path: Path, wrong: object, said: str) -> None:
    flow = Workflow("it", tmp_path)
    node = flow.call(operator.add, 1, 2)
    with pytest.raises(PoolError, match=said):
        wrong(flow, node)  # type: ignore[operator]
    with pytest.raises(PoolError, match="cannot be the name of a work flow"):
        Workflow("../it")
    with pytest.raises(PoolError, match="has no nodes"):
        Workflow("empty", tmp_path).write()
