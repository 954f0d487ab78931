"""The form in which a schedd lists jobs, in groups: shared attributes, and a column for each attribute that differs.

    [{"ClusterId": 7, "JobStatus": 1, "Cmd": "/bin/true"}, {"ProcId": [0, 1], "Args": ["a", "b"]}]

Most jobs of a large cluster differ only in their numbers and in one or two more values. So most of a listing is sent,
and formatted, once for a group. The columns of a group have one length, and one of them is ProcId.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

WireAd = dict[str, Any]
JobColumns = tuple[WireAd, dict[str, list[Any]]]


def of_item(item: Any) -> JobColumns:
    """A group from an item of a listing, which is a group, or from older schedds the ad of one job."""
    if isinstance(item, list):
        return item[0], item[1]
    return item, {"ProcId": [item.pop("ProcId", 0)]}


def values(group: JobColumns, name: str, default: Any = None) -> list[Any]:
    """The values of an attribute, one for each job of a group."""
    shared, columns = group
    return columns[name] if name in columns else [shared.get(name, default)] * len(columns["ProcId"])


def each_job(group: JobColumns) -> Iterator[WireAd]:
    """The ad of each job of a group."""
    shared, columns = group
    for row in zip(*columns.values(), strict=True):
        yield shared | dict(zip(columns, row, strict=True))
