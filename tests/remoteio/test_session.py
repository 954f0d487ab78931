"""Requests of one job: who does them, in what order, and that one which takes long holds up no other."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pool.remoteio import frames
from pool.remoteio.frames import OMIT, UNCHANGED, Op
from pool.remoteio.session import RemoteSession
from pool.starter.files import StartFiles
from pool.starter.place import StartRefused
from tests.remoteio.support import Desk, JobEnd, Refused

CREATE, RDWR = os.O_CREAT, os.O_RDWR


@contextmanager
def session(desk: Desk, *, greet: bool = True) -> Iterator[JobEnd]:
    """The desk's operations behind a connection."""
    found = RemoteSession(desk.work, lambda: (frames.VERSION, 1, [], [], 0, 0))
    ours, theirs = socket.socketpair()
    found.connect(theirs)
    job = JobEnd(ours, desk.tree)
    if greet:
        job.hello()
    yield job
    found.close()
    job.close()


def slow(desk: Desk, operation: str) -> threading.Event:
    """Have an operation wait, as for a slow disk, until the event is set."""
    go, real = threading.Event(), getattr(desk.work, operation)

    def waits(*arguments: Any) -> Any:
        assert go.wait(20)
        return real(*arguments)

    setattr(desk.work, operation, waits)
    return go


def test_a_request_that_takes_long_holds_up_no_other(desk: Desk) -> None:
    (desk.tree / "f").write_text("text")
    go = slow(desk, "readlink")
    with session(desk) as job:
        os.symlink("f", desk.tree / "link")
        waits = [job.send(Op.READLINK, "link") for _ in range(3)]
        for _ in range(20):
            assert job.ask(Op.STAT, "f")[0].size == 4
        go.set()
        answers = {job.receive()[0] for _ in waits}
        assert answers == set(waits)
        assert job.ask(Op.STAT, "f")[0].size == 4


def test_what_comes_for_one_handle_waits_for_what_takes_long_there(desk: Desk) -> None:
    go = slow(desk, "write")
    with session(desk) as job:
        job.ask(Op.OPEN, 1, "f", CREATE | RDWR, 0o644, 0)
        sent = [job.send(Op.WRITE, 1, 0, b"one"), job.send(Op.WRITE, 1, 3, b"two"), job.send(Op.READ, 1, 0, 10)]
        assert job.ask(Op.STAT, "f")[0].size == 0
        go.set()
        answers = {unique: values for unique, _, values in (job.receive() for _ in sent)}
        assert answers.keys() == set(sent)
        assert answers[sent[-1]] == [b"onetwo"]


def test_times_that_are_set_behind_a_slow_write_stay(desk: Desk) -> None:
    go = slow(desk, "write")
    with session(desk) as job:
        job.ask(Op.OPEN, 1, "f", CREATE | RDWR, 0o644, 0)
        settings = (0o600, UNCHANGED, UNCHANGED, OMIT, 10**18)
        sent = [job.send(Op.WRITE, 1, 0, b"text"), job.send(Op.SETATTR, 1, *settings), job.send(Op.CLOSE, 1)]
        assert job.ask(Op.STAT, "f")[0].size == 0
        go.set()
        assert {job.receive()[:2] for _ in sent} == {(unique, 0) for unique in sent}
        attr = job.ask(Op.STAT, "f")[0]
        assert (attr.size, attr.mode & 0o7777, attr.mtime) == (4, 0o600, 10**18)


def test_what_comes_behind_names_that_are_removed_ahead_waits_until_they_are_gone(desk: Desk) -> None:
    for name in ("a", "b"):
        (desk.tree / name).write_text("text")
    go = slow(desk, "unlink_names")
    with session(desk) as job:
        removed = job.send(Op.UNLINK_NAMES, "", [(b"a",), (b"b",)], unique=10)
        sent = [job.send(Op.STAT, "a"), job.send(Op.MARK, 5), job.send(Op.STAT, "b")]
        with pytest.raises(Refused):
            job.ask(Op.COMMIT, 1)  # which waits for nothing
        assert (desk.tree / "a").exists()
        go.set()
        answers = [job.receive()[:2] for _ in (removed, *sent)]
        assert answers[0] == (removed, 0)
        assert set(answers[1:]) == {(sent[0], errno.ENOENT), (sent[1], 0), (sent[2], errno.ENOENT)}
        assert answers.index((sent[1], 0)) < answers.index((sent[2], errno.ENOENT))


def test_data_of_any_size_come_whole(desk: Desk) -> None:
    data = os.urandom(1 << 20)
    sizes = [1, 100, 32 * 1024 - 37, 32 * 1024, 200_000, 256 * 1024 - 1, 1 << 20]
    with session(desk) as job:
        job.ask(Op.OPEN, 1, "f", CREATE | RDWR, 0o644, 0)
        for size in sizes:
            sent = [job.send(Op.STAT, "f"), job.send(Op.WRITE, 1, 0, data[:size]), job.send(Op.STAT, "f")]
            assert [job.receive()[0] for _ in sent] == sent
            assert job.ask(Op.READ, 1, 0, 1 << 20)[0][:size] == data[:size]


def test_what_is_no_frame_ends_the_connection(desk: Desk) -> None:
    with session(desk) as job:
        job.end.sendall(frames.pack(Op.WRITE, 7, b"too short"))
        assert job.end.recv(100) == b""


def test_a_job_of_another_version_is_refused(desk: Desk) -> None:
    with session(desk, greet=False) as job:
        with pytest.raises(Refused) as caught:
            job.ask(Op.HELLO, frames.VERSION - 1, b"1.0", b"")
        assert caught.value.errno == errno.EPROTONOSUPPORT
        assert job.end.recv(100) == b""


async def test_a_machine_refuses_a_home_of_another_version_in_words() -> None:
    class Home:
        """One whose version does not say which it has, as the first did not."""

        def __init__(self) -> None:
            self.aborted = False

        async def remote_io(self, run: int, again: bool) -> Any:
            return self

        async def receive(self) -> list[Any]:
            return ["open", {"trees": [], "uid": 0, "gid": 0, "home": "/", "probes": []}]

        def abort(self) -> None:
            self.aborted = True

    home = Home()
    with pytest.raises(StartRefused, match="speaks version 1 of remote files, and this side version 2") as caught:
        await StartFiles("1.0", 1, home).begin(0, 0, ())
    assert "nearer to each other" in caught.value.hint
    assert (caught.value.where, caught.value.retry) == ("input", False), "the job is held with these words"
    assert home.aborted


def test_an_operation_of_a_newer_version_is_refused_by_itself(desk: Desk) -> None:
    with session(desk) as job:
        job.end.sendall(frames.pack(200, 7, b"whatever it is"))
        assert frames.header(job.end.recv(100))[1:] == (200, errno.ENOSYS, 7)
        job.ask(Op.STAT, "")


def test_a_session_is_closed_when_what_is_being_done_is_done(desk: Desk) -> None:
    go = slow(desk, "mkdir")
    found = RemoteSession(desk.work, lambda: (frames.VERSION, 1, [], [], 0, 0))
    ours, theirs = socket.socketpair()
    found.connect(theirs)
    job = JobEnd(ours, desk.tree)
    job.hello()
    job.send(Op.MKDIR, "made", 0o755)
    job.ask(Op.STAT, "")
    closing = threading.Thread(target=found.close)
    closing.start()
    assert job.end.recv(100) == b""
    assert closing.is_alive()
    assert not (desk.tree / "made").exists()
    go.set()
    closing.join(20)
    assert (desk.tree / "made").is_dir()
    job.close()
