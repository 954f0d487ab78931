"""Jobs that are shown alike come together, and are listed as if each had come for itself."""

from __future__ import annotations

from typing import Any

import pytest

from pool.cli import columns, tables
from pool.cli.job_groups import render_groups
from pool.jobs.job_columns import JobColumns, each_job, of_item

ADS: list[dict[str, Any]] = [
    {"ClusterId": 7, "ProcId": 0, "Owner": "ann", "JobStatus": 1, "Cmd": "/bin/true", "JobPrio": -12},
    {"ClusterId": 7, "ProcId": 1, "Owner": "ann", "JobStatus": 5, "Cmd": "/bin/true", "HoldReason": "by ann\n{0}"},
    {"ClusterId": 7, "ProcId": 2, "Owner": "ann", "JobStatus": 1, "Cmd": "/bin/true", "JobPrio": -12},
    {"ClusterId": 7, "ProcId": 3, "Owner": "ann", "JobStatus": 1, "Cmd": "/bin/{a}", "JobPrio": 0, "Args": "{} {{b}"},
    {"ClusterId": 7, "ProcId": 4, "Owner": "ann", "JobStatus": 1, "Cmd": "/bin/{a}", "JobPrio": 0, "Args": "longer"},
    {"ClusterId": 8, "ProcId": 0, "Owner": "bo", "JobStatus": 1, "Cmd": "/bin/{a}", "JobPrio": 10, "Args": ""},
    {"ClusterId": 9, "ProcId": 1000, "Owner": "benjamin", "JobStatus": 2, "Cmd": "/opt/a", "RemoteHost": "slot1@x"},
]


def groups() -> list[JobColumns]:
    """The ads as a schedd sends them, those of the same attributes together."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for ad in ADS:
        found.setdefault(tuple(ad), []).append(ad)
    grouped = []
    for ads in found.values():
        shared = {name: value for name, value in ads[0].items() if name != "ProcId"}
        shared = {name: value for name, value in shared.items() if all(ad[name] == value for ad in ads)}
        grouped.append((shared, {name: [ad[name] for ad in ads] for name in ads[0] if name not in shared}))
    return grouped


@pytest.mark.parametrize("width", [None, 80, 40])
@pytest.mark.parametrize(
    "shown",
    [
        list(columns.JOBS),
        list(columns.HELD),
        columns.attributes(["JobPrio", "ProcId", "Owner"]),
        columns.attributes(["procid", "Cmd", "ProcId"]),
        columns.attributes(["jobprio", "Owner"]),
        columns.attributes(["JobStatus"]),
    ],
)
def test_the_lines_are_those_of_jobs_that_came_one_by_one(shown: list[tables.Column], width: int | None) -> None:
    assert len(groups()) < len(ADS)
    assert render_groups(shown, groups(), width) == tables.render(shown, ADS, width)


def test_nothing_is_a_heading() -> None:
    assert render_groups(list(columns.JOBS), []) == tables.render(list(columns.JOBS), [])


def test_they_stand_in_the_order_of_their_ids() -> None:
    lines = render_groups(list(columns.JOBS), list(reversed(groups())))
    assert [line.split()[0] for line in lines[1:]] == ["7.0", "7.1", "7.2", "7.3", "7.4", "8.0", "9.1000"]


def test_the_jobs_of_groups_are_the_jobs_that_were_grouped() -> None:
    jobs = [ad for group in groups() for ad in each_job(group)]
    assert sorted(jobs, key=lambda ad: (ad["ClusterId"], ad["ProcId"])) == ADS


def test_an_older_schedds_ad_of_one_job_is_a_group_of_one() -> None:
    for ad in ADS:
        assert list(each_job(of_item(dict(ad)))) == [ad]
