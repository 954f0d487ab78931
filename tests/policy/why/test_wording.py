"""Conditions as their user wrote them."""

from __future__ import annotations

import pytest

from pool.policy.why.wording import amount, bare, requested, shorten, size, wording
from tests.policy.why.support import DEDICATED, job


@pytest.mark.parametrize(
    ("clause", "resource"),
    [
        ("(TARGET.Memory >= RequestMemory)", "memory"),
        ("TARGET.Cpus >= RequestCpus", "cpus"),
        ('(versionGE(split(TARGET.CondorVersion)[1],"25.12.0") || (TARGET.Disk >= RequestDisk))', "disk"),
        ("(countMatches(MY.RequireGPUs,TARGET.AvailableGPUs) >= RequestGPUs)", "gpus"),
        ("regexp(RequestLicence, TARGET.Licence)", "licence"),
        ("((TARGET.RequestMemory ?: 0) <= MY.Memory)", "memory"),
        ("((TARGET.RequestGPUs ?: 0) <= (MY.GPUs ?: 0))", "gpus"),
        ("TARGET.Memory >= RequestCpus", ""),
        ("TARGET.Memory > 2 * RequestMemory", ""),
        ("Memory >= 1024", ""),
    ],
)
def test_clauses_that_stand_for_a_request(clause: str, resource: str) -> None:
    assert requested(clause) == resource


def test_every_limit_in_a_machines_requirements_is_known() -> None:
    clauses = DEDICATED["Requirements"][0].split(" && ")[1:]
    assert [requested(clause) for clause in clauses] == ["cpus", "memory", "disk", "gpus"]


def test_requests_are_shown_with_their_units() -> None:
    ad = job(RequestMemory=65536, RequestDisk=1536, RequestGPUs=2, RequestCpus=["TARGET.Cpus / 2"])
    said = [wording(f"TARGET.{name} >= Request{name}", ad).text for name in ("Memory", "Disk", "GPUs", "Cpus")]
    assert said == ["request_memory 64 GB", "request_disk 1.5 MB", "request_gpus 2", "request_cpus TARGET.Cpus / 2"]
    assert wording("TARGET.FPGAs >= RequestFPGAs", ad).text == "request_fpgas"


@pytest.mark.parametrize(
    ("clause", "shown"),
    [
        ("(a)", "a"),
        ("((a) && (b))", "(a) && (b)"),
        ("(a) && (b)", "(a) && (b)"),
        ('(x == ")")', 'x == ")"'),
        ("(a\n  ||   b)", "a || b"),
        ("(((", "((("),
    ],
)
def test_parentheses_around_the_whole_go(clause: str, shown: str) -> None:
    assert bare(clause) == shown


def test_sizes() -> None:
    assert [size(1, 0), size(1024, 0), size(1500, 1), size(65536, 1), size(0, 1), size(1e12, 1)] == [
        "1 KB",
        "1 MB",
        "1.5 GB",
        "64 GB",
        "0 MB",
        "931.3 PB",
    ]


def test_texts_of_others_stay_on_their_line() -> None:
    assert shorten("a\nb\x1b[31mred") == "a b?[31mred"
    assert shorten("x" * 1000) == "x" * 119 + "…"
    assert amount("Memory", "much") == "much"
    assert amount("HasTool", True) == "true"
    assert amount("KFlops", 12.5) == "12.5"
