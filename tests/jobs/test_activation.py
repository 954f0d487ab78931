"""The data that a job is started with, sent whole or as the difference from the start before."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgpack
import pytest

from pool.classad import ClassAd
from pool.jobs.activation import (
    AS_NOBODY,
    FIELDS,
    NOTHING,
    Activation,
    CannotStart,
    FileMode,
    activation,
    mode_for,
    mode_with_checkpoint,
)
from pool.jobs.pipes.model import Joint, PipelineProcess, attributes_of

FIRST = Activation(
    job=(3, 0),
    run=1,
    owner="ann",
    mode=FileMode.TRANSFER,
    executable="/bin/true",
    digest="d" * 64,
    argv=("true", "x"),
    env={"A": "1"},
    iwd="/home/ann",
    inputs=("a", "b"),
    outputs=("c",),
)


def travelled(start: Activation, since: Activation | None) -> tuple[Activation, set[str]]:
    wire = msgpack.unpackb(msgpack.packb(start.to_wire(since)))
    return Activation.from_wire(wire, since), set(wire)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"job": (3, 1)}, {"job"}),
        ({"job": (3, 1), "run": 4}, {"job", "run"}),
        ({"job": (4, 0), "argv": ("true", "y"), "outputs": None}, {"job", "argv", "outputs"}),
        ({"env": {}, "mode": FileMode.SHARED}, {"env", "mode"}),
        ({}, set()),
    ],
)
def test_only_what_differs_is_told(changes: dict[str, object], told: set[str]) -> None:
    start = dataclasses.replace(FIRST, **changes)  # type: ignore[arg-type]
    assert travelled(start, FIRST) == (start, told)
    assert travelled(start, None) == (start, set(FIELDS))


def test_the_same_for_another_job_of_the_cluster() -> None:
    assert FIRST.for_job((3, 7), 2) == dataclasses.replace(FIRST, job=(3, 7), run=2)


SEVERAL = (
    PipelineProcess("foo", "/bin/foo", ("a b",), "/home/a", stdin="in", codes_ok=(0, 1), environment="A=1"),
    PipelineProcess("bar", "/bin/bar", iwd="/home/b", stdout="out", short_reads=True),
)
PIPES = (Joint("foo", "bar"), Joint("foo", "bar", "fort.1", "fort.2"))


def test_a_job_of_several_processes_travels_whole() -> None:
    ad = {"ClusterId": 3, "ProcId": 0, "Owner": "ann", "Cmd": "/bin/foo", "Iwd": "/home/a", "FileSystemDomain": "here"}
    more = {"OnProcessFailure": "wait", "PipeBuffer": 70000}
    job = ClassAd.from_wire({**ad, **attributes_of(SEVERAL, PIPES), **more})
    one = activation(job, ClassAd({"FileSystemDomain": "elsewhere"}), 1, "digest")
    assert (one.processes, one.pipes, one.on_process_failure, one.pipe_buffer) == (SEVERAL, PIPES, "wait", 70000)
    assert (one.carries_executable, one.digest, one.stdin) == (False, None, NOTHING)
    following = one.for_job((3, 7), 2)
    for start in (
        following,
        dataclasses.replace(one, pipes=PIPES[:1]),
        dataclasses.replace(one, processes=SEVERAL[:1]),
    ):
        assert travelled(start, one)[0] == start
        assert travelled(start, None)[0] == start
    assert travelled(following, one)[1] == {"job", "run"}


@pytest.mark.parametrize(
    ("job", "mode"),
    [
        ({}, FileMode.TRANSFER),
        ({"ShouldTransferFiles": "YES"}, FileMode.TRANSFER),
        ({"RemoteIO": True}, FileMode.REMOTE),
    ],
)
def test_files_are_not_shared_with_nobody(job: dict[str, object], mode: FileMode) -> None:
    """Whatever file system the machine shares; its ad goes on to name it, for the job's requirements (F5)."""
    shared = {"FileSystemDomain": "here", "HasRemoteIO": True, "Machine": "near"}
    mine = ClassAd.from_wire({"FileSystemDomain": "here", **job})
    if job.get("ShouldTransferFiles") is None:
        assert mode_for(mine, ClassAd.from_wire(shared)) is FileMode.SHARED
    assert mode_for(mine, ClassAd.from_wire({**shared, AS_NOBODY: True})) is mode


def test_a_job_that_forbids_copying_is_told_that_it_would_run_as_nobody() -> None:
    job = ClassAd.from_wire({"FileSystemDomain": "here", "ShouldTransferFiles": "NO"})
    with pytest.raises(CannotStart, match="on near it would run as nobody"):
        mode_for(job, ClassAd.from_wire({"FileSystemDomain": "here", "Machine": "near", AS_NOBODY: True}))


def test_what_may_come_home_where_outputs_keep_their_paths() -> None:
    wish = {"ShouldTransferFiles": "YES", "TransferOutput": "res/deep/out", "ManifestDir": "list"}
    flat, kept = (
        activation(ClassAd.from_wire({"Cmd": "/bin/true", **wish, "PreserveRelativePaths": keeps}), ClassAd(), 1, None)
        for keeps in (False, True)
    )
    names = ("out", "res/deep/out", "res/deep/other", "list/in", "list")
    assert [flat.may_bring(name) for name in names] == [True, False, False, True, True]
    assert [kept.may_bring(name) for name in names] == [False, True, False, True, True]


HERE, ELSEWHERE = ClassAd({"FileSystemDomain": "lab", "HasRemoteIO": True}), ClassAd({"FileSystemDomain": "flock.chem"})


@pytest.mark.parametrize(
    ("wish", "made_in", "mode"),
    [
        ({}, None, FileMode.SHARED),
        ({}, FileMode.SHARED, FileMode.SHARED),
        ({}, FileMode.TRANSFER, FileMode.TRANSFER),
        ({"ShouldTransferFiles": "NO"}, FileMode.TRANSFER, FileMode.SHARED),
        ({"ShouldTransferFiles": "YES"}, FileMode.SHARED, FileMode.TRANSFER),
        ({"RemoteIO": True}, FileMode.REMOTE, FileMode.REMOTE),
        ({"RemoteIO": True}, FileMode.TRANSFER, FileMode.SHARED),
        ({}, FileMode.REMOTE, FileMode.SHARED),
    ],
)
def test_a_job_with_a_checkpoint_gets_at_its_files_as_when_that_was_made(
    wish: dict[str, Any], made_in: FileMode | None, mode: FileMode
) -> None:
    job = ClassAd.from_wire({"FileSystemDomain": "lab", **wish})
    assert mode_with_checkpoint(job, HERE, made_in) is mode
    if wish.get("ShouldTransferFiles") != "NO" and "RemoteIO" not in wish:
        assert mode_with_checkpoint(job, ELSEWHERE, made_in) is FileMode.TRANSFER
