"""Packed maps: one over another, and equal ones packed once."""

from __future__ import annotations

from pool.policy.packed import RepeatPacker, pack, unpack, unpack_over
from pool.policy.queue import HELD, QueuedCluster, QueuedJob


def test_an_ad_of_two_parts_is_the_whole_ad() -> None:
    cluster = {"Owner": "ann", "JobStatus": 1, "Cmd": "/bin/true", "Iwd": "/", "EnteredCurrentStatus": 1}
    delta, kept = {"Arguments": "x\udcff"}, {"HoldReason": ["why"], "EnteredCurrentStatus": 5, "_run": {"run": 1}}
    job = QueuedJob(QueuedCluster(3, "ann", cluster), 7, HELD, delta, kept)
    shared = pack(cluster)
    for _ in range(2):
        whole = unpack_over(pack(job.own_wire()), shared)
        assert whole == job.wire()
        whole["Owner"] = "ben"  # the caller's own
    assert unpack_over(pack(job.wire()), b"") == job.wire(), "an older row has all of it"
    assert unpack_over(pack(job.wire()), shared) == job.wire()


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
