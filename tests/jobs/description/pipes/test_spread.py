"""Which processes of a job run together, and what each part asks for (VS 5.2; G8)."""

from __future__ import annotations

import pytest

from pool.classad import ClassAd
from pool.jobs.activation import Activation, activation
from pool.jobs.gangs import APART, GangPart, attributes_of, part_of, parts_of
from pool.jobs.pipes.model import joints_of, processes_of
from tests.jobs.description.pipes.test_shell_syntax import ENVIRON, FILES
from tests.jobs.description.support import attributes


def ad_of(text: str) -> ClassAd:
    return ClassAd.from_wire(attributes(f"executable = {text}\nqueue\n", 0, files=FILES, environ=ENVIRON))


def names(text: str) -> list[tuple[str, ...]]:
    return [part.processes for part in parts_of(ad_of(text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("foo | bar | baz", []),
        ("foo | bar | baz\nspread = off", []),
        ("foo | bar | baz\nspread = on", [("foo",), ("bar",), ("baz",)]),
        ("foo | bar | baz\nspread = foo BAZ, bar", [("foo", "baz"), ("bar",)]),
        ("foo | bar | baz\nbar.requirements = TARGET.HasX", [("foo", "baz"), ("bar",)]),
        ("foo | bar | baz\nspread = off\nbar.requirements = TARGET.HasX", []),
        ("foo bar baz\npipe = foo | bar, foo | baz\nspread = on", [("foo", "foo_tee"), ("bar",), ("baz",)]),
    ],
)
def test_which_processes_run_together(text: str, expected: list[tuple[str, ...]]) -> None:
    assert names(text) == expected


def test_a_part_asks_for_what_its_processes_need_on_top_of_the_job() -> None:
    whole = "requirements = TARGET.A\nrequest_memory = 7"
    ad = ad_of(f"foo | bar | baz\n{whole}\nbar.requirements = TARGET.B\nbar.request_memory = 1 GB")
    foo, bar = parts_of(ad)
    assert (foo.own, ad.value("RequestMemory"), ad.value(APART)) == ({}, 7, False)
    assert bar.own["RequestMemory"] == 1024
    (requirements,) = bar.own["Requirements"]
    assert "TARGET.A" in requirements
    assert requirements.endswith("&& (TARGET.B)")


def test_processes_that_all_ask_for_the_same_are_one_job_on_one_machine() -> None:
    own = "foo.requirements = TARGET.B\nbar.requirements = TARGET.B\nbar.request_cpus = 2"
    ad = ad_of(f"foo | bar\n{own}\nspread = off")
    assert list(parts_of(ad)) == []
    assert ad.to_wire()["Requirements"][0].count("TARGET.B") == 1
    assert ad.value("RequestCpus") == 2


def test_between_a_mapped_file_and_another_machine_stands_a_cat() -> None:
    """So that what leads from one machine to the other is a plain pipe."""
    ad = ad_of("foo bar baz\npipe = foo > fort.11 fort.10 > bar, bar | baz\nspread = on")
    assert [process.name for process in processes_of(ad)] == ["foo", "foo_out", "bar_in", "bar", "baz"]
    assert [part.processes for part in parts_of(ad)] == [("foo", "foo_out"), ("bar", "bar_in"), ("baz",)]
    assert sorted(str(joint) for joint in joints_of(ad)) == [
        "bar | baz",
        "bar_in > - fort.10 > bar",
        "foo > fort.11 - > foo_out",
        "foo_out | bar_in",
    ]


def test_a_part_is_started_with_its_processes_and_the_ends_of_its_pipes() -> None:
    ad = ad_of("foo | bar | baz\nspread = foo baz, bar")
    parts = parts_of(ad)
    whole = activation(ad, ClassAd({"FileSystemDomain": "elsewhere"}), 3, None)
    one, two = (part_of(whole, parts, number, "secret") for number in range(2))
    assert [process.name for process in one.processes] == ["foo", "baz"]
    assert [str(joint) for joint in one.pipes] == [str(joint) for joint in two.pipes] == ["foo | bar", "bar | baz"]
    assert one.crossings == ((0, 0, 1), (1, 1, 1))
    assert two.crossings == ((0, 0, 0), (1, 1, 0))
    assert Activation.from_wire(one.to_wire()) == one


def test_parts_come_back_from_the_ad_as_they_were_put_into_it() -> None:
    parts = (GangPart(("a", "b"), {"Requirements": ['TARGET.Name == "x\\"y"'], "RequestMemory": 5}), GangPart(("c",)))
    assert parts_of(ClassAd.from_wire(attributes_of(parts, apart=True))).kinds == parts
