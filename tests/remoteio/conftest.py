"""Fixtures: a tree of files, and what works on it as the submit side does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remoteio.support import Desk, HomeProcess


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    (tmp_path / "tree").mkdir()
    (tmp_path / "journal").mkdir()
    found = Desk(tmp_path / "tree", tmp_path / "journal")
    yield found
    found.close()
    assert not [fd for fd in os.listdir("/proc/self/fd") if _leads_below(fd, tmp_path)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "journal").mkdir()
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


@pytest.fixture
def journal(tree: Path) -> Path:
    return tree.parent / "journal"


@pytest.fixture
def home() -> Iterator[HomeProcess]:
    found = HomeProcess()
    yield found
    if found.process.poll() is None:
        found.close()


def _leads_below(fd: str, directory: Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith(str(directory))
    except OSError:
        return False
