"""A changed plan put in the place of one that runs: the difference, its effect, and what of it is refused.

The numbers of nodes stay: new nodes come after all others, and a node that was taken out keeps its number, marked
`removed`. So the progress of the others, which is stored by number, stays what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pool.policy.workflow.plan import NodeJobs, NodeTemplate, PlanNode, Wire, WorkflowPlan
from pool.policy.workflow.states import NodeRun, NodeState

#: Fields that say what a node's jobs and scripts are, in words.
WORK = {"kind": "kind", "noop": "NOOP", "directory": "directory", "source": "description", "scripts": "scripts"}
#: Fields that may change while a node runs, in words.
MANNER = {
    "retries": "retries",
    "unless_exit": "UNLESS-EXIT",
    "abort_on": "ABORT-DAG-ON",
    "abort_return": "ABORT-DAG-ON",
    "pre_skip": "PRE_SKIP",
    "priority": "priority",
    "save": "save point",
    "tolerance": "tolerance",
    "is_percentage": "tolerance",
    "on_failure": "tolerance",
}
#: Files about which nothing can be changed while they are written.
FILES = {"status": "NODE_STATUS_FILE", "jobstate": "JOBSTATE_LOG", "dot": "DOT"}
#: Names that an answer has of each kind.
MOST_NAMES = 1000


@dataclass(slots=True)
class PlanEdit:
    """The difference between two plans.

    Attributes:
        plan: the new one, with the numbers of the old.
        added, removed: names of nodes. changed: names, and in words what is changed.
        revived: failed nodes that are begun anew, with their progress.
        refused: names, and why the change is not possible; then nothing of the edit is done.
        kept: names of nodes that stay as they are, though they are changed in the file.
    """

    plan: WorkflowPlan
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: list[tuple[str, list[str]]] = field(default_factory=list)
    revived: dict[int, NodeRun] = field(default_factory=dict)
    refused: list[tuple[str, str]] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is another."""
        return not (self.added or self.removed or self.changed or self.other or self.revived)

    def to_wire(self) -> Wire:
        """For an answer: at most MOST_NAMES of each kind, and how many there are."""
        lists: dict[str, list[object]] = {
            "added": [*self.added],
            "removed": [*self.removed],
            "changed": [[name, what] for name, what in self.changed],
            "refused": [[name, why] for name, why in self.refused],
            "kept": [*self.kept],
            "other": [*self.other],
            "revived": [self.plan.nodes[at].name for at in self.revived],
        }
        return {name: some[:MOST_NAMES] for name, some in lists.items()} | {
            "counts": {name: len(some) for name, some in lists.items()}
        }


def begin_anew(run: NodeRun) -> NodeRun:
    """The progress of a failed node that is to be done again; its retries count anew."""
    return NodeRun(NodeState.NOT_READY, run.attempt + 1, jobs=run.jobs, base=run.attempt + 1)


def why_fixed(run: NodeRun) -> str:
    """Why a node cannot be changed any more; empty where it can."""
    if run.state is NodeState.DONE:
        return "it is done"
    if run.is_active:
        where = f", as {run.cluster}" if run.cluster else ""
        return f"it has begun{where}"
    return "it has begun, and is tried again" if run.has_begun else ""


def edit_plan(old: WorkflowPlan, runs: Sequence[NodeRun], new: WorkflowPlan, *, keeps_begun: bool = False) -> PlanEdit:
    """The difference that a changed plan makes.

    Args:
        runs: the progress of the old plan's nodes.
        keeps_begun: nodes that have begun stay as they are, where the new plan has them otherwise.
    """
    return _Editing(old, runs, new, keeps_begun).edit


