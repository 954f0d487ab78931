"""PRIVATE_TMP on real nodes: jobs that open their files in place and what they leave in /tmp and /dev/shm."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.support import HEAD, Nodes, client, outcome, slots
from tests.ordinary_user import as_root

#: Each file must be new to it. They have different names: a directory of its own has three.
WRITES = "import sys; [open(d + sys.argv[1], 'x').write(d) for d in ('/tmp/a', '/dev/shm/b')]; sys.exit(7)"


@pytest.fixture
def name() -> Iterator[str]:
    name = f"poolnode-test-{uuid.uuid4().hex}"
    yield name
    with as_root():
        for path in files(name):
            path.unlink(missing_ok=True)


def files(name: str) -> list[Path]:
    return [Path(f"/tmp/a{name}"), Path(f"/dev/shm/b{name}")]


async def codes(nodes: Nodes, name: str, off: bool = False) -> list[int | None]:
    """The exit codes of two jobs, one after the other, whose files are shared and not below /tmp."""
    sets = {"PRIVATE_TMP": "false"} if off else {}
    head = nodes.start("head", f"{HEAD},startd", join=None, config=None, environ=None, machine=(), **sets).ready()
    made = []
    async with client(head) as pool:
        await slots(pool, 1)
        for _ in range(2):
            job = {
                "executable": "/usr/bin/python3",
                "arguments": f'"-c {quoted(WRITES)} {name}"',
                "transfer_executable": "false",
                "should_transfer_files": "NO",
            }
            made.append((await outcome(pool, Path("/"), **job)).exit_code)
    return made


def quoted(text: str) -> str:
    """As an argument of a description in the new syntax."""
    return "'" + text.replace("'", "''") + "'"


async def test_neither_another_job_nor_the_machine_sees_them(nodes: Nodes, name: str) -> None:
    assert await codes(nodes, name) == [7, 7]
    assert not any(path.exists() for path in files(name))


async def test_with_the_setting_off_they_are_the_machines(nodes: Nodes, name: str) -> None:
    assert await codes(nodes, name, off=True) == [7, 1]
    assert [path.read_text() for path in files(name)] == ["/tmp/a", "/dev/shm/b"]
