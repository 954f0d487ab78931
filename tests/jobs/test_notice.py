"""The notice at the end of a job: the paper's example, and who wants one."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest

from pool.classad import ClassAd
from pool.jobs.notice import ProcessUse, account, leverage, notice, should_notify, span
from pool.jobs.pipes.model import ends_attributes


class Ad:
    """As much of a job's ad as the notice reads."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def value(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)


PAPER = Ad(
    ClusterId=12,
    ProcId=0,
    JobStatus=4,
    ExitCode=0,
    QDate=775933315,
    CompletionDate=775944540,
    LocalUserCpu=32.0,
    LocalSysCpu=105.0,
    ImageSize=25104,
)
PROCESSES = [
    ProcessUse("phnx", 8036.0, 65.0),
    ProcessUse("geom", 2122.0, 31.0),
    ProcessUse("snomux", 137.0, 30.0),
]

EXPECTED = """\
Your poolnode job 12.0

  0   phnx
  1   geom
  2   snomux

exited normal.

Submitted at:      Wed Aug  3 17:01:55 1994
Completed at:      Wed Aug  3 20:09:00 1994
Real Time:         0 03:07:05

------------------------------------------------------------------
Process  Remote User Time  Remote System Time  Total Remote Time
0              0 02:13:56          0 00:01:05         0 02:15:01
1              0 00:35:22          0 00:00:31         0 00:35:53
2              0 00:02:17          0 00:00:30         0 00:02:47
------------------------------------------------------------------

Local User Time:    0 00:00:32
Local System Time:  0 00:01:45
Total Local Time:   0 00:02:17

Leveraging Factor:  76.1
Virtual Image Size: 25104 Kilobytes
"""


def test_the_papers_example() -> None:
    """VS 6.3.3 prints this job; its times and its leverage follow from the same numbers."""
    text = notice(PAPER, processes=PROCESSES, zone=UTC)
    rule = max(text.splitlines(), key=lambda line: line.count("-"))
    assert set(rule) == {"-"}
    assert text.replace(rule, "-" * 66) == EXPECTED


def test_one_process_takes_its_use_from_the_ad() -> None:
    text = notice(Ad(ClusterId=3, ProcId=1, JobStatus=4, Cmd="/home/x/sim", RemoteUserCpu=61, RemoteSysCpu=2.0))
    assert "  0   sim\n" in text
    assert "0 00:01:01" in text
    assert "0 00:01:03" in text
    assert "Leveraging Factor:  -" in text
    assert "Submitted at:      -" in text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"JobStatus": 4, "ExitCode": 0}, "exited normal."),
        ({"JobStatus": 4, "ExitCode": 3}, "exited with status 3."),
        ({"JobStatus": 4, "ExitBySignal": True, "ExitSignal": 11}, "died because of signal 11."),
        (
            {
                "JobStatus": 4,
                "ExitBySignal": True,
                "ExitSignal": 11,
                "JobCoreDumped": True,
                "FailedProcess": 1,
            },
            "process 1 died because of signal 11, and left a core file.",
        ),
        ({"JobStatus": 3, "RemoveReason": "by ann"}, "was removed: by ann"),
        ({"JobStatus": 5, "HoldReason": "no input"}, "was held: no input"),
    ],
)
def test_the_cause(values: dict[str, Any], words: str) -> None:
    assert f"\n{words}\n" in notice(Ad(**values))


NEVER, ALWAYS, COMPLETE, ERROR = 0, 1, 2, 3
ENDINGS: dict[str, dict[str, Any]] = {
    "normal": {"JobStatus": 4, "ExitCode": 0},
    "nonzero": {"JobStatus": 4, "ExitCode": 1},
    "signal": {"JobStatus": 4, "ExitBySignal": True, "ExitSignal": 9},
    "removed": {"JobStatus": 3},
    "held": {"JobStatus": 5, "HoldReasonCode": 13},
    "held by the user": {"JobStatus": 5, "HoldReasonCode": 1},
}


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        (NEVER, set()),
        (ALWAYS, {"normal", "nonzero", "signal", "removed", "held"}),
        (COMPLETE, {"normal", "nonzero", "signal"}),
        (ERROR, {"signal", "held"}),
    ],
)
def test_who_is_told_what(wish: int, told: set[str]) -> None:
    assert {name for name, ad in ENDINGS.items() if should_notify(Ad(JobNotification=wish, **ad))} == told


