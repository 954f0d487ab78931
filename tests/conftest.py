"""What every test gets: a HOME of its own, so that no test reads or leaves anything in the user's. And what many share:
the keeper, compiled once however many processes the tests run in (compiler.py).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pool.checkpoint.build import CannotBuild, build, compiler

REPOSITORY = Path(__file__).resolve().parent.parent
USER_DIRECTORIES = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")

# No test fails for how long the machine takes over it: another may keep it busy.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def passable(directory: Path) -> None:
    """Let every user go through it and all that is above it, wherever the tests' own directory lies."""
    for place in (directory, *directory.parents):
        mode = place.stat().st_mode & 0o7777
        if mode & 0o111 != 0o111:
            place.chmod(mode | 0o111)


@pytest.fixture(scope="session")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all processes of one run of the tests have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(autouse=True, scope="session")
def _surroundings(tmp_path_factory: pytest.TempPathFactory, run_directory: Path) -> Iterator[None]:
    """For as long as the tests run, in this process and in those it starts: HOME is an empty directory, $CC remembers
    what it compiled, and Python keeps its bytecode where it must not keep it beside the sources.
    """
    patch = pytest.MonkeyPatch()
    patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    for name in (*USER_DIRECTORIES, *(name for name in os.environ if name.startswith("POOLNODE_"))):
        patch.delenv(name, raising=False)
    compiled = run_directory / "compiled"
    compiled.mkdir(exist_ok=True)
    with contextlib.suppress(CannotBuild):
        patch.setenv("CC", f"{sys.executable} -IS {REPOSITORY}/tests/compiler.py {compiled} {compiler()}")
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        patch.delenv("PYTHONDONTWRITEBYTECODE")
        patch.setenv("PYTHONPYCACHEPREFIX", str(run_directory / "bytecode"))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return REPOSITORY


@pytest.fixture(scope="session")
def keeper_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A keeper of these sources, which every user may run."""
    return _built(tmp_path_factory.mktemp("keeper"), sanitize=False)


@pytest.fixture(scope="session")
def sanitized_keeper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same under sanitizers of memory and arithmetic."""
    try:
        return _built(tmp_path_factory.mktemp("keeper"), sanitize=True)
    except CannotBuild as error:
        pytest.skip(str(error))


def _built(directory: Path, *, sanitize: bool) -> Path:
    directory.chmod(0o755)
    program = build(directory / "keeper", sanitize=sanitize)
    program.chmod(0o755)
    return program
