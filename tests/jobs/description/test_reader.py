"""Errors in descriptions: place, expectation, nearest word, all of them at once."""

from __future__ import annotations

from typing import Any

import pytest

from pool.jobs.description import Severity, SubmitFacts
from tests.jobs.description.support import FACTS, attributes, read, refusal

EXECUTABLE = "executable = /bin/true\n"


def messages(text: str, **options: Any) -> list[str]:
    return [str(found) for found in read(text, **options).warnings]


def test_all_errors_of_a_file_are_reported_with_their_lines() -> None:
    error = refusal(
        "executable = /bin/true\npriority = high\nnotification = alway\nshould_transfer_files = maybe\nqueue x in (a\n"
    )
    assert [d.where.line for d in error.diagnostics] == [5]
    error = refusal("priority = high\nnotification = alway\nshould_transfer_files = maybe\nfoo bar\nqueue\n")
    found = {d.where.line: d for d in error.diagnostics}
    assert set(found) == {0, 1, 2, 3, 4}
    assert "no executable" in found[0].message
    assert "expected an integer" in found[1].message
    assert found[2].hint == "did you mean always?"
    assert "expected YES, NO or IF_NEEDED" in found[3].message
    assert "[and 4 more]" in str(error)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("reqest_memory = 5", "did you mean request_memory?"),
        ("RequestCpu = 5", "did you mean request_cpus?"),
        ("ouput = x", "did you mean output?"),
        ("transfer_inputfiles = x", "did you mean transfer_input_files?"),
        ("JobFlavour = x", "for an attribute of the job write +JobFlavour"),
    ],
)
def test_an_unknown_command_is_a_warning_with_a_suggestion(line: str, meant: str) -> None:
    found = messages(f"{EXECUTABLE}{line}\nqueue\n")
    assert found == [f"job.sub:2: warning: '{line.split()[0]}' is no command and is used nowhere ({meant})"]


def test_a_macro_that_is_used_is_no_unknown_command() -> None:
    assert messages(f"{EXECUTABLE}n = 3\narguments = $(n)\nqueue $(n)\n") == []


def test_an_undefined_macro_and_an_idle_queue_variable_are_told() -> None:
    found = messages(f"{EXECUTABLE}number = 3\narguments = $(numbr)\nqueue x in (a b)\n")
    assert "job.sub:3: warning: $(numbr) is not defined and stands for nothing (did you mean $(number)?)" in found
    assert "job.sub:4: warning: the queue variable 'x' is used nowhere" in found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a = $(b)\nb = $(a)\narguments = $(a)\nqueue\n",
            "macros go round in a circle: $(a) -> $(b) -> $(a)",
        ),
        ("universe = docke\nqueue\n", "'docke' is no universe"),
        ("kill_sig = SIGTREM\nqueue\n", "expected a signal"),
        ('arguments = "a\nqueue\n', "is never closed"),
        ('arguments = a"b\nqueue\n', "a double quote inside old-style arguments"),
        ("if x > 1\nendif\nqueue\n", "expected true, false, a number"),
        ("endif\nqueue\n", "endif without an if"),
        ("if true\narguments = 1\n", "this if has no endif"),
        ("include : nosuch.sub\nqueue\n", "cannot include 'nosuch.sub': No such file or directory"),
        ("queue x of (a)\n", "expected a number of processes"),
        ("queue x from nosuch.txt\n", "cannot read the items from 'nosuch.txt'"),
        ("foo.Input = x\nqueue\n", "'foo.input' is of a process 'foo' that 'executable' does not name"),
        ("pipe = a | b\nqueue\n", "with a process 'a' that 'executable' does not name"),
        ("a-b = 1\nqueue\n", "cannot be the name of a command"),
        ("arguments : x\nqueue\n", "expected '=' after 'arguments', not ':'"),
        ("requirements = Memory >\nqueue\n", "expected an expression for 'requirements'"),
        ("requirements = requirements && x\nqueue\n", "refers to itself"),
        ("error : not today\nqueue\n", "not today"),
        ("text @=end\nabc\n", "expected a line '@end'"),
    ],
)
def test_a_mistake_is_named(text: str, said: str) -> None:
    error = refusal(EXECUTABLE + text)
    assert any(said in found.message for found in error.diagnostics if found.severity is Severity.ERROR)


def test_an_include_in_a_circle_is_an_error() -> None:
    error = refusal(EXECUTABLE + "include : a.sub\nqueue\n", files={"a.sub": "include : a.sub\n"})
    assert "includes go in a circle" in error.diagnostics[0].message


def test_an_error_in_an_included_file_names_that_file() -> None:
    error = refusal(EXECUTABLE + "include : a.sub\nqueue\n", files={"a.sub": "\npriority = x\n"})
    assert str(error.diagnostics[0].where) == "a.sub:2"


def test_commands_are_refused_unless_allowed() -> None:
    facts = SubmitFacts("example.org", "example.org")
    for text in ("include command : seq 3\nqueue\n", "queue x from seq 3 |\n"):
        assert "not allowed here" in str(refusal(EXECUTABLE + text, facts=facts))
    assert read(EXECUTABLE + "queue x from seq 3 |\n", facts=FACTS).clusters[0].count == 3


def test_a_warning_directive_only_warns() -> None:
    assert messages(f"{EXECUTABLE}warning : mind $(Process)\nqueue\n") == ["job.sub:2: warning: mind 0"]


def test_a_file_without_a_queue_statement_is_an_error() -> None:
    assert "there is no queue statement" in str(refusal(EXECUTABLE))


def test_a_queue_without_items_queues_nothing() -> None:
    description = read(EXECUTABLE + "arguments = $(f)\nqueue f matching *.none\n")
    assert description.clusters == []
    assert any("matches nothing" in found.message for found in description.warnings)


def test_extra_lines_come_before_the_first_queue() -> None:
    assert attributes(EXECUTABLE + "arguments = 1\nqueue\n", extra=["arguments = 2"])["Args"] == "2"


def test_the_papers_spelling_is_understood() -> None:
    text = "Executable = foo\nInitialdir = /home\nInput = data\nArgument = 1 2 3\nPreferences = Memory\nQueue\n"
    found = attributes(text)
    assert (found["Args"], found["In"], found["Iwd"], found["Rank"]) == ("1 2 3", "data", "/home", ["Memory"])


def test_errors_of_many_processes_end_early() -> None:
    error = refusal(EXECUTABLE + "priority = a$(Process)\nqueue 10000\n")
    assert 1 < len(error.diagnostics) < 40


@pytest.mark.parametrize("digits", [19, 25, 5000])
def test_numbers_beyond_64_bits_are_refused(digits: int) -> None:
    error = refusal(f"{EXECUTABLE}priority = {'9' * digits}\nqueue\n")
    assert "expected an integer for 'priority'" in error.diagnostics[0].message
