"""The text of the event log, line by line, and a reader of the format for everything else."""

from __future__ import annotations

import re
from datetime import UTC
from typing import Any

import pytest

from pool.jobs.events import EventKind, JobEvent
from pool.jobs.userlog import render

HEAD = re.compile(r"(\d{3}) \((\d+)\.(\d+)\.(\d+)\) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (.*)")
USE = {"user_cpu": 93784.2, "system_cpu": 3.9, "sent": 10, "received": 20}


def lines(kind: EventKind, **data: Any) -> list[str]:
    text = render(JobEvent(None, 12, 3, kind, 1767322984.7, data), host="tcp://home:9618", zone=UTC)
    assert text.endswith("\n...\n")
    found = text.splitlines()
    assert found.pop() == "..."
    assert "..." not in found
    head = HEAD.fullmatch(found[0])
    assert head is not None
    assert head.groups()[:5] == (f"{kind.code:03d}", "012", "003", "000", "2026-01-02 03:03:04")
    assert all(line.startswith(("\t", "    ")) for line in found[1:])
    return [head.group(6), *found[1:]]


@pytest.mark.parametrize("kind", EventKind)
def test_every_kind_with_nothing_known(kind: EventKind) -> None:
    assert lines(kind)[0]


@pytest.mark.parametrize("kind", EventKind)
def test_no_text_can_end_an_event_early(kind: EventKind) -> None:
    bad = "a\n...\n000 (1.0.0) b\r\n\tc"
    keys = ("why", "slot", "text", "notes", "user_notes", "address", "host", "core")
    found = lines(kind, **dict.fromkeys(keys, bad), signal=3)
    assert len(found) < 16


def test_submit() -> None:
    assert lines(EventKind.SUBMIT) == ["Job submitted from host: <tcp://home:9618>"]
    assert lines(EventKind.SUBMIT, notes="DAG Node: A", user_notes="mine")[1:] == [
        "    DAG Node: A",
        "    mine",
    ]
    assert lines(EventKind.SUBMIT, user_notes="mine")[1:] == ["    ", "    mine"]


def test_execute() -> None:
    assert lines(EventKind.EXECUTE, slot="slot1@far", address="tcp://far:1") == [
        "Job executing on host: <tcp://far:1>",
        "\tSlotName: slot1@far",
    ]


def test_terminated_normally() -> None:
    assert lines(EventKind.TERMINATED, code=3, total_user_cpu=100000, **USE) == [
        "Job terminated.",
        "\t(1) Normal termination (return value 3)",
        "\t\tUsr 1 02:03:04, Sys 0 00:00:03  -  Run Remote Usage",
        "\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage",
        "\t\tUsr 1 03:46:40, Sys 0 00:00:03  -  Total Remote Usage",
        "\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Local Usage",
        "\t10  -  Run Bytes Sent By Job",
        "\t20  -  Run Bytes Received By Job",
        "\t10  -  Total Bytes Sent By Job",
        "\t20  -  Total Bytes Received By Job",
    ]


def test_terminated_by_a_signal() -> None:
    assert lines(EventKind.TERMINATED, signal=11, core="/home/x/core.1")[1:3] == [
        "\t(0) Abnormal termination (signal 11)",
        "\t(1) Corefile in: /home/x/core.1",
    ]
    assert lines(EventKind.TERMINATED, signal=9, core=False)[2] == "\t(0) No core file"


def test_the_table_of_resources() -> None:
    resources = {
        "Cpus": {"usage": 0.5, "request": 1, "allocated": 1},
        "Memory": {"usage": 12, "request": 128, "allocated": 128},
        "GPUs": {"request": 1, "allocated": 1, "assigned": "GPU-1"},
    }
    found = lines(EventKind.TERMINATED, code=0, resources=resources)[-4:]
    assert found == [
        "\tPartitionable Resources :     Usage   Request Allocated  Assigned",
        "\t   Cpus                 :      0.50         1         1          ",
        "\t   Memory (MB)          :        12       128       128          ",
        "\t   GPUs                 :                   1         1     GPU-1",
    ]


