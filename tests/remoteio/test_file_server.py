"""Home as a process: what it may, several requests at a time, connections that break, homes that are killed."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from pool.remoteio.frames import APPEND, VERSION, Op
from tests.conftest import passable
from tests.remoteio.support import HomeProcess, JobEnd, Refused, picture

CREATE, RDWR = os.O_CREAT, os.O_RDWR


def refusal(job: JobEnd, op: Op, *values: object) -> int:
    with pytest.raises(Refused) as caught:
        job.ask(op, *values)
    return caught.value.errno or 0


def test_a_job_is_greeted_with_what_it_is_shown(home: HomeProcess, tree: Path, journal: Path) -> None:
    job = home.open(tree, journal)
    version, incarnation, trees, readonly, uid, gid = job.hello()
    assert (version, trees, readonly, uid, gid) == (VERSION, [[os.fsencode(tree)]], [0], os.getuid(), os.getgid())
    assert incarnation > 0
    assert home.answer["trees"] == [[str(tree), False]]
    job.ask(Op.MKDIR, "d", 0o755)
    assert (tree / "d").is_dir()
    assert refusal(job, Op.ROLLBACK, 0) == errno.EPERM
    job.close()


def test_who_does_not_greet_or_sends_rubbish_is_hung_up_on(home: HomeProcess, tree: Path, journal: Path) -> None:
    for rubbish in (b"\xff" * 100, bytes(20), b""):
        job = home.open(tree, journal)
        if rubbish:
            job.end.sendall(rubbish)
        else:
            job.send(Op.STAT, "")
        with pytest.raises(EOFError):
            job.receive()
        job.close()
    job = home.open(tree, journal)
    job.hello()
    job.close()


def test_a_lock_that_is_waited_for_holds_nothing_up(home: HomeProcess, tree: Path, journal: Path) -> None:
    (tree / "f").touch()
    job = home.open(tree, journal)
    job.hello()
    for handle in (1, 2):
        job.ask(Op.OPEN, handle, "f", RDWR, 0, 0)
    job.ask(Op.LOCK, 1, 5, 2, 1, 0, 0)
    waiting = [job.send(Op.LOCK, 2, 6, 2, 1, 0, 10 + number) for number in range(20)]
    job.ask(Op.WRITE, 2, 0, b"beside it")
    job.ask(Op.MARK, 1)
    given_up = job.send(Op.LOCK, 2, 6, 0, 0, 0, 10)
    answers = {unique: error for unique, error, _ in (job.receive(), job.receive())}
    assert answers == {waiting[0]: errno.EINTR, given_up: 0}
    job.send(Op.LOCK, 1, 5, 0, 0, 0, 0)
    answers = {unique: error for unique, error, _ in (job.receive() for _ in range(20))}
    assert all(answers[unique] == 0 for unique in waiting[1:])
    job.close()


def test_requests_about_one_handle_keep_their_order(home: HomeProcess, tree: Path, journal: Path) -> None:
    job = home.open(tree, journal)
    job.hello()
    job.send(Op.OPEN, 1, "f", CREATE | RDWR, 0o644, 0)
    for number in range(500):
        job.send(Op.WRITE, 1, APPEND, b"%d\n" % number)
    reading = job.send(Op.READ, 1, 0, 10000)
    job.send(Op.CLOSE, 1)
    answers = {unique: (error, values) for unique, error, values in (job.receive() for _ in range(503))}
    assert all(error == 0 for error, _ in answers.values())
    assert (tree / "f").read_text().split() == [str(number) for number in range(500)]
    assert answers[reading][1][0] == (tree / "f").read_bytes()
    job.close()


def test_after_a_lost_connection_nothing_is_done_twice(home: HomeProcess, tree: Path, journal: Path) -> None:
    (tree / "f").write_bytes(b"first")
    job = home.open(tree, journal)
    job.hello()
    attr = job.ask(Op.OPEN, 1, "f", RDWR, 0, 0)[0]
    sent = job.send(Op.WRITE, 1, APPEND, b" second")
    moved = job.send(Op.RENAME, "f", "g", 0)
    wait_until(lambda: (tree / "g").exists() and (tree / "g").stat().st_size == 12)
    job.close()
    again = home.open(tree, journal)
    again.hello()
    again.ask(Op.REOPEN, 1, "g", RDWR, 0, 0, attr.dev, attr.ino, 0)
    assert again.ask(Op.WRITE, 1, APPEND, b" second", unique=sent)[0] == 7
    again.ask(Op.RENAME, "f", "g", 0, unique=moved)
    assert (tree / "g").read_bytes() == b"first second"
    again.close()


@pytest.mark.parametrize("after", [1, 40, 150])
def test_a_home_that_is_killed_while_it_writes_is_gone_on_from(tree: Path, journal: Path, after: int) -> None:
    content = os.urandom(200 * 3000)
    pieces = {unique: content[unique * 3000 :][:3000] for unique in range(200)}
    (tree / "f").write_bytes(b"before")
    home = HomeProcess()
    job = home.open(tree, journal)
    job.hello()
    attr = job.ask(Op.OPEN, 1, "f", RDWR, 0, 0)[0]
    for unique, piece in pieces.items():
        job.send(Op.WRITE, 1, APPEND, piece, unique=1000 + unique)
    done = {job.receive()[0] for _ in range(after)}
    home.kill()
    home = HomeProcess()
    again = home.open(tree, journal)
    again.hello()
    again.ask(Op.REOPEN, 1, "f", RDWR, 0, 0, attr.dev, attr.ino, 0)
    for unique, piece in pieces.items():
        if 1000 + unique not in done:
            assert again.ask(Op.WRITE, 1, APPEND, piece, unique=1000 + unique)[0] == 3000
    assert (tree / "f").read_bytes() == b"before" + content
    again.close()
    job.close()
    again = home.open(tree, journal, run=2, back_to=0)
    assert home.answer["problems"] == []
    assert (tree / "f").read_bytes() == b"before"
    again.close()
    home.close()


def test_a_new_start_puts_back_and_hangs_up_on_the_one_before(home: HomeProcess, tree: Path, journal: Path) -> None:
    (tree / "log").write_bytes(b"a\n")
    before = picture(tree)
    job = home.open(tree, journal)
    job.hello()
    job.ask(Op.OPEN, 1, "log", RDWR, 0, 0)
    job.ask(Op.WRITE, 1, APPEND, b"b\n")
    job.ask(Op.MARK, 10)
    marked = picture(tree)
    job.ask(Op.WRITE, 1, APPEND, b"c\n")
    job.ask(Op.UNLINK, "log")
    again = home.open(tree, journal, run=2, back_to=10)
    assert home.answer["problems"] == []
    assert picture(tree) == marked
    with pytest.raises((EOFError, OSError)):
        job.ask(Op.WRITE, 1, APPEND, b"late\n")
    assert home.ask("leave", job="1.0", run=1)["why"] == ""
    assert again.hello()[0] == VERSION, "a later start is not meant"
    assert home.ask("leave", job="1.0", run=2)["why"] == ""
    third = home.open(tree, journal, run=3, back_to=0)
    assert picture(tree) == before
    assert home.open(tree, journal, run=3, back_to=0) is not None  # the same start again changes nothing
    directory = os.open(journal, os.O_RDONLY)
    home.ask("finish", (directory,), job="1.0")
    os.close(directory)
    assert os.listdir(journal) == []
    for end in (job, again, third):
        end.close()


@pytest.mark.parametrize("killed", [False, True])
def test_a_checkpoint_of_a_job_that_opens_all_its_files_directly_is_gone_on_from(
    tree: Path, journal: Path, killed: bool
) -> None:
    """Nobody on its machine speaks to the submit side. A late one of an earlier start does not count as a moment of
    this one.
    """
    home = HomeProcess()
    ends = [home.open(tree, journal)]
    directory = os.open(journal, os.O_RDONLY)
    try:
        if killed:
            home.kill()
            home = HomeProcess()
        home.ask("secure", (directory,), job="1.0", mark=10, run=1)
        ends.append(home.open(tree, journal, run=2, back_to=10))
        assert home.answer.get("problems") == [], home.answer
        home.ask("secure", (directory,), job="1.0", mark=11, run=1)
        ends.append(home.open(tree, journal, run=3, back_to=11))
        assert "later checkpoint" in home.answer["unreachable"]
    finally:
        os.close(directory)
        for end in ends:
            end.close()
        home.close()


def test_the_bound_is_named_and_ends_the_way_back(home: HomeProcess, tree: Path, journal: Path) -> None:
    (tree / "big").write_bytes(b"x" * 100_000)
    job = home.open(tree, journal, limit=50_000)
    job.hello()
    job.ask(Op.OPEN, 1, "big", RDWR | os.O_TRUNC, 0, 0)
    job.ask(Op.WRITE, 1, 0, b"y")
    home.open(tree, journal, run=2, back_to=0, limit=50_000)
    assert "REMOTE_IO_UNDO" in home.answer["unreachable"]
    assert "REMOTE_IO_UNDO" in home.events[0]["why"]
    home.open(tree, journal, run=3, back_to=0, limit=50_000).close()  # said once; then the files are taken as they are
    assert (tree / "big").read_bytes() == b"y"
    job.close()


if os.getuid() == 0:

    def test_what_its_owner_may_not_read_a_job_may_not_read(tree: Path, journal: Path) -> None:
        passable(tree)
        (tree / "theirs").write_bytes(b"secret")
        (tree / "theirs").chmod(0o600)
        os.chown(journal, 65534, 65534)
        tree.chmod(0o777)
        home = HomeProcess(65534, 65534)
        job = home.open(tree, journal)
        assert job.hello()[4:] == [65534, 65534]
        assert refusal(job, Op.OPEN, 1, "theirs", os.O_RDONLY, 0, 0) == errno.EACCES
        assert refusal(job, Op.CHMOD, "theirs", 0o644) == errno.EPERM
        assert refusal(job, Op.CHOWN, "theirs", 65534, 65534) == errno.EPERM
        job.ask(Op.OPEN, 1, "mine", CREATE | RDWR, 0o644, 0)
        assert (tree / "mine").stat().st_uid == 65534
        job.close()
        home.close()


def wait_until(true: object) -> None:
    assert callable(true)
    for _ in range(2000):
        if true():
            return
        threading.Event().wait(0.01)
    raise AssertionError
