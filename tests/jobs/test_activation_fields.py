"""A start from another node: each field is looked at, and nothing of it becomes a path of this machine unchecked."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from pool.classad import ClassAd
from pool.jobs import activation, activation_fields
from pool.jobs.activation import Activation, CannotStart, FileMode
from pool.jobs.activation_fields import WrongStart
from pool.jobs.pipes.model import Joint, PipelineProcess, attributes_of

START = Activation(
    job=(1, 0),
    run=1,
    owner="alice",
    mode=FileMode.TRANSFER,
    executable="/home/alice/sort",
    digest="0" * 64,
    argv=("sort", ""),
    env={"A": "b=c"},
    iwd="/home/alice",
    outputs=("out",),
    remaps={"out": "/tmp/out"},
    checkpoint_from=("tcp://m:1", "ticket"),
    processes=(PipelineProcess("a", "bin/a", codes_ok=(0, 1)), PipelineProcess("b", "/bin/b", inputs=("x",))),
    pipes=(Joint("a", "b", "", "/dev/fd/5"),),
    crossings=((0, 1, 2),),
)


def test_every_field_has_its_row() -> None:
    assert set(activation_fields.FIELDS) == {field.name for field in fields(Activation)}
    assert set(activation_fields.PROCESS) == {field.name for field in fields(PipelineProcess)}
    assert set(activation_fields.PIPE) == {field.name for field in fields(Joint)}


def test_an_honest_start_passes() -> None:
    wire = START.to_wire()
    assert Activation.from_wire(activation_fields.check(wire)) == START


def process(**wrong: Any) -> dict[str, Any]:
    return {"processes": [{"name": "a", "cmd": "a", **wrong}]}


@pytest.mark.parametrize(
    "wrong",
    [
        process(name="../../../etc"),
        process(name="a/b"),
        process(name=".."),
        process(name=""),
        process(name="a\0"),
        process(name=7),
        process(cmd="x/.."),
        process(cmd="x/"),
        process(iwd="relative"),
        process(inputs="text"),
        process(codes_ok=[256]),
        process(more=1),
        {"processes": [{"cmd": "x"}]},
        {"processes": ["x"]},
        {"processes": [{"name": "a", "cmd": "a"}] * 65},
        {"pipes": [{"writer": "a", "reader": "../b"}]},
        {"digest": "../../etc/passwd"},
        {"digest": "A" * 64},
        {"executable": "/bin/.."},
        {"executable": "sh"},
        {"iwd": "home"},
        {"job": [1]},
        {"job": ["../x", 0]},
        {"run": -1},
        {"run": True},
        {"mode": "root"},
        {"env": {"A=B": "c"}},
        {"env": [["A", "b"]]},
        {"argv": ["a\0b"]},
        {"soft_signal": 0},
        {"soft_signal": 999},
        {"grace": float("nan")},
        {"grace": -1},
        {"nice": -40},
        {"nice": -1},
        {"checkpoint": "../1"},
        {"checkpoint_from": ["one"]},
        {"pipe_buffer": -1},
        {"crossings": [[0, 1]]},
        {"parts": 0},
        {"outputs": {"a": 1}},
    ],
    ids=str,
)
def test_what_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongStart, match="refused to start a job"):
        activation_fields.check(START.to_wire() | wrong)
    with pytest.raises(WrongStart):
        activation_fields.check(wrong)  # also where only what differs is sent


@pytest.mark.parametrize("wire", [None, [], "start"])
def test_a_start_that_is_none(wire: Any) -> None:
    with pytest.raises(WrongStart, match="not a mapping"):
        activation_fields.check(wire)


def test_a_job_that_no_machine_would_take_is_held() -> None:
    slot = ClassAd({})
    ad = ClassAd({"Cmd": "/bin/true", "Iwd": "/home/alice", "ClusterId": 1, "ProcId": 0, "ShouldTransferFiles": "YES"})
    assert activation.activation(ad, slot, 1, None).executable == "/bin/true"
    several = attributes_of([PipelineProcess("../../x", "/bin/a", iwd="/home/alice")], [])
    with pytest.raises(CannotStart, match=r"name is '\.\./\.\./x'"):
        activation.activation(ClassAd.from_wire({**ad.to_wire(), **several}), slot, 1, None)


def test_a_start_without_a_program_needs_an_image_that_has_one() -> None:
    """Both in a whole start and where only what differs from the start before is sent."""
    alone = START.to_wire() | {"executable": "", "image": "/images/one", "image_program": "alone"}
    start = activation.Activation.from_wire(activation_fields.check(alone))
    for wrong in ({"image_program": ""}, {"image": ""}):
        with pytest.raises(WrongStart, match="its executable is ''"):
            activation.Activation.from_wire(activation_fields.check(alone | wrong))
        with pytest.raises(WrongStart, match="its executable is ''"):
            activation.Activation.from_wire(activation_fields.check(wrong), start)
