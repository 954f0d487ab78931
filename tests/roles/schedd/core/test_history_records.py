"""Records of jobs that leave the queue together are those that each would have had alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.jobs.notice import account
from pool.policy.packed import unpack
from pool.policy.queue import COMPLETED, REMOVED, QueuedCluster, QueuedJob
from pool.roles.schedd.core.history_records import HistoryRecords

NOW = 1000.0
VALUES = st.sampled_from([None, 0, 0.0, False, 1, 1.0, True, "x", ["1 + 1"]])
STATES = st.fixed_dictionaries({}, optional={"NumCkpts": VALUES, "RemoteUserCpu": VALUES, "RemoveReason": VALUES})
JOBS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from([REMOVED, COMPLETED]), st.sampled_from([None, {"QDate": 5}]), STATES)
)


@given(JOBS, st.sampled_from([{"why": "x"}, {"code": 1}]))
def test_each_record_is_the_jobs_own(jobs: list[tuple[int, Any, Any, dict[str, Any]]], data: dict[str, Any]) -> None:
    clusters = [QueuedCluster(number, "ann", {"QDate": number, "Cmd": "/bin/true"}) for number in (7, 8)]
    records = HistoryRecords(NOW)
    for proc, (number, status, delta, state) in enumerate(jobs):
        job = QueuedJob(clusters[number], 100 * proc, status, delta, state)
        alike = records.of(job)
        record = alike.record(job)
        assert (record.cluster, record.proc, record.status, record.time) == (*job.id, job.status, NOW)
        assert repr(sorted(unpack(record.ad).items())) == repr(sorted(job.own_wire().items()))
        assert repr(alike.event_data(dict(data))) == repr(data | account(job.wire(), NOW))
        used = job.get("RemoteUserCpu")
        assert record.remote_cpu == (float(used) if isinstance(used, (int, float)) else 0.0)


@pytest.mark.parametrize(("name", "may"), [("LeaveJobInQueue", True), ("Other", False)])
def test_a_job_may_be_kept_by_its_own_attribute(name: str, may: bool) -> None:
    cluster = QueuedCluster(1, "ann", {"Cmd": "/bin/true"})
    records = HistoryRecords(NOW)
    first = QueuedJob(cluster, 0, COMPLETED, None, {"ExitCode": 0})
    second = QueuedJob(cluster, 1, COMPLETED, {name: ["true"]}, {"ExitCode": 0})
    assert not records.of(first).may_stay
    assert records.of(second).may_stay is may
