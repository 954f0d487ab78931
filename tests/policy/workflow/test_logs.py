"""dagman.out and the job state log, read with the regular expressions of Pegasus and by the forms of HTCondor's manual.

The expressions are those of pegasus-isi/pegasus at 7bb616dc: `pegasus-monitord.py`, `client/status.py` and
`pegasus-remove.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pool.policy.workflow import NodeNote, NodeRun, SubmitNode, WorkflowEngine
from pool.policy.workflow.logs import (
    OldLines,
    dagman_lines,
    dot_text,
    first_lines,
    internal_event,
    job_tag,
    jobstate_event,
    last_line,
    progress_lines,
    stamp,
)
from tests.policy.workflow.test_engine import POST, PRE, Player, failing, node, plan_of

EVENT = re.compile(r"Event:\s+ULOG_(\S+) for (?:HT|)Condor (?:Job|Node) (\S+)\s+\((-?[0-9]+\.[0-9]+)(\.[0-9]+)?\).*")
SCRIPT_RUNNING = re.compile(r"\d{2}\s(?:\(D_\w*\)\s)?Running (PRE|POST) script of (?:Job|Node) (.+)\.{3}")
SCRIPT_DONE = re.compile(r"\d{2}\s(?:\(D_\w*\)\s)?(PRE|POST) Script of (?:Job|[nN]ode) (\S+)")
SUCCESSFUL = re.compile(r"completed successfully\.$")
FAILED = re.compile(r"failed with status\s+(-?\d+)\.?$")
SUBMIT = re.compile(r"Submitting (?:HT|)Condor Node (.+) job")
SUBMIT_ERROR = re.compile(r"ERROR: submit attempt failed")
JOB_FAILED = re.compile(
    r"\d{2}\s(?:\(D_\w*\)\s)?Node (\S+) job proc \(([0-9\.]+)\) failed with (status|signal)\s+(-?\d+)\.$"
)
JOB_SUCCESSFUL = re.compile(r"\d{2}\s(?:\(D_\w*\)\s)?Node (\S+) job proc \(([0-9\.]+)\) completed successfully\.$")
RETRY = re.compile(r"Retrying node (\S+) \(retry \#(\d+) of (\d+)\)")
CONDOR_ID = re.compile(r"\*\* condor_scheduniv_exec\.([0-9\.]+) \(CONDOR_DAGMAN\) STARTING UP")
FINISHED = re.compile(r"\(condor_DAGMAN\)[\w\s]+EXITING WITH STATUS (\d+)$")
PID = re.compile(r"\*\* PID = (\d+)$")
VERSION = re.compile(r"\*\* \$CondorVersion: ((\d+)\.(\d+)\.(\d+))")
DAG_NAME = re.compile(r"Parsing (.+) ...$")
HELD = re.compile(r"\s*Hold reason:(.*)")
TIMESTAMP = re.compile(r"\s*(\d{1,2})\/(\d{1,2})(\/(\d{1,2}))?\s+(\d{1,2}):(\d{2}):(\d{2})")
REMOVE = re.compile(r"\.([0-9\.]+) \(CONDOR_DAGMAN\) STARTING UP")
#: `pegasus-status`
DAG_STATUS = re.compile(r"\d\d/\d\d/\d\d\ \d\d:\d\d:\d\d DAG status")
NODES_TOTAL = re.compile(r"(?=.*(nodes total:))")
PROGRESS = re.compile(r"\d\d/\d\d/\d\d\ \d\d:\d\d:\d\d(\s+([0-9]+)){7}")
EXIT_STATUS = re.compile(r"(?=.*(EXITING WITH STATUS \d))")

NOW = 1_790_000_000.0


def told(*notes: NodeNote, retries: int = 2) -> list[str]:
    """The lines of dagman.out about a node A, with their times."""
    return [f"{stamp(NOW)} {line}" for note in notes for line in dagman_lines(note, "A", retries)]


def note(event: str, code: int | None = None, *, cluster: int = 12, text: str = "") -> NodeNote:
    return NodeNote(0, 0, event, NOW, cluster, 0, code, text)


def test_the_life_of_a_node_as_monitord_reads_it() -> None:
    lines = told(
        note("PRE_SCRIPT_STARTED"),
        note("PRE_SCRIPT_SUCCESS", 0),
        note("SUBMITTING"),
        note("SUBMIT"),
        note("EXECUTE"),
        note("JOB_HELD", text="no such file"),
        note("JOB_TERMINATED", 0),
        note("JOB_TERMINATED", 3),
        note("JOB_TERMINATED", -9),
        note("POST_SCRIPT_STARTED"),
        note("POST_SCRIPT_TERMINATED", 1),
        note("POST_SCRIPT_FAILURE", 1),
        note("RETRY", 1),
        note("SUBMIT_FAILURE", -1001),
    )
    assert all(TIMESTAMP.match(line) for line in lines)

    def found(pattern: re.Pattern[str]) -> list[tuple[str, ...]]:
        return [match.groups() for line in lines if (match := pattern.search(line))]

    assert [(name, job) for name, _, job, _ in found(EVENT)[:5]] == [
        *(("SUBMIT", "12.0"), ("EXECUTE", "12.0"), ("JOB_HELD", "12.0")),
        *(("JOB_TERMINATED", "12.0"), ("JOB_TERMINATED", "12.0")),
    ]
    assert {who for _, who, _, _ in found(EVENT)} == {"A"}
    assert found(EVENT)[-1][0] == "POST_SCRIPT_TERMINATED"
    assert found(SCRIPT_RUNNING) == [("PRE", "A"), ("POST", "A")]
    assert found(SCRIPT_DONE) == [("PRE", "A"), ("POST", "A")]
    done = [line for line in lines if SCRIPT_DONE.search(line)]
    assert SUCCESSFUL.search(done[0])
    assert (FAILED.search(done[1]) or [""])[1] == "1"
    assert found(SUBMIT) == [("A",)]
    assert found(JOB_SUCCESSFUL) == [("A", "12.0.0")]
    assert found(JOB_FAILED) == [("A", "12.0.0", "status", "3"), ("A", "12.0.0", "signal", "9")]
    assert found(RETRY) == [("A", "1", "2")]
    assert found(HELD) == [(" no such file",)]
    assert found(SUBMIT_ERROR)
    assert any("POST for Node A returned 1" in line for line in lines)


def test_beginning_and_end_as_pegasus_reads_them() -> None:
    plan = plan_of([node("A"), node("B")])
    first = [f"{stamp(NOW)} {line}" for line in first_lines(plan, 7)]
    assert [match[1] for line in first if (match := CONDOR_ID.search(line))] == ["7.0"]
    assert [match[1] for line in first if (match := REMOVE.search(line))] == ["7.0"]
    assert [match[2] for line in first if (match := VERSION.search(line))] == ["25"]
    assert [match[1] for line in first if (match := DAG_NAME.search(line))][-1] == "/d/it.dag"
    assert not any(PID.search(line) for line in first), "monitord sends signal 0 to it, and takes EPERM for dead"
    end = f"{stamp(NOW)} {last_line(7, 2)}"
    assert (FINISHED.search(end) or [""])[1] == "2"
    assert EXIT_STATUS.match(end)
    assert end.split()[-1] == "2"


def test_the_table_as_pegasus_status_reads_it() -> None:
    played = Player(plan_of([node("A"), node("B"), node("C")], ("A", "B")), failing("A.JOB"))
    played.play()
    lines = [f"{stamp(NOW)} {line}\n" for line in progress_lines(played.engine)]
    (status,) = [line for line in lines if DAG_STATUS.match(line)]
    (total,) = [line for line in lines if NODES_TOTAL.match(line)]
    (row,) = [line for line in lines if PROGRESS.match(line)]
    assert int(status.split()[4]) == 2
    assert total.split()[3] == "3"
    # Done, Pre, Queued, Post, Ready, Un-Ready, Failed, Futile
    assert [int(word) for word in row.split()[2:10]] == [1, 0, 0, 0, 0, 0, 1, 1]


def test_the_job_state_log_has_the_lines_of_the_manual() -> None:
    """The example of HTCondor's manual, its two misprints of names of events aside."""
    events = ["PRE_SCRIPT_STARTED", "PRE_SCRIPT_SUCCESS", "SUBMIT", "EXECUTE", "JOB_TERMINATED", "JOB_SUCCESS"]
    events += ["POST_SCRIPT_STARTED", "POST_SCRIPT_TERMINATED", "POST_SCRIPT_SUCCESS"]
    lines = [jobstate_event(note(event, 0, cluster=4973), "NodeA", "local", 1) for event in events]
    assert lines == [
        "NodeA PRE_SCRIPT_STARTED - local - 1",
        "NodeA PRE_SCRIPT_SUCCESS - local - 1",
        "NodeA SUBMIT 4973.0 local - 1",
        "NodeA EXECUTE 4973.0 local - 1",
        "NodeA JOB_TERMINATED 4973.0 local - 1",
        "NodeA JOB_SUCCESS 0 local - 1",
        "NodeA POST_SCRIPT_STARTED 4973.0 local - 1",
        "NodeA POST_SCRIPT_TERMINATED 4973.0 local - 1",
        "NodeA POST_SCRIPT_SUCCESS 4973.0 local - 1",
    ]
    assert internal_event("DAGMAN_STARTED 4972.0") == "INTERNAL *** DAGMAN_STARTED 4972.0 ***"
    assert jobstate_event(note("JOB_FAILURE", -1002), "A", "-", 3) == "A JOB_FAILURE -1002 - - 3"
    assert jobstate_event(note("SUBMIT_FAILURE"), "A", "-", 3) == "A SUBMIT_FAILURE - - - 3"
    assert jobstate_event(note("SUBMITTING"), "A", "-", 3) is None


