"""The rows of `condor_q -nobatch`: jobs that come in groups are shown as if each had come for itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pool.compat.job_rows import JobListing
from pool.compat.shown_ad import ShownAd
from pool.jobs.job_columns import JobColumns, each_job, of_item

NOW = 1_700_000_000.0
COMMON = {
    **{"ClusterId": 7, "Owner": "ann", "JobStatus": 1, "QDate": 1_699_990_000, "JobPrio": 0, "ImageSize": 2048},
    **{"RemoteUserCpu": 0.0, "Cmd": "/bin/sim", "MemoryUsage": ["((ResidentSetSize + 1023) / 1024)"]},
}
GROUPS: dict[str, JobColumns] = {
    "alike": ({**COMMON, "Args": "a"}, {"ProcId": [0, 1, 2]}),
    "own arguments": (COMMON, {"ProcId": [0, 1, 2], "Args": ["a", "", "b {0}"]}),
    "own programs": (COMMON, {"ProcId": [0, 1], "Cmd": ["/bin/a", "/bin/b"], "JobDescription": ["", "a test"]}),
    "clusters of one": (COMMON, {"ClusterId": [8, 12345], "ProcId": [0, 0], "Args": ["a", "é"]}),
    "own sizes": (COMMON, {"ProcId": [0, 1], "ResidentSetSize": [1024, 4096]}),
    "an expression": ({**COMMON, "JobPrio": ["size(Args)"]}, {"ProcId": [0, 1], "Args": ["a", "abc"]}),
    "own expressions": (COMMON, {"ProcId": [0, 1], "Args": ['"a"', ['strcat("b", Owner)']]}),
    "other spelling": ({"cmd": "/bin/sim", "args": "a b", "owner": "bo", "ClusterId": 1}, {"ProcId": [3]}),
}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", GROUPS)
def test_a_group_is_shown_as_its_jobs_are_alone(name: str, exact: bool) -> None:
    def shown(ad: Mapping[str, Any]) -> ShownAd:
        return ShownAd(ad, NOW, exact=exact)

    together, alone = JobListing("nobatch", NOW), JobListing("nobatch", NOW)
    together.add(GROUPS[name], shown)
    for ad in each_job(GROUPS[name]):
        alone.add(of_item(ad), shown)
    assert together.lines() == alone.lines()
    assert len(together.lines()) == 1 + len(GROUPS[name][1]["ProcId"])
