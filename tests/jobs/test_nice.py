"""Which jobs are nice, and that their programs run at a low priority of the machine's too."""

from __future__ import annotations

from typing import Any

import pytest

from pool.classad import ClassAd
from pool.jobs.activation import activation

JOB = {"ClusterId": 1, "ProcId": 0, "Owner": "ann", "Cmd": "/bin/true", "Iwd": "/"}


@pytest.mark.parametrize(
    ("ad", "nice"),
    [
        ({}, 0),
        ({"AcctGroup": "physics"}, 0),
        ({"AcctGroup": "nice-user"}, 10),
        ({"AcctGroup": "Nice-User.night"}, 10),
        ({"AcctGroup": "physics", "NiceUser": True}, 10),
        ({"NiceUser": 1}, 0),
    ],
)
def test_a_nice_jobs_program_is_nice(ad: dict[str, Any], nice: int) -> None:
    assert activation(ClassAd({**JOB, **ad}), ClassAd({"Name": "slot1@m"}), 1, None).nice == nice
