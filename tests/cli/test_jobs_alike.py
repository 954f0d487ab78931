"""Jobs that are shown alike come together, and are listed as if each had come for itself."""

from __future__ import annotations

from typing import Any

import pytest

from pool.cli import columns, tables

ADS: list[dict[str, Any]] = [
    {"ClusterId": 7, "ProcId": 0, "Owner": "ann", "JobStatus": 1, "Cmd": "/bin/true", "JobPrio": -12},
    {"ClusterId": 7, "ProcId": 1, "Owner": "ann", "JobStatus": 5, "Cmd": "/bin/true", "HoldReason": "by ann"},
    {"ClusterId": 7, "ProcId": 2, "Owner": "ann", "JobStatus": 1, "Cmd": "/bin/true", "JobPrio": -12},
    {"ClusterId": 9, "ProcId": 1000, "Owner": "benjamin", "JobStatus": 2, "Cmd": "/opt/a", "RemoteHost": "slot1@x"},
]


def alike(ads: list[dict[str, Any]]) -> list[tuple[dict[str, Any], list[int]]]:
    """The ads as a schedd sends them."""
    found: list[tuple[dict[str, Any], list[int]]] = []
    for ad in ads:
        shown = {name: value for name, value in ad.items() if name != "ProcId"}
        for known, procs in found:
            if known == shown:
                procs.append(ad["ProcId"])
                break
        else:
            found.append((shown, [ad["ProcId"]]))
    return found


@pytest.mark.parametrize("width", [None, 80, 40])
@pytest.mark.parametrize(
    "shown",
    [
        list(columns.JOBS),
        list(columns.HELD),
        columns.attributes(["JobPrio", "ProcId", "Owner"]),
        columns.attributes(["procid", "Cmd", "ProcId"]),
    ],
)
def test_the_lines_are_those_of_jobs_that_came_one_by_one(shown: list[tables.Column], width: int | None) -> None:
    groups = alike(ADS)
    assert len(groups) < len(ADS)
    assert tables.render_alike(shown, groups, width) == tables.render(shown, ADS, width)


def test_nothing_is_a_heading() -> None:
    assert tables.render_alike(list(columns.JOBS), []) == tables.render(list(columns.JOBS), [])


def test_they_stand_in_the_order_of_their_ids() -> None:
    lines = tables.render_alike(list(columns.JOBS), list(reversed(alike(ADS))))
    assert [line.split()[0] for line in lines[1:]] == ["7.0", "7.1", "7.2", "9.1000"]
