"""State that the kernel keeps of a job, one kind at a time: each program looks after its moves at what it had."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pool.starter.keeper import KeeperSpec, NativeKeepers
from tests.checkpoint.conftest import SOURCES
from tests.checkpoint.test_descriptors import lives
from tests.conftest import passable
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


@pytest.mark.parametrize("own_user", [False, True])
async def test_what_a_process_set_of_itself(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, own_user: bool
) -> None:
    """Limits, nice values, processors, own directories, advice, locks of memory, seals, who hears of input."""
    if own_user and os.getuid():
        pytest.skip("only root runs jobs of others")
    wanted = full(scratch, "own_settings")
    if own_user:
        for path in (tmp_path, scratch):
            path.chmod(0o777)
        passable(tmp_path)
        wanted = replace(wanted, uid=65534, gid=65534, groups=())
    await lives(keepers, tmp_path, wanted)
