"""The values that a job takes from the machine that it starts on."""

from __future__ import annotations

import pytest

from pool.classad import ClassAd
from pool.jobs.substitution import CannotFill, fill, needs_filling

SLOT = ClassAd.from_wire(
    {"Machine": "m1", "Memory": 4096, "Cpus": 2, "HasX": True, "Load": 0.5, "Half": ["Memory / 2"]}
)


def filled(text: str) -> str:
    ad = ClassAd.from_wire({"Arguments": text, "RequestMemory": 100})
    assert needs_filling(ad) is ("$$(" in text)
    return str(fill(ad, SLOT, 0.0).value("Arguments"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain $(x)", "plain $(x)"),
        ("--on $$(Machine)", "--on m1"),
        ("$$(memory)/$$(CPUS)", "4096/2"),
        ("$$(HasX) $$(Load) $$(Half)", "true 0.5 2048"),
        ("$$(TARGET.Machine)", "m1"),
        ("$$(Nothing:some default)", "some default"),
        ("$$([Memory - MY.RequestMemory])", "3996"),
        ('$$([strcat(TARGET.Machine, "-", Cpus)])', "m1-2"),
        ("$$(DOLLARDOLLAR)(Machine)", "$$(Machine)"),
    ],
)
def test_it_is_filled_in(text: str, expected: str) -> None:
    assert filled(text) == expected


@pytest.mark.parametrize("text", ["$$(Nothing)", "$$([Nothing + 1])", "$$([1 +])"])
def test_what_its_machine_does_not_have_is_named(text: str) -> None:
    with pytest.raises(CannotFill, match=r"Nothing|no expression"):
        filled(text)
