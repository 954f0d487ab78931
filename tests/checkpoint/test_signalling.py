"""Processes of a job that reach each other after a move as before it, by signals and abstract sockets: under the
filter and in the Landlock domain that a pool gives to jobs with a file tree of their own and to jobs of other users.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pool.starter.keeper import KeeperSpec, NativeKeepers
from tests.checkpoint.conftest import SOURCES
from tests.checkpoint.test_descriptors import lives
from tests.conftest import passable
from tests.starter.support import PYTHON, spec

#: A shell that ends what it started, as scripts do.
SHELL = """
sleep 1000 & started=$!
echo ready
while [ ! -e go ]; do sleep 0.01; done
kill $started || exit 1
{ wait $started; } 2>/dev/null
echo $?
"""
MOVES = pytest.mark.parametrize("moves", [1, 2])
USERS = pytest.mark.parametrize("other", [False, True], ids=["own", "other"])


def as_user(other: bool, place: Path, scratch: Path, *argv: str) -> KeeperSpec:
    """A filtered job of the node's user or, where root runs the tests, of an ordinary user."""
    if other and os.getuid():
        pytest.skip("only root runs jobs of other users")
    user: dict[str, Any] = {"uid": 65534, "gid": 65534, "groups": ()} if other else {}
    if other:
        scratch.chmod(0o777)
        passable(place)
    return spec(scratch, *argv, filter="plain", **user)


@MOVES
@USERS
async def test_a_shell_ends_what_it_started(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, moves: int, other: bool
) -> None:
    await lives(keepers, tmp_path, as_user(other, tmp_path, scratch, "/bin/sh", "-c", SHELL), moves)
    assert (scratch / "out").read_text() == "ready\n143\n"


@MOVES
@USERS
async def test_signals_and_abstract_sockets(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, moves: int, other: bool
) -> None:
    program = (SOURCES / "signals.py").read_text()
    name = f"poolnode-{os.getpid()}-{moves}-{other}"
    wanted = as_user(other, tmp_path, scratch, PYTHON, "-I", "-c", program, name)
    await lives(keepers, tmp_path, wanted, moves)
    assert (scratch / "out").read_text() == "ready\nchild\nsignal 7\n"
