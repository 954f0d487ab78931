"""TCP and UDP sockets of a job that has a network of its own: they go on after a restore, and after a checkpoint."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from pool.starter.keeper import KeeperSpec, NativeKeepers
from tests.checkpoint.conftest import SOURCES
from tests.checkpoint.test_descriptors import lives
from tests.starter.support import PYTHON, spec

PROGRAM = (SOURCES / "connections.py").read_text()


def states() -> list[str]:
    """The names of the program's states."""
    (listed,) = [
        node.value
        for node in ast.parse(PROGRAM).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STATES"
    ]
    assert isinstance(listed, ast.List)
    return [ast.unparse(name) for name in listed.elts]


def job(scratch: Path, *names: str) -> KeeperSpec:
    return spec(scratch, PYTHON, "-c", PROGRAM, *names, network="none")


@pytest.mark.parametrize("state", states())
async def test_a_connection_goes_on(keepers: NativeKeepers, tmp_path: Path, scratch: Path, state: str) -> None:
    """Restored from an image of a job that went on, from one that stopped it, and from one of a restored job."""
    await lives(keepers, tmp_path, job(scratch, state))
