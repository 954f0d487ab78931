"""Leases: a change on the submit side is reported, once, and a lease ends when that cannot be promised any more."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pool.remoteio import frames, leases
from pool.remoteio.frames import Op
from pool.remoteio.leases import DirectoryWatches, FileLeases
from pool.remoteio.path_lookup import Places
from pool.remoteio.session import RemoteSession
from pool.remoteio.trees import Tree
from tests.remoteio.support import Desk, JobEnd, Refused

OVER = b""


class Leasing:
    """A desk's session with leases, its job's side, and what is watched for it."""

    def __init__(self, desk: Desk, limit: int) -> None:
        self.desk = desk
        self.watches = DirectoryWatches(limit, mounts="/dev/null")  # others' mounts would end leases in between
        self.session = RemoteSession(desk.work, lambda: (frames.VERSION, 1, [], [], 0, 0))
        desk.work.leases = FileLeases(self.watches, desk.work.places, self.session.send_notice)
        self.job = self.connect()

    def connect(self) -> JobEnd:
        ours, theirs = socket.socketpair()
        self.session.connect(theirs)
        job = JobEnd(ours, self.desk.tree)
        job.hello()
        return job

    def close(self) -> None:
        assert self.desk.work.leases is not None
        self.session.close()
        self.desk.work.leases.close()
        self.watches.close()
        self.job.close()


@contextmanager
def leasing(desk: Desk, limit: int = 100) -> Iterator[Leasing]:
    found = Leasing(desk, limit)
    yield found
    found.close()


def refused(job: JobEnd, number: int, name: str) -> int:
    with pytest.raises(Refused) as caught:
        job.ask(Op.LEASE, number, name)
    return int(caught.value.errno or 0)


def replace(tree: Path) -> None:
    (tree / "new").write_text("another")
    (tree / "new").rename(tree / "f")


CHANGES: dict[str, Callable[[Path], object]] = {
    "written": lambda tree: (tree / "f").write_text("longer than before"),
    "cut off": lambda tree: os.truncate(tree / "f", 1),
    "replaced": replace,
    "removed": lambda tree: (tree / "f").unlink(),
    "renamed": lambda tree: (tree / "f").rename(tree / "g"),
    "made unreadable": lambda tree: (tree / "f").chmod(0),
    "given times": lambda tree: os.utime(tree / "f", (1, 1)),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_change_is_told(desk: Desk, how: str) -> None:
    (desk.tree / "f").write_text("text")
    with leasing(desk) as site:
        assert site.job.ask(Op.LEASE, 7, "") == []
        CHANGES[how](desk.tree)
        site.job.told(7, b"f")


def test_it_is_told_once_and_again_when_it_was_asked_for(desk: Desk) -> None:
    (desk.tree / "f").write_text("text")
    with leasing(desk) as site:
        job = site.job
        job.ask(Op.LEASE, 7, "")
        for _ in range(50):
            os.utime(desk.tree / "f")
        (desk.tree / "made").touch()
        job.told(7, b"f")
        job.told(7, b"made")
        assert job.notices == []
        for op, *asked in ((Op.STAT, "f"), (Op.LIST, "", 0), (Op.STAT, "")):
            job.ask(Op(op), *asked)
            os.utime(desk.tree / "f")
            job.told(7, b"f")


def test_what_the_job_itself_or_another_one_changes_is_told(desk: Desk) -> None:
    with leasing(desk) as site:
        site.job.ask(Op.LEASE, 7, "")
        site.job.ask(Op.OPEN, 1, "f", os.O_CREAT | os.O_RDWR, 0o644, 0)
        site.job.told(7, b"f")
        site.job.ask(Op.STAT, "f")
        site.job.ask(Op.WRITE, 1, 0, b"data")
        site.job.told(7, b"f")
        site.job.ask(Op.UNLINK, "f")
        assert not [name for _, name in site.job.notices if name.startswith(b".poolnode")]


def test_a_lease_stands_while_the_job_itself_empties_the_directory(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_MOST_REPORTED", 8)
    for number in range(40):
        (desk.tree / f"f{number}").touch()
    with leasing(desk) as site:
        site.job.ask(Op.LEASE, 7, "")
        for number in range(20):
            site.job.ask(Op.UNLINK, f"f{number}")
            site.job.ask(Op.RENAME, f"f{number + 20}", "renamed", 0)
        assert (7, OVER) not in site.job.notices
        site.job.ask(Op.STAT, "renamed")
        (desk.tree / "renamed").write_text("changed by another")
        site.job.told(7, b"renamed")


def test_reports_come_before_the_answer_that_they_are_read_for(desk: Desk) -> None:
    with leasing(desk) as site:
        site.job.ask(Op.LEASE, 7, "")
        for number in range(50):
            (desk.tree / f"theirs{number}").touch()
            site.job.ask(Op.MKDIR, f"ours{number}", 0o755)
            assert (7, b"theirs%d" % number) in site.job.notices


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: (tree / "a").rename(tree / "elsewhere"),
        lambda tree: (tree / "a" / "b").chmod(0o700),
        lambda tree: (tree / "a").chmod(0o700),
        lambda tree: (tree / "a" / "b" / "c").chmod(0o700),
        lambda tree: (tree / "a" / "b" / "c").rmdir(),
    ],
)
def test_a_lease_ends_when_the_way_to_its_directory_changes(desk: Desk, change: Callable[[Path], object]) -> None:
    (desk.tree / "a" / "b" / "c").mkdir(parents=True)
    (desk.tree / "other").mkdir()
    with leasing(desk) as site:
        site.job.ask(Op.LEASE, 1, "a/b/c")
        site.job.ask(Op.LEASE, 2, "other")
        change(desk.tree)
        site.job.told(1, OVER)
        (desk.tree / "other" / "f").touch()
        site.job.told(2, b"f")


def test_all_leases_end_when_the_kernel_loses_events(desk: Desk) -> None:
    room = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for name in ("f", "g"):
        (desk.tree / name).touch()
    with leasing(desk) as site:
        site.job.ask(Op.LEASE, 1, "")
        with site.watches.held():
            for _ in range(room // 2 + 1000):
                os.utime(desk.tree / "f")
                os.utime(desk.tree / "g")
        site.job.told(1, OVER)
        site.job.ask(Op.LEASE, 2, "")
        os.utime(desk.tree / "f")
        site.job.told(2, b"f")


def test_no_more_is_watched_than_may_be(desk: Desk) -> None:
    for name in ("a", "b"):
        (desk.tree / name).mkdir()
    with leasing(desk, limit=2) as site:
        site.job.ask(Op.LEASE, 1, "a")
        assert refused(site.job, 2, "b") == errno.ENOLCK
        site.job.ask(Op.LEASE, 3, "a")  # another number for the same
        site.job.ask(Op.LEASE, 3, b"")  # given back
        site.job.ask(Op.LEASE, 4, "b")
        (desk.tree / "b" / "f").touch()
        site.job.told(4, b"f")
    with leasing(desk, limit=0) as site:
        assert refused(site.job, 1, "a") == errno.ENOLCK


def test_nothing_is_promised_where_the_kernel_does_not_tell_or_the_job_may_not_look(desk: Desk) -> None:
    watches, places = DirectoryWatches(100), Places([Tree("/proc")])
    leases = FileLeases(watches, places, lambda _: None)
    assert not leases.grant(1, b"/proc/self")
    leases.close()
    watches.close()
    places.close()
    with leasing(desk) as site:
        assert refused(site.job, 1, "none") == errno.ENOLCK
        assert refused(site.job, 1, ".poolnode-undo.1") == errno.ENOLCK


def test_a_new_connection_has_no_leases(desk: Desk) -> None:
    with leasing(desk) as site:
        site.job.ask(Op.LEASE, 1, "")
        site.job.close()
        site.job = site.connect()
        (desk.tree / "f").touch()
        site.job.ask(Op.LEASE, 2, "")
        (desk.tree / "g").touch()
        site.job.told(2, b"g")
        assert site.job.notices == []
