"""A job's requests are done as its owner would do them on the submit side, and nothing beyond what it is shown."""

from __future__ import annotations

import errno
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from pool.remoteio.frames import APPEND, NOW, OMIT, UNCHANGED, Attr
from pool.remoteio.journal import rollback
from tests.remoteio.support import Desk

CREATE, RDWR, WRONLY = os.O_CREAT, os.O_RDWR, os.O_WRONLY


def refusal(desk: Desk, *call: object) -> int:
    try:
        desk.do(*call)  # type: ignore[arg-type]
    except OSError as error:
        return error.errno or 0
    raise AssertionError("it was not refused")


def test_a_file_is_made_written_read_and_closed(desk: Desk) -> None:
    attr, data = desk.do("open", 1, "new", CREATE | RDWR, 0o640, 100)
    assert (attr.size, attr.mode & 0o777, data) == (0, 0o640, b"")
    assert desk.do("write", 1, 3, b"defg")[0] == 4
    written, attr = desk.do("write", 1, APPEND, b"hi")
    assert (written, attr.size) == (2, 9)
    assert desk.do("read", 1, 0, 100) == (b"\0\0\0defghi",)
    desk.do("truncate", b"", 1, 5)
    desk.do("sync", 1, 0)
    desk.do("close", 1)
    assert (desk.tree / "new").read_bytes() == b"\0\0\0de"
    assert refusal(desk, "read", 1, 0, 1) == errno.EBADF


def test_opening_brings_the_content_of_a_small_file(desk: Desk) -> None:
    (desk.tree / "small").write_bytes(b"content")
    assert desk.do("open", 1, "small", os.O_RDONLY, 0, 100)[1] == b"content"
    assert desk.do("open", 2, "small", os.O_RDONLY, 0, 3)[1] == b""
    assert desk.do("open", 3, "small", WRONLY, 0, 100)[1] == b""


def test_opening_answers_as_open_does(desk: Desk) -> None:
    (desk.tree / "file").write_bytes(b"x")
    (desk.tree / "dir").mkdir()
    (desk.tree / "link").symlink_to("file")
    os.mkfifo(desk.tree / "pipe")
    assert refusal(desk, "open", 1, "missing", RDWR, 0, 0) == errno.ENOENT
    assert refusal(desk, "open", 1, "file", CREATE | os.O_EXCL | RDWR, 0o644, 0) == errno.EEXIST
    assert refusal(desk, "open", 1, "dir", os.O_RDONLY, 0, 0) == errno.EISDIR
    assert refusal(desk, "open", 1, "file/x", RDWR, 0, 0) == errno.ENOTDIR
    assert refusal(desk, "open", 1, "link", RDWR, 0, 0) == errno.ESTALE
    assert refusal(desk, "open", 1, "pipe", os.O_RDONLY, 0, 0) == errno.EACCES
    desk.do("open", 1, "file", os.O_RDONLY, 0, 0)
    assert refusal(desk, "write", 1, 0, b"x") == errno.EBADF


def test_names_are_listed_in_pieces_and_hidden_ones_not(desk: Desk) -> None:
    for number in range(2500):
        (desk.tree / f"f{number}").touch()
    (desk.tree / ".poolnode-undo.1.0.5").touch()
    (desk.tree / os.fsdecode(b"\xff\xfe")).touch()
    found: list[bytes] = []
    cookie, pieces = 0, 0
    while True:
        cookie, entries = desk.do("list", "", cookie)
        found += [name for name, _ in entries]
        assert all(isinstance(attr, Attr) for _, attr in entries)
        pieces += 1
        if not cookie:
            break
    assert pieces == 3
    assert sorted(found) == sorted([b"\xff\xfe", *(b"f%d" % number for number in range(2500))])
    assert refusal(desk, "stat", ".poolnode-undo.1.0.5") == errno.ENOENT
    assert refusal(desk, "open", 1, ".poolnode-undo.x", CREATE | RDWR, 0o600, 0) == errno.ENOENT