def test_job_tags() -> None:
    assert job_tag({}) == "-"
    assert job_tag({"pegasus_site": "local"}) == "local"
    assert job_tag({"Job_Tag_Name": "+job_tag_value", "job_tag_value": "here"}) == "here"
    assert job_tag({"job_tag_name": "+job_tag_value", "pegasus_site": "local"}) == "-"
    assert job_tag({"pegasus_site": "two words"}) == "-"
    assert job_tag({"pegasus_site": ["an", "expression"]}) == "-"


def test_the_engine_tells_each_step_once() -> None:
    plan = plan_of([node("A", retries=1, scripts={"PRE": PRE, "POST": POST}), node("N", noop=True)])
    played = Player(plan, lambda name, moment, attempt: int(moment == "POST" and not attempt))
    played.play()
    notes = played.engine.take_notes()
    attempt = ["PRE_SCRIPT_STARTED", "PRE_SCRIPT_SUCCESS", "SUBMITTING", "SUBMIT", "JOB_SUCCESS", "POST_SCRIPT_STARTED"]
    attempt.append("POST_SCRIPT_TERMINATED")
    mine = [one.event for one in notes if one.node == 0]
    assert mine == [*attempt, "POST_SCRIPT_FAILURE", "RETRY", *attempt, "POST_SCRIPT_SUCCESS"]
    assert [one.event for one in notes if one.node == 1] == ["SUBMIT", "EXECUTE", "JOB_TERMINATED", "JOB_SUCCESS"]
    assert [one.attempt for one in notes if one.node == 0 and one.event == "SUBMIT"] == [0, 1]