class _Editing:
    def __init__(self, old: WorkflowPlan, runs: Sequence[NodeRun], new: WorkflowPlan, keeps_begun: bool) -> None:
        self.old, self.runs, self.new, self.keeps_begun = old, runs, new, keeps_begun
        self.edit = PlanEdit(new)
        self.templates = list(old.templates)
        self.rows: dict[int, tuple[int, list[Wire | None]]] = {}
        self.nodes = list(old.nodes)
        self.at = {node.name: at for at, node in enumerate(old.nodes) if not node.removed}
        self.parents_before = _parents(old)
        self.parents_now = _parents(new)
        there = {node.name for node in new.nodes}
        for name, at in self.at.items():
            if name not in there:
                self._remove(name, at)
        for node in new.nodes:
            if node.name in self.at:
                self._change(self.at[node.name], node)
        self._add_nodes()
        self._compare_rest()
        self.edit.plan = self._whole()

    def _refuse(self, name: str, why: str) -> None:
        if self.keeps_begun:
            self.edit.kept.append(name)
        else:
            self.edit.refused.append((name, why))

    def _remove(self, name: str, at: int) -> None:
        if why := why_fixed(self.runs[at]):
            self._refuse(name, f"{why}, so it cannot be taken out")
            return
        self.nodes[at] = PlanNode(name, noop=True, done=True, removed=True)
        self.edit.removed.append(name)

    def _change(self, at: int, node: PlanNode) -> None:
        before, run = self.old.nodes[at], self.runs[at]
        fixed, name = why_fixed(run), node.name
        rescued = run.state is NodeState.DONE and before.done
        work = [] if rescued else [said for one, said in WORK.items() if getattr(before, one) != getattr(node, one)]
        manner = list(dict.fromkeys(said for one, said in MANNER.items() if getattr(before, one) != getattr(node, one)))
        if before.category != node.category:
            (work if run.is_active else manner).append("category")
        if node.done and not before.done and not fixed:
            manner.append("DONE")
        more = sorted(self.parents_now.get(name, frozenset()) - self.parents_before.get(name, frozenset()))
        fewer = self.parents_before.get(name, frozenset()) - self.parents_now.get(name, frozenset())
        if fixed and work:
            self._refuse(name, f"{fixed}: its {' and '.join(work)} cannot be changed")
            return
        if fixed and more:
            self._refuse(name, f"{fixed}, so it cannot wait for {more[0][0]}")
            return
        if run.state is NodeState.DONE:
            return
        if more or (fewer and not fixed):
            manner.append("parents")
        if not (work or manner):
            return
        self.edit.changed.append((name, [*work, *manner]))
        same = len(before.jobs) == len(node.jobs) and "description" not in work
        jobs = before.jobs if same else self._take_jobs(node)
        self.nodes[at] = replace(node, jobs=jobs, plan=node.plan if "description" in work else before.plan)
        if run.state is NodeState.ERROR:
            self.edit.revived[at] = begin_anew(run)

    def _add_nodes(self) -> None:
        for node in self.new.nodes:
            if node.name not in self.at:
                self.at[node.name] = len(self.nodes)
                self.nodes.append(replace(node, jobs=self._take_jobs(node)))
                self.edit.added.append(node.name)

    def _take_jobs(self, node: PlanNode) -> tuple[NodeJobs, ...]:
        """The jobs of a node of the new plan, in templates of the merged one."""
        taken = []
        for jobs in node.jobs:
            template = self.new.templates[jobs.template]
            if jobs.template not in self.rows:
                self.rows[jobs.template] = len(self.templates), []
                self.templates.append(template)
            number, rows = self.rows[jobs.template]
            if template.deltas is None:
                taken.append(NodeJobs(number, jobs.first, jobs.count))
                continue
            taken.append(NodeJobs(number, len(rows), jobs.count))
            rows += template.deltas[jobs.first : jobs.first + jobs.count]
            self.templates[number] = NodeTemplate(template.ad, rows)
        return tuple(taken)

    def _compare_rest(self) -> None:
        old, new, other = self.old, self.new, self.edit.other
        for name, said in FILES.items():
            if old.files.get(name) != new.files.get(name):
                self.edit.refused.append((said, "its files stay as they were at the submit"))
        if old.ad != new.ad:
            self.edit.refused.append(("SET_JOB_ATTR", "its job is in the queue: change it with `poolnode qedit`"))
        if old.limits != new.limits:
            other.append("MAXJOBS")
        for name in ("max_jobs", "max_idle", "max_pre", "max_post", "most_rescues", "tolerance", "removes_rest"):
            if getattr(old, name) != getattr(new, name):
                other.append(name)
        for name in ("always_run_post", "reset_retries", "open"):
            if getattr(old, name) != getattr(new, name):
                other.append(name)

    def _whole(self) -> WorkflowPlan:
        edges = []
        for parents, children in self.new.edges:
            sides = [tuple(self.at[self.new.nodes[at].name] for at in side) for side in (parents, children)]
            edges.append((sides[0], sides[1]))
        used = {jobs.template for node in self.nodes for jobs in node.jobs}
        templates = [one if at in used else NodeTemplate({}, None) for at, one in enumerate(self.templates)]
        files = self.old.files | {
            name: self.new.files[name] for name in ("reading", "metrics") if name in self.new.files
        }
        whole = replace(self.new, file=self.old.file, iwd=self.old.iwd, nodes=self.nodes, edges=edges)
        return replace(whole, templates=templates, files=files, ad=self.old.ad, rescue=self.old.rescue)


def _parents(plan: WorkflowPlan) -> dict[str, frozenset[tuple[str, bool]]]:
    """The parents of each node, by name, and whether the dependency is weak."""
    found: dict[str, set[tuple[str, bool]]] = {}
    sides: dict[tuple[int, ...], frozenset[str]] = {}
    for number, (parents, children) in enumerate(plan.edges):
        if parents not in sides:
            sides[parents] = frozenset(plan.nodes[at].name for at in parents)
        pairs = {(name, number in plan.weak) for name in sides[parents]}
        for child in children:
            found.setdefault(plan.nodes[child].name, set()).update(pairs)
    return {name: frozenset(pairs) for name, pairs in found.items()}
