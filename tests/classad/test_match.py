"""Two ads and whether they suit each other."""

from __future__ import annotations

import pytest

from pool.classad import ClassAd, rank, requirements_accept, symmetric_match
from tests.classad.helpers import NOW, ad

JOB = {
    "Requirements": 'TARGET.Arch == "x86_64" && TARGET.Memory >= RequestMemory',
    "RequestMemory": "2048",
    "Rank": "TARGET.Mips * 2",
    "Owner": '"alice"',
}
MACHINE = {
    "Requirements": "START && TARGET.RequestMemory <= Memory",
    "START": 'Owner == "alice" || TARGET.Owner == "bob"',
    "Arch": '"X86_64"',
    "Memory": "4096",
    "Mips": "100",
    "Rank": 'TARGET.Owner == "alice"',
}


def test_a_pair_that_suits() -> None:
    job, machine = ad(JOB), ad(MACHINE)
    assert symmetric_match(job, machine, NOW)
    assert rank(job, machine, NOW) == 200.0
    assert rank(machine, job, NOW) == 1.0


@pytest.mark.parametrize(
    "requirements", ["false", "0", "0.0", '"true"', "undefined", "error", "nosuch", "{true}", "TARGET.Memory > 9999"]
)
def test_only_what_counts_as_true_accepts(requirements: str) -> None:
    job, machine = ad({**JOB, "Requirements": requirements}), ad(MACHINE)
    assert not requirements_accept(job, machine, NOW)
    assert not symmetric_match(job, machine, NOW)
    assert not symmetric_match(machine, job, NOW)


@pytest.mark.parametrize("requirements", ["true", "1", "-2.5"])
def test_numbers_accept_too(requirements: str) -> None:
    assert symmetric_match(ad({**JOB, "Requirements": requirements}), ad(MACHINE), NOW)


def test_without_requirements_nothing_is_accepted() -> None:
    job = ad(JOB)
    assert not symmetric_match(job, ClassAd(), NOW)
    assert not requirements_accept(ClassAd(), job, NOW)


@pytest.mark.parametrize(
    ("text", "wanted"), [("true", 1.0), ('"high"', 0.0), ("1 / 0", 0.0), ('real("nan")', 0.0), ("3", 3.0)]
)
def test_rank_is_a_number(text: str, wanted: float) -> None:
    assert rank(ad({**JOB, "Rank": text}), ad(MACHINE), NOW) == wanted


def test_an_ad_without_rank_has_the_others() -> None:
    machine = ad({name: text for name, text in MACHINE.items() if name != "Rank"})
    assert rank(machine, ad(JOB), NOW) == 200.0
    assert rank(ClassAd(), ClassAd(), NOW) == 0.0


def test_chained_ads_match_like_whole_ones() -> None:
    cluster = ad(JOB)
    assert symmetric_match(ClassAd({"RequestMemory": 1}, parent=cluster), ad(MACHINE), NOW)
    assert not symmetric_match(ClassAd({"RequestMemory": 9999}, parent=cluster), ad(MACHINE), NOW)


def test_an_evil_requirement_refuses_and_harms_nobody() -> None:
    evil = ad({f"a{number}": f"a{number + 1} + a{number + 1}" for number in range(60)} | {"Requirements": "a0 > 1"})
    machine = ad(MACHINE)
    assert not symmetric_match(evil, machine, NOW)
    assert not symmetric_match(machine, evil, NOW)
    assert symmetric_match(ad(JOB), machine, NOW)
