"""The usage of each process of a job of several, over all its runs (VS 6.3.3)."""

from __future__ import annotations

from typing import Any

from pool.classad import ClassAd
from pool.jobs.notice import notice
from pool.jobs.pipes.model import ends_of
from pool.policy.queue import RUNNING, QueuedCluster, QueuedJob
from pool.roles.schedd.core.job_ends import After, end_steps


def report(cause: str, a: float, b: float) -> dict[str, Any]:
    ends = [{"name": name, "code": 0, "user_cpu": cpu, "system_cpu": cpu / 2} for name, cpu in (("a", a), ("b", b))]
    return {"cause": cause, "code": 0, "ends": ends, "user_cpu": a + b, "system_cpu": (a + b) / 2, "wall": 10.0}


def ended(job: QueuedJob, said: dict[str, Any]) -> dict[str, Any]:
    """Take the end of a run in; the last event's data."""
    steps = end_steps(job, "slot1@one", said, 0.0, After())
    for step in steps:
        job.update(step.changes)
    return steps[-1].data


def used(job: QueuedJob) -> dict[str, tuple[float, float]]:
    return {end["name"]: (end["user_cpu"], end["system_cpu"]) for end in ends_of(job.ad())}


def test_runs_that_were_lost_count_too() -> None:
    job = QueuedJob(QueuedCluster(1, "alice", {"Owner": "alice", "Cmd": "/bin/a"}), 0, RUNNING, None, None)
    ended(job, report("vacated", 10.0, 1.0))
    assert used(job) == {}
    ended(job, report("vacated", 20.0, 2.0))
    data = ended(job, report("exit", 40.0, 4.0))
    assert used(job) == {"a": (70.0, 35.0), "b": (7.0, 3.5)}
    assert [end["user_cpu"] for end in data["ends"]] == [70.0, 7.0]
    total = sum(user + system for user, system in used(job).values())
    assert total == job.get("RemoteUserCpu") + job.get("RemoteSysCpu")
    text = notice(ClassAd.from_wire(job.wire() | {"JobStatus": 4}))
    assert "0              0 00:01:10          0 00:00:35         0 00:01:45\n" in text


def test_a_job_that_is_removed_says_what_its_processes_used() -> None:
    job = QueuedJob(QueuedCluster(1, "alice", {"Owner": "alice", "Cmd": "/bin/a"}), 0, RUNNING, None, None)
    ended(job, report("vacated", 10.0, 1.0))
    job.update({"_wish": {"what": "remove", "why": "by alice"}})
    ended(job, report("killed", 5.0, 5.0))
    assert used(job) == {"a": (15.0, 7.5), "b": (6.0, 3.0)}
    assert job.get("FailedProcess") is None
