"""The form in which a schedd lists jobs: what some of them share, and a column for each attribute that they do not.

    [{"ClusterId": 7, "JobStatus": 1, "Cmd": "/bin/true"}, {"ProcId": [0, 1], "Args": ["a", "b"]}]

Most jobs of a large cluster differ in their numbers, and in one or two values more. So most of what a listing shows of
them is sent, and laid out, once. The columns of a group are equally long, and one of them is ProcId.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

WireAd = dict[str, Any]
JobColumns = tuple[WireAd, dict[str, list[Any]]]


def of_item(item: Any) -> JobColumns:
    """One item of a listing: a group of jobs, or the ad of a single job, as older schedds send it."""
    if isinstance(item, list):
        return item[0], item[1]
    return item, {"ProcId": [item.pop("ProcId", 0)]}


def values(group: JobColumns, name: str, default: Any = None) -> list[Any]:
    """An attribute of each job of a group."""
    shared, columns = group
    return columns[name] if name in columns else [shared.get(name, default)] * len(columns["ProcId"])


def each_job(group: JobColumns) -> Iterator[WireAd]:
    """The jobs of a group, one ad each."""
    shared, columns = group
    for row in zip(*columns.values(), strict=True):
        yield shared | dict(zip(columns, row, strict=True))
