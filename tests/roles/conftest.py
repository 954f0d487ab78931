"""Directories of simulated nodes lie in memory: a disk's own time to write is no part of what these tests show."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture(autouse=True, scope="module")
def _directories_in_memory() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if MEMORY.is_dir():
            patch.setattr(tempfile, "tempdir", str(MEMORY))
        yield


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory of this test's, gone when it ends."""
    with tempfile.TemporaryDirectory(prefix="poolnode-test-") as directory:
        yield Path(directory)
