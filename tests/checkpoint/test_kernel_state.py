"""State that the kernel keeps of a job, one kind at a time: each program looks after its moves at what it had."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.starter.keeper import KeeperSpec, NativeKeepers
from tests.checkpoint.conftest import SOURCES
from tests.checkpoint.test_descriptors import lives
from tests.starter.support import PYTHON, spec


def full(scratch: Path, name: str, *argv: str) -> KeeperSpec:
    """The program as a job of a pool of its own file tree."""
    return spec(scratch, PYTHON, "-c", (SOURCES / f"{name}.py").read_text(), *argv)


async def test_timers_that_nobody_has_read(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    """One that comes again does so; one that has gone off for good does not; a time of day stays that time."""
    await lives(keepers, tmp_path, full(scratch, "timerfds"))


@pytest.mark.parametrize("directory", [".", "/tmp"])
async def test_named_pipes(keepers: NativeKeepers, tmp_path: Path, scratch: Path, directory: str) -> None:
    await lives(keepers, tmp_path, full(scratch, "fifos", directory))