def test_old_lines_of_this_run_are_known_again() -> None:
    old = OldLines(7, {"A"}, rescued=False)
    started = f"{stamp(NOW)} {first_lines(plan_of([node('A')]), 7)[1]}"
    events = [note("PRE_SCRIPT_STARTED"), note("SUBMIT"), note("POST_SCRIPT_FAILURE", 1)]
    for line in [*told(note("EXECUTE")), started, *told(*events, note("RETRY", 1), note("SUBMIT"))]:
        old.add_out(line)

    def known(one: NodeNote, attempt: int) -> bool:
        return all(old.has_out("A", attempt, line) for line in dagman_lines(one, "A", 2))

    later = NodeNote(0, 0, "SUBMIT", NOW + 3, 12, 0)
    assert old.begun
    assert known(later, 0), "its time does not matter"
    assert known(note("POST_SCRIPT_FAILURE", 1), 0)
    assert not known(note("POST_SCRIPT_FAILURE", 1), 1), "another attempt ended like the first"
    assert not known(note("EXECUTE"), 0), "an earlier run's"
    states = ["1 A SUBMIT 3.0 - - 9", f"2 {internal_event('DAGMAN_STARTED 7.0')}", "3 A SUBMIT 12.0 - - 1"]
    for line in [*states, "4 B SUBMIT 13.0 - - 2", "5 A SUBMIT 14.0 - - 3", "6 bad \udcff ² x y z ³"]:
        old.add_state(line)
    assert (old.highest, old.numbers) == (3, {"A": [1, 3]})
    assert old.has_state("A SUBMIT 12.0 - - 1")
    assert not old.has_state("A SUBMIT 3.0 - - 9")
    again = OldLines(8, {"A"}, rescued=True)
    for line in states:
        again.add_state(line)
    assert again.highest == 9


def test_the_drawing_has_the_form_of_dagmans() -> None:
    engine = WorkflowEngine(plan_of([node("A"), node('B"'), node("S", kind="SERVICE")], ("A", 'B"')))
    engine.begin({0: NodeRun.from_wire([5, 0, 0, 3, 1, None, 0])})
    assert isinstance(engine.next_action(), SubmitNode)
    text = dot_text(engine, NOW, ["head.dot", 'rankdir="LR";\n'])
    lines = text.splitlines()
    assert lines[0] == "digraph DAG {"
    assert re.fullmatch(r'    label="DAGMan Job status at \w{3} \w{3} [ 0-9]\d \d\d:\d\d:\d\d \d{4}";', lines[1])
    assert lines[3:6] == [
        "// Beginning of commands included from head.dot.",
        'rankdir="LR";',
        "// End of commands included from head.dot.",
    ]
    assert '    "A" [shape=ellipse label="A (Done)" style=bold];' in lines
    assert '    "A" -> "B\\"";' in lines
    assert lines[-1] == "}"
    assert '"S"' not in text
    counted: Callable[[str], int] = dot_text(WorkflowEngine(plan_of([node("A")])), NOW).count
    assert counted("->") == 0