def test_a_hold_is_no_end() -> None:
    text = notice(Ad(JobStatus=5, HoldReason="no input"))
    assert "\nHeld at:" in text
    assert "Ended at:" not in text


def test_with_a_success_exit_code_another_one_is_an_error() -> None:
    ended = {"JobNotification": ERROR, "JobStatus": 4, "JobSuccessExitCode": 0}
    assert should_notify(Ad(ExitCode=1, **ended))
    assert not should_notify(Ad(ExitCode=0, **ended))


def test_no_wish_is_never() -> None:
    assert not should_notify(Ad(JobStatus=4))


def test_spans_and_leverage() -> None:
    assert span(90061.4) == "1 01:01:01"
    assert span(-5) == "0 00:00:00"
    assert leverage(10423.0, 137.0) == "76.1"
    assert leverage(1.0, 0.0) == "-"


def test_its_content_as_data() -> None:
    """VS 6.3.3's numbers, in the event of every job's end."""
    wire = {
        "JobStatus": 4,
        "QDate": 1000,
        "RemoteUserCpu": 10400.0,
        "RemoteSysCpu": 21.0,
        "LocalUserCpu": 32.0,
        "LocalSysCpu": 105.0,
        "ImageSize": 25104,
        "BytesSent": 7,
        "ExitCode": 0,
        "Rank": ["Memory"],
    }
    made = account(wire, 12225.0)
    assert made["leverage"] == pytest.approx(76.06, abs=0.01)
    assert (made["cause"], made["real"], made["image_size"]) == ("exited normal.", 11225.0, 25104)
    assert (made["total_sent"], made["total_received"], made["total_user_cpu"]) == (7, 0, 10400.0)
    assert (made["total_local_user_cpu"], made["total_local_system_cpu"]) == (32.0, 105.0)
    assert account({"JobStatus": 3, "QDate": 1000}, 900.0)["real"] == 0.0, "a clock set back"
    assert account({"JobStatus": 3}, 900.0)["leverage"] is None


ENDS: list[dict[str, Any]] = [
    {"name": "phnx", "code": None, "signal": 9, "with_job": True, "user_cpu": 1.0, "system_cpu": 0.5, "max_rss": 7},
    {"name": "geom", "code": None, "signal": 11, "core": True, "failed": True, "user_cpu": 2.0, "system_cpu": 0.0},
    {"name": "snomux", "code": 0, "signal": None, "user_cpu": 3.0, "system_cpu": 0.0},
]


def test_a_job_of_several_processes_says_which_one_failed() -> None:
    ends = ClassAd.from_wire(ends_attributes(ENDS)).value("ProcessEnds")
    ad = Ad(**{**PAPER.values, "ProcessEnds": ends, "FailedProcess": 1, "ExitBySignal": True, "ExitSignal": 11})
    text = notice(ad, zone=UTC)
    assert "  0   phnx    killed with the job\n  1   geom    signal 11, core file\n  2   snomux\n" in text
    assert "process 1 died because of signal 11" in text
    assert "\n0              0 00:00:01          0 00:00:00         0 00:00:02\n" in text


def test_what_was_misused_is_said() -> None:
    said = "process geom: lseek on fort.11 (pipe to snomux): read it from its beginning"
    ad = Ad(**{**PAPER.values, "ExitBySignal": True, "ExitSignal": 9, "ExitReason": said})
    assert f"was ended: {said}" in notice(ad, zone=UTC)
