"""A work flow as the schedd keeps it: nodes by number, edges, limits, and the ads that nodes' jobs are made of.

A client makes it of a DAG file and the descriptions in it. It comes over the wire, so each field is checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from pool.errors import PoolError

Wire = dict[str, Any]
#: Nodes, and words or names in one of them.
MOST_NODES, MOST_WORDS = 1_000_000, 10_000
#: Numbers are no larger: sums of two of them fit into an ad, and seconds into a timer.
LARGEST = 2**31 - 1
#: In place of a job's exit code, as DAGMan has them: its submit failed, it was removed, its PRE script failed.
SUBMIT_FAILED, REMOVED, NO_JOB = -1001, -1002, -1004
#: When a script may run.
SCRIPTS = ("PRE", "POST", "HOLD")
KINDS = ("JOB", "SUBDAG", "FINAL", "PROVISIONER", "SERVICE")
#: The other jobs of a node that has failed: removed, or left alone.
FAILURE_MODES = ("", "FAIL-FAST", "WAIT")
#: Words of scripts for which the exit code of each job is kept.
CODE_WORDS = frozenset({"$EXIT_CODES", "$EXIT_CODE_LIST", "$EXIT_CODE_COUNTS", "$JOB_ABORT_COUNT"})
#: Work flows in work flows.
DEEPEST = 20


def _malformed(what: str) -> PoolError:
    return PoolError(f"cannot queue: this is no work flow: {what}", hint="submit it from a DAG file")


def _typed(wire: Any, name: str, kind: type, default: Any) -> Any:
    value = wire.get(name, default)
    if value is default and name not in wire:
        return default
    if type(value) is not kind or (isinstance(value, int) and abs(value) > LARGEST):
        raise _malformed(f"{name} is {str(value)[:40]!r}")
    return value


def _maybe(wire: Any, name: str) -> int | None:
    value = wire.get(name)
    if value is not None and (type(value) is not int or abs(value) > LARGEST):
        raise _malformed(f"{name} is {str(value)[:40]!r}")
    return value


def _written(record: Any, but: tuple[str, ...] = ()) -> Wire:
    """The fields of a record that are not empty, as plain values."""
    found = {one.name: getattr(record, one.name) for one in fields(record) if one.name not in but}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items() if value}


def _numbers(value: Any, below: int) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(one) is int and 0 <= one < below for one in value):
        raise _malformed("a list of numbers is none")
    return tuple(value)


@dataclass(frozen=True, slots=True)
class PlanScript:
    """A script of a node; see `pool.jobs.dag.model.DagScript`."""

    program: str
    arguments: tuple[str, ...] = ()
    defer_status: int | None = None
    defer_seconds: int = 0
    debug_file: str = ""
    debug_streams: str = ""

    @classmethod
    def from_wire(cls, wire: Any) -> PlanScript:
        """Raises PoolError."""
        if not isinstance(wire, dict):
            raise _malformed("a script is no mapping")
        words = _typed(wire, "arguments", list, [])
        if len(words) > MOST_WORDS or not all(isinstance(word, str) for word in words):
            raise _malformed("a script's arguments are no words")
        seconds = _typed(wire, "defer_seconds", int, 0)
        texts = {name: _typed(wire, name, str, "") for name in ("program", "debug_file", "debug_streams")}
        return cls(
            texts["program"],
            tuple(words),
            _maybe(wire, "defer_status"),
            max(0, seconds),
            texts["debug_file"] if texts["debug_file"].startswith("/") else "",
            texts["debug_streams"] if texts["debug_streams"] in ("STDOUT", "STDERR", "ALL") else "",
        )

    def to_wire(self) -> Wire:
        """The same as plain values."""
        return _written(self) | {"defer_status": self.defer_status}


@dataclass(frozen=True, slots=True)
class NodeJobs:
    """The jobs of a node: `count` of a template's, from one on."""

    template: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """The jobs of one description: what they share, and what each has beyond it (None: nothing)."""

    ad: Wire
    deltas: list[Wire | None] | None


