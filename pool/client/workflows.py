"""Work flows from DAG files: read here with the user's rights, then run by the schedd.

Descriptions are read once for all nodes that share one: each node is a row of one queue statement. The schedd gets
finished ads, and reads no file of a user's for it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pool.client.garbage import collection_paused
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.jobs.dag import Dag, DagNode
    from pool.jobs.description import ClusterDraft, Description
    from pool.jobs.description.diagnostics import SourcePosition

Wire = dict[str, Any]
#: Attempts of a node whose description says $(RETRY): each is written out.
MOST_RETRIES = 100
DEEPEST = 20
SEPARATOR = "\x1f"
#: Variables of the submitter's that scripts see, as DAGMan has them; ENV GET adds others.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "SHELL", "PYTHONPATH", "PERL*", "PEGASUS_*")
#: DAGMan's settings that a CONFIG file may give here, and the options that they are.
SETTINGS = {
    "DAGMAN_MAX_JOBS_SUBMITTED": "max_jobs",
    "DAGMAN_MAX_JOBS_IDLE": "max_idle",
    "DAGMAN_MAX_PRE_SCRIPTS": "max_pre",
    "DAGMAN_MAX_POST_SCRIPTS": "max_post",
    "DAGMAN_MAX_RESCUE_NUM": "most_rescues",
    "DAGMAN_NODE_JOB_FAILURE_TOLERANCE": "tolerance",
    "DAGMAN_METRICS_FILE_VERSION": "metrics",
}
SWITCHES = {
    "DAGMAN_ALWAYS_RUN_POST": "always_run_post",
    "DAGMAN_DEFAULT_APPEND_VARS": "append_variables",
    "DAGMAN_RESET_RETRIES_UPON_RESCUE": "reset_retries",
    "DAGMAN_REMOVE_JOB_LIST_ON_FAILURE": "removes_rest",
}
_QUEUE = re.compile(r"^[ \t]*queue\b[ \t]*(.*)$", re.IGNORECASE | re.MULTILINE)
_PLAIN_QUEUE = re.compile(r"[0-9]*[ \t]*")
_CONDITION = re.compile(r"^[ \t]*(if|include)\b", re.IGNORECASE | re.MULTILINE)
_RESCUE = re.compile(r"\.rescue([0-9]{3})$")
#: Options that an edit does not take from the submit.
_ONCE = frozenset({"force", "rescue_from", "load_save"})
#: Characters of a file that DOT includes.
LONGEST_INCLUDE = 1 << 20


@dataclass(slots=True)
class WorkflowOptions:
    """How a work flow is to run; see `poolnode dag submit --help`.

    Attributes:
        max_jobs, max_idle, max_pre, max_post: 0 for no limit.
        force: rescue files are not used.
        load_save: a save file to go on from, in save_files/ where it has no directory; empty for none.
        rescue_from: the number of the rescue file to go on from; None for the newest.
        use_dag_dir: names in each DAG file start from its own directory.
        inherit: patterns of further variables of this process that scripts see.
        tolerance: so many jobs of a node may fail. removes_rest: then the others are removed.
        metrics: the version of the metrics file.
        append: further attributes of its own job, `NAME = EXPRESSION` each.
    """

    max_jobs: int = 0
    max_idle: int = 0
    max_pre: int = 0
    max_post: int = 0
    most_rescues: int = 100
    always_run_post: bool = False
    append_variables: bool = False
    reset_retries: bool = True
    tolerance: int = 0
    removes_rest: bool = True
    metrics: int = 2
    force: bool = False
    rescue_from: int | None = None
    load_save: str = ""
    use_dag_dir: bool = False
    priority: int = 0
    batch_name: str = ""
    append: Sequence[str] = ()
    inherit: Sequence[str] = ()


@dataclass(slots=True)
class WorkflowDraft:
    """A work flow that can be submitted.

    Attributes:
        dag: as it was read.
        wire: its plan without nodes and differences.
        nodes: of the plan.
        deltas: the differences of each template's jobs.
        rescue: the rescue file that it goes on from; empty for none.
        warnings: what there is to be said about it, a line each. notes: what the schedd had to say.
    """

    dag: Dag
    wire: Wire
    nodes: list[Wire] = field(default_factory=list)
    deltas: list[list[Wire | None] | None] = field(default_factory=list)
    rescue: str = ""
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def whole(self) -> Wire:
        """The plan with all that is in it."""
        templates = [one | {"deltas": deltas} for one, deltas in zip(self.wire["templates"], self.deltas, strict=True)]
        return self.wire | {"templates": templates, "nodes": self.nodes}


def draft_workflow(
    files: Sequence[str], options: WorkflowOptions | None = None, *, iwd: str | None = None, depth: int = 0
) -> WorkflowDraft:
    """Reads DAG files, and the descriptions of their nodes.

    Raises:
        PoolError: something in them is wrong, in one line with its file and line.
    """
    with collection_paused():
        return _draft(files, options or WorkflowOptions(), iwd, depth)


def _draft(files: Sequence[str], options: WorkflowOptions, iwd: str | None, depth: int) -> WorkflowDraft:
    from pool.client.descriptions import read_file
    from pool.jobs.dag import read_dag

    reading = _reading_of(files, options)
    where = os.path.abspath(iwd or os.getcwd())

    def read(path: str) -> str:
        full = Path(where, path)
        full.stat()
        return read_file(full)

    dag = read_dag(files, read, own_directory=options.use_dag_dir, append_variables=options.append_variables)
    if dag.config:
        warnings = _take_settings(read_file(Path(where, dag.config)), dag.config, options)
        if options.append_variables:
            dag = read_dag(files, read, own_directory=options.use_dag_dir, append_variables=True)
    else:
        warnings = []
    first = os.path.join(where, files[0])
    first = first if len(files) == 1 else f"{first}_multi"
    rescue, number = _apply_rescue(dag, first, where, options)
    draft = WorkflowDraft(dag, _plan_of(dag, first, where, options, number), rescue=rescue)
    draft.wire["files"]["reading"] = reading
    draft.warnings = [*map(str, dag.warnings), *warnings]
    _Drafting(draft, where, options, depth).write()
    return draft


def _reading_of(files: Sequence[str], options: WorkflowOptions) -> Wire:
    """How the files were read, so that an edit reads them in the same way."""
    names = (field.name for field in fields(options) if field.name not in _ONCE)
    said = {name: getattr(options, name) for name in names}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in said.items()}
    return {"files": list(files), "options": plain}


def reading_options(reading: Any) -> WorkflowOptions:
    """The options of an earlier submit. Raises PoolError where they are none."""
    known = {one.name: one.default for one in fields(WorkflowOptions) if one.name not in _ONCE}
    given = reading.get("options") if isinstance(reading, dict) else None
    if not isinstance(given, dict) or not set(given) <= set(known):
        raise PoolError("how this work flow was read is not known", hint="it was submitted by another release")
    return WorkflowOptions(**given, force=True)


def _take_settings(text: str, name: str, options: WorkflowOptions) -> list[str]:
    from pool.decimals import whole_number

    warnings = []
    for number, line in enumerate(text.splitlines(), 1):
        setting, equals, value = (part.strip() for part in line.partition("="))
        setting = setting.upper()
        if not setting or setting.startswith("#"):
            continue
        if not equals:
            raise PoolError(f"{name}:{number}: expected NAME = VALUE")
        if setting in SETTINGS:
            found = whole_number(value)
            if found is None:
                raise PoolError(f"{name}:{number}: {setting} is a whole number, not {value[:40]!r}")
            if SETTINGS[setting] == "metrics" and found not in (1, 2):
                raise PoolError(f"{name}:{number}: {setting} is 1 or 2, not {found}")
            if not getattr(options, SETTINGS[setting]) or SETTINGS[setting] in ("most_rescues", "metrics"):
                setattr(options, SETTINGS[setting], found)
        elif setting in SWITCHES:
            if value.lower() not in ("true", "false"):
                raise PoolError(f"{name}:{number}: {setting} is true or false, not {value[:40]!r}")
            setattr(options, SWITCHES[setting], value.lower() == "true")
        else:
            warnings.append(f"{name}:{number}: warning: {setting} has no meaning here")
    return warnings


def _apply_rescue(dag: Dag, first: str, where: str, options: WorkflowOptions) -> tuple[str, int]:
    from pool.client.descriptions import read_file
    from pool.jobs.dag import apply_rescue

    folder, name = os.path.split(first)
    if options.load_save:
        file = options.load_save if "/" in options.load_save else f"save_files/{options.load_save}"
        path = os.path.join(where, file)
        apply_rescue(dag, path, read_file(Path(path)))
        return path, 0
    numbers = sorted(
        int(found[1])
        for one in os.listdir(folder or ".")
        if one.startswith(name) and (found := _RESCUE.fullmatch(one[len(name) :]))
    )
    if options.rescue_from is not None and options.rescue_from not in numbers:
        raise PoolError(f"there is no rescue file {first}.rescue{options.rescue_from:03d}")
    if options.force or not numbers:
        return "", 0
    number = numbers[-1] if options.rescue_from is None else options.rescue_from
    path = f"{first}.rescue{number:03d}"
    apply_rescue(dag, path, read_file(Path(path)))
    return path, number


def _files_of(dag: Dag, where: str, options: WorkflowOptions) -> Wire:
    """The files that are written about it."""
    from pool.client.descriptions import read_file

    files: Wire = {"metrics": options.metrics}
    if dag.status_file is not None:
        files["status"] = os.path.join(where, dag.status_file.path)
        files |= {"seconds": dag.status_file.seconds, "always": dag.status_file.always}
    if dag.jobstate_log:
        files["jobstate"] = os.path.join(where, dag.jobstate_log)
    if dag.dot is not None:
        path = os.path.join(where, dag.dot.path)
        files["dot"] = {"path": path, "update": dag.dot.update, "overwrite": dag.dot.overwrite}
        if dag.dot.include:
            text = read_file(Path(where, dag.dot.include))
            if len(text) > LONGEST_INCLUDE:
                raise PoolError(f"{dag.dot.include} is too long to be included in a drawing")
            files["dot"]["include"] = [dag.dot.include, text]
    return files


def _plan_of(dag: Dag, first: str, where: str, options: WorkflowOptions, rescue: int) -> Wire:
    from pool.client.descriptions import describe
    from pool.jobs.description.expressions import ExpressionError, wire_of
    from pool.jobs.environment import imported

    at = {name: number for number, name in enumerate(dag.nodes)}
    edges = [[[at[name] for name in side] for side in (edge.parents, edge.children)] for edge in dag.dependencies]
    own: Wire = {}
    for name, text in [*dag.attributes.items(), *map(_attribute, options.append)]:
        try:
            own[name] = wire_of(text)
        except ExpressionError as error:
            raise PoolError(f"{dag.file}: SET_JOB_ATTR {name} is no expression: {error}") from error
    if options.priority:
        own["JobPrio"] = options.priority
    if options.batch_name:
        own["JobBatchName"] = options.batch_name
    base = describe("universe = local\nexecutable = /bin/true\nrequirements = true\nqueue\n", iwd=where)
    script_ad = dict(base.clusters[0].attributes)
    environment = imported(os.environ, [*INHERITED, *options.inherit, *dag.inherited]) | dag.environment
    script_ad["Environment"] = _environment(environment)
    return {
        "file": first,
        "iwd": where,
        "edges": edges,
        "weak": [number for number, edge in enumerate(dag.dependencies) if edge.weak],
        "limits": dict(dag.limits),
        "templates": [],
        **{name: getattr(options, name) for name in ("max_jobs", "max_idle", "max_pre", "max_post", "most_rescues")},
        "always_run_post": options.always_run_post,
        "reset_retries": options.reset_retries,
        "script_ad": script_ad,
        "ad": own,
        "rescue": rescue,
        "tolerance": options.tolerance,
        "removes_rest": options.removes_rest,
        "files": _files_of(dag, where, options),
    }


def _attribute(line: str) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    name = name.strip().removeprefix("+")
    name = name[3:] if name.lower().startswith("my.") else name
    if not equals or not name or not value.strip():
        raise PoolError(f"expected MY.NAME = EXPRESSION, not {line[:60]!r}")
    return name, value.strip()


def _environment(values: Mapping[str, str | None]) -> str:
    from pool.jobs.arguments import join_words

    return join_words(f"{name}={value}" for name, value in values.items() if value is not None)


class _Drafting:
    """Writes the nodes of a plan.

    Args:
        where: the directory of the submit.
        depth: of work flows around this one.
    """

    def __init__(self, draft: WorkflowDraft, where: str, options: WorkflowOptions, depth: int) -> None:
        from pool.client.descriptions import local_facts, user_name
        from pool.outside import OutsideWorld

        self.draft = draft
        self.where = where
        self.options = options
        self.depth = depth
        self.texts: dict[str, str] = {}
        self.digests: dict[tuple[str, str], tuple[str, bool]] = {}
        self.facts = local_facts(OutsideWorld())
        self.user = user_name()
        self.more: tuple[str, ...] = ()
        self.waiting = {name for edge in draft.dag.dependencies for name in edge.children}
        self.parents = draft.dag.parents() if len(draft.dag.dependencies) < 100_000 else {}

    def write(self) -> None:
        """All nodes, in their order."""
        groups: dict[tuple[Any, ...], list[tuple[int, DagNode]]] = {}
        for at, node in enumerate(self.draft.dag.nodes.values()):
            wire = self._node(node)
            self.draft.nodes.append(wire)
            if node.kind == "SUBDAG":
                if not (node.noop or node.done):
                    inner = self._inner(node)
                    wire["text"] = wire["source"] = _digest(_sources(inner))
                    wire["plan"] = inner
                wire["noop"] = node.noop or node.done
            elif not (node.noop or node.done):
                group = self._group(node)
                wire["text"], wire["source"] = self._digests(node, group)
                groups.setdefault(group, []).append((at, node))
            else:
                wire["noop"] = True
        for group, members in groups.items():
            self._describe(group, members)

    def _node(self, node: DagNode) -> Wire:
        wire: Wire = {"name": node.name, "kind": str(node.kind), "directory": self._directory(node)}
        for name in ("noop", "done", "retries", "priority", "category", "is_percentage", "on_failure"):
            if value := getattr(node, name):
                wire[name] = value
        for name in ("unless_exit", "abort_on", "abort_return", "pre_skip", "tolerance"):
            if (value := getattr(node, name)) is not None:
                wire[name] = value
        if node.save_point is not None:
            wire["save"] = os.path.normpath(os.path.join(self.where, node.save_point))
        if node.scripts:
            wire["scripts"] = {
                str(kind): {
                    "program": script.program,
                    "arguments": list(script.arguments),
                    "defer_status": script.defer_status,
                    "defer_seconds": script.defer_seconds,
                    "debug_file": self._debug_file(node, script.debug_file),
                    "debug_streams": script.debug_streams,
                }
                for kind, script in node.scripts.items()
            }
        return wire

    def _directory(self, node: DagNode) -> str:
        return os.path.normpath(os.path.join(self.where, node.directory)) if node.directory else self.where

    def _debug_file(self, node: DagNode, name: str) -> str:
        return os.path.normpath(os.path.join(self._directory(node), name)) if name else ""

    def _inner(self, node: DagNode) -> Wire:
        if self.depth >= DEEPEST:
            raise PoolError(f"{node.where}: work flows are in each other {DEEPEST} deep", hint="do they in a circle?")
        options = WorkflowOptions(force=self.options.force, use_dag_dir=self.options.use_dag_dir)
        try:
            inner = draft_workflow([node.description], options, iwd=self._directory(node), depth=self.depth + 1)
        except PoolError as error:
            raise PoolError(f"{node.where}: SUBDAG {node.name}: {error.message}", hint=error.hint) from error
        self.draft.warnings += inner.warnings
        return inner.whole()

    # -- descriptions ------------------------------------------------------------------------------------------

    def _text(self, node: DagNode) -> str:
        from pool.client.descriptions import read_file

        if node.inline is not None:
            if _QUEUE.search(node.inline):
                raise PoolError(f"{node.where}: a description in braces has no queue statement", hint="take it out")
            return f"{node.inline}queue\n"
        path = os.path.join(self._directory(node), node.description)
        if path not in self.texts:
            try:
                self.texts[path] = read_file(Path(path))
            except PoolError as error:
                raise PoolError(f"{node.where}: {error.message}", hint=error.hint) from error
        return self.texts[path]

    def _group(self, node: DagNode) -> tuple[Any, ...]:
        """Nodes that differ in nothing but the values of their variables are described together."""
        text = self._text(node)
        names = tuple((variable.name, variable.prepend) for variable in node.variables.values())
        alone = node.name if self._is_alone(node, text) else ""
        return text, node.description, self._directory(node), names, alone

    @staticmethod
    def _is_alone(node: DagNode, text: str) -> bool:
        """Whether a node's description means something else for each node: it is read for this one alone."""
        if not _is_plain(text) or node.name.startswith((")", "#")):
            return True
        for variable in node.variables.values():
            if "\n" in variable.value:
                return True
            if variable.prepend and (
                _CONDITION.search(text) or re.search(rf"^[ \t]*{re.escape(variable.name)}[ \t]*=", text, re.I | re.M)
            ):
                return True
        return False

    def _describe(self, group: tuple[Any, ...], members: Sequence[tuple[int, DagNode]]) -> None:
        text, _, _, _, alone = group
        waits = any(node.name in self.waiting for _, node in members) and "skip_filechecks" not in text.lower()
        self.more = ("skip_filechecks = true",) if waits else ()  # earlier nodes may write the files that these name
        attempts = self._attempts(text, members)
        template, template_deltas = len(self.draft.wire["templates"]), self.draft.deltas
        if alone:
            at, node = members[0]
            self.draft.nodes[at]["jobs"] = []
            for attempt in range(attempts[at]):
                cluster = self._read_alone(node, text, attempt)
                self._add_template(cluster)
                self.draft.nodes[at]["jobs"].append([template + attempt, 0, cluster.count])
            return
        cluster = self._read_rows(text, members, attempts)
        self._add_template(cluster)
        each = cluster.count // sum(attempts[at] for at, _ in members)
        if each > 1 and (one := next((node for _, node in members if node.kind == "PROVISIONER"), None)):
            raise PoolError(f"{one.where}: the PROVISIONER node {one.name} is one job", hint="queue 1")
        first = 0
        for at, _ in members:
            self.draft.nodes[at]["jobs"] = [[template, first + number * each, each] for number in range(attempts[at])]
            first += each * attempts[at]
        assert len(template_deltas) == template + 1

    def _digests(self, node: DagNode, group: tuple[Any, ...]) -> tuple[str, str]:
        """Of a node's description, and of all that makes its jobs."""
        text, _, directory, names, _ = group
        if (text, directory) not in self.digests:
            self.digests[text, directory] = _digest((text, directory)), "dag_parent_names" in text.lower()
        shared, names_parents = self.digests[text, directory]
        if not (names or names_parents):
            return shared, shared
        parts = [shared, str(names), *(one.value for one in node.variables.values())]
        parts += self.parents.get(node.name, ()) if names_parents else ()
        return shared, _digest_of_text(SEPARATOR.join(parts))

    def _attempts(self, text: str, members: Sequence[tuple[int, DagNode]]) -> dict[int, int]:
        """How many attempts of each node are written out: all where $(RETRY) is said, else one for all."""
        found = {}
        says = "$(retry" in text.lower()
        for at, node in members:
            own = says or any("$(retry" in one.value.lower() for one in node.variables.values())
            if own and node.retries > MOST_RETRIES:
                raise PoolError(
                    f"{node.where}: {node.name} says $(RETRY) and is tried {node.retries} times again",
                    hint=f"at most {MOST_RETRIES} are possible then",
                )
            found[at] = node.retries + 1 if own else 1
        return found

    def _add_template(self, cluster: ClusterDraft) -> None:
        self.draft.wire["templates"].append({"ad": cluster.attributes})
        self.draft.deltas.append(cluster.wire_deltas())

    def _macros(self, text: str) -> list[str]:
        """The lines for macros whose values are known only when a node is queued."""
        from pool.jobs.dag.marks import MARKS

        low = text.lower()
        return [f"{name} = {mark}" for name, mark in MARKS.items() if f"$({name.lower()}" in low]

    def _read_rows(
        self, text: str, members: Sequence[tuple[int, DagNode]], attempts: Mapping[int, int]
    ) -> ClusterDraft:
        first = members[0][1]
        variables = list(first.variables.values())
        columns = ["JOB", "DAG_PARENT_NAMES", *(f"dag_value_{at}" for at in range(len(variables))), "RETRY"]
        extra = ["Process = $(Step)", "ProcId = $(Step)", "Row = 0", "ItemIndex = 0"]
        extra += [f"{variable.name} = $(dag_value_{at})" for at, variable in enumerate(variables)]
        values = SEPARATOR.join(variable.value for _, node in members[:1] for variable in node.variables.values())
        extra += self._macros(f"{text}{values}")
        rows = []
        for at, node in members:
            own = [one.value for one in node.variables.values()]
            parents = ",".join(self.parents.get(node.name, ())[:50])
            rows += [SEPARATOR.join([node.name, parents, *own, str(number)]) for number in range(attempts[at])]
        found = _QUEUE.search(text)
        assert found is not None
        many = f"queue {found[1].strip() or 1} {', '.join(columns)} from (\n" + "\n".join(rows) + "\n)\n"
        return self._read(first, text[: found.start()] + many + text[found.end() :], extra, {*columns, "Process"})

    def _read_alone(self, node: DagNode, text: str, attempt: int) -> ClusterDraft:
        macros = {"JOB": node.name, "RETRY": str(attempt)}
        macros["DAG_PARENT_NAMES"] = ",".join(self.parents.get(node.name, ())[:50])
        before = [f"{name} = {value}" for name, value in macros.items()]
        before += [f"{one.name} = {one.value}" for one in node.variables.values() if one.prepend]
        extra = [f"{one.name} = {one.value}" for one in node.variables.values() if not one.prepend]
        extra += self._macros(text)
        return self._read(node, "\n".join([*before, text]), extra, set(macros), shift=len(before))

    def _read(self, node: DagNode, text: str, extra: Sequence[str], ours: set[str], shift: int = 0) -> ClusterDraft:
        from pool.jobs.description import DescriptionError, read_description

        name = node.description
        if node.inline is not None and node.description == node.name.rpartition("+")[2]:
            name, shift = node.where.file, -node.where.line  # its lines are lines of the DAG file
        elif node.inline is not None:
            name = f"{node.where.file}: SUBMIT-DESCRIPTION {node.description}"
        try:
            description = read_description(
                text,
                name=name,
                iwd=self._directory(node),
                environ=os.environ,
                user=self.user,
                facts=self.facts,
                extra=(*extra, *self.more),
            )
        except DescriptionError as error:
            first = next(one for one in error.diagnostics if one.severity == "error")
            said = f"{_moved(first.where, shift)}: {first.message}"
            raise PoolError(f"{node.where}: {node.name}: {said}", hint=first.hint) from error
        self._keep_warnings(description, ours, shift)
        if len(description.clusters) != 1:
            raise PoolError(f"{node.where}: {node.name}: a node's description makes one cluster, not several")
        return description.clusters[0]

    def _keep_warnings(self, description: Description, ours: set[str], shift: int) -> None:
        for warning in description.warnings:
            text = str(replace(warning, where=_moved(warning.where, shift)))
            if "used nowhere" in text and ("command line" in text or any(f"'{name}'" in text for name in ours)):
                continue
            if text not in self.draft.warnings:
                self.draft.warnings.append(text)


@lru_cache(16)
def _is_plain(text: str) -> bool:
    """Whether a description has one queue statement, of nothing but a number."""
    found = _QUEUE.findall(text)
    return len(found) == 1 and _PLAIN_QUEUE.fullmatch(found[0]) is not None


def _moved(where: SourcePosition, shift: int) -> SourcePosition:
    """The line as its file counts, where lines were put before it."""
    return replace(where, line=where.line - shift) if where.line > shift else where


def _digest(value: object) -> str:
    return _digest_of_text(repr(value))


def _digest_of_text(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=12).hexdigest()


def _sources(plan: Wire) -> list[Any]:
    """All of an inner work flow that makes it another one."""
    nodes = [{name: value for name, value in node.items() if name not in ("jobs", "plan")} for node in plan["nodes"]]
    names = ("edges", "weak", "limits", "max_jobs", "max_idle", "max_pre", "max_post", "tolerance", "always_run_post")
    return [nodes, *(plan[name] for name in names)]
