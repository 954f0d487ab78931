"""The lines of `FILE.dagman.out` and of the job state log (JOBSTATE_LOG), and the drawing of DOT, as DAGMan has them.

The forms are those of HTCondor's manual ("Machine-Readable Event History") and those that Pegasus' `pegasus-monitord`,
`pegasus-status` and `pegasus-remove` look for; `tests/policy/workflow/test_logs.py` has their regular expressions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from functools import lru_cache

from pool.decimals import whole_number
from pool.jobs.events import EventKind
from pool.policy.workflow.engine import WorkflowEngine
from pool.policy.workflow.plan import WorkflowPlan
from pool.policy.workflow.states import DagStatus, NodeNote, NodeState

#: The release of DAGMan whose files these are.
VERSION = "25.14.1"
#: Names of jobs' events in both logs.
JOB_EVENTS = {
    EventKind.EXECUTE: "EXECUTE",
    EventKind.CHECKPOINTED: "CHECKPOINTED",
    EventKind.EVICTED: "JOB_EVICTED",
    EventKind.TERMINATED: "JOB_TERMINATED",
    EventKind.SHADOW_EXCEPTION: "SHADOW_EXCEPTION",
    EventKind.ABORTED: "JOB_ABORTED",
    EventKind.SUSPENDED: "JOB_SUSPENDED",
    EventKind.UNSUSPENDED: "JOB_UNSUSPENDED",
    EventKind.HELD: "JOB_HELD",
    EventKind.RELEASED: "JOB_RELEASED",
    EventKind.DISCONNECTED: "JOB_DISCONNECTED",
    EventKind.RECONNECTED: "JOB_RECONNECTED",
    EventKind.RECONNECT_FAILED: "JOB_RECONNECT_FAILED",
}
_EVENTS = frozenset({"SUBMIT", *JOB_EVENTS.values()})
_STATUS_NAMES = {
    DagStatus.OK: "DAG_STATUS_OK",
    DagStatus.ERROR: "DAG_STATUS_ERROR",
    DagStatus.NODE_FAILED: "DAG_STATUS_NODE_FAILED",
    DagStatus.ABORTED: "DAG_STATUS_ABORTED",
    DagStatus.REMOVED: "DAG_STATUS_RM",
    DagStatus.HALTED: "DAG_STATUS_HALTED",
}
#: How a node is drawn in each state.
_DRAWN = {
    NodeState.PRERUN: 'shape=ellipse label="{} (Pre)" style=dotted',
    NodeState.SUBMITTED: 'shape=ellipse label="{} (R)" peripheries=2',
    NodeState.POSTRUN: 'shape=ellipse label="{} (Post)" style=dotted',
    NodeState.DONE: 'shape=ellipse label="{} (Done)" style=bold',
    NodeState.ERROR: 'shape=box label="{} (E)"',
}
_IDLE = 'shape=ellipse label="{} (I)"'
_NAMED = re.compile(r"\b[Nn]ode (\S+)")
_TIMED = re.compile(r" \{[^}]*\}.*$")
#: Lines between one set of parents and one of children that a drawing has; more go through a point.
MOST_ARCS = 10_000


def stamp(moment: float) -> str:
    """Local time at the beginning of a line of dagman.out."""
    return _stamp_of_second(int(moment))


@lru_cache(16)
def _stamp_of_second(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment):%m/%d/%y %H:%M:%S}"


# -- the job state log ---------------------------------------------------------------------------------------------


def jobstate_event(note: NodeNote, name: str, tag: str, sequence: int) -> str | None:
    """The line about a node without its time; None for what this log does not tell.

    Args:
        name: of the node.
        tag: its job tag, `-` for none.
        sequence: the number of its attempt.
    """
    job = f"{note.cluster}.{note.proc}" if note.cluster or note.proc else "-"
    event = note.event
    if event in ("JOB_SUCCESS", "JOB_FAILURE"):
        job = str(note.code)
    elif event.startswith("POST_SCRIPT"):
        job = f"{note.cluster}.0" if note.cluster else "-"
    elif event.startswith("PRE_SCRIPT") or event == "SUBMIT_FAILURE":
        job = "-"
    elif event not in _EVENTS:
        return None
    return f"{name} {event} {job} {tag} - {sequence}"


def internal_event(what: str) -> str:
    """A line about the work flow itself without its time: `DAGMAN_STARTED 12.0`, `DAGMAN_FINISHED 0`."""
    return f"INTERNAL *** {what} ***"


def job_tag(ad: Mapping[str, object]) -> str:
    """The job tag of a node: the attribute that `job_tag_name` names, or `pegasus_site`; `-` where there is none."""
    names = {name.lower(): value for name, value in ad.items() if name.lower() in ("job_tag_name", "pegasus_site")}
    if not names:
        return "-"
    wanted = names.get("job_tag_name")
    if isinstance(wanted, str) and wanted:
        low = wanted.removeprefix("+").removeprefix("MY.").lower()
        found = next((value for name, value in ad.items() if name.lower() == low), None)
    else:
        found = names.get("pegasus_site")
    return found if isinstance(found, str) and found and not set(found) & set(" \n") else "-"


# -- dagman.out ------------------------------------------------------------------------------------------------------


def first_lines(plan: WorkflowPlan, workflow: int) -> list[str]:
    """Lines at each start, without their times."""
    stars = "*" * 54
    # There is no line with a process number: the schedd is no process of the user's that could be asked for by it.
    return [
        stars,
        f"** condor_scheduniv_exec.{workflow}.0 (CONDOR_DAGMAN) STARTING UP",
        "** /usr/bin/condor_dagman",
        f"** $CondorVersion: {VERSION} 2026-08-21 BuildID: poolnode $",
        stars,
        f"Workflow batch-id: <{workflow}.0>",
        f"DAG Input file is {plan.file.rpartition('/')[2]}",
        "Parsing 1 dagfiles",
        f"Parsing {plan.file} ...",
        f"Dag contains {sum(not node.removed for node in plan.nodes)} total nodes",
    ]


RECOVERY = (
    "Running in RECOVERY mode... >>>>>>>>>>>>>>>>>>>>>>>>>>>>>>",
    "...done with RECOVERY mode <<<<<<<<<<<<<<<<<<<<<<<<<<<<<<",
)


def dagman_lines(note: NodeNote, name: str, retries: int) -> list[str]:
    """The lines about what happened to a node, without their times."""
    job, event, code = f"{note.cluster}.{note.proc}.0", note.event, note.code
    moment, _, word = event.partition("_SCRIPT_")
    if word == "STARTED":
        return [f"Running {moment} script of Node {name}..."]
    if word == "SUCCESS":
        return [f"{moment} Script of node {name} completed successfully."]
    if word == "FAILURE":
        said = f"{moment} Script of Node {name} failed with status {code}"
        return [said, f"POST for Node {name} returned {code}"] if moment == "POST" else [said]
    if event in _EVENTS or word == "TERMINATED":
        lines = [f"Event: ULOG_{event} for HTCondor Node {name} ({job}) {{{stamp(note.time)}}}"]
        if event == "JOB_HELD":
            lines.append(f"  Hold reason: {note.text.partition(chr(10))[0] or '(unknown)'}")
        elif event == "JOB_TERMINATED" and not code:
            lines.append(f"Node {name} job proc ({job}) completed successfully.")
        elif event == "JOB_TERMINATED" and code is not None:
            how = f"status {code}" if code > 0 else f"signal {-code}"
            lines.append(f"Node {name} job proc ({job}) failed with {how}.")
        return lines
    match event:
        case "SUBMITTING":
            return [f"Submitting HTCondor Node {name} job(s)..."]
        case "SUBMIT_FAILURE":
            failed = f"Event: ULOG_SUBMIT_FAILURE for HTCondor Node {name} (-1.-1.-1) {{{stamp(note.time)}}}"
            return ["ERROR: submit attempt failed", failed]
        case "JOB_SUCCESS" | "JOB_FAILURE":
            return [f"Node {name} job(s) have exited the queue"]
        case "RETRY":
            return [f"Retrying node {name} (retry #{code} of {retries})..."]
        case "PRESKIP":
            return [f"PRE_SKIP return value {code} indicates we are done (successfully) with node {name}"]
    return []


def progress_lines(engine: WorkflowEngine, held: int = 0) -> list[str]:
    """The table of nodes by state, without their times."""
    counts = engine.counts()
    columns = (
        *((NodeState.DONE, 5), (NodeState.PRERUN, 7), (NodeState.SUBMITTED, 8), (NodeState.POSTRUN, 7)),
        *((NodeState.READY, 7), (NodeState.NOT_READY, 10), (NodeState.ERROR, 8), (NodeState.FUTILE, 8)),
    )
    status = DagStatus.HALTED if engine.halted else engine.status
    return [
        f"DAG status: {int(status)} ({_STATUS_NAMES[status]})",
        f"Of {sum(counts.values())} nodes total:",
        " Done     Pre   Queued    Post   Ready   Un-Ready   Failed   Futile",
        "  ===     ===      ===     ===     ===        ===      ===      ===",
        "".join(str(counts[state]).rjust(width) for state, width in columns),
        f"{held} job proc(s) currently held",
    ]


def last_line(workflow: int, code: int) -> str:
    """The line by which tools know that it has ended, without its time."""
    return f"**** condor_scheduniv_exec.{workflow}.0 (condor_DAGMAN) pid 0 EXITING WITH STATUS {code}"


# -- lines of an earlier run of the schedd ---------------------------------------------------------------------------


class OldLines:
    """The lines of both logs about a run that another run of the schedd goes on with.

    Args:
        names: nodes about which something may be told again.
        rescued: the work flow goes on from a rescue file: its attempts are numbered on.

    Attributes:
        begun, logged: whether dagman.out, and the job state log, tell of this run.
        highest: the highest number of an attempt.
        numbers: the numbers of each node's attempts.
    """

    def __init__(self, workflow: int, names: Set[str], *, rescued: bool) -> None:
        self.begun = self.logged = False
        self.highest = 0
        self.numbers: dict[str, list[int]] = {}
        self._names = names
        self._rescued = rescued
        self._out: set[tuple[str, int, str]] = set()
        self._states: set[str] = set()
        self._attempts: dict[str, int] = {}
        self._start = f"** condor_scheduniv_exec.{workflow}.0 (CONDOR_DAGMAN) STARTING UP"
        self._started = internal_event(f"DAGMAN_STARTED {workflow}.0")

    def add_out(self, line: str) -> None:
        """A line of dagman.out."""
        text = line[18:]
        if not self.begun:
            self.begun = text == self._start
            return
        found = _NAMED.search(text)
        if found is None or (name := found[1].removesuffix("...")) not in self._names:
            return
        attempt = self._attempts.get(name, 0)
        self._out.add((name, attempt, _TIMED.sub("", text)))
        if text.startswith("Retrying node "):
            self._attempts[name] = attempt + 1

    def add_state(self, line: str) -> None:
        """A line of the job state log."""
        rest = line.partition(" ")[2]
        self.logged = self.logged or rest == self._started
        words = rest.split(" ")
        if len(words) != 6 or not (self.logged or self._rescued):
            return
        number = whole_number(words[5]) or 0
        self.highest = max(self.highest, number)
        if self.logged and words[0] in self._names:
            self._states.add(rest)
            numbers = self.numbers.setdefault(words[0], [])
            if number not in numbers:
                numbers.append(number)

    def has_out(self, name: str, attempt: int, text: str) -> bool:
        """Whether dagman.out tells this about an attempt of a node."""
        return (name, attempt, _TIMED.sub("", text)) in self._out

    def has_state(self, text: str) -> bool:
        """Whether the job state log has this line."""
        return text in self._states


# -- DOT -------------------------------------------------------------------------------------------------------------


def dot_text(engine: WorkflowEngine, moment: float, include: Sequence[str] = ()) -> str:
    """The drawing of a graph and its nodes' states.

    Args:
        moment: wall seconds.
        include: the name of an included file, and its text.
    """
    plan = engine.plan
    names = [node.name.replace("\\", "\\\\").replace('"', '\\"') for node in plan.nodes]
    when = f"{datetime.fromtimestamp(moment):%a %b %e %H:%M:%S %Y}"
    lines = ["digraph DAG {", f'    label="DAGMan Job status at {when}";', ""]
    if len(include) == 2:
        name, text = include
        lines += [f"// Beginning of commands included from {name}.", text.rstrip("\n")]
        lines += [f"// End of commands included from {name}.", ""]
    for name, node, run in zip(names, plan.nodes, engine.runs, strict=True):
        if not node.removed and node.kind != "SERVICE":
            lines.append(f'    "{name}" [{_DRAWN.get(run.state, _IDLE).format(name)}];')
    lines.append("")
    for number, (parents, children) in enumerate(plan.edges):
        if len(parents) * len(children) <= MOST_ARCS:
            lines += [f'    "{names[parent]}" -> "{names[child]}";' for parent in parents for child in children]
        else:
            lines.append(f"    join{number} [shape=point];")
            lines += [f'    "{names[parent]}" -> join{number};' for parent in parents]
            lines += [f'    join{number} -> "{names[child]}";' for child in children]
    return "\n".join([*lines, "}"]) + "\n"
