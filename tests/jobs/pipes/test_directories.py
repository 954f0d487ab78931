"""Where the files of a job of several processes lie while they are carried."""

from __future__ import annotations

from pool.jobs.pipes.directories import FOLDERS, INPUTS, PROGRAMS, PipeDirectories, TransferredFile
from pool.jobs.pipes.model import PipelineProcess

PROCESSES = (
    PipelineProcess("foo", "/bin/foo", iwd="/home/a", stdin="in", stderr="log", inputs=("fort.1",)),
    PipelineProcess(
        "bar", "/usr/bin/bar", iwd="/home/a/two", stdout="res", stderr="/home/a/log", append_stdout=True, carried=False
    ),
    PipelineProcess("baz", "/bin/baz", iwd="/home/a/two", stdout="out", stderr="out"),
)
LAYOUT = PipeDirectories("/home/a", PROCESSES, (".out", ".err"))


def test_each_initial_directory_is_a_directory_there_too() -> None:
    assert [LAYOUT.folder(process) for process in PROCESSES] == ["", f"{FOLDERS}/bar", f"{FOLDERS}/bar"]


def test_one_file_at_home_is_one_file_there() -> None:
    foo, bar, baz = PROCESSES
    assert LAYOUT.output(foo, "log") == LAYOUT.output(bar, "/home/a/log")
    assert LAYOUT.output(baz, "out") == ".out"
    assert {stream.submit_path: stream.append for stream in LAYOUT.streams.values()} == {
        "/home/a/two/out": False,
        "/home/a/two/res": True,
        "/home/a/log": False,
    }


def test_what_goes_to_the_job() -> None:
    assert list(LAYOUT.inputs()) == [
        TransferredFile("/home/a/in", INPUTS, "foo"),
        TransferredFile("/home/a/fort.1", ""),
    ]
    assert [LAYOUT.program(process) for process in PROCESSES] == [f"{PROGRAMS}/foo/foo", None, f"{PROGRAMS}/baz/baz"]
    assert LAYOUT.directories()[0] == ".poolnode"
    assert {PROGRAMS, f"{PROGRAMS}/foo", f"{FOLDERS}/bar", INPUTS} < set(LAYOUT.directories())


def test_what_a_machine_may_bring_home_from_a_directory_of_a_process() -> None:
    assert LAYOUT.submit_path_of(f"{FOLDERS}/bar/side") == "/home/a/two/side"
    refused = (
        "side",
        f"{FOLDERS}/bar/.profile",
        f"{FOLDERS}/bar/x/y",
        f"{FOLDERS}/baz/x",
        f"{FOLDERS}/bar/",
        f"{PROGRAMS}/foo",
    )
    assert [LAYOUT.submit_path_of(name) for name in refused] == [None] * len(refused)
