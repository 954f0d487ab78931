"""Scratch directories at their end: gone with whatever a job left, without holding up the loop, also after a death."""

# A test has the loop to itself: it may block.
# ruff: noqa: ASYNC240

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from pool.starter import scratch
from tests.starter.support import until

DEEP = 1200


@pytest.fixture
def execute(tmp_path: Path) -> Path:
    path = tmp_path / "execute"
    path.mkdir()
    return path


def made(execute: Path, name: str = "slot1") -> Path:
    path = execute / name
    path.mkdir(mode=0o700)
    return path


def dig(path: Path, depth: int) -> None:
    """A nest of directories deeper than any path is long."""
    fd = os.open(path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)


async def test_what_is_little_goes_at_once_and_the_directory_stays(execute: Path) -> None:
    own = made(execute)
    inode = own.stat().st_ino
    (own / "file").write_text("x")
    (own / "link").symlink_to("/etc/passwd")
    os.mkfifo(own / "pipe")
    scratch.empty(own)
    assert list(execute.iterdir()) == [own]
    assert list(own.iterdir()) == []
    assert own.stat().st_ino == inode
    assert Path("/etc/passwd").exists()


@pytest.mark.parametrize("change", ["mode", "attribute", "many", "directory"])
async def test_what_is_not_as_it_was_made_is_not_used_again(execute: Path, change: str) -> None:
    own = made(execute)
    (own / "file").write_text("x")
    if change == "mode":
        own.chmod(0o777)
    elif change == "attribute":
        try:
            os.setxattr(own, "user.left", b"message")
        except OSError:
            pytest.skip("needs a file system with extended attributes of users")
    elif change == "many":
        for number in range(scratch.FEW):
            (own / str(number)).touch()
    else:
        (own / "inner").mkdir()
    scratch.empty(own)
    assert not own.exists()
    await until(lambda: list(execute.iterdir()) == [])


async def test_the_name_is_free_before_the_content_is_gone(execute: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = made(execute)
    (own / "inner").mkdir()
    (own / "inner" / "file").write_text("x")
    removed: list[Path] = []
    monkeypatch.setattr(scratch, "remove", removed.append)
    scratch.discard(own)
    await until(lambda: bool(removed))
    assert not own.exists()
    assert removed[0].parent == execute
    # The node dies here. The next one finds it.
    assert scratch.leftovers(execute, ["slot2"]) == removed
    monkeypatch.undo()
    made(execute, "slot2")
    for left in scratch.leftovers(execute, ["slot2"]):
        scratch.discard(left)
    await until(lambda: [path.name for path in execute.iterdir()] == ["slot2"])


async def test_a_nest_deeper_than_programs_recurse_goes(execute: Path) -> None:
    own = made(execute)
    dig(own, DEEP)
    scratch.discard(own)
    await until(lambda: list(execute.iterdir()) == [])


def test_a_tree_of_every_kind_goes(execute: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    own = made(execute)
    for name in ("a", "b", ".0", ".1"):
        (own / name / "x" / "y").mkdir(parents=True)
        (own / name / "x" / ".0").mkdir()
        (own / name / "x" / "y" / "out").symlink_to(outside)
        (own / name / "x" / "file").write_text("x")
        (own / name / "x" / "file").chmod(0)
        (own / name / "x").chmod(0)
        (own / name).chmod(0o500)
    (own / ".2").write_text("in the way")
    (own / "out").symlink_to(outside, target_is_directory=True)
    own.chmod(0)
    scratch.remove(own)
    assert list(execute.iterdir()) == []
    assert (outside / "kept").read_text() == "x"


async def test_a_link_in_the_place_of_the_directory_is_not_followed(execute: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    (outside / "kept").write_text("x")
    own = execute / "slot1"
    own.symlink_to(outside)
    scratch.empty(own)
    await until(lambda: list(execute.iterdir()) == [])
    assert (outside / "kept").read_text() == "x"


async def test_the_loop_goes_on_meanwhile(execute: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = made(execute)
    (own / "inner").mkdir()
    held = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(path: Path) -> None:
        asyncio.run_coroutine_threadsafe(held.wait(), loop).result(5)
        shutil.rmtree(path)

    monkeypatch.setattr(scratch, "remove", slow)
    scratch.discard(own)
    made(execute)  # the next job's
    held.set()
    await until(lambda: [path.name for path in execute.iterdir()] == ["slot1"])


def test_what_is_not_there_or_cannot_go_is_no_error(tmp_path: Path) -> None:
    scratch.remove(tmp_path / "none")
    (tmp_path / "file").touch()
    scratch.remove(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
