"""The price of letting an urgent job in (D7): a stop, or the other's place."""

from __future__ import annotations

import pytest

from pool.classad import ClassAd, requirements_accept
from pool.policy.urgent import is_urgent, must_leave, requirements


def test_urgent_is_said_plainly() -> None:
    assert is_urgent(ClassAd({"Urgent": True}))
    assert not is_urgent(ClassAd({"Urgent": "yes"}))
    assert not is_urgent(ClassAd())


@pytest.mark.parametrize(
    ("slot", "job", "why"),
    [
        ({}, {}, ""),
        ({"AvailableMemory": 1000, "VirtualMemory": 0}, {"RequestMemory": 1000}, ""),
        ({"AvailableMemory": 1000, "VirtualMemory": 2048}, {"RequestMemory": 1002}, ""),
        (
            {"AvailableMemory": 1000, "VirtualMemory": 1024},
            {"RequestMemory": 1002},
            "it and 1002 MB more do not fit into memory and swap",
        ),
        ({"AssignedGPUs": "CUDA0"}, {"RequestGPUs": 1}, "both use the same GPU"),
        ({"AssignedGPUs": "CUDA0"}, {"RequestGPUs": 0}, ""),
    ],
)
def test_where_a_stop_is_not_enough_the_job_leaves(slot: dict[str, object], job: dict[str, object], why: str) -> None:
    assert must_leave(ClassAd(slot), ClassAd(job), 0.0) == why


def test_a_slot_on_top_takes_urgent_jobs_only() -> None:
    slot = ClassAd()
    slot.set_expr("Requirements", requirements("TARGET.RequestCpus <= 1", 'TARGET.Owner == "bob"'))
    for job, fits in (
        ({"Urgent": True, "Owner": "bob", "RequestCpus": 1}, True),
        ({"Owner": "bob", "RequestCpus": 1}, False),
        ({"Urgent": True, "Owner": "eve", "RequestCpus": 1}, False),
        ({"Urgent": True, "Owner": "bob", "RequestCpus": 2}, False),
    ):
        assert requirements_accept(slot, ClassAd(job), 0.0) is fits
