"""What every test gets: a HOME of its own, so that no test reads or leaves anything in the user's. And what many share:
the keeper, compiled once however many processes the tests run in.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool.checkpoint.build import CannotBuild, build

REPOSITORY = Path(__file__).resolve().parent.parent
USER_DIRECTORIES = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")


def passable(directory: Path) -> None:
    """Let every user go through it and all that is above it, wherever the tests' own directory lies."""
    for place in (directory, *directory.parents):
        mode = place.stat().st_mode & 0o7777
        if mode & 0o111 != 0o111:
            place.chmod(mode | 0o111)


@pytest.fixture(autouse=True, scope="session")
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """HOME is an empty directory for as long as the tests run, in this process and in those it starts."""
    patch = pytest.MonkeyPatch()
    patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    for name in (*USER_DIRECTORIES, *(name for name in os.environ if name.startswith("POOLNODE_"))):
        patch.delenv(name, raising=False)
    yield
    patch.undo()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return REPOSITORY


@pytest.fixture(scope="session")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all processes of one run of the tests have in common, and which every user may read."""
    base = tmp_path_factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "common"
    path.mkdir(mode=0o755, exist_ok=True)
    return path


@pytest.fixture(scope="session")
def keeper_program(run_directory: Path) -> Path:
    """A freshly compiled keeper, which every user may run."""
    return _built(run_directory / "keeper", sanitize=False)


@pytest.fixture(scope="session")
def sanitized_keeper(run_directory: Path) -> Path:
    """The same under sanitizers of memory and arithmetic."""
    try:
        return _built(run_directory / "keeper.sanitize", sanitize=True)
    except CannotBuild as error:
        pytest.skip(str(error))


def _built(program: Path, *, sanitize: bool) -> Path:
    with program.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of this run may be at it
        if not program.exists():
            build(program, sanitize=sanitize).chmod(0o755)
    return program
