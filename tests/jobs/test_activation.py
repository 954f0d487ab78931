"""What a job is started with, told whole or as what differs from the start before."""

from __future__ import annotations

import dataclasses

import msgpack
import pytest

from pool.jobs.activation import FIELDS, Activation, Mode

FIRST = Activation(
    job=(3, 0),
    run=1,
    owner="ann",
    mode=Mode.TRANSFER,
    executable="/bin/true",
    digest="d" * 64,
    argv=("true", "x"),
    env={"A": "1"},
    iwd="/home/ann",
    inputs=("a", "b"),
    outputs=("c",),
)


def travelled(start: Activation, since: Activation | None) -> tuple[Activation, set[str]]:
    wire = msgpack.unpackb(msgpack.packb(start.to_wire(since)))
    return Activation.from_wire(wire, since), set(wire)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"job": (3, 1)}, {"job"}),
        ({"job": (3, 1), "run": 4}, {"job", "run"}),
        ({"job": (4, 0), "argv": ("true", "y"), "outputs": None}, {"job", "argv", "outputs"}),
        ({"env": {}, "mode": Mode.SHARED}, {"env", "mode"}),
        ({}, set()),
    ],
)
def test_only_what_differs_is_told(changes: dict[str, object], told: set[str]) -> None:
    start = dataclasses.replace(FIRST, **changes)  # type: ignore[arg-type]
    assert travelled(start, FIRST) == (start, told)
    assert travelled(start, None) == (start, set(FIELDS))


def test_the_same_for_another_job_of_the_cluster() -> None:
    assert FIRST.for_job((3, 7), 2) == dataclasses.replace(FIRST, job=(3, 7), run=2)
