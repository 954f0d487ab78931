"""An unpacked image as a job's root: what the job sees, and what it does not."""

# A test has the loop to itself: it may block.
# ruff: noqa: ASYNC220

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pool.starter.keeper import NativeKeepers, StartFailed
from tests.starter.images import make_image
from tests.starter.support import alive, shell, soon, to_end, until


@pytest.fixture
def common() -> Iterator[Path]:
    """A directory that every user may enter; pytest's own are closed."""
    path = Path(tempfile.mkdtemp(prefix="poolnode-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def inside(scratch: Path, image: Path, script: str, **more: object) -> object:
    """A shell of the image, in a scratch directory that is /job there."""
    given = {"cwd": "/job", "stdout": "/job/out", "stderr": "/job/err", "fixed": True, "isolation": "full"}
    return shell(scratch, script, root=str(image), **given, **more)


async def test_its_keeper_is_gone_before_its_cell_is_used_again(
    best: NativeKeepers, scratch: Path, tmp_path: Path
) -> None:
    """A keeper that waited there would take messages for the next one: its kill, its lease, its pipes."""
    if not best.abilities.full or not best.abilities.ipc:
        pytest.skip("needs the ability full and the ability ipc")
    image = make_image(tmp_path / "image")
    first = await soon(best.start(inside(scratch, image, "exit 3")))  # type: ignore[arg-type]
    process = psutil.Process(first.pid)
    assert (await soon(first.ended)).code == 3
    await first.forget()
    await until(lambda: len(best._free) == 1)
    assert not alive([process])
    second = await soon(best.start(inside(scratch, image, "sleep 60")))  # type: ignore[arg-type]
    await second.kill()
    assert (await soon(second.ended)).cause == "killed"


async def test_its_root_is_the_image(best: NativeKeepers, scratch: Path, tmp_path: Path) -> None:
    if not best.abilities.full:
        pytest.skip("needs a file tree of a job's own")
    image = make_image(tmp_path / "image")
    script = (
        "cat /etc/image /link; ls /; cat /etc/passwd; touch /etc/x /x /data/x; "
        "echo kept > mine; echo t > /tmp/t; cat /tmp/t; ls /tmp; echo > /dev/null; cat /proc/self/comm"
    )
    end = await to_end(best, inside(scratch, image, script))  # type: ignore[arg-type]
    text, errors = (scratch / "out").read_text(), (scratch / "err").read_text()
    lines = text.splitlines()
    assert end.code == 0, (end, errors)
    assert lines[:2] == ["the image's own"] * 2
    names = lines[2 : lines.index("t")]
    assert set(names) >= {"bin", "data", "dev", "etc", "job", "link", "proc", "sys", "tmp"}
    assert not {"home", "root", "usr", "var", ".image"} & (set(names) - {one.name for one in image.iterdir()})
    assert lines[lines.index("t") :] == ["t", "t", "cat"]
    assert "/etc/passwd" in errors
    assert errors.count("Read-only file system") == 3
    assert (scratch / "mine").read_text() == "kept\n"
    assert sorted(one.name for one in image.iterdir() if one.name in ("x", "job", "dev", "proc", "sys", "tmp")) == []


async def test_the_next_job_has_the_machines_own_tree_again(best: NativeKeepers, scratch: Path, tmp_path: Path) -> None:
    if not best.abilities.full:
        pytest.skip("needs a file tree of a job's own")
    image = make_image(tmp_path / "image")
    for root, said in ((str(image), "the image's own\n"), ("", "")):
        wanted = inside(scratch, Path(root), "cat /etc/image 2>/dev/null; exit 0")
        if not root:
            wanted = shell(scratch, "cat /etc/image 2>/dev/null; exit 0")
        await to_end(best, wanted)  # type: ignore[arg-type]
        assert (scratch / "out").read_text() == said


@pytest.mark.parametrize("which", ["around", "in it", "missing", "a file", "processes", "sockets", "devices", "others"])
async def test_what_cannot_be_a_root_is_named(best: NativeKeepers, scratch: Path, tmp_path: Path, which: str) -> None:
    """The node's own directories are not shown by naming a directory around them, or in them."""
    if not best.abilities.full:
        pytest.skip("needs a file tree of a job's own")
    image = make_image(tmp_path / "image")
    state = image / "data" / "state"
    (state / "inner").mkdir(parents=True)
    (image / "file").touch()
    roots = {"around": image, "in it": state / "inner", "missing": image / "no", "a file": image / "file"}
    roots |= {"processes": Path("/proc"), "sockets": Path("/run"), "devices": Path("/dev"), "others": Path("/tmp")}
    with pytest.raises(StartFailed) as failed:
        await best.start(inside(scratch, roots[which], "true", hidden=(str(state),)))  # type: ignore[arg-type]
    assert (failed.value.call, failed.value.path) == ("open image", str(roots[which]))


async def test_an_image_that_the_node_keeps_may_lie_in_what_is_hidden(
    best: NativeKeepers, scratch: Path, tmp_path: Path
) -> None:
    """But no link that took its place leads elsewhere."""
    if not best.abilities.full:
        pytest.skip("needs a file tree of a job's own")
    image = make_image(tmp_path / "kept" / "user" / "digest")
    hidden = (str(tmp_path / "kept"),)
    wanted = inside(scratch, image, f"cat /etc/image {image}/etc/image", root_is_kept=True, hidden=hidden)
    await to_end(best, wanted)  # type: ignore[arg-type]
    assert (scratch / "out").read_text() == "the image's own\n"
    image.rename(image.with_name("other"))
    image.symlink_to("other")
    again = inside(scratch, image, "true", root_is_kept=True, hidden=hidden, id="2.0.0")
    with pytest.raises(StartFailed) as failed:
        await best.start(again)  # type: ignore[arg-type]
    assert (failed.value.call, failed.value.path) == ("open image", str(image))


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to run jobs as somebody else")
async def test_a_user_cannot_name_what_he_may_not_enter(best: NativeKeepers, common: Path) -> None:
    if not best.abilities.full:
        pytest.skip("needs a file tree of a job's own")
    closed = common / "closed"
    image = make_image(closed / "image")
    closed.chmod(0o700)
    scratch = common / "scratch"
    scratch.mkdir()
    os.chown(scratch, 61234, 61234)
    with pytest.raises(StartFailed) as failed:
        await best.start(inside(scratch, image, "true", uid=61234, gid=61234, groups=()))  # type: ignore[arg-type]
    assert failed.value.errno == 13


async def test_a_link_that_takes_the_place_of_a_directory_leads_nowhere(
    best: NativeKeepers, scratch: Path, tmp_path: Path
) -> None:
    """Names of the image are exchanged all the time while jobs start; the machine stays out of sight."""
    if not best.abilities.full:
        pytest.skip("needs a file tree of a job's own")
    image = make_image(tmp_path / "image")
    (image / "swapped").mkdir()
    (tmp_path / "link").symlink_to("/etc")
    swap = "import ctypes, sys\nlibc = ctypes.CDLL(None)\nwhile True: libc.renameat2(-100, sys.argv[1].encode(), -100, "
    swap += "sys.argv[2].encode(), 2)"
    with subprocess.Popen([sys.executable, "-IS", "-c", swap, image / "swapped", tmp_path / "link"]) as swapping:
        try:
            begun = 0
            for number in range(60):
                wanted = inside(scratch, image, "cat /swapped/passwd", id=f"{number}.0.0")
                try:
                    await to_end(best, wanted)  # type: ignore[arg-type]
                except StartFailed:
                    continue
                begun += 1
                assert (scratch / "out").read_text() == ""
            assert begun
        finally:
            swapping.kill()
