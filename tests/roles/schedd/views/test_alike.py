"""A listing whose jobs go out by groups of those that are shown alike, at a node with real roles."""

from __future__ import annotations

from typing import Any

from pool.policy.queue import HELD, IDLE, QueuedCluster, QueuedJob
from pool.roles.schedd.views.alike import MOST_GROUPS, MOST_JOBS, GroupedListing, project

WANTED = ["ClusterId", "ProcId", "Owner", "JobStatus", "Cmd", "HoldReason", "Arguments"]


def whole(groups: list[tuple[dict[str, Any], list[int]]]) -> list[dict[str, Any]]:
    """The ads of the jobs in groups, by their ids."""
    ads = [{**ad, "ProcId": proc} for ad, procs in groups for proc in procs]
    return sorted(ads, key=lambda ad: (ad["ClusterId"], ad["ProcId"]))


def jobs() -> list[QueuedJob]:
    """Of two clusters: plain ones, held ones, ones with an own argument, one with an expression that differs."""
    plain = QueuedCluster(1, "ann", {"Owner": "ann", "Cmd": "/bin/true", "Environment": "SECRET=1"})
    other = QueuedCluster(2, "ann", {"Owner": "ann", "Cmd": "/bin/false", "Arguments": "a"})
    found = [QueuedJob(plain, proc, IDLE, None, None) for proc in range(20)]
    found += [QueuedJob(plain, proc, HELD, None, {"HoldReason": "by ann", "Odd": [["x"]]}) for proc in range(20, 30)]
    found += [QueuedJob(other, proc, IDLE, {"Arguments": str(proc % 3)}, None) for proc in range(9)]
    found += [
        QueuedJob(other, 11 + proc, IDLE, {"Arguments": value}, None) for proc, value in enumerate((1, 1.0, True))
    ]
    found += [
        QueuedJob(other, 9, IDLE, {"Arguments": ["a + b"]}, None),
        QueuedJob(other, 10, IDLE, None, {"Cmd": "/bin/cat"}),
    ]
    return found


def test_nothing_is_lost_and_nothing_is_mixed_up() -> None:
    alike = GroupedListing(WANTED)
    for job in jobs():
        alike.add(job, False)
    groups = alike.pop_groups()
    each = sorted((project(job, WANTED) for job in jobs()), key=lambda ad: (ad["ClusterId"], ad["ProcId"]))
    # As text: 1, 1.0 and True are equal, and are not shown alike.
    assert [sorted(map(repr, ad.items())) for ad in whole(groups)] == [sorted(map(repr, ad.items())) for ad in each]
    assert len(groups) == 2 + 3 + 3 + 2
    assert alike.pop_groups() == []


def test_what_is_its_owners_alone_is_hidden() -> None:
    alike = GroupedListing([*WANTED, "Environment"])
    alike.add(jobs()[0], True)
    ((ad, procs),) = alike.pop_groups()
    assert "Environment" not in ad
    assert procs == [0]


def test_they_go_out_before_they_are_many() -> None:
    cluster = QueuedCluster(1, "ann", {"Owner": "ann"})
    alike = GroupedListing(["Owner", "Arguments"])
    for proc in range(MOST_JOBS):
        assert not alike.full
        alike.add(QueuedJob(cluster, proc, IDLE, None, None), False)
    assert alike.full
    alike.pop_groups()
    for proc in range(MOST_GROUPS):
        assert not alike.full
        alike.add(QueuedJob(cluster, proc, IDLE, {"Arguments": str(proc)}, None), False)
    assert alike.full
