"""Jobs of several processes in a description: the papers' grammar and the shell's (VS 3.2, 4.2, 8; G1, G4)."""

from __future__ import annotations

import contextlib
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.classad import ClassAd
from pool.jobs.description import Description
from pool.jobs.description.pipes.shell_syntax import PipelineError, is_pipeline, read_list, read_pipes, read_shell
from pool.jobs.pipes.model import Joint, PipelineProcess, joints_of, processes_of
from tests.jobs.description.support import attributes, read, refusal

FILES = dict.fromkeys(("foo", "bar", "baz", "special/x", "one/x", "/bin/cat", "/usr/bin/tee", "/bin/two words"), "x")
ENVIRON = {"PATH": "/usr/bin:/bin", "USER": "alice"}

VS_FIRST = """
Executable      = foo bar
Pipe            = foo | bar

foo.Input       = inp
foo.Arguments   = one two three

bar.Initialdir  = special
bar.Output      = results
bar.Arguments   = 1 2 3

Queue
"""

VS_SECOND = """
Executable      = foo bar
Pipe            = foo > fort.11 fort.10 > bar

foo.Initialdir  = one
foo.Input       = inp
foo.Output      = data
foo.Arguments   = one two three

bar.Initialdir  = special
bar.Input       = samples
bar.Output      = results
bar.Arguments   = 1 2

Queue
"""


def job(text: str, index: int = 0) -> tuple[tuple[PipelineProcess, ...], list[str]]:
    ad = ClassAd.from_wire(attributes(text, index, files=FILES, environ=ENVIRON))
    return processes_of(ad), [str(joint) for joint in joints_of(ad)]


def warned(description: Description) -> list[str]:
    return [warning.message for warning in description.warnings]


def test_the_papers_first_example() -> None:
    processes, joints = job(VS_FIRST)
    foo, bar = processes
    assert joints == ["foo | bar"]
    assert (foo.name, foo.cmd, foo.arguments, foo.stdin) == ("foo", "/submit/here/foo", ("one", "two", "three"), "inp")
    assert (bar.iwd, bar.stdout, bar.arguments) == ("/submit/here/special", "results", ("1", "2", "3"))
    assert foo.iwd == "/submit/here"


def test_the_papers_second_example() -> None:
    processes, joints = job(VS_SECOND)
    assert joints == ["foo > fort.11 fort.10 > bar"]
    assert [process.iwd for process in processes] == ["/submit/here/one", "/submit/here/special"]
    assert (processes[0].stdout, processes[1].stdin) == ("data", "samples")


def test_nothing_is_said_against_them() -> None:
    for text in (VS_FIRST, VS_SECOND):
        assert warned(read(text, files=FILES, environ=ENVIRON)) == []


def test_the_job_is_known_by_its_first_process() -> None:
    ad = attributes(VS_FIRST, files=FILES)
    assert (ad["Cmd"], ad["Arguments"], ad["JobUniverse"]) == ("/submit/here/foo", "one two three", 5)


def test_a_shells_pipeline() -> None:
    text = "executable = foo -x 'a  b' < in | tee >(bar \"c d\" > x.$(Process)) | baz 2> log >> out\nqueue 2\n"
    processes, joints = job(text, 1)
    assert [process.name for process in processes] == ["foo", "bar", "tee", "baz"]
    assert [process.arguments for process in processes] == [("-x", "a  b"), ("c d",), ("/dev/fd/3",), ()]
    assert joints == ["tee > /dev/fd/3 - > bar", "foo | tee", "tee | baz"]
    assert processes[1].stdout == "x.1"
    assert (processes[3].stderr, processes[3].stdout, processes[3].append_stdout) == ("log", "out", True)
    assert (processes[2].cmd, processes[2].carried) == ("/usr/bin/tee", False)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a=/bin/cat b=/bin/cat\npipe = a | b", ["a", "b"]),
        ("/bin/cat | /bin/cat", ["cat", "cat2"]),
        ("a=/bin/cat -u | b=/bin/cat", ["a", "b"]),
        ("foo, bar\nuniverse = pipe", ["foo", "bar"]),
        ("'/bin/two words' b=foo\npipe = two_words|b", ["two_words", "b"]),
        ("foo bar\nbar.executable = /bin/cat\npipe = foo | bar", ["foo", "bar"]),
    ],
)
def test_names_of_processes(text: str, names: list[str]) -> None:
    processes, _ = job(f"executable = {text}\nqueue\n")
    assert [process.name for process in processes] == names


