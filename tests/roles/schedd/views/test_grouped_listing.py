"""A listing whose jobs go out by groups of those that are shown alike, at a node with real roles."""

from __future__ import annotations

from typing import Any

from pool.jobs.job_columns import JobColumns, each_job
from pool.policy.queue import HELD, IDLE, QueuedCluster, QueuedJob
from pool.roles.schedd.views.grouped_listing import MOST_DIFFERING, MOST_GROUPS, MOST_JOBS, GroupedListing, project

WANTED = ["ClusterId", "ProcId", "Owner", "JobStatus", "Cmd", "HoldReason", "Arguments"]


def whole(groups: list[JobColumns]) -> list[dict[str, Any]]:
    """The ads of the jobs in groups, by their ids."""
    ads = [ad for group in groups for ad in each_job(group)]
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
    # Plain ones, held ones, those with an argument of their own, the one with another program.
    assert [list(columns) for _, columns in groups] == [["ProcId"], ["ProcId"], ["ProcId", "Arguments"], ["ProcId"]]
    assert alike.pop_groups() == []


def test_clusters_of_one_job_share_a_group() -> None:
    alike = GroupedListing(WANTED)
    ones = [
        QueuedJob(QueuedCluster(number, "ann", {"Owner": "ann", "Cmd": "/bin/true"}), 0, status, None, None)
        for number, status in ((1, IDLE), (2, HELD), (3, IDLE))
    ]
    for job in ones:
        alike.add(job, False)
    assert alike.pop_groups() == [
        ({"Owner": "ann", "Cmd": "/bin/true"}, {"ClusterId": [1, 2, 3], "JobStatus": [1, 5, 1], "ProcId": [0, 0, 0]})
    ]


def test_what_is_its_owners_alone_is_hidden() -> None:
    alike = GroupedListing([*WANTED, "Environment"])
    own = {"Environment": "SECRET=2", "Arguments": "https://ann:hunter2@example.org/a"}
    for job in (jobs()[0], QueuedJob(jobs()[0].cluster, 20, IDLE, own, None)):
        alike.add(job, True)
    first, second = whole(alike.pop_groups())
    assert "Environment" not in first
    assert "Environment" not in second
    assert "hunter2" not in second["Arguments"]
    assert (first["ProcId"], second["ProcId"]) == (0, 20)


def test_they_go_out_before_they_are_many() -> None:
    one = QueuedCluster(1, "ann", {"Owner": "ann"})
    alike = GroupedListing(["Owner", "Arguments"])

    def fill(many: int, cluster: QueuedCluster | None, delta: dict[str, Any] | None) -> None:
        for number in range(many):
            assert not alike.full
            of = cluster or QueuedCluster(number, "ann", {"Owner": "ann"})
            alike.add(QueuedJob(of, number, IDLE, delta, None), False)
        assert alike.full
        alike.pop_groups()

    fill(MOST_JOBS, one, None)
    fill(MOST_DIFFERING, one, {"Arguments": "a"})
    fill(MOST_GROUPS, None, None)
    assert not alike.full