@dataclass(frozen=True, slots=True)
class PlanNode:
    """One node; see `pool.jobs.dag.model.DagNode`.

    Attributes:
        jobs: of each attempt, the last of them for all later ones.
        save: where the progress is written at its first start; empty for nowhere.
        tolerance: so many of its jobs may fail, or so many of a hundred where `is_percentage`; None for the plan's.
        on_failure: see FAILURE_MODES; empty for the plan's.
        source: a digest of all that makes its jobs: the same text of the same description has the same.
        text: a digest of its description alone: nodes that share one take as long as each other.
        removed: it was taken out while the work flow ran; its number stays.
        plan: the inner work flow of a SUBDAG, in wire form.
    """

    name: str
    kind: str = "JOB"
    noop: bool = False
    done: bool = False
    retries: int = 0
    unless_exit: int | None = None
    abort_on: int | None = None
    abort_return: int | None = None
    pre_skip: int | None = None
    priority: int = 0
    category: str = ""
    directory: str = ""
    save: str = ""
    tolerance: int | None = None
    is_percentage: bool = False
    on_failure: str = ""
    source: str = ""
    text: str = ""
    removed: bool = False
    jobs: tuple[NodeJobs, ...] = ()
    scripts: dict[str, PlanScript] = field(default_factory=dict)
    plan: Wire | None = None

    @classmethod
    def from_wire(cls, wire: Any, templates: list[NodeTemplate]) -> PlanNode:
        """Raises PoolError."""
        if not isinstance(wire, dict):
            raise _malformed("a node is no mapping")
        kind, name = _typed(wire, "kind", str, "JOB"), _typed(wire, "name", str, "")
        if kind not in KINDS or len(name) > 4096 or name.split() != [name]:
            raise _malformed(f"there is no such node as {kind} {name[:40]}")
        scripts = _typed(wire, "scripts", dict, {})
        if not set(scripts) <= set(SCRIPTS):
            raise _malformed("a script has no such moment")
        plan = wire.get("plan")
        node = cls(
            name=name,
            kind=kind,
            noop=_typed(wire, "noop", bool, False),
            done=_typed(wire, "done", bool, False),
            retries=max(0, _typed(wire, "retries", int, 0)),
            unless_exit=_maybe(wire, "unless_exit"),
            abort_on=_maybe(wire, "abort_on"),
            abort_return=_maybe(wire, "abort_return"),
            pre_skip=_maybe(wire, "pre_skip"),
            priority=_typed(wire, "priority", int, 0),
            category=_typed(wire, "category", str, ""),
            directory=_typed(wire, "directory", str, ""),
            save=_typed(wire, "save", str, ""),
            tolerance=_maybe(wire, "tolerance"),
            is_percentage=_typed(wire, "is_percentage", bool, False),
            on_failure=_typed(wire, "on_failure", str, ""),
            source=_typed(wire, "source", str, "")[:64],
            text=_typed(wire, "text", str, "")[:64],
            removed=_typed(wire, "removed", bool, False),
            jobs=tuple(_jobs_of(one, templates) for one in _typed(wire, "jobs", list, [])),
            scripts={moment: PlanScript.from_wire(script) for moment, script in scripts.items()},
            plan=plan if isinstance(plan, dict) else None,
        )
        if not node.noop and not node.jobs and node.plan is None:
            raise _malformed(f"the node {name[:80]} has no job")
        if node.on_failure not in FAILURE_MODES or (node.tolerance or 0) < 0:
            raise _malformed(f"the node {name[:80]} tolerates no such failures")
        if kind == "PROVISIONER" and any(jobs.count != 1 for jobs in node.jobs):
            raise _malformed(f"the PROVISIONER node {name[:80]} has several jobs")
        return node

    def to_wire(self) -> Wire:
        """The same as plain values."""
        wire = _written(self, ("jobs", "scripts"))
        for name in ("unless_exit", "abort_on", "abort_return", "pre_skip", "tolerance"):
            wire[name] = getattr(self, name)
        wire["jobs"] = [[jobs.template, jobs.first, jobs.count] for jobs in self.jobs]
        wire["scripts"] = {moment: script.to_wire() for moment, script in self.scripts.items()}
        return wire

    @property
    def keeps_codes(self) -> bool:
        """Whether a script of it asks for the exit codes of all jobs."""
        return any(word.upper() in CODE_WORDS for script in self.scripts.values() for word in script.arguments)

    def tolerated(self, jobs: int, default: int) -> int:
        """How many of so many jobs may fail."""
        if self.tolerance is None:
            return default
        return jobs * self.tolerance // 100 if self.is_percentage else self.tolerance


def _jobs_of(wire: Any, templates: list[NodeTemplate]) -> NodeJobs:
    numbers = _numbers(wire, 2**31)
    if len(numbers) != 3 or numbers[0] >= len(templates) or not numbers[2]:
        raise _malformed("a node's jobs are of no description")
    deltas = templates[numbers[0]].deltas
    if deltas is not None and numbers[1] + numbers[2] > len(deltas):
        raise _malformed("a node's jobs are not in its description")
    return NodeJobs(*numbers)