def test_names_are_removed_together_and_each_once(desk: Desk) -> None:
    """The answer names those that cannot be removed. The same request, sent again after a kill, removes nothing that
    came since.
    """
    for name in ("a", "b", "c"):
        (desk.tree / name).write_text(name)
    (desk.tree / "directory").mkdir()
    names = (b"a", b"missing", b"directory", b"b", b"b")
    refused = [(1, errno.ENOENT), (2, errno.EISDIR), (4, errno.ENOENT)]
    assert desk.unlink_names("", *names, unique=20) == refused
    assert desk.do("list", "", 0)[1][0][0] in (b"c", b"directory")
    (desk.tree / "a").write_text("of another program")
    desk.again()
    assert desk.unlink_names("", *names, unique=20) == refused
    assert (desk.tree / "a").read_text() == "of another program"
    assert not (desk.tree / "b").exists()
    (desk.tree / "a").unlink()
    assert rollback(desk.journal, 0) == []
    assert sorted(os.listdir(desk.tree)) == ["a", "b", "c", "directory"]
    assert (desk.tree / "b").read_text() == "b"


def test_names_that_are_removed_together_fill_the_journal_and_are_gone(desk: Desk) -> None:
    desk.close()
    desk.limit = 20_000
    desk.open()
    for number in range(8):
        (desk.tree / str(number)).write_bytes(b"x" * 8192)
    assert desk.unlink_names("", *(b"%d" % number for number in range(8))) == []
    assert "REMOTE_IO_UNDO" in desk.journal.why
    assert os.listdir(desk.tree) == []


def test_names_are_changed(desk: Desk) -> None:
    desk.do("mkdir", "d", 0o750)
    desk.do("symlink", b"where/ever", "d/l")
    assert desk.do("readlink", "d/l") == (b"where/ever",)
    (desk.tree / "f").write_bytes(b"f")
    assert desk.do("link", "f", "g")[0].nlink == 2
    desk.do("rename", "f", "d/f", 0)
    assert refusal(desk, "rename", "g", "d/f", 1) == errno.EEXIST
    assert refusal(desk, "rmdir", "d") == errno.ENOTEMPTY
    assert refusal(desk, "unlink", "d") == errno.EISDIR
    desk.do("chmod", "d/f", 0o604)
    desk.do("utimes", "d/f", 10**18, OMIT)
    status = (desk.tree / "d/f").stat()
    assert (status.st_mode & 0o777, status.st_atime_ns) == (0o604, 10**18)
    desk.do("utimes", "d/f", OMIT, NOW)
    for name in ("d/f", "d/l"):
        desk.do("unlink", name)
    desk.do("rmdir", "d")
    assert desk.do("list", "", 0)[1][0][0] == b"g"
    assert len(desk.do("statfs", "")) == 7


def test_settings_of_an_open_file_are_changed_together_wherever_its_name_leads(desk: Desk) -> None:
    (desk.tree / "f").write_text("text")
    desk.do("open", 1, "f", RDWR, 0, 0)
    (desk.tree / "f").rename(desk.tree / "g")
    (desk.tree / "f").write_text("another file")
    before = (desk.tree / "f").stat()
    (attr,) = desk.do("setattr", 1, 0o604, os.getuid(), UNCHANGED, OMIT, 10**18 + 5)
    now = (desk.tree / "g").stat()
    assert (attr.mode, attr.mtime, attr.atime) == (now.st_mode, 10**18 + 5, now.st_atime_ns)
    assert (now.st_mode & 0o7777, now.st_mtime_ns) == (0o604, 10**18 + 5)
    (attr,) = desk.do("setattr", 1, UNCHANGED, UNCHANGED, UNCHANGED, OMIT, OMIT)
    assert (attr.mode & 0o7777, attr.mtime) == (0o604, 10**18 + 5)
    assert (desk.tree / "f").stat() == before


def test_settings_are_changed_only_of_files_that_are_open_for_writing(desk: Desk) -> None:
    (desk.tree / "f").write_text("text")
    desk.do("open", 1, "f", os.O_RDONLY, 0, 0)
    before = (desk.tree / "f").stat()
    assert refusal(desk, "setattr", 1, 0o777, UNCHANGED, UNCHANGED, OMIT, NOW) == errno.EBADF
    assert refusal(desk, "setattr", 2, 0o777, UNCHANGED, UNCHANGED, OMIT, NOW) == errno.EBADF
    assert (desk.tree / "f").stat() == before


