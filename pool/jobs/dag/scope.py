"""The names that one DAG file sees: its nodes, its splices and their ends, its inline descriptions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pool.jobs.dag.model import Dag, DagNode, Dependency
from pool.jobs.description.diagnostics import nearest


class StatementError(Exception):
    """A statement that makes no sense; `hint` is the way out. Never leaves this package."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(slots=True)
class Splice:
    """A splice that was read.

    Attributes:
        first, last: its nodes without parents, and those without children.
        pins_in, pins_out: the nodes at each of its pins, by number.
    """

    first: tuple[str, ...]
    last: tuple[str, ...]
    pins_in: dict[int, list[str]]
    pins_out: dict[int, list[str]]


@dataclass(slots=True)
class DagScope:
    """One file being read.

    Attributes:
        dag: the whole work flow.
        file: its name.
        prefix: of its nodes' names: the names of the splices around it, each with a `+`; empty for the first file.
        directory: where its names start from; empty for the submitter's directory.
        own: names of its nodes, those of its splices too.
        edges: dependencies between them.
        descriptions: SUBMIT-DESCRIPTION texts by name.
        append: whether VARS without a word come after the description.
    """

    dag: Dag
    file: str
    prefix: str = ""
    directory: str = ""
    is_splice: bool = False
    append: bool = False
    own: list[str] = field(default_factory=list)
    edges: list[Dependency] = field(default_factory=list)
    splices: dict[str, Splice] = field(default_factory=dict)
    descriptions: dict[str, str] = field(default_factory=dict)
    pins_in: dict[int, list[str]] = field(default_factory=dict)
    pins_out: dict[int, list[str]] = field(default_factory=dict)

    def path(self, name: str, directory: str = "") -> str:
        """A file's name as the submitter's directory sees it."""
        for folder in (directory, self.directory):
            if folder and not name.startswith("/"):
                name = f"{folder.rstrip('/')}/{name}"
        return name

    def node(self, name: str) -> DagNode:
        """A node by its name in this file. Raises StatementError where there is none."""
        found = self.dag.nodes.get(self.prefix + name)
        if found is None:
            if name in self.splices:
                raise StatementError(f"{name} is a splice: this statement is about one node", "name a node in it")
            meant = nearest(name, [own.removeprefix(self.prefix) for own in self.own])
            raise StatementError(f"there is no node {name}", f"did you mean {meant}?" if meant else "")
        return found

    def nodes(self, name: str) -> Iterator[DagNode]:
        """A node, or all ordinary nodes of this file for ALL_NODES."""
        if name.upper() != "ALL_NODES":
            yield self.node(name)
            return
        for own in self.own:
            node = self.dag.nodes[own]
            if node.is_ordinary and "+" not in own.removeprefix(self.prefix):
                yield node

    def ends(self, name: str, *, last: bool) -> tuple[str, ...]:
        """The nodes that a name stands for at one side of PARENT ... CHILD."""
        splice = self.splices.get(name)
        if splice is not None:
            ends = splice.last if last else splice.first
            if not ends:
                raise StatementError(f"the splice {name} has no nodes")
            return ends
        node = self.node(name)
        if not node.is_ordinary:
            raise StatementError(f"{name} is a {node.kind} node, which has no parents or children")
        return (node.name,)

    def connect(self, parents: tuple[str, ...], children: tuple[str, ...], *, weak: bool = False) -> None:
        """One more dependency."""
        edge = Dependency(tuple(dict.fromkeys(parents)), tuple(dict.fromkeys(children)), weak)
        self.edges.append(edge)
        self.dag.dependencies.append(edge)

    def add_node(self, node: DagNode) -> None:
        """One more node. Raises StatementError where its name is taken or cannot be one."""
        short = node.name.removeprefix(self.prefix)
        if short.upper() in ("PARENT", "CHILD", "ALL_NODES"):
            raise StatementError(f"{short} is a word of the language and cannot be a node's name")
        if "+" in short:
            raise StatementError(f"a node's name has no '+': {short}", "splices write it between names")
        if node.name in self.dag.nodes:
            raise StatementError(f"the node {short} is there already", f"see {self.dag.nodes[node.name].where}")
        if short in self.splices:
            raise StatementError(f"{short} is the name of a splice already")
        self.dag.nodes[node.name] = node
        self.own.append(node.name)

    def as_splice(self) -> Splice:
        """This file as one that includes it sees it."""
        children = {name for edge in self.edges for name in edge.children}
        parents = {name for edge in self.edges for name in edge.parents}
        ordinary = [name for name in self.own if self.dag.nodes[name].is_ordinary]
        return Splice(
            tuple(name for name in ordinary if name not in children),
            tuple(name for name in ordinary if name not in parents),
            self.pins_in,
            self.pins_out,
        )
