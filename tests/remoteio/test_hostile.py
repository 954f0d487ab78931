"""A job's attacks on the submit side: strange names, files that are mostly holes, too many requests at once."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pool.remoteio.frames import Op
from pool.remoteio.journal import rollback
from tests.remoteio.support import Desk, HomeProcess, Refused, picture

CREATE, RDWR = os.O_CREAT, os.O_RDWR
STRANGE = [b"two\nlines", b"not \xff\xfe UTF-8", b"x" * 255, b" ", b"-rf", b"*", b"\xfc", b".poolnode", b"\x01"]


def test_names_of_any_bytes_are_made_listed_replaced_removed_and_put_back(desk: Desk) -> None:
    tree = os.fsencode(desk.tree)
    for name in STRANGE[::2]:
        Path(os.fsdecode(tree + b"/" + name)).write_bytes(b"old")
    before = picture(desk.tree)
    for name in STRANGE:
        desk.do("open", 1, tree + b"/" + name, RDWR | CREATE, 0o644, 0)
        desk.do("write", 1, 0, b"new")
        desk.do("close", 1)
    _, listed = desk.do("list", "", 0)
    assert sorted(name for name, _ in listed) == sorted(STRANGE)
    for name, other in pairwise(STRANGE):
        desk.do("rename", tree + b"/" + name, tree + b"/" + other, 0)
    desk.do("unlink", tree + b"/" + STRANGE[-1])
    desk.again()
    assert desk.do("list", "", 0) == (0, [])
    assert rollback(desk.journal, 0) == []
    assert picture(desk.tree) == before


def refusal(desk: Desk, directory: str, *names: bytes, unique: int = 0) -> int:
    """The errno of names that are removed together, as a whole."""
    try:
        desk.unlink_names(directory, *names, unique=unique)
    except OSError as error:
        return error.errno or 0
    return 0


def test_names_to_remove_lead_nowhere_else(desk: Desk) -> None:
    (desk.tree / "inside").mkdir()
    (desk.tree / "inside/f").write_text("kept")
    (desk.tree / "link").symlink_to("inside")
    (desk.tree / ".poolnode-undo.1.0.5").touch()
    strange = {
        **dict.fromkeys([b"", b".", b"..", b"inside/f", b"../tree/inside/f", b"a\0b"], errno.EINVAL),
        **{b".poolnode-undo.1.0.5": errno.ENOENT, b"x" * 300: errno.ENAMETOOLONG, b"y" * 5000: errno.ENAMETOOLONG},
        **{b"inside": errno.EISDIR},
    }
    assert desk.unlink_names("", *strange) == list(enumerate(strange.values()))
    for directory, number in (("link", errno.ESTALE), ("inside/../inside", errno.EINVAL), ("../journal", errno.EINVAL)):
        assert refusal(desk, directory, b"f") == number
    assert refusal(desk, "inside", *[b"f"] * 65) == errno.EINVAL  # too many
    assert refusal(desk, "inside", *[b"f"] * 5, unique=4) == errno.EINVAL  # numbers below the first
    assert (desk.tree / "inside/f").read_text() == "kept"
    assert (desk.tree / ".poolnode-undo.1.0.5").exists()


def test_a_file_whose_path_has_no_room_for_a_hidden_name_comes_back(desk: Desk) -> None:
    path, at = os.fsencode(desk.tree), os.open(desk.tree, os.O_PATH)
    while len(path) < 4093:
        name = b"d" * min(200, 4093 - len(path) - 1) if 4093 - len(path) != 202 else b"d" * 100
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_PATH, dir_fd=at)
        os.close(at)
        path, at = path + b"/" + name, below
    os.close(os.open(b"f", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=at))
    assert len(path + b"/f") == 4095
    desk.do("unlink", path + b"/f")
    assert [name[:15] for name in os.listdir(f"/proc/self/fd/{at}")] == [".poolnode-undo."]
    assert rollback(desk.journal, 0) == []
    assert os.listdir(f"/proc/self/fd/{at}") == ["f"]
    desk.do("unlink", path + b"/f")
    desk.journal.keep_changes(1)
    assert os.listdir(f"/proc/self/fd/{at}") == []
    os.close(at)


def test_holes_are_not_kept_and_come_back_as_holes(desk: Desk) -> None:
    """A file of a tebibyte with a few bytes in it is emptied, and one is written into its holes."""
    for name in ("emptied", "filled"):
        with (desk.tree / name).open("wb") as file:
            file.seek(1 << 39)
            file.write(b"in the middle")
            file.truncate(1 << 40)
    desk.do("open", 1, "emptied", RDWR | os.O_TRUNC, 0, 0)
    desk.do("open", 2, "filled", RDWR, 0, 0)
    desk.do("write", 2, 1 << 30, b"x" * 100_000)
    desk.do("write", 2, (1 << 39) - 3, b"across the edge")
    assert desk.journal.why == ""
    assert sum(path.stat().st_blocks for path in (desk.tree.parent / "journal").iterdir()) < 200
    desk.again()
    assert rollback(desk.journal, 0) == []
    for name in ("emptied", "filled"):
        with (desk.tree / name).open("rb") as file:
            status = os.fstat(file.fileno())
            assert (status.st_size, status.st_blocks < 100) == (1 << 40, True)
            assert os.pread(file.fileno(), 20, (1 << 39) - 3) == b"\0\0\0in the middle\0\0\0\0"
            assert not os.pread(file.fileno(), 100_000, 1 << 30).strip(b"\0")


def test_rights_are_not_set_through_a_name_that_becomes_a_link(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody on the submit side puts a link out of the tree where the file was, at the worst moment."""
    outside = desk.tree.parent / "outside"
    outside.write_bytes(b"others'")
    outside.chmod(0o600)
    inside = desk.tree / "inside"
    inside.write_bytes(b"")
    before = desk.journal.settings.before

    def swapped(*noted: Any) -> None:
        before(*noted)
        inside.rename(desk.tree / "moved")
        inside.symlink_to(outside)

    with monkeypatch.context() as patch:
        patch.setattr(desk.journal.settings, "before", swapped)
        desk.do("chmod", "inside", 0o666)
    assert outside.stat().st_mode & 0o777 == 0o600
    assert (desk.tree / "moved").stat().st_mode & 0o777 == 0o666
    assert rollback(desk.journal, 0) == [f"{inside}: is another file now"]
    assert outside.stat().st_mode & 0o777 == 0o600


