"""One compiled keeper for all tests of the room, and directories that no process may be left in."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from pool.starter.keeper import NativeKeepers
from tests.starter.support import opened, related


@pytest.fixture(scope="session")
def program(keeper_program: Path) -> Path:
    return keeper_program


def waits_for_init(process: psutil.Process) -> bool:
    """Whether a process has ended after its parents, so that only the machine's init has still to reap it."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE and process.ppid() == 1
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory with keepers/ and scratch/ in it; no process may be left that has to do with it."""
    (tmp_path / "scratch").mkdir()
    yield tmp_path
    left = related(tmp_path)
    _, left = psutil.wait_procs(left, timeout=2)
    left = [process for process in left if not waits_for_init(process)]
    for process in left:
        process.kill()
    assert left == []


@pytest.fixture
def scratch(place: Path) -> Path:
    return place / "scratch"


@pytest.fixture
def common() -> Iterator[Path]:
    """A directory that every user may write to; pytest's own are closed."""
    path = Path(tempfile.mkdtemp(prefix="poolnode-test-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


@pytest.fixture(params=["all", "none", "pid only"])
async def keepers(request: pytest.FixtureRequest, place: Path, program: Path) -> AsyncIterator[NativeKeepers]:
    """On a machine that allows all, on one that allows nothing, and on one that allows only half."""
    without = {"all": 0, "none": 1, "pid only": 4}[request.param]
    async with opened(place, program, without=without) as keepers:
        yield keepers


@pytest.fixture
async def best(place: Path, program: Path) -> AsyncIterator[NativeKeepers]:
    """With all that this machine allows."""
    async with opened(place, program) as keepers:
        yield keepers
