"""No command is ignored without a word: for each there is the code that obeys it, a warning, or a refusal."""

from __future__ import annotations

import pytest

from pool.jobs.description import DescriptionError, Severity
from pool.jobs.description.commands import NAMES, SIMPLE, Kind
from pool.jobs.description.support import TABLE, Row, Support
from tests.conftest import REPOSITORY
from tests.jobs.description.support import read, refusal

BOOLEANS = {command.name for command in SIMPLE if command.kind is Kind.BOOLEAN} | {
    *("stream_input", "stream_output", "stream_error", "use_x509userproxy", "suspend_job_at_exec"),
    "wantparallelscheduling",
}
#: Values that a command takes and that ask for something, where neither `true` nor `5` is one.
OTHERS = {
    "run_as_owner": "false",
    "want_graceful_removal": "false",
    "erase_output_and_error_on_restart": "false",
    "java_vm_arguments2": '"5"',
    "tool_daemon_arguments2": '"5"',
}
ROWS = [(name, row) for row in TABLE for name in row.names if name in NAMES]


def said(text: str) -> list[str]:
    try:
        return [str(one) for one in read(text).warnings]
    except DescriptionError as error:
        return [str(one) for one in error.diagnostics if one.severity is Severity.ERROR]


def test_each_command_that_the_reader_knows_has_one_row() -> None:
    assert sorted(name for name, _ in ROWS) == sorted(NAMES)


@pytest.mark.parametrize(("name", "row"), ROWS, ids=[name for name, _ in ROWS])
def test_a_command_is_obeyed_or_spoken_of(name: str, row: Row) -> None:
    done = row.support in (Support.DONE, Support.PARTLY)
    if done:
        file, word = row.code
        assert word in (REPOSITORY / "pool" / file).read_text(encoding="utf-8")
    if not done or row.warns:
        is_spoken_of(name, row)


def is_spoken_of(name: str, row: Row) -> None:
    value = OTHERS.get(name, "true" if name in BOOLEANS else "5")
    text = f"executable = /bin/true\n{name} = {value}\nqueue 2\n"
    (line,) = [line for line in said(text) if f"'{name}'" in line][:1]
    assert line.startswith("job.sub:2: " + ("error" if row.support is Support.REFUSED else "warning"))
    assert row.says in line


@pytest.mark.parametrize(
    "line",
    [
        "stream_output = false",
        "run_as_owner = true",
        "rootdir = /",
        "machine_count = 1",
        "encrypt_execute_directory = false",
    ],
)
def test_a_value_that_asks_for_nothing_is_taken_without_a_word(line: str) -> None:
    assert said(f"executable = /bin/true\n{line}\nqueue\n") == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("universe = grid\ngrid_resource = batch slurm", "grid"),
        ("universe = 9\ngrid_resource = condor a b", "grid"),
        ("universe = standard", "standard"),
        ("universe = parallel\nmachine_count = 2", "parallel"),
        ("universe = mpi\nmachine_count = 2", "mpi"),
        ("universe = vm", "vm"),
        ("foo_container_port = 5", "foo_container_port"),
        ("ec2_ami_id = x", "ec2_ami_id"),
    ],
)
def test_a_kind_of_job_that_is_not_started_is_refused_by_name(text: str, what: str) -> None:
    assert any(what in one.message for one in refusal(f"executable = /bin/true\n{text}\nqueue\n").diagnostics)


@pytest.mark.parametrize("name", ["request_memry", "request_memoy", "request_cpuss"])
def test_a_misspelt_request_is_asked_about(name: str) -> None:
    (line,) = said(f"executable = /bin/true\n{name} = 4\nqueue\n")
    assert "did you mean request_" in line


def test_outputs_after_a_failure_are_spoken_of() -> None:
    (line,) = said("executable = /bin/true\nwhen_to_transfer_output = ON_SUCCESS\nqueue\n")
    assert "after a failure, too" in line
