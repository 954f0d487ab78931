"""Whatever a job does, undone: the tree is as it was at the mark, also when the submit side was killed anywhere in
between.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pool.remoteio.frames import APPEND, OMIT, UNCHANGED
from pool.remoteio.journal import MarkForgotten
from pool.remoteio.journal.undo import RESTARTED, _Undoing, rollback
from tests.remoteio.support import Desk, picture

CREATE, RDWR = os.O_CREAT, os.O_RDWR
NAMES = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a"]
NAME = st.sampled_from(NAMES)
BYTES = st.binary(min_size=1, max_size=40)
STEP = st.one_of(
    st.tuples(st.just("write"), NAME, st.integers(0, 60), BYTES),
    st.tuples(st.just("append"), NAME, st.just(0), BYTES),
    st.tuples(st.just("rewrite"), NAME, st.just(0), BYTES),
    st.tuples(st.just("truncate"), NAME, st.integers(0, 60)),
    st.tuples(st.just("fallocate"), NAME, st.sampled_from([0, 1, 3, 16]), st.integers(0, 40), st.integers(1, 40)),
    st.tuples(st.just("create"), NAME),
    st.tuples(st.just("setxattr"), NAME, st.sampled_from([b"user.one", b"user.two"]), BYTES, st.integers(0, 2)),
    st.tuples(st.just("removexattr"), NAME, st.sampled_from([b"user.one", b"user.two"])),
    st.tuples(st.sampled_from(["mkdir", "mkfifo", "rmdir", "unlink", "chmod", "utimes", "setattr"]), NAME),
    st.tuples(
        st.just("unlink_names"), st.sampled_from(["", "d", "d/e"]), st.lists(st.sampled_from([b"a", b"b", b"d"]))
    ),
    st.tuples(st.sampled_from(["rename", "exchange", "link", "symlink"]), NAME, NAME),
)


def take(desk: Desk, step: tuple[Any, ...]) -> None:
    """One call of a job; what the kernel refuses is refused."""
    what, name, *rest = step
    try:
        if what in ("write", "append", "rewrite", "create"):
            flags = RDWR | CREATE | (os.O_TRUNC if what == "rewrite" else 0) | (os.O_EXCL if what == "create" else 0)
            desk.do("open", 1, name, flags, 0o644, 0)
            try:
                if rest:
                    desk.do("write", 1, APPEND if what == "append" else rest[0], rest[1])
            finally:
                desk.do("close", 1)
        elif what == "truncate":
            desk.do("truncate", name, 0, rest[0])
        elif what == "fallocate":
            desk.do("open", 1, name, RDWR, 0o644, 0)
            try:
                desk.do("fallocate", 1, *rest)
            finally:
                desk.do("close", 1)
        elif what == "mkdir":
            desk.do("mkdir", name, 0o755)
        elif what == "mkfifo":
            desk.do("mknod", name, stat.S_IFIFO | 0o644)
        elif what == "chmod":
            desk.do("chmod", name, 0o700)
        elif what == "utimes":
            desk.do("utimes", name, 10**18, 10**18)
        elif what == "setattr":
            desk.do("open", 1, name, RDWR, 0, 0)
            try:
                desk.do("setattr", 1, 0o600, os.getuid(), UNCHANGED, OMIT, 10**18)
            finally:
                desk.do("close", 1)
        elif what == "unlink_names":
            desk.unlink_names(name, *rest[0])
        elif what == "exchange":
            desk.do("rename", name, rest[0], 2)
        elif what == "rename":
            desk.do("rename", name, rest[0], 0)
        elif what == "symlink":
            desk.do("symlink", b"to/" + name.encode(), rest[0])
        else:
            desk.do(what, name, *rest)
    except OSError as error:
        if error.errno in (errno.EIO, errno.EBADF):
            raise


@given(st.lists(STEP, max_size=12), st.lists(STEP, max_size=12), st.lists(STEP, max_size=12), st.booleans())
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_was_done_after_a_mark_is_undone(
    first: list[Any], second: list[Any], third: list[Any], killed: bool
) -> None:
    with TemporaryDirectory() as directory:
        tree, journal = Path(directory, "tree"), Path(directory, "journal")
        (tree / "d").mkdir(parents=True)
        journal.mkdir()
        (tree / "a").write_bytes(b"old content of a, which is longer than most that is written")
        (tree / "d/b").write_bytes(b"b" * 30)
        os.link(tree / "a", tree / "d/a")
        pictures = [picture(tree)]
        desk = Desk(tree, journal)
        for number, steps in enumerate((first, second, third), 1):
            for step in steps:
                take(desk, step)
                if killed:
                    desk.again()
            pictures.append(seen(tree))
            desk.journal.mark(number)
        for number in (2, 1, 0):
            assert rollback(desk.journal, number) == []
            assert seen(tree) == pictures[number]
            if number == 0:
                assert picture(tree) == pictures[0]  # with nothing hidden left
        desk.journal.finish()
        desk.close()
        assert os.listdir(journal) == []


def same_inode(tree: Path, inode: int) -> Path:
    """A file of another program that has got the number of one that is gone."""
    for number in range(50):
        path = tree / f"other{number}"
        path.write_text("of another program")
        if path.stat().st_ino == inode:
            return path
    pytest.skip("needs a file system that uses the numbers of removed files again")


@pytest.mark.parametrize("how", ["removed", "removed together", "replaced"])
@pytest.mark.parametrize("killed", [False, True])
def test_a_file_that_got_the_number_of_one_that_the_job_made_and_removed_is_restored(
    desk: Desk, how: str, killed: bool
) -> None:
    for name in ("made", "also"):
        desk.do("open", 1, name, RDWR | CREATE, 0o644, 0)
        desk.do("close", 1)
    inode = (desk.tree / "made").stat().st_ino
    if how == "replaced":
        desk.do("rename", "also", "made", 0)
    elif how == "removed":
        desk.do("unlink", "made")
    else:
        desk.unlink_names("", b"made")
    other = same_inode(desk.tree, inode)
    if killed:
        desk.again()
    desk.do("unlink", other.name)
    assert rollback(desk.journal, 0) == []
    assert other.read_text() == "of another program"


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_got_the_name_and_the_number_of_one_that_the_job_made_stays(desk: Desk, how: str) -> None:
    (desk.tree / "kept").touch()
    for name in ("made", "also"):
        desk.do("open", 1, name, RDWR | CREATE, 0o644, 0)
        desk.do("close", 1)
    inode = (desk.tree / "made").stat().st_ino
    if how == "replaced":
        desk.do("rename", "also", "made", 0)
        desk.do("unlink", "made")
    else:
        desk.do("unlink", "made")
    desk.do("chmod", "kept", 0o700)
    same_inode(desk.tree, inode).rename(desk.tree / "made")
    rollback(desk.journal, 0)
    assert (desk.tree / "made").read_text() == "of another program"


@given(st.lists(STEP, max_size=20), st.lists(STEP, max_size=20))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_was_committed_stays_and_nothing_hidden_is_left(first: list[Any], second: list[Any]) -> None:
    with TemporaryDirectory() as directory:
        tree, journal = Path(directory, "tree"), Path(directory, "journal")
        tree.mkdir()
        journal.mkdir()
        desk = Desk(tree, journal)
        for step in first:
            take(desk, step)
        desk.journal.mark(1)
        desk.journal.commit(1)
        marked = picture(tree)
        assert marked == seen(tree)
        for step in second:
            take(desk, step)
        with pytest.raises(MarkForgotten):
            rollback(desk.journal, 0)
        assert rollback(desk.journal, 1) == []
        assert picture(tree) == marked
        desk.close()


@pytest.mark.parametrize("cut", [False, True])
def test_a_directory_that_was_made_and_removed_is_gone(desk: Desk, cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what happened in it; also where undoing was cut short between the two."""
    desk.journal.mark(1)
    before = picture(desk.tree)
    for number in range(2):
        desk.do("mkdir", "m", 0o755)
        desk.do("mkdir", "m/in", 0o755)
        desk.do("chmod", "m", 0o700)
        desk.do("rmdir", "m/in")
        desk.do("rename", "m", "n", 0)
        desk.do("rmdir", "n")
        os.mkdir(desk.tree.parent / f"takes the inode {number}")
    desk.again()
    if cut:
        with monkeypatch.context() as patch:
            patch.setattr(_Undoing, "_undo_d", _fail)
            with pytest.raises(KeyboardInterrupt):
                rollback(desk.journal, 1)
        desk.again()
    assert rollback(desk.journal, 1) == []
    assert picture(desk.tree) == before