def test_a_directory_that_becomes_a_link_leads_no_undoing_out() -> None:
    """A file that its owner may not write is given the right to be written: this one, and no other of its name."""
    with tempfile.TemporaryDirectory() as top, ordinary_user(top):
        tree, outside = Path(top, "tree"), Path(top, "outside")
        for directory in (tree, tree / "d", outside, tree.parent / "journal"):
            directory.mkdir()
        for directory in (tree / "d", outside):
            (directory / "file").write_bytes(b"before")
        desk = Desk(tree, tree.parent / "journal")
        desk.do("open", 1, "d/file", RDWR, 0, 0)
        desk.do("write", 1, 0, b"after!")
        desk.do("close", 1)
        (tree / "d").rename(tree / "moved")
        (tree / "d").symlink_to(outside)
        (outside / "file").chmod(0o444)
        settled = (outside / "file").stat()
        assert set(rollback(desk.journal, 0)) == {f"{tree}/d/file: is another file now"}
        assert (outside / "file").read_bytes() == b"before"
        assert (outside / "file").stat().st_ctime_ns == settled.st_ctime_ns
        desk.close()


@contextlib.contextmanager
def ordinary_user(top: str) -> Iterator[None]:
    """Be somebody who may not do everything, with a directory of his own."""
    me = os.geteuid()
    if me == 0:
        os.chown(top, 12345, -1)
        os.seteuid(12345)
    try:
        yield
    finally:
        os.seteuid(me)


def test_a_job_that_opens_all_it_can_leaves_room_for_others(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").write_bytes(b"x")
    home = HomeProcess()
    home.ask("probed", job="1.0", probes=[])  # it is there
    soft, hard = resource.prlimit(home.process.pid, resource.RLIMIT_NOFILE)
    assert soft == hard
    resource.prlimit(home.process.pid, resource.RLIMIT_NOFILE, (200, 200))
    job = home.open(tmp_path / "tree", tmp_path / "journal")
    job.hello()
    for handle in range(1, 51):
        job.ask(Op.OPEN, handle, "file", os.O_RDONLY, 0, 0)
    with pytest.raises(Refused) as refused:
        job.ask(Op.OPEN, 51, "file", os.O_RDONLY, 0, 0)
    assert refused.value.errno == errno.EMFILE
    job.ask(Op.STAT, "file")
    job.ask(Op.CLOSE, 1)
    job.ask(Op.OPEN, 51, "file", os.O_RDONLY, 0, 0)
    job.close()
    home.close()
