"""A work flow as its DAG file describes it: nodes, edges, limits and files, as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from pool.jobs.description.diagnostics import Diagnostic, SourcePosition


class NodeKind(StrEnum):
    """The statement that made a node."""

    JOB = "JOB"
    SUBDAG = "SUBDAG"
    FINAL = "FINAL"
    PROVISIONER = "PROVISIONER"
    SERVICE = "SERVICE"


class ScriptKind(StrEnum):
    """When a script runs: before the node's job, after it, or when the job is held."""

    PRE = "PRE"
    POST = "POST"
    HOLD = "HOLD"


@dataclass(frozen=True, slots=True)
class DagScript:
    """A script of a node.

    Attributes:
        program: as written, without blanks.
        arguments: the words after it; `$JOB` and the like are not yet replaced.
        defer_status: with this exit code the script alone is run again; None for never.
        defer_seconds: so long after that, at least.
        debug_file: where its output goes; empty for nowhere.
        debug_streams: `STDOUT`, `STDERR` or `ALL`.
    """

    kind: ScriptKind
    program: str
    arguments: tuple[str, ...] = ()
    defer_status: int | None = None
    defer_seconds: int = 0
    debug_file: str = ""
    debug_streams: str = ""


@dataclass(frozen=True, slots=True)
class NodeVariable:
    """A macro for a node's description; `prepend`: it is set before the description is read."""

    name: str
    value: str
    prepend: bool = False


@dataclass(slots=True)
class DagNode:
    """One node.

    Attributes:
        name: with the names of its splices before it, joined by `+`.
        kind: the statement that made it.
        description: the submit description's file, or the DAG file of a SUBDAG, as written.
        inline: the description's own text, where it stands in the DAG file.
        directory: where it is submitted from, as written, splices' directories before it; empty for the DAG's own.
        noop: it has no job, and its scripts run.
        done: it has been done already.
        where: the statement.
        retries: so many times it is tried again.
        unless_exit: with this exit code it is not tried again.
        abort_on: with this exit code the whole DAG ends; `abort_return` is the DAG's exit code then, None for the same.
        pre_skip: with this exit code of the PRE script the node is done.
        tolerance: so many of its jobs may fail, or so many of a hundred where `is_percentage`; None for the default.
        on_failure: FAIL-FAST or WAIT: the other jobs are removed when it has failed, or run on; empty for the default.
        save_point: where the progress is written at its first start; None for nowhere.
    """

    name: str
    kind: NodeKind
    description: str
    where: SourcePosition
    inline: str | None = None
    directory: str = ""
    noop: bool = False
    done: bool = False
    retries: int = 0
    unless_exit: int | None = None
    abort_on: int | None = None
    abort_return: int | None = None
    pre_skip: int | None = None
    priority: int = 0
    category: str = ""
    tolerance: int | None = None
    is_percentage: bool = False
    on_failure: str = ""
    save_point: str | None = None
    scripts: dict[ScriptKind, DagScript] = field(default_factory=dict)
    variables: dict[str, NodeVariable] = field(default_factory=dict)

    @property
    def is_ordinary(self) -> bool:
        """Whether it takes part in the order of nodes: a job or a SUBDAG."""
        return self.kind in (NodeKind.JOB, NodeKind.SUBDAG)


@dataclass(frozen=True, slots=True)
class Dependency:
    """Each child waits for all parents. Two splices with a thousand ends make two thousand names, not a million.

    Attributes:
        weak: it is enough that the parents have run.
    """

    parents: tuple[str, ...]
    children: tuple[str, ...]
    weak: bool = False


@dataclass(frozen=True, slots=True)
class DotFile:
    """A drawing that is written: `update` at each change of a node, `overwrite` one file or count them up."""

    path: str
    update: bool = False
    overwrite: bool = True
    include: str = ""


@dataclass(frozen=True, slots=True)
class StatusFile:
    """A file with the state of all nodes, written anew at most every so many seconds."""

    path: str
    seconds: int = 60
    always: bool = False


@dataclass(slots=True)
class Dag:
    """A work flow that was understood.

    Attributes:
        file: its first file, as named.
        nodes: by name, in the order of their statements.
        dependencies: the edges.
        limits: jobs of a category that may be in the queue at once.
        config: a file of DAGMan's settings, as written; empty for none.
        environment: variables that ENV SET gives; `inherited`: names that ENV GET takes from the submitter.
        attributes: of the DAG's own job: names and expressions.
        warnings: what there is to be said about it.
    """

    file: str
    nodes: dict[str, DagNode] = field(default_factory=dict)
    dependencies: list[Dependency] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)
    config: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    inherited: list[str] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)
    dot: DotFile | None = None
    status_file: StatusFile | None = None
    jobstate_log: str = ""
    warnings: list[Diagnostic] = field(default_factory=list)

    def of_kind(self, kind: NodeKind) -> Iterator[DagNode]:
        """The nodes that one kind of statement made."""
        return (node for node in self.nodes.values() if node.kind is kind)

    def parents(self) -> dict[str, list[str]]:
        """The parents of each node that has some."""
        found: dict[str, dict[str, None]] = {}
        for edge in self.dependencies:
            for child in edge.children:
                found.setdefault(child, {}).update(dict.fromkeys(edge.parents))
        return {child: list(names) for child, names in found.items()}


def find_cycle(nodes: Iterable[str], dependencies: list[Dependency]) -> list[str]:
    """The nodes of a circle, the first again at the end; empty where there is none. Linear in nodes and names."""
    waits = dict.fromkeys(nodes, 0)
    feeds: dict[str, list[int]] = {}
    open_parents = []
    for number, edge in enumerate(dependencies):
        open_parents.append(len(edge.parents))
        for parent in edge.parents:
            feeds.setdefault(parent, []).append(number)
        for child in edge.children:
            waits[child] += 1
    ready = [name for name, count in waits.items() if not count]
    while ready:
        name = ready.pop()
        for number in feeds.get(name, ()):
            open_parents[number] -= 1
            if open_parents[number]:
                continue
            for child in dependencies[number].children:
                waits[child] -= 1
                if not waits[child]:
                    ready.append(child)
    left = {name for name, count in waits.items() if count}
    if not left:
        return []
    # Each node that is left waits for one that is left, too: going back from any of them runs into a circle.
    before = {
        child: next(parent for parent in edge.parents if parent in left)
        for number, edge in enumerate(dependencies)
        if open_parents[number]
        for child in edge.children
        if child in left
    }
    name = next(child for child in waits if child in left)
    seen: dict[str, int] = {}
    trail: list[str] = []
    while name not in seen:
        seen[name] = len(trail)
        trail.append(name)
        name = before[name]
    circle = trail[seen[name] :][::-1]
    return [*circle, circle[0]]
