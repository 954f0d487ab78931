"""The exit status of `run` and `wait`."""

from __future__ import annotations

from typing import Any

from pool.cli import results
from pool.client.results import Result, read_result


def ended(proc: int, **more: Any) -> Result:
    ad = {
        "ClusterId": 1,
        "ProcId": proc,
        "JobStatus": 4,
        "ExitCode": 0,
        "ExitBySignal": False,
        "RemoteWallClockTime": 1.5,
        "RemoteUserCpu": 1.0,
        "RemoteSysCpu": 0.25,
        "LastRemoteHost": "slot1@here",
        "Iwd": "/home/a/work",
        "Out": f"out.{proc}",
    }
    return read_result(ad | more)


def test_a_result_is_read_from_an_ad() -> None:
    result = ended(3)
    assert result.ok
    assert result.is_over
    assert (result.job, result.wall, result.cpu, result.host) == ("1.3", 1.5, 1.25, "slot1@here")
    assert result.output == "/home/a/work/out.3"
    assert result.as_json()["ok"] is True


def test_success_is_the_code_the_user_named() -> None:
    assert not ended(0, ExitCode=3).ok
    assert ended(0, ExitCode=3, JobSuccessExitCode=3).ok
    assert not ended(0, ExitCode=0, JobSuccessExitCode=3).ok


def test_a_signal_is_no_exit_code_and_no_success() -> None:
    result = ended(0, ExitBySignal=True, ExitSignal=9)
    assert (result.exit_code, result.signal, result.ok) == (None, 9, False)


def test_thrown_away_output_is_none_and_absent_attributes_do_no_harm() -> None:
    assert ended(0, Out="/dev/null").output is None
    bare = read_result({"ClusterId": 1, "ProcId": 0, "JobStatus": 1})
    assert (bare.state, bare.exit_code, bare.host, bare.is_over) == ("idle", None, None, False)


def test_the_table_names_outputs_from_here_and_ends_with_the_sums() -> None:
    lines = results.ending([ended(0), ended(1, ExitCode=2)], 3.0, here="/home/a/work")
    assert lines == [
        " ID STATE     EXIT   WALL    CPU WHERE      OUTPUT",
        "1.0 completed    0 1.50 s 1.25 s slot1@here out.0",
        "1.1 completed    2 1.50 s 1.25 s slot1@here out.1",
        "",
        "2 jobs: 1 succeeded, 1 failed; 3.00 s, 0.7 jobs/s, 2.50 s of processor time",
    ]


def test_the_outputs_of_nodes_are_named_as_in_the_description() -> None:
    line = results.row(ended(0, JobUniverse=11, Out="out.#pArAlLeLnOdE#"), "/home/a/work")
    assert line[-1] == "out.$(Node)"


def test_held_and_removed_jobs_say_why() -> None:
    held = ended(0, JobStatus=5, HoldReason="no such file: data.txt", ExitCode=None)
    removed = ended(1, JobStatus=3, RemoveReason="by alice", ExitCode=None)
    lines = results.ending([held, removed], None)
    assert "1.0 is held: no such file: data.txt" in lines
    assert "1.1 is removed: by alice" in lines
    assert lines[-1] == "2 jobs: 1 held, 1 removed"


def test_of_many_jobs_only_the_failed_are_listed_unless_asked() -> None:
    many = [ended(n, ExitCode=int(n == 50)) for n in range(200)]
    lines = results.ending(many, 1.0)
    assert lines[1].startswith("1.50 completed    1")
    assert lines[2] == "... and 199 more (--all lists each)"
    assert len(results.ending(many, 1.0, every=True)) == 203
    assert results.ending([ended(n) for n in range(200)], 2.0) == [
        "200 jobs: 200 succeeded; 2.00 s, 100.0 jobs/s, 4:10 of processor time"
    ]