WORDS = st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0\r\n"), max_size=6), max_size=3)


@given(st.lists(WORDS, min_size=2, max_size=5))
def test_words_are_those_a_shell_would_make(stages: list[list[str]]) -> None:
    text = " | ".join(shlex.join(["program", *words]) for words in stages)
    assert is_pipeline(text)
    line = read_shell(text)
    assert [stage.words for stage in line.stages] == stages
    assert len(line.joints) == len(stages) - 1


@given(st.text(st.sampled_from("ab|<>()&;'\" \\2=*"), max_size=20))
def test_odd_texts_are_read_or_refused(text: str) -> None:
    for read_it in (read_shell, read_list, read_pipes):
        with contextlib.suppress(PipelineError):
            read_it(text)


@pytest.mark.parametrize("name", ["my program", "foo bar", "x=y z", "foo > bar", "'a|b'"])
def test_a_blank_alone_is_part_of_a_files_name(name: str) -> None:
    ad = attributes(f"executable = {name}\nqueue\n", files=FILES)
    assert "Processes" not in ad
    assert ad["Cmd"] == f"/submit/here/{name}"


def test_lists_chains_and_lines_of_pipes() -> None:
    text = "executable = foo bar baz\npipe = foo | bar | baz, baz > back in > foo\npipe = foo > x y > bar\nqueue\n"
    _, joints = job(text)
    assert joints == ["foo | bar", "bar | baz", "baz > back in > foo", "foo > x y > bar"]


def test_pipes_of_a_later_queue_statement_are_its_own() -> None:
    text = "executable = foo bar\npipe = foo | bar\nqueue\npipe = bar | foo\nqueue\n"
    assert [job(text, index)[1] for index in (0, 1)] == [["foo | bar"], ["bar | foo"]]


def test_several_readers_of_one_stdout_get_a_tee() -> None:
    processes, joints = job("executable = foo bar baz\npipe = foo | bar, foo | baz\nqueue\n")
    assert [process.name for process in processes] == ["foo", "foo_tee", "bar", "baz"]
    assert processes[1].arguments == ("-p", "/dev/fd/3")
    assert joints == ["foo | foo_tee", "foo_tee | bar", "foo_tee > /dev/fd/3 - > baz"]


def test_several_readers_of_one_file_are_left_to_the_mapping() -> None:
    _, joints = job("executable = foo bar baz\npipe = foo > o i > bar, foo > o i > baz\nqueue\n")
    assert joints == ["foo > o i > bar", "foo > o i > baz"]


def test_what_is_the_whole_jobs() -> None:
    text = "executable = foo | bar 2>&1\ninput = in\noutput = out\nerror = log\nqueue\n"
    foo, bar = job(text)[0]
    assert (foo.stdin, foo.stderr, foo.stdout) == ("in", "log", "")
    assert (bar.stdout, bar.stderr, bar.errors_to_stdout) == ("out", "", True)


@pytest.mark.parametrize("value", ["true", "false"])
def test_short_reads_are_a_processes(value: str) -> None:
    text = f"executable = foo bar\npipe = foo > o i > bar, bar > o i > foo\nbar.short_reads = {value}\nqueue\n"
    assert [one.short_reads for one in job(text)[0]] == [False, value == "true"]


def test_own_environment_and_exit_codes() -> None:
    text = "executable = foo | bar\nbar.environment = \"A='b c'\"\nfoo.exit_codes_ok = 1, 0\n"
    text += "on_process_failure = wait\nqueue\n"
    ad = attributes(text, files=FILES)
    foo, bar = processes_of(ClassAd.from_wire(ad))
    assert bar.variables() == {"A": "b c"}
    assert foo.codes_ok == (0, 1)
    assert ad["OnProcessFailure"] == "wait"