def test_nothing_outside_the_tree_is_reached(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"s")
    (desk.tree / "out").symlink_to(tmp_path)
    assert refusal(desk, "stat", os.fsencode(tmp_path / "secret")) == errno.EACCES
    assert refusal(desk, "stat", "../secret") == errno.EINVAL
    assert refusal(desk, "stat", "out/secret") == errno.ESTALE
    assert refusal(desk, "open", 1, "out/new", CREATE | RDWR, 0o644, 0) == errno.ESTALE
    assert refusal(desk, "rename", "out", os.fsencode(tmp_path / "x"), 0) == errno.EACCES
    assert refusal(desk, "rmdir", "") == errno.EBUSY
    for path in (b"", b"relative", b"/a\0b", os.fsencode(desk.tree) + b"/", b"/" + b"x" * 5000):
        assert refusal(desk, "stat", path) in (errno.EINVAL, errno.EACCES, errno.ENAMETOOLONG)


def test_processes_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    desk = Desk(Path("/proc"), tmp_path / "journal")
    assert refusal(desk, "open", 1, "self/environ", os.O_RDONLY, 0, 0) in (errno.EACCES, errno.ESTALE)
    assert refusal(desk, "open", 1, f"{os.getpid()}/mem", RDWR, 0, 0) == errno.EACCES
    desk.close()


def test_a_tree_for_reading_only_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "journal").mkdir()
    (tmp_path / "tree/f").write_bytes(b"f")
    desk = Desk(tmp_path / "tree", tmp_path / "journal", readonly=True)
    assert desk.do("open", 1, "f", os.O_RDONLY, 0, 9)[1] == b"f"
    for call in (
        ("open", 2, "f", RDWR, 0, 0),
        ("open", 2, "new", CREATE | RDWR, 0o644, 0),
        ("truncate", "f", 0, 0),
        ("unlink", "f"),
        ("mkdir", "d", 0o755),
        ("rename", "f", "g", 0),
        ("chmod", "f", 0o600),
        ("access", "f", os.W_OK),
    ):
        assert refusal(desk, *call) == errno.EROFS
    desk.close()


def test_a_socket_is_seen_but_not_opened(desk: Desk) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{desk.work.places._open[0][1]}/s")
    assert desk.do("stat", "s")[0].mode & 0o170000 == 0o140000
    assert refusal(desk, "open", 1, "s", RDWR, 0, 0) == errno.EACCES


def test_a_removed_file_that_is_open_is_found_again(desk: Desk) -> None:
    attr, _ = desk.do("open", 1, "f", CREATE | RDWR, 0o644, 0)
    desk.do("write", 1, 0, b"kept")
    desk.do("unlink", "f")
    assert refusal(desk, "stat", "f") == errno.ENOENT
    desk.journal.mark(5)
    desk.journal.commit(5)
    desk.again()
    desk.do("reopen", 1, "f", RDWR, 0, 0, attr.dev, attr.ino, 1)
    assert desk.do("read", 1, 0, 10) == (b"kept",)
    desk.do("close", 1)
    desk.journal.mark(6)
    desk.journal.commit(6)
    assert os.listdir(desk.tree) == []
    assert refusal(desk, "reopen", 1, "f", RDWR, 0, 0, attr.dev, attr.ino, 1) == errno.ESTALE


def test_names_that_are_kept_for_undoing_do_not_count(desk: Desk) -> None:
    (desk.tree / "f").write_bytes(b"f")
    os.link(desk.tree / "f", desk.tree / "g")
    attr, _ = desk.do("open", 1, "f", os.O_RDONLY, 0, 0)
    assert attr.nlink == 2
    desk.do("unlink", "g")
    assert desk.do("stat", "f")[0].nlink == 1
    desk.do("unlink", "f")
    assert desk.do("reopen", 1, "f", os.O_RDONLY, 0, 0, attr.dev, attr.ino, 1)[0].nlink == 0


