"""The package's build: a wheel that runs without a compiler, and one line where one is missing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pool.checkpoint import build as builder
from pool.checkpoint import program

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def tree(tmp_path: Path, repository: Path) -> Path:
    """A copy of what a build needs, without a keeper built before."""
    target = tmp_path / "tree"
    target.mkdir()
    for name in ("pyproject.toml", "hatch_build.py"):
        shutil.copy(repository / name, target)
    (target / "README.md").write_text("A pool.\n")
    ignore = shutil.ignore_patterns("__pycache__", "bin")
    shutil.copytree(repository / "pool", target / "pool", ignore=ignore)
    return target


def hatchling(tree: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed")
    return subprocess.run(
        [sys.executable, "-c", f"from hatchling.build import *; print({code})"],
        cwd=tree,
        env={"PATH": os.environ["PATH"], "CC": os.environ.get("CC", ""), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


RUN = """
import asyncio, os, sys, tempfile
from pool.starter.keeper import KeeperSpec, NativeKeepers
async def main():
    with tempfile.TemporaryDirectory() as place:
        keepers = NativeKeepers(place + "/keepers")
        await keepers.open()
        keeper = await keepers.start(KeeperSpec(id="1.0.0", argv=("/bin/sh", "-c", "exit 7"), env={}, cwd="/",
            uid=os.getuid(), gid=os.getgid()))
        print((await keeper.ended).code, sys.modules["pool"].__file__)
        await keeper.forget()
        await keepers.close(kill=True)
asyncio.run(main())
"""


def test_the_wheel_runs_where_there_is_no_compiler(tree: Path, tmp_path: Path) -> None:
    built = hatchling(tree, f"build_wheel({str(tmp_path)!r})")
    assert built.returncode == 0, built.stderr
    name = built.stdout.split()[-1]
    assert f"-py3-none-linux_{os.uname().machine}.whl" in name
    with zipfile.ZipFile(tmp_path / name) as wheel:
        entry = wheel.getinfo("pool/checkpoint/bin/keeper")
        assert entry.external_attr >> 16 & 0o111
        assert not [member for member in wheel.namelist() if member.endswith((".c", ".h", ".gitignore"))]
        wheel.extractall(tmp_path / "site")
    keeper = tmp_path / "site" / "pool" / "checkpoint" / "bin" / "keeper"
    keeper.chmod(0o755)  # pip keeps the mode; extractall does not
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=tmp_path / "site",
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["7", str(tmp_path / "site" / "pool" / "__init__.py")]


def test_an_editable_installation_builds_in_place(tree: Path, tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    code = (
        "import hatch_build; data = {'force_include': {}}; "
        f"hook = hatch_build.KeeperHook({str(tree)!r}, {{}}, None, None, '', 'wheel'); "
        "hook.initialize('editable', data); print(data)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "'force_include': {}" in done.stdout
    assert (tree / "pool" / "checkpoint" / "bin" / "keeper").stat().st_mode & 0o111


def test_the_source_distribution_has_the_sources_only(tree: Path, tmp_path: Path) -> None:
    (tree / "pool" / "checkpoint" / "bin").mkdir(exist_ok=True)
    (tree / "pool" / "checkpoint" / "bin" / "keeper").write_bytes(b"built before")
    built = hatchling(tree, f"build_sdist({str(tmp_path)!r})")
    assert built.returncode == 0, built.stderr
    listed = subprocess.run(
        ["tar", "tf", tmp_path / built.stdout.split()[-1]], capture_output=True, text=True, check=True
    ).stdout.split()
    names = {path.partition("/")[2] for path in listed}
    assert {"pool/checkpoint/keeper/keeper.c", "pool/checkpoint/common/messages.h", "hatch_build.py"} <= names
    assert "pool/checkpoint/bin/keeper" not in names


def test_without_a_compiler_one_line_says_what_to_install(tree: Path, tmp_path: Path) -> None:
    built = hatchling(tree, f"build_wheel({str(tmp_path)!r})", PATH="/nowhere", CC="")
    assert built.returncode != 0
    (line,) = [line for line in built.stderr.splitlines() if line.strip()]
    assert line == ("error: poolnode's keeper needs a C compiler: install one (Debian: apt install gcc libc6-dev)")


def test_a_compiler_without_a_c_library_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "cc"
    fake.write_text("#!/bin/sh\necho '/usr/bin/ld: cannot find -lc: No such file or directory' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CC", str(fake))
    with pytest.raises(builder.CannotBuild, match=r"libc6-dev"):
        builder.build(tmp_path / "keeper")
    fake.write_text("#!/bin/sh\necho 'keep.c:1:1: error: expected something' >&2\nexit 1\n")
    with pytest.raises(builder.CannotBuild, match=r"does not compile: keep.c:1:1: error"):
        builder.build(tmp_path / "keeper")
    assert not list(tmp_path.glob("*keeper*"))


def test_the_command_builds_and_says_where(tmp_path: Path, repository: Path) -> None:
    target = tmp_path / "keeper"
    done = subprocess.run(
        [sys.executable, "-m", "pool.checkpoint.build", "--output", str(target)],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{target}\n")
    assert target.read_bytes()[:4] == b"\x7fELF"
    assert program().name == "keeper"
    assert program().parent == repository / "pool" / "checkpoint" / "bin"