def test_a_process_may_read_itself_what_it_writes_to_a_file() -> None:
    """Rule 2 of VS 4.2, lifted for files; under the same name, too, and with further readers."""
    text = "executable = foo bar\npipe = foo > x x > foo, foo > x - > bar, foo > y z > foo\nqueue\n"
    assert [str(joint) for joint in joints_of(ClassAd.from_wire(attributes(text, files=FILES)))] == [
        "foo > x x > foo",
        "foo > x - > bar",
        "foo > y z > foo",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo foo\npipe = foo | foo", "two processes are named 'foo', but names must be unique (VS 3.2, rule 1)"),
        (
            "foo bar\npipe = foo | bat",
            "'foo | bat', with a process 'bat' that 'executable' does not name (VS 3.2, rule 1)",
        ),
        ("foo bar\npipe = foo | foo", "pipes foo to itself without a file, which would never end (VS 4.2, rule 2; G4)"),
        (
            "foo bar\npipe = foo > x y > bar, foo > z x > foo",
            "'x' of foo is an end that it writes and one that it reads",
        ),
        ("foo bar\npipe = foo |", "a process is missing in 'pipe': 'foo |'"),
        ("foo | | bar", "a process is missing in 'executable'"),
        (
            "foo bar\npipe = foo | bar\nfoo.output = x",
            "the stdout of foo is a pipe (foo | bar) and also the file 'x' (VS 4.2, rule 3)",
        ),
        (
            "foo bar\npipe = foo | bar\nbar.input = x",
            "the stdin of bar is a pipe (foo | bar) and also the file 'x' (VS 4.2, rule 3)",
        ),
        ("foo > x | bar", "the stdout of foo goes both to 'x' and into a pipe (VS 4.2, rule 3)"),
        (
            "foo bar\npipe = foo > a b > bar\nbar.input = b",
            "'b' of bar is mapped to a pipe (foo > a b > bar) and also its stdin",
        ),
        ("foo bar\npipe = foo | bar, foo | bar", "the pipe 'foo | bar' is given twice (VS 4.2, rule 1; G4)"),
        (
            "foo bar baz\npipe = foo | baz, bar | baz",
            "stdin of baz is read from two pipes, 'foo | baz' and 'bar | baz'",
        ),
        (
            "foo bar\npipe = foo > a b > bar, bar > b c > foo",
            "'b' of bar is an end that it writes and one that it reads",
        ),
        (
            "foo bar\nbaz.input = x\npipe = foo | bar",
            "'baz.input' is of a process 'baz' that 'executable' does not name",
        ),
        ("foo bar\npipe = foo > a > bar", "expected 'foo | bar' or 'foo > file file > bar' in 'pipe'"),
        ("foo bar\npipe = foo > /dev/fd/2 - > bar", "'/dev/fd/2' is no end of a pipe"),
        ("foo | bar\narguments = x", "'arguments' does not say of which process"),
        ("foo x | bar\nfoo.arguments = y", "the arguments of foo stand in 'executable' and in 'foo.arguments'"),
        ("foo && bar | baz", "'&&' is not for a pipeline of programs"),
        ("foo *.txt | bar", "'*.txt' is not expanded to the files that it matches"),
        ("foo 'x | bar\npipe = foo | bar", "a quote is never closed"),
        ("foo | bar\non_process_failure = never", "expected end, wait or ignore"),
        ("foo | bar\nfoo.exit_codes_ok = 1000", "expected exit codes from 0 to 255"),
        ("foo | bar\nspread = foo", "does not say once where bar runs"),
        ("foo | bar\nspread = foo, bar, baz", "which is no process of the job"),
        ("foo | bar\nspread = on\nremote_io = on", "'remote_io' is not for processes that are spread"),
        ("foo | bar\nfoo.requirements = (", "expected an expression"),
        ("foo | bar\nfoo.request_memory = much", "expected a size"),
        ("foo | bar\npipe_buffer = 3", "expected a size of at least 64 KB"),
        ("foo bar\npipe = foo > o i > bar\nbar.short_reads = perhaps", "expected true or false for 'bar.short_reads'"),
        ("foo bar\npipe = foo > o - > bar\nbar.short_reads = true", "'bar.short_reads' is for files that a process"),
        ("foo bar\npipe = foo > o i > bar\nfoo.short_reads = true", "from a pipe, and foo reads none"),
        ("foo bar\npipe = foo > - /dev/fd/5 > bar\nbar.short_reads = true", "and bar reads none"),
        (" ".join(f"p{i}=foo" for i in range(65)) + "\nuniverse = pipe", "a job has at most 64 processes"),
    ],
)
def test_mistakes_name_the_rule(text: str, message: str) -> None:
    error = refusal(f"executable = {text}\nqueue\n", files=FILES)
    assert message in error.message
    assert error.message.startswith("job.sub:")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo nothing\npipe = foo | nothing", "process nothing: the executable /submit/here/nothing does not exist"),
        (
            "foo bar\npipe = foo | bar\nbar.initialdir = none",
            "there is no directory /submit/here/none for 'bar.initialdir'",
        ),
        ("foo bar\npipe = foo | bar\nfoo.input = none", "'foo.input' names /submit/here/none, which does not exist"),
        ("foo | bar > no/out", "the directory /submit/here/no for 'executable' does not exist"),
    ],
)
def test_files_are_looked_at(text: str, message: str) -> None:
    assert message in refusal(f"executable = {text}\nqueue\n", files=FILES, check_files=True).message


