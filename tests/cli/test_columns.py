"""The papers' listings, reproduced from ads (EV 2.8)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from pool.cli import columns, formats, machines, tables

SPARC = ['TARGET.Arch == "SPARC" && TARGET.OpSys == "SUNOS41"']
MARCH_6 = 731_439_360


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    formats._day_and_minute.cache_clear()
    yield
    monkeypatch.undo()
    time.tzset()
    formats._day_and_minute.cache_clear()


def job(cluster: int, proc: int, owner: str, cpu: float, status: int, **more: Any) -> dict[str, Any]:
    return {
        "ClusterId": cluster,
        "ProcId": proc,
        "Owner": owner,
        "QDate": MARCH_6,
        "RemoteUserCpu": cpu - 1.5,
        "RemoteSysCpu": 1.5,
        "JobStatus": status,
        "JobPrio": 0,
        "ImageSize": 1740,
        "Requirements": SPARC,
        "Cmd": "/home/p/geant",
        "Arguments": "-n 5",
        **more,
    }


def test_q_has_the_papers_columns() -> None:
    lines = tables.render(
        tables.choose(columns.JOBS, 80),
        [job(337, 0, "andrzej", 375072, 2), job(365, 12, "zisis", 2653, 5)],
        80,
    )
    assert lines == [
        "    ID OWNER   SUBMITTED  CPU_USAGE ST PRI SIZE ARCH_OS       COMMAND",
        " 337.0 andrzej 3/6 17:36 4+08:11:12 R    0  1.7 SPARC_SUNOS41 geant -n 5",
        "365.12 zisis   3/6 17:36 0+00:44:13 H    0  1.7 SPARC_SUNOS41 geant -n 5",
    ]


def test_q_into_a_pipe_also_has_run_time_and_host() -> None:
    ad = job(1, 0, "a", 2, 2, RemoteWallClockTime=61.0, RemoteHost="slot1@donder")
    heading, row = tables.render(tables.choose(columns.JOBS, None), [ad])
    assert "RUN_TIME" in heading
    assert "HOST" in heading
    assert "0+00:01:01" in row
    assert "slot1@donder" in row


def test_an_idle_job_is_nowhere_even_if_its_ad_remembers_a_host() -> None:
    assert columns.location({"JobStatus": 1, "RemoteHost": "slot1@donder"}) == "-"
    gang = {"JobStatus": 2, "RemoteHost": "slot1@a", "AllRemoteHosts": "slot1@a,slot1@b@chem@physics"}
    assert columns.location(gang) == "slot1@a,slot1@b@chem@physics"
    many = {**gang, "AllRemoteHosts": ",".join(f"slot{number}@a" for number in range(1, 8))}
    assert columns.location(many) == "slot1@a,slot2@a,slot3@a,slot4@a,+3"


def test_every_status_has_its_letter() -> None:
    shown = {n: formats.STATUS_LETTERS[n] for n in range(1, 8)}
    assert shown == {1: "I", 2: "R", 3: "X", 4: "C", 5: "H", 6: ">", 7: "S"}
    lines = tables.render(columns.JOBS, [job(1, 0, "a", 2, 99)])
    assert " ? " in lines[1]


def test_an_idle_job_that_has_never_begun_is_unexpanded() -> None:
    assert formats.status_letter({"JobStatus": 1}) == "U"
    assert formats.status_letter({"JobStatus": 1, "NumJobStarts": 2}) == "I"
    assert formats.status_letter({"JobStatus": 2}) == "R"


def test_history_shows_how_jobs_ended() -> None:
    ended = {"CompletionDate": MARCH_6 + 3600, "ExitCode": 0, "LastRemoteHost": "slot1@ijs"}
    killed = {"EnteredCurrentStatus": MARCH_6 + 60, "ExitBySignal": True, "ExitSignal": 9}
    lines = tables.render(columns.HISTORY, [job(1, 0, "a", 2, 4, **ended), job(1, 1, "a", 2, 3, **killed)])
    assert "3/6 18:36" in lines[1]
    assert "slot1@ijs" in lines[1]
    assert "signal 9" in lines[2]
    assert "3/6 17:37" in lines[2]


def test_totals_name_only_the_states_that_occur() -> None:
    ads = [job(1, n, "a", 2, status) for n, status in enumerate([1, 1, 2, 5])]
    assert columns.job_totals(ads) == "4 jobs: 2 idle, 1 running, 1 held"
    assert columns.job_totals([]) == "0 jobs"


def test_attributes_are_found_whatever_their_case() -> None:
    shown = columns.attributes(["requestmemory", "Absent"])
    assert tables.render(shown, [{"RequestMemory": ["2 * 64"]}]) == [
        "requestmemory Absent",
        "2 * 64        -",
    ]


def test_summary_is_the_papers() -> None:
    users = [
        {"owner": "rvd", "jobs": 42, "local_cpu": 82.0, "remote_cpu": 545377.0, "leverage": 6650.9},
        {"owner": "new", "jobs": 0, "local_cpu": 0.0, "remote_cpu": 0.0, "leverage": None},
    ]
    assert columns.summary_lines(users) == [
        "Name  Jobs  Local Cpu Remote Cpu Leverage",
        "rvd     42 0+00:01:22 6+07:29:37   6650.9",
        "new      0 0+00:00:00 0+00:00:00        -",
        "TOTAL   42 0+00:01:22 6+07:29:37   6650.9",
    ]


def slot(name: str, machine: str, state: str = "Unclaimed", **more: Any) -> dict[str, Any]:
    return {
        "Name": name,
        "Machine": machine,
        "State": state,
        "Activity": "Idle",
        "TotalLoadAvg": 0.384,
        "LoadAvg": 0.1,
        "KeyboardIdle": 683784,
        "Cpus": 1,
        "Memory": 64,
        "Arch": "SPARC",
        "OpSys": "SUNOS41",
        **more,
    }


def test_status_has_the_papers_columns_and_the_queues_figures_once_a_machine() -> None:
    slots = [
        slot("slot10@donder", "donder"),
        slot("slot2@donder", "donder", "Claimed", Activity="Suspended"),
        slot("slot1@briesje", "briesje"),
    ]
    schedds = [
        {
            "Name": "donder",
            "Machine": "donder",
            "TotalRunningJobs": 7,
            "TotalIdleJobs": 1,
            "TotalHeldJobs": 0,
        },
        {"Name": "laptop", "Machine": "laptop", "TotalRunningJobs": 0, "TotalJobAds": 3, "Priority": -196},
    ]
    found = machines.rows(slots, schedds)
    assert [row["Name"] for row in found] == ["slot1@briesje", "slot2@donder", "slot10@donder", "laptop"]
    assert tables.render(tables.choose(machines.MACHINES, 80), found) == [
        "Name          Run Tot Prio State     Activity  LdAvg       Idle Arch  OpSys",
        "slot1@briesje   -   -    - Unclaimed Idle       0.38 7+21:56:24 SPARC SUNOS41",
        "slot2@donder    7   8    0 Claimed   Suspended  0.38 7+21:56:24 SPARC SUNOS41",
        "slot10@donder   -   -    - Unclaimed Idle       0.38 7+21:56:24 SPARC SUNOS41",
        "laptop          0   3 -196 -         -             -          - -     -",
    ]
    assert machines.totals(found) == [
        "SPARC/SUNOS41 2 machines 3 slots 1 claimed  8 jobs 7 running",
        "queues only   0 machines 0 slots 0 claimed  3 jobs 0 running",
        "              2 machines 3 slots 1 claimed 11 jobs 7 running",
    ]


def test_a_narrow_terminal_leaves_out_domains_and_long_names() -> None:
    assert machines.without_domain("slot1@donder.some.domain") == "slot1@donder"
    assert machines.without_domain("donder.some.domain") == "donder"
    heading, row = tables.render(
        tables.choose(machines.MACHINES, 80), [slot("slot1_12@a-rather-long-name.some.domain", "a")], 80
    )
    assert heading.endswith("OpSys")
    assert row.startswith("slot1_12@a-rath… ")
    assert row.endswith("SUNOS41")


def test_an_empty_pool_has_no_totals() -> None:
    assert machines.totals([]) == []


def test_what_is_wrong_with_an_owners_policy_is_said_once_for_each_machine() -> None:
    trouble = "START: undefined: no attribute Nothing"
    slots = [{"Name": f"slot{n}@donder", "State": "Owner", "PolicyTrouble": trouble} for n in (1, 2)]
    assert machines.troubles([*slots, {"Name": "slot1@ijs"}]) == [f"donder: {trouble} (its owner's policy)"]
    drains = {"Name": "slot1@ijs", "State": "Claimed", "Activity": "Busy", "Draining": True}
    (activity,) = [column for column in machines.MACHINES if column.title == "Activity"]
    assert activity.cell(drains) == "Busy, drains"