def test_evicted() -> None:
    found = lines(EventKind.EVICTED, why="the owner is back", **USE)
    assert found[:2] == ["Job was evicted.", "\t(0) CPU times"]
    assert found[-1] == "\tthe owner is back"
    assert lines(EventKind.EVICTED, checkpointed=True)[1] == "\t(1) Job was checkpointed."
    found = lines(EventKind.EVICTED, requeued=True, code=7, why="again")
    assert found[1] == "\t(0) Job terminated and was requeued"
    assert found[-2:] == ["\t(1) Normal termination (return value 7)", "\tagain"]


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (
            EventKind.HELD,
            {"why": "no", "code": 6, "subcode": 2},
            ["Job was held.", "\tno", "\tCode 6 Subcode 2"],
        ),
        (EventKind.HELD, {}, ["Job was held.", "\tReason unspecified", "\tCode 0 Subcode 0"]),
        (EventKind.RELEASED, {"why": "via q"}, ["Job was released.", "\tvia q"]),
        (EventKind.ABORTED, {"why": "via rm"}, ["Job was aborted.", "\tvia rm"]),
        (
            EventKind.SUSPENDED,
            {"processes": 3},
            ["Job was suspended.", "\tNumber of processes actually suspended: 3"],
        ),
        (EventKind.UNSUSPENDED, {}, ["Job was unsuspended."]),
        (
            EventKind.IMAGE_SIZE,
            {"max_rss": 2049, "image_size": 5000},
            [
                "Image size of job updated: 5000",
                "\t3  -  MemoryUsage of job (MB)",
                "\t2049  -  ResidentSetSize of job (KB)",
            ],
        ),
        (
            EventKind.SHADOW_EXCEPTION,
            {"why": "boom", "sent": 3},
            [
                "Shadow exception!",
                "\tboom",
                "\t3  -  Run Bytes Sent By Job",
                "\t0  -  Run Bytes Received By Job",
            ],
        ),
        (
            EventKind.DISCONNECTED,
            {"why": "cut", "slot": "s@h", "address": "tcp://h:1"},
            [
                "Job disconnected, attempting to reconnect",
                "    cut",
                "    Trying to reconnect to s@h <tcp://h:1>",
            ],
        ),
        (
            EventKind.RECONNECTED,
            {"slot": "s@h", "address": "tcp://h:1"},
            ["Job reconnected to s@h", "    startd address: <tcp://h:1>", "    starter address: <tcp://h:1>"],
        ),
        (
            EventKind.RECONNECT_FAILED,
            {"slot": "s@h", "why": "lease over"},
            ["Job reconnection failed", "    lease over", "    Can not reconnect to s@h, rescheduling job"],
        ),
        (
            EventKind.FILE_TRANSFER,
            {"direction": "in", "phase": "started", "queued": 4, "host": "tcp://h:1"},
            [
                "Started transferring input files",
                "\tSeconds spent in queue: 4",
                "\tTransferring to host: <tcp://h:1>",
            ],
        ),
        (
            EventKind.FILE_TRANSFER,
            {"direction": "out", "phase": "finished"},
            ["Finished transferring output files"],
        ),
        (EventKind.NOTICE, {"text": "a notice was mailed"}, ["a notice was mailed"]),
    ],
)
def test_the_other_kinds(kind: EventKind, data: dict[str, Any], expected: list[str]) -> None:
    assert lines(kind, **data) == expected


def test_the_notices_content_stands_in_the_event_of_every_end() -> None:
    """VS 6.3.3, behind the lines that readers of the format know."""
    content = {
        "cause": "exited normal.",
        "submitted": 775933315.0,
        "ended": 775944540.0,
        "real": 11225.0,
        "leverage": 76.06,
        "image_size": 25104,
    }
    expected = [
        "\tEnd: exited normal.",
        "\tSubmitted at: Wed Aug  3 17:01:55 1994",
        "\tEnded at: Wed Aug  3 20:09:00 1994",
        "\tReal Time: 0 03:07:05",
        "\tLeveraging Factor: 76.1",
        "\tVirtual Image Size: 25104 Kilobytes",
    ]
    assert lines(EventKind.TERMINATED, code=0, **content)[-6:] == expected
    assert lines(EventKind.ABORTED, why="by ann", **content) == ["Job was aborted.", "\tby ann", *expected]
    assert "\tLeveraging Factor: -" in lines(EventKind.ABORTED, **{**content, "leverage": None})
