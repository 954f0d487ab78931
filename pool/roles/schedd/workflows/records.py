"""The names under which the store keeps a work flow: its plan, the state of each node, and how it was given up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pool.decimals import whole_number
from pool.policy.packed import unpack
from pool.policy.workflow import NodeRun

#: Before the names of all of them.
PREFIX = "dag."


def plan_key(workflow: int) -> str:
    """The name of a work flow's plan."""
    return f"{PREFIX}{workflow}"


def node_key(workflow: int, node: int) -> str:
    """The name of a node's state."""
    return f"{PREFIX}{workflow}.{node}"


def given_up_key(workflow: int) -> str:
    """The name under which is kept that, and how, a work flow was given up."""
    return f"{PREFIX}{workflow}.given_up"


def keys_of(workflow: int, nodes: int) -> Iterator[str]:
    """All names but the plan's."""
    yield given_up_key(workflow)
    yield rescue_key(workflow)
    for node in range(nodes):
        yield node_key(workflow, node)


def read_records(meta: Mapping[str, bytes]) -> tuple[dict[int, dict[int, NodeRun]], dict[int, tuple[int, int]]]:
    """The states of nodes, and how work flows were given up, by work flow, from all named values of a store."""
    runs: dict[int, dict[int, NodeRun]] = {}
    given_up: dict[int, tuple[int, int]] = {}
    for key, value in meta.items():
        parts = key.split(".")
        if parts[0] != "dag" or len(parts) != 3:
            continue
        workflow, node = whole_number(parts[1]), whole_number(parts[2])
        if workflow is None:
            continue
        if node is not None:
            runs.setdefault(workflow, {})[node] = NodeRun.from_wire(unpack(value))
        elif parts[2] == "given_up":
            status, code = unpack(value)
            given_up[workflow] = (status, code)
    return runs, given_up


def rescue_key(workflow: int) -> str:
    """The name under which is kept which rescue file is being written."""
    return f"{PREFIX}{workflow}.rescue"
