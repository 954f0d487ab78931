"""Jobs of several processes as their ads have them."""

from __future__ import annotations

from typing import Any

import pytest

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.jobs.pipes.model import (
    Joint,
    PipelineProcess,
    attributes_of,
    end_in_words,
    ends_attributes,
    ends_of,
    joints_of,
    processes_of,
    read_ends,
)
from pool.jobs.privacy import public

ENDS: list[dict[str, Any]] = [
    {"name": "a", "code": None, "signal": 9, "core": False, "with_job": True, "failed": False}
    | {"user_cpu": 1.5, "system_cpu": 0.0, "wall": 2.0, "max_rss": 7},
    {"name": "b", "code": None, "signal": 11, "core": True, "with_job": False, "failed": True}
    | {"user_cpu": 0.0, "system_cpu": 0.25, "wall": 1.0, "max_rss": 9},
    {"name": "c", "code": 0, "signal": None, "core": False, "with_job": False, "failed": False}
    | {"user_cpu": 0.0, "system_cpu": 0.0, "wall": 1.0, "max_rss": 0},
]


def test_ends_come_back_as_they_were() -> None:
    wire = ends_attributes(ENDS)
    assert wire["FailedProcess"] == 1
    assert ends_of(ClassAd.from_wire({"ProcessEnds": wire["ProcessEnds"]})) == ENDS
    assert [end_in_words(end) for end in ENDS] == ["killed with the job", "signal 11, core file", "exited with 0"]


def test_who_may_not_see_an_environment_sees_none_of_a_process() -> None:
    processes = (PipelineProcess("a", "/a", environment="TOKEN=secret"), PipelineProcess("b", "/b"))
    wire = attributes_of(processes, (Joint("a", "b"),))
    assert processes_of(ClassAd.from_wire(wire))[0].variables() == {"TOKEN": "secret"}
    assert "secret" not in str(public(wire))
    assert [process.name for process in processes_of(ClassAd.from_wire(public(wire)))] == ["a", "b"]


@pytest.mark.parametrize("text", ["3", '"x"', '{ 1, [ Name = "a" ] }', "undefined"])
def test_what_is_no_list_of_processes_is_named(text: str) -> None:
    with pytest.raises(PoolError, match="the job's attribute Processes is not a list of ads"):
        processes_of(ClassAd.from_wire({"Processes": [text]}))


@pytest.mark.parametrize(
    "said", [None, 3, "x", [3], [{}], [{"name": 3, "code": "x", "user_cpu": float("nan"), "max_rss": -1, "core": 1}]]
)
def test_odd_ends_do_no_harm(said: object) -> None:
    found = read_ends(said)
    assert found == read_ends(found)
    for end in found:
        assert (end["name"], end["code"], end["max_rss"], end["core"]) == ("?", None, 0, False)
        assert end["user_cpu"] == 0
        assert end_in_words(end) == "did not end"
    ends_attributes(found)
    assert ends_of(ClassAd.from_wire({"ProcessEnds": ['{ 1, [ Name = 3; RemoteUserCpu = "x" ] }']}))[0]["user_cpu"] == 0


def test_a_job_of_one_process_has_none() -> None:
    ad = ClassAd({"Cmd": "/bin/true"})
    assert (processes_of(ad), joints_of(ad), ends_of(ad)) == ((), (), [])
