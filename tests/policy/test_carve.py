"""Carving and laying out: nothing is given twice, nothing is lost, and a refusal names what does not suffice."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.classad import ClassAd
from pool.policy.carve import (
    CarveRefusal,
    LayoutError,
    add,
    carve,
    demand,
    devices,
    fits,
    layout,
    named_resources,
    reduce_slot,
)

MACHINE = {"Cpus": 8, "Memory": 16000, "Disk": 10**6, "GPUs": 2}
SLOT = ClassAd({**MACHINE, "License": 3, "MachineResources": "Cpus Memory Disk GPUs License"})


def job(**attributes: object) -> ClassAd:
    ad = ClassAd()
    for name, value in attributes.items():
        if isinstance(value, str):
            ad.set_expr(name, value)
        else:
            ad[name] = value
    return ad


def test_a_job_that_asks_for_nothing_gets_little() -> None:
    assert demand(SLOT, job()) == {"Cpus": 1, "Memory": 128, "Disk": 1024, "GPUs": 0}


def test_requests_may_be_expressions_over_the_slot() -> None:
    wanted = demand(SLOT, job(RequestMemory="TARGET.Memory / 4", RequestCpus=2.2, RequestLicense=0.5))
    assert wanted == {"Cpus": 3, "Memory": 4000, "Disk": 1024, "GPUs": 0, "License": 0.5}


@pytest.mark.parametrize("request_", ['"many"', "-1", "true", 'real("INF")'])
def test_a_request_that_is_no_amount_is_refused(request_: str) -> None:
    refused = demand(SLOT, job(RequestMemory=request_))
    assert isinstance(refused, CarveRefusal)
    assert refused.text == "RequestMemory is not an amount"
    assert carve(MACHINE, refused) is refused


def test_a_request_that_depends_on_what_is_not_there_falls_back() -> None:
    assert demand(SLOT, job(RequestMemory="TARGET.NotThere"))["Memory"] == 128  # type: ignore[index]


def test_only_what_the_machine_lists_is_a_resource_of_its_own() -> None:
    slot = ClassAd({**MACHINE, "KeyboardIdle": 5})
    assert named_resources(SLOT) == ["License"]
    assert named_resources(slot) == []
    wanted = demand(slot, job(RequestKeyboardIdle=9, RequestLicense=1))
    assert wanted == {"Cpus": 1, "Memory": 128, "Disk": 1024, "GPUs": 0}


def test_carving_gives_and_leaves() -> None:
    carved = carve(MACHINE, {"Cpus": 2, "Memory": 1000, "Disk": 0, "GPUs": 2})
    assert carved == (
        {"Cpus": 2, "Memory": 1000, "Disk": 0, "GPUs": 2},
        {"Cpus": 6, "Memory": 15000, "Disk": 10**6, "GPUs": 0},
    )


def test_a_refusal_names_the_first_thing_that_does_not_suffice() -> None:
    refused = carve(MACHINE, {"Cpus": 2, "Memory": 20000, "GPUs": 9})
    assert refused == CarveRefusal("Memory", 20000, 16000)
    assert refused.text == "request for 20000 Memory, only 16000 free"
    assert carve({"Cpus": 1}, {"License": 1}) == CarveRefusal("License", 1, 0)


def test_a_dynamic_slot_shows_no_resource_that_neither_side_knows() -> None:
    given_, _ = carve({"Cpus": 1, "Memory": 10, "Disk": 10}, {"Cpus": 1, "GPUs": 0})  # type: ignore[misc]
    assert "GPUs" not in given_


resources = st.fixed_dictionaries(
    {"Cpus": st.integers(0, 64), "Memory": st.integers(0, 10**6), "License": st.integers(0, 5)}
)


@given(resources, st.lists(resources, max_size=8))
def test_nothing_is_given_twice_and_nothing_is_lost(whole: dict[str, int], wishes: list[dict[str, int]]) -> None:
    free: dict[str, int | float] = dict(whole)
    made = []
    for wish in wishes:
        carved = carve(free, dict(wish))
        if isinstance(carved, CarveRefusal):
            assert wish[carved.resource] > free[carved.resource] == carved.free
            continue
        made.append(carved[0])
        free = carved[1]
        assert all(amount >= 0 for amount in free.values())
    for part in made:
        free = add(free, part)
    assert free == whole


@given(resources, resources)
def test_fits_agrees_with_carve(free: dict[str, int], wish: dict[str, int]) -> None:
    ad = ClassAd(free)
    carved = carve(free, dict(wish))
    assert fits(ad, wish) == (not isinstance(carved, CarveRefusal))
    if not isinstance(carved, CarveRefusal):
        less = reduce_slot(ad, wish)
        assert {name: less.value(name) for name in free} == carved[1]


# --- layouts


def test_one_partitionable_slot_is_the_machine() -> None:
    assert layout("Partitionable", MACHINE) == [("slot1", "partitionable", MACHINE)]
    assert layout("partitionable", {"Cpus": 1, "Memory": 5, "Disk": 6}) == [
        ("slot1", "partitionable", {"Cpus": 1, "Memory": 5, "Disk": 6})
    ]


def test_equal_static_slots() -> None:
    slots = layout("3", MACHINE)
    assert [(name, kind) for name, kind, _ in slots] == [(f"slot{n}", "static") for n in (1, 2, 3)]
    assert [each["Cpus"] for _, _, each in slots] == [3, 3, 2]
    assert [each["GPUs"] for _, _, each in slots] == [1, 1, 0]
    assert {each["Memory"] for _, _, each in slots} == {5333}


def test_more_slots_than_processors_share_them() -> None:
    assert {each["Cpus"] for _, _, each in layout("16", MACHINE)} == {1}


def test_the_pool_may_get_a_part_of_the_machine() -> None:
    [(_, _, given_)] = layout("partitionable cpus=6, Memory=50% gpus=0", MACHINE)
    assert given_ == {"Cpus": 6, "Memory": 8000, "Disk": 10**6, "GPUs": 0}
    assert [each["Memory"] for _, _, each in layout("2 memory=25%", MACHINE)] == [2000, 2000]
    assert layout("1 cpus=1%", MACHINE)[0][2]["Cpus"] == 1


def test_resources_of_the_machines_own_are_laid_out() -> None:
    [(_, _, whole)] = layout("partitionable", {**MACHINE, "License": 3, "MachineResources": "Cpus, License"})
    assert whole == {**MACHINE, "License": 3}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("0", "expected `partitionable` or a number of slots"),
        ("many", "SLOTS = many: expected `partitionable` or a number"),
        ("-1", "expected `partitionable`"),
        ("", "expected `partitionable`"),
        ("²", "expected `partitionable`"),
        ("2 cpus", r"expected RESOURCE=AMOUNT or RESOURCE=PERCENT%, found `cpus` \(resources of this machine: Cpus,"),
        ("2 license=1", "found `license=1`"),
        ("partitionable cpus=9", "this machine has 8 Cpus, not 9"),
        ("partitionable memory=120%", "this machine has 16000 Memory, not 19200"),
        ("2 cpus=1 ; 3", "found `; 3`"),
    ],
)
def test_what_is_no_layout_is_refused(setting: str, said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        layout(setting, MACHINE)


def test_a_refusal_of_no_amount_has_no_number() -> None:
    assert math.isnan(CarveRefusal("Cpus", math.nan, 0).wanted)


def test_each_slot_has_gpus_of_its_own() -> None:
    assert devices({"DetectedGPUs": "GPU-a, GPU-b,GPU-c"}, [2, 0, 1]) == [("GPU-a", "GPU-b"), (), ("GPU-c",)]
    assert devices({"GPUs": 2}, [1, 1]) == [("0",), ("1",)]
