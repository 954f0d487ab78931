"""The parts of a job in its ad: alike ones are one record, and each has its own number."""

from __future__ import annotations

from typing import Any

import pytest

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.jobs.activation import Activation, activation
from pool.jobs.gangs import (
    MOST_PARTS,
    PARTS,
    GangPart,
    GangParts,
    attributes_of,
    name_of,
    node_of,
    parts_of,
)


def test_parts_by_number() -> None:
    parts = GangParts([GangPart(("a",)), GangPart(count=3), GangPart(own={"Cmd": "/x"}, count=2)])
    assert len(parts) == 6
    assert [parts.kind_of(number) for number in range(6)] == [0, 1, 1, 1, 2, 2]
    assert [parts[number] is parts.kinds[parts.kind_of(number)] for number in range(6)] == [True] * 6
    assert list(parts) == [parts[number] for number in range(6)]
    assert [list(parts.numbers_of(kind)) for kind in range(3)] == [[0], [1, 2, 3], [4, 5]]
    for wrong in (-1, 6):
        with pytest.raises(IndexError):
            parts.kind_of(wrong)
    assert [name_of(parts[number], number) for number in (0, 2)] == ["a", "node 2"]


def test_they_come_back_from_the_ad() -> None:
    kinds = (GangPart(count=1), GangPart((), {"Requirements": ['TARGET.Name == "x\\"y"'], "RequestMemory": 5}, 999))
    ad = ClassAd.from_wire(attributes_of(kinds, apart=False))
    assert parts_of(ad).kinds == kinds
    assert parts_of(ClassAd({})).kinds == ()


@pytest.mark.parametrize(
    "value",
    [
        *("{}", "5", "{[Count = 0]}", '{[Count = "2"]}', "{[Count = 2.5]}", "{[Count = true]}", "{5}"),
        *(f"{{[Count = {MOST_PARTS + 1}]}}", f"{{[Count = {MOST_PARTS}], [Count = 1]}}"),
    ],
)
def test_what_is_no_list_of_parts_is_refused(value: str) -> None:
    with pytest.raises(PoolError, match=PARTS):
        parts_of(ClassAd.from_wire({PARTS: [value]}))


def test_a_node_is_told_its_number_the_number_of_nodes_and_where_the_others_are() -> None:
    wire: dict[str, Any] = {"Cmd": "/bin/true", "Owner": "alice", "Arguments": "#pArAlLeLnOdE#", "JobUniverse": 11}
    job = ClassAd.from_wire({**wire, "FileSystemDomain": "here"})
    start = node_of(activation(job, ClassAd({"FileSystemDomain": "here"}), 1, None), 1000, 7, "secret", "a b")
    assert start.argv == ("/bin/true", "7")
    assert start.env == {"_CONDOR_PROCNO": "7", "_CONDOR_NPROCS": "1000", "POOLNODE_HOSTS": "a b"}
    assert (start.gang, start.part, start.parts, start.saved_as) == ("secret", 7, 1000, "0.0.7")
    assert Activation.from_wire(start.to_wire()) == start
