"""The programs of these tests, compiled once."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pool.checkpoint.build import compiler

Program = Callable[..., str]


@pytest.fixture(scope="session")
def compiled_here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture
def programs(compiled_here: Path, scratch: Path) -> Program:
    """Compiles a program that lies beside this file, with flags or without; gives its path in the job's directory."""

    def compiled(name: str, *flags: str) -> str:
        source = Path(__file__).parent / name
        program = compiled_here / "-".join((source.stem, *(flag.strip("-") for flag in flags)))
        if not program.exists():
            tool = ["gfortran"] if source.suffix == ".f90" else [*compiler().split(), "-pthread"]
            subprocess.run([*tool, "-O1", *flags, "-o", program, source], check=True)
        return str(shutil.copy(program, scratch / program.name))

    return compiled
