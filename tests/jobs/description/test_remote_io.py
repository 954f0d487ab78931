"""`remote_io`: what it writes, what it asks of a machine, how the job then starts there."""

from __future__ import annotations

from typing import Any

import pytest

from pool.classad import ClassAd, symmetric_match
from pool.jobs.activation import CannotStart, FileMode, activation
from pool.jobs.description import DescriptionError, read_description
from pool.jobs.description.check import FACTS, IWD, Fixtures

HERE, ABLE, PLAIN = "here", "able", "plain"
SLOTS: dict[str, dict[str, Any]] = {
    HERE: {"FileSystemDomain": FACTS.filesystem_domain},
    ABLE: {"FileSystemDomain": "elsewhere", "HasRemoteIO": True, "HasFileTransfer": True},
    PLAIN: {"FileSystemDomain": "elsewhere", "HasFileTransfer": True},
}


def job(text: str) -> ClassAd:
    description = read_description(
        f"executable = /bin/sleep\n{text}\nqueue\n",
        iwd=IWD,
        environ={},
        user="alice",
        facts=FACTS,
        files=Fixtures({}),
        cluster=1,
        check_files=False,
    )
    return ClassAd.from_wire({**description.clusters[0].ad, "DiskUsage": 1, "ImageSize": 1, "TransferInputSizeMB": 0})


def slot(name: str) -> ClassAd:
    common = {
        "Arch": FACTS.arch,
        "OpSys": FACTS.opsys,
        "CondorVersion": "$CondorVersion: 25.14.1 2026-01-01 $",
        "Disk": 10**9,
        "Memory": 10**6,
        "Requirements": True,
    }
    return ClassAd.from_wire({**common, **SLOTS[name]})


@pytest.mark.parametrize(
    ("text", "modes"),
    [
        ("", {HERE: FileMode.SHARED, ABLE: FileMode.TRANSFER, PLAIN: FileMode.TRANSFER}),
        ("remote_io = off", {HERE: FileMode.SHARED, ABLE: FileMode.TRANSFER, PLAIN: FileMode.TRANSFER}),
        ("remote_io = auto", {HERE: FileMode.SHARED, ABLE: FileMode.REMOTE, PLAIN: FileMode.TRANSFER}),
        ("remote_io = on", {HERE: FileMode.SHARED, ABLE: FileMode.REMOTE}),
    ],
)
def test_where_a_job_may_run_and_how_it_reaches_its_files_there(text: str, modes: dict[str, FileMode]) -> None:
    ad = job(text)
    assert {name for name in SLOTS if symmetric_match(ad, slot(name), 0.0)} == set(modes)
    assert {name: activation(ad, slot(name), 1, None).mode for name in modes} == modes


def test_a_job_that_has_to_be_at_home_is_not_started_where_it_cannot() -> None:
    with pytest.raises(CannotStart, match="remote_io"):
        activation(job("remote_io = on"), slot(PLAIN), 1, None)


@pytest.mark.parametrize(
    "text",
    [
        "remote_io = perhaps",
        "remote_io = on\ntransfer_input_files = a",
        "remote_io = on\ntransfer_output_files = a",
        "remote_io = on\nshould_transfer_files = yes",
        "remote_io = on\nuniverse = docker\ndocker_image = a",
        "remote_io_trees = /data",
        "remote_io = on\nremote_io_trees = /data:never",
        "remote_io = on\nremote_io_trees = :ro",
        "remote_io = on\nremote_io_trees = /data:ro:static",
    ],
)
def test_what_contradicts_it_is_refused(text: str) -> None:
    with pytest.raises(DescriptionError):
        job(text)


def test_the_trees_that_it_works_on_are_written_absolute() -> None:
    assert job("remote_io = on").get("RemoteIOTrees") is None
    trees = job("remote_io = auto\nremote_io_trees = /data, more:ro, still:static").value("RemoteIOTrees")
    assert trees == f"/data,{IWD}/more:ro,{IWD}/still:static"
