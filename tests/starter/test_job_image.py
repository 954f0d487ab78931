"""Which words a program in an image is started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.classad import ClassAd
from pool.jobs.activation import activation
from pool.starter.job_image import JobImage
from pool.starter.place import ExecutionSite
from pool.starter.unpacking import ImageConfig

SLOT = ClassAd.from_wire({"HasContainer": True})


@pytest.mark.parametrize(
    ("facts", "entrypoint", "command", "words"),
    [
        ({"WantDocker": True}, ("own",), ("one",), ("own", "one")),
        ({"WantDocker": True, "Args": "a b"}, ("own",), ("one",), ("own", "a", "b")),
        ({"WantDocker": True, "Args": "a b"}, (), ("one",), ("a", "b")),
        ({"WantDocker": True, "Cmd": "x", "Args": "a"}, ("own",), ("one",), ("own", "/job/x", "a")),
        ({"WantDocker": True, "Cmd": "x", "DockerOverrideEntrypoint": True}, ("own",), ("one",), ("/job/x",)),
        ({"WantContainer": True, "Cmd": "x", "Args": "a"}, ("own",), ("one",), ("/job/x", "a")),
        ({"WantContainer": True}, (), ("one", "two"), ("one", "two")),
    ],
)
def test_as_docker_puts_them_together(
    facts: dict[str, object], entrypoint: tuple[str, ...], command: tuple[str, ...], words: tuple[str, ...]
) -> None:
    start = activation(ClassAd.from_wire({"DockerImage": "lab/fit", "Iwd": "/h", "Cmd": "", **facts}), SLOT, 1, None)
    image = JobImage(ExecutionSite("slot1", Path("/execute"), Path("/executables"), 1, None))
    image.config = ImageConfig({}, entrypoint, command)
    assert image.command_line(start, "/job/x") == words