def test_an_answer_costs_the_same_after_many_removals(desk: Desk) -> None:
    """Lines of Python: one for each hidden file made a job that removes many files slower and slower."""
    (desk.tree / "f").write_text("text")

    def lines() -> int:
        count = 0

        def trace(*_: object) -> Any:
            nonlocal count
            count += 1
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            desk.do("stat", "f")
            desk.do("rename", "f", "g", 0)
            desk.do("rename", "g", "f", 0)
        finally:
            sys.settrace(before)
        return count

    lines()
    few = lines()
    for number in range(300):
        (desk.tree / f"r{number}").write_text("text")
        desk.do("unlink", f"r{number}")
    assert lines() <= few + 20


def test_what_was_replaced_is_not_opened_again(desk: Desk) -> None:
    attr, _ = desk.do("open", 1, "f", CREATE | RDWR, 0o644, 0)
    os.replace(desk.tree / "f", desk.tree / "g")
    (desk.tree / "f").touch()
    desk.again()
    assert refusal(desk, "reopen", 1, "f", RDWR, 0, 0, attr.dev, attr.ino, 0) == errno.ESTALE


@pytest.mark.parametrize("killed", [False, True])
def test_a_request_that_comes_again_after_a_kill_is_not_done_twice(desk: Desk, killed: bool) -> None:
    (desk.tree / "f").write_bytes(b"start")
    (desk.tree / "old").write_bytes(b"old")
    (desk.tree / "target").write_bytes(b"target")
    calls = [
        ("write", 1, APPEND, b" more"),
        ("mkdir", "d", 0o755),
        ("open", 2, "new", CREATE | os.O_EXCL | RDWR, 0o644, 0),
        ("symlink", b"to", "l"),
        ("link", "f", "k"),
        ("rename", "old", "target", 0),
        ("unlink", "k"),
        ("rmdir", "d"),
    ]
    for unique, call in enumerate(calls, 1000):
        if call[0] == "write":
            desk.do("open", 1, "f", RDWR, 0, 0)
        desk.do(*call, unique=unique)  # type: ignore[arg-type]
        if killed:
            desk.again()
            if call[0] == "write":
                desk.do("open", 1, "f", RDWR, 0, 0)
            desk.do(*call, unique=unique)  # type: ignore[arg-type]
    assert (desk.tree / "f").read_bytes() == b"start more"
    assert (desk.tree / "target").read_bytes() == b"old"
    assert sorted(name for name in os.listdir(desk.tree) if name[0] != ".") == ["f", "l", "new", "target"]


def test_locks_of_two_jobs_exclude_each_other(desk: Desk, tmp_path: Path) -> None:
    (desk.tree / "f").write_bytes(b"x" * 100)
    (tmp_path / "other").mkdir()
    other = Desk(desk.tree, tmp_path / "other")
    desk.do("open", 1, "f", RDWR, 0, 0)
    other.do("open", 1, "f", RDWR, 0, 0)
    desk.do("lock", 1, 7, 2, 0, 10, 20)
    assert refusal(other, "lock", 1, 7, 2, 0, 0, 0) == errno.EAGAIN
    other.do("lock", 1, 7, 2, 0, 50, 10)
    assert other.do("lock", 1, 7, 1, 4, 0, 0)[:3] == (2, 10, 20)
    assert other.do("lock", 1, 7, 1, 4, 70, 5)[0] == 0
    desk.do("lock", 1, 7, 0, 0, 0, 0)
    other.do("lock", 1, 7, 2, 0, 0, 0)
    desk.do("lock", 1, 7, 2, 2, 0, 0)  # flock does not meet it
    assert refusal(other, "lock", 1, 7, 1, 2, 0, 0) == errno.EAGAIN
    other.close()


def test_what_cannot_be_kept_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each file, by its name; the job gets the error each time."""
    told: list[str] = []

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(desk.work, "_not_kept", told.append)
    desk.do("open", 1, "a", os.O_CREAT | os.O_RDWR, 0o644, 0)
    monkeypatch.setattr(os, "pwrite", full)
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            desk.do("write", 1, 0, b"x")
    assert told == [f"what it wrote to {desk.tree}/a could not be kept: no space left on device"]