@dataclass(frozen=True, slots=True)
class WorkflowPlan:
    """A whole work flow.

    Attributes:
        file: the first DAG file's absolute path.
        iwd: where it was submitted from.
        edges: numbers of parents, and of the children that wait for all of them.
        weak: numbers of the edges for which it is enough that the parents have run.
        limits: by category.
        max_jobs, max_idle, max_pre, max_post: 0 for no limit.
        script_ad: attributes of the jobs that its scripts are.
        ad: attributes of its own job.
        rescue: the number of the rescue file that it goes on from.
        tolerance: so many jobs of a node may fail.
        removes_rest: whether the other jobs of a node that has failed are removed.
        open: it does not end when nothing is left to do: more nodes are to come.
        files: what is written about it: `status`, `jobstate`, `dot`, and so on; see `pool.client.workflows`.
    """

    file: str
    iwd: str
    nodes: list[PlanNode]
    edges: list[tuple[tuple[int, ...], tuple[int, ...]]]
    templates: list[NodeTemplate] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)
    max_jobs: int = 0
    max_idle: int = 0
    max_pre: int = 0
    max_post: int = 0
    always_run_post: bool = False
    reset_retries: bool = True
    script_ad: Wire = field(default_factory=dict)
    ad: Wire = field(default_factory=dict)
    rescue: int = 0
    most_rescues: int = 100
    files: Wire = field(default_factory=dict)
    weak: frozenset[int] = frozenset()
    tolerance: int = 0
    removes_rest: bool = True
    open: bool = False

    @classmethod
    def from_wire(cls, wire: Any, depth: int = 0) -> WorkflowPlan:
        """Raises PoolError."""
        if not isinstance(wire, dict) or depth > DEEPEST:
            raise _malformed("it is no mapping, or in too many others")
        templates = [_template(one) for one in _typed(wire, "templates", list, [])]
        given = _typed(wire, "nodes", list, [])
        if not 1 <= len(given) <= MOST_NODES:
            raise _malformed(f"it has {len(given)} nodes")
        nodes = [PlanNode.from_wire(one, templates) for one in given]
        for kind in ("FINAL", "PROVISIONER"):
            if sum(node.kind == kind and not node.removed for node in nodes) > 1:
                raise _malformed(f"it has two {kind} nodes")
        for node in nodes:
            if node.plan is not None:
                cls.from_wire(node.plan, depth + 1)
        edges = []
        for edge in _typed(wire, "edges", list, []):
            if not isinstance(edge, list) or len(edge) != 2:
                raise _malformed("an edge is no pair")
            edges.append((_numbers(edge[0], len(nodes)), _numbers(edge[1], len(nodes))))
        limits = _typed(wire, "limits", dict, {})
        if not all(isinstance(name, str) and type(value) is int for name, value in limits.items()):
            raise _malformed("its limits are no numbers")
        file, iwd = _typed(wire, "file", str, ""), _typed(wire, "iwd", str, "")
        if not file.startswith("/") or not iwd.startswith("/"):
            raise _malformed("its file has no absolute path")
        return cls(
            file,
            iwd,
            nodes,
            edges,
            templates,
            limits,
            **{name: max(0, _typed(wire, name, int, 0)) for name in ("max_jobs", "max_idle", "max_pre", "max_post")},
            always_run_post=_typed(wire, "always_run_post", bool, False),
            reset_retries=_typed(wire, "reset_retries", bool, True),
            script_ad=_typed(wire, "script_ad", dict, {}),
            ad=_typed(wire, "ad", dict, {}),
            rescue=max(0, _typed(wire, "rescue", int, 0)),
            most_rescues=min(999, max(1, _typed(wire, "most_rescues", int, 100))),
            files=_typed(wire, "files", dict, {}),
            weak=frozenset(_numbers(_typed(wire, "weak", list, []), len(edges))),
            tolerance=max(0, _typed(wire, "tolerance", int, 0)),
            removes_rest=_typed(wire, "removes_rest", bool, True),
            open=_typed(wire, "open", bool, False),
        )

    def to_wire(self) -> Wire:
        """The same as plain values, for the store."""
        wire = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("nodes", "edges", "weak")}
        wire["nodes"] = [node.to_wire() for node in self.nodes]
        wire["edges"] = [[list(parents), list(children)] for parents, children in self.edges]
        wire["weak"] = sorted(self.weak)
        wire["templates"] = [
            {"ad": one.ad} if one.deltas is None else {"ad": one.ad, "deltas": one.deltas} for one in self.templates
        ]
        return wire


def _template(wire: Any) -> NodeTemplate:
    if not isinstance(wire, dict):
        raise _malformed("a description is no mapping")
    deltas = wire.get("deltas")
    fits = deltas is None or (
        isinstance(deltas, list) and all(delta is None or isinstance(delta, dict) for delta in deltas)
    )
    if not fits:
        raise _malformed("a description's differences are no list")
    return NodeTemplate(_typed(wire, "ad", dict, {}), deltas)
