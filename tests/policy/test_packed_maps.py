"""Packed maps: several as one, and equal ones packed once."""

from __future__ import annotations

from typing import Any

import pytest

from pool.policy.packed import RepeatPacker, joined, pack, unpack
from pool.policy.queue import HELD, QueuedCluster, QueuedJob


@pytest.mark.parametrize("first", [0, 1, 15, 16, 300, 70_000])
@pytest.mark.parametrize("second", [0, 1, 15, 16, 300])
def test_joined_maps_are_the_maps_together(first: int, second: int) -> None:
    one = {f"a{number}": number for number in range(first)}
    other: dict[str, Any] = {f"a{number}": ["own"] for number in range(0, second, 2)} | {"b": "x\udcff"}
    assert unpack(joined(pack(one), pack(other))) == one | other
    assert unpack(joined(pack({}), pack(one), pack({}), pack(other))) == one | other


def test_a_jobs_whole_ad_is_packed_as_it_is() -> None:
    cluster = QueuedCluster(
        3, "ann", {"Owner": "ann", "JobStatus": 1, "Cmd": "/bin/true", "Iwd": "/", "EnteredCurrentStatus": 1}
    )
    job = QueuedJob(
        cluster, 7, HELD, {"Arguments": "x"}, {"HoldReason": "why", "EnteredCurrentStatus": 5, "_run": {"run": 1}}
    )
    assert unpack(cluster.packed_with(job.own_wire())) == job.wire()


def test_what_is_equal_is_packed_once_and_what_only_seems_so_is_not() -> None:
    alike = RepeatPacker()
    first = alike.pack({"a": 1, "b": "x"})
    assert alike.pack({"a": 1, "b": "x"}) is first
    for value in (
        {"a": True, "b": "x"},
        {"a": 1.0, "b": "x"},
        {"a": [1]},
        {"a": [1.0]},
        {"a": [True]},
        {},
        {"b": None},
    ):
        assert repr(unpack(alike.pack(value))) == repr(value)
