"""What every test gets: a HOME of its own, so that no test reads or leaves anything in the user's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
USER_DIRECTORIES = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")


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
