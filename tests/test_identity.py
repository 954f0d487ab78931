"""A process that has become a user (root only)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pool.starter import user_process
from pool.starter.place import UnixAccount
from tests.conftest import REPOSITORY

UID = 61234
#: Modules in a directory that only root may enter, one of them in a package: each imported after root is given up.
LATE = f"""
import os, sys
sys.path.insert(0, sys.argv[1])
from pool.identity import become
import package
become({UID}, {UID}, [])
assert os.getresuid() == ({UID},) * 3
try:
    os.listdir(sys.argv[1])
except PermissionError:
    import late, package.late
    print(late.TEXT, package.late.TEXT)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_its_modules_may_lie_where_only_root_may_go() -> None:
    with tempfile.TemporaryDirectory() as place:  # which is closed to others
        modules = Path(place) / "modules"
        (modules / "package").mkdir(parents=True)
        (modules / "package/__init__.py").touch()
        (modules / "late.py").write_text("TEXT = 'module'\n")
        (modules / "package/late.py").write_text("TEXT = 'of a package'\n")
        command = [sys.executable, "-c", LATE, str(modules)]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout) == ("", "module of a package\n")


async def test_the_end_without_an_answer_is_explained(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    account = UnixAccount(os.getuid(), os.getgid(), None, "me", str(tmp_path), switch=False)
    try:
        with pytest.raises(user_process.Died) as died:
            await user_process.run_module("pool.starter.nosuch", {}, directory, account, "/bin", asyncio.Event())
    finally:
        os.close(directory)
    assert str(died.value).startswith("died: ")
    assert "No module named pool.starter.nosuch" in str(died.value)
    assert f"its program is {sys.executable}" in str(died.value)