def _fail(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_file_that_is_new_is_exchanged_for_an_old_one_and_removed(desk: Desk) -> None:
    (desk.tree / "a").write_bytes(b"old")
    before = picture(desk.tree)
    for step in (("create", "b"), ("exchange", "b", "a"), ("unlink", "a")):
        take(desk, step)
    assert rollback(desk.journal, 0) == []
    assert picture(desk.tree) == before


def seen(tree: Path) -> dict[str, Any]:
    """The files that the job sees: without hidden names."""
    return {name: what for name, what in picture(tree).items() if ".poolnode-undo." not in name}


def test_after_a_restart_of_the_machine_it_is_said_that_the_end_may_be_missing(desk: Desk) -> None:
    (desk.tree / "a").write_bytes(b"before")
    desk.journal.begin_run(1)
    desk.do("open", 1, "a", RDWR, 0, 0)
    desk.do("write", 1, 0, b"after")
    desk.do("sync", 1, 0)
    state = desk.tree.parent / "journal" / "state"
    desk.again()
    assert not desk.journal.book.is_before_boot
    state.write_text(json.dumps(json.loads(state.read_text()) | {"boot": "another"}))
    desk.again()
    assert rollback(desk.journal, 0) == [RESTARTED]
    assert (desk.tree / "a").read_bytes() == b"before"
    desk.journal.begin_run(2)
    desk.again()
    assert rollback(desk.journal, 0) == []
