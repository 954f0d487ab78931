"""One compiled keeper for all tests of checkpoints, and the jobs' programs, compiled when first asked for."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from pool.checkpoint.build import compiler
from pool.starter.keeper import NativeKeepers
from tests.checkpoint.machines import Machine, machines
from tests.starter.support import opened

SOURCES = Path(__file__).parent / "programs"
Compile = Callable[..., str]


@pytest.fixture
async def keepers(tmp_path: Path, keeper_program: Path) -> AsyncIterator[NativeKeepers]:
    async with opened(tmp_path, keeper_program) as keepers:
        yield keepers


@pytest.fixture
async def around(tmp_path: Path, keeper_program: Path) -> AsyncIterator[list[Machine]]:
    """Machines that a program moves between."""
    async with machines(tmp_path, keeper_program) as made:
        yield made


@pytest.fixture
async def elsewhere(tmp_path: Path, keeper_program: Path) -> AsyncIterator[list[Machine]]:
    """The same, which have other libraries each."""
    async with machines(tmp_path, keeper_program, others=True) as made:
        yield made


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    path = tmp_path / "scratch"
    path.mkdir()
    return path


@pytest.fixture
def compiled(scratch: Path) -> Compile:
    """Compiles a program of tests/checkpoint/programs into the job's scratch directory; gives its path."""

    def compile(name: str, *flags: str) -> str:
        program = scratch / name
        source = SOURCES / f"{name}.c"
        command = [*compiler().split(), "-O1", "-o", str(program), str(source), *(flags or ("-pthread",))]
        subprocess.run(command, check=True)
        return str(program)

    return compile