def test_an_ad_gives_back_what_was_put_into_it() -> None:
    given: dict[str, Any] = {"arguments": ("a b", "it's", '"', "\\n"), "stdin": "in put", "codes_ok": (0, 3)}
    from pool.jobs.pipes.model import attributes_of

    processes = (
        PipelineProcess("a", "/x y", iwd="/d", **given),
        PipelineProcess("b", "/b", environment="A='1 2'", carried=False, short_reads=True),
    )
    joints = (Joint("a", "b", "o 1", "/dev/fd/9"),)
    ad = ClassAd.from_wire(attributes_of(processes, joints))
    assert processes_of(ad) == processes
    assert joints_of(ad) == joints


#: Figures 7.1 to 7.3 of VS, and its job of the SMC group, as they are printed there: programs, pipes.
PRINTED = {
    "figure 7.1": (
        "Executable = p1 p2 p3\n"
        "Pipe       = p1 > output1 input1 > p2, p2 > output1 input1 > p3,\n"
        "            p1 > output2 input2 > p2, p2 > output2 input2 > p3,\n"
        "            p1 > output3 input3 > p2, p2 > output3 input3 > p3\n",
        6,
    ),
    "figure 7.2": (
        "Executable = p1 p2 p3 p4 p5\n"
        "Pipe       = p1 > output1 input1 > p2, p1 > output2 input2 > p2,\n"
        "            p1 > output3 input1 > p3, p1 > output4 input2 > p3,\n"
        "            p1 > output5 input1 > p4, p1 > output6 input2 > p4,\n"
        "            p2 > output1 input1 > p5, p2 > output2 input2 > p5,\n"
        "            p3 > output1 input3 > p5, p3 > output2 input4 > p5,\n"
        "            p4 > output1 input5 > p5, p4 > output2 input6 > p5\n",
        12,
    ),
    "figure 7.3": (
        "Executable = p1 p2 p3\n"
        "Pipe       = p1 > output1 input1 > p2, p2 > output1 input1 > p3,\n"
        "            p1 > output2 input2 > p2, p2 > output2 input2 > p3,\n"
        "            p3 > output1 input2 > p1\n",
        5,
    ),
    "SMC": (
        "Executable = phnx geom snomux  \n"
        "Pipe       = phnx > fort.10 fort.11 > geom,  \n"
        "           geom > fort.10 fort.11 > snomux  \n",
        2,
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_the_papers_own_files_are_read_as_they_are_printed(name: str) -> None:
    text, pipes = PRINTED[name]
    description = read(f"#####\n# Job description file: {name}\n\n{text}#####\nQueue\n")
    (draft,) = description.clusters
    assert len(joints_of(draft.ad)) == pipes
    assert description.warnings == []


def test_a_list_of_pipes_ends_where_another_statement_begins() -> None:
    (draft,) = read("executable = a b\npipe = a > x y > b,\n# a comment\n\na.Input = in\nqueue\n").clusters
    assert len(joints_of(draft.ad)) == 1
