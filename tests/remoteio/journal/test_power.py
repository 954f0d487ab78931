"""The submit machine loses power: what a rollback gives after that."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import shutil
import subprocess
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pool.remoteio import kernel
from pool.remoteio.frames import Op
from pool.remoteio.journal import Flushes, rollback
from pool.remoteio.journal.log import Segment
from pool.remoteio.journal.sync_thread import SyncThread
from pool.remoteio.journal.undo import RESTARTED
from tests.remoteio.journal.test_undo import seen, take
from tests.remoteio.support import Desk, HomeProcess, picture

#: Each about names of its own, so that what becomes of one shows alone.
STEPS: list[tuple[Any, ...]] = [
    ("write", "written", 3, b"new bytes"),
    ("append", "appended", 0, b"more"),
    ("truncate", "cut", 2),
    ("unlink", "removed"),
    ("rename", "replacing", "replaced"),
    ("rename", "old", "new"),
    ("write", "made", 0, b"made"),
    ("mkdir", "directory"),
    ("symlink", "nowhere", "link"),
    ("rmdir", "emptied"),
    ("chmod", "rights"),
    ("write", "written", 0, b"XYZ"),
]
OLD = ["written", "appended", "cut", "removed", "replacing", "replaced", "old", "rights"]
NAMES = [{name for name in step[1:] if isinstance(name, str)} for step in STEPS]


def prepared(top: Path) -> Desk:
    """A tree that the steps can be taken in."""
    tree, journal = top / "tree", top / "journal"
    tree.mkdir()
    journal.mkdir()
    for name in OLD:
        (tree / name).write_bytes(b"old content of " + name.encode())
    (tree / "emptied").mkdir()
    desk = Desk(tree, journal)
    desk.journal.begin_run(1)
    return desk


def restarted(desk: Desk) -> None:
    """The submit side is there again, after its machine is."""
    desk.close()
    state = desk.tree.parent / "journal/state"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"boot": "another"}))
    desk.open()


def of(names: set[str], tree: dict[str, Any]) -> dict[str, Any]:
    return {name: what for name, what in tree.items() if name in names}


def records(journal: Path) -> list[int]:
    """Where records end, in bytes."""
    data, ends = (journal / "0.log").read_bytes(), [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + 8 + int.from_bytes(data[ends[-1] : ends[-1] + 4], "little"))
    return ends


@pytest.fixture
def top() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


def test_notes_that_end_anywhere_undo_all_that_is_in_them_and_nothing_else(top: Path) -> None:
    """Cut at each record's end, in the next one's head, in its body, and that damaged."""
    (top / "whole").mkdir()
    desk = prepared(top / "whole")
    before = seen(desk.tree)
    after: list[tuple[int, dict[str, Any]]] = []
    for step in STEPS:
        take(desk, step)
        after.append((len(records(top / "whole/journal")) - 1, seen(desk.tree)))
    desk.close()
    for whole in range(1, after[-1][0] + 1):  # the first one is the beginning of the run
        for torn in ("not", "head", "body", "damaged"):
            where = top / f"{whole}.{torn}"
            where.mkdir()
            cut(where, whole, torn)
            desk = Desk(where / "tree", where / "journal")
            problems = rollback(desk.journal, 0)
            assert problems[0] == RESTARTED
            given = seen(desk.tree)
            for number, names in enumerate(NAMES):
                begun = after[number - 1][0] if number else 1
                if names == {"written"}:
                    continue
                if whole >= after[number][0]:
                    assert of(names, given) == of(names, before), (whole, torn, STEPS[number])
                elif whole <= begun:
                    assert of(names, given) == of(names, after[number][1]), (whole, torn, STEPS[number])
            # That file was changed first and last of all.
            assert (given["written"][2][3:] == before["written"][2][3:]) == (whole >= after[0][0])
            assert (given["written"] == before["written"]) == (whole == after[-1][0])
            if whole > 1:  # a note tells where the job has worked
                lost = [line for line in problems if "is a file that was removed or replaced" in line]
                assert len(lost) == len([name for name in picture(desk.tree) if ".poolnode-undo" in name])
            desk.close()
            shutil.rmtree(where)


def cut(where: Path, whole: int, torn: str) -> None:
    """All steps are taken, and then the log has so many records, and of the next one as much as `torn` says."""
    desk = prepared(where)
    for step in STEPS:
        take(desk, step)
    ends = records(where / "journal")
    end = ends[min(whole + 1, len(ends) - 1)]
    desk.close()
    with (where / "journal/0.log").open("r+b") as file:
        if torn == "damaged" and end > ends[whole]:
            file.truncate(end)
            file.seek(end - 1)
            last = file.read(1)[0]
            file.seek(end - 1)
            file.write(bytes([last ^ 1]))
        else:
            file.truncate(min(end, ends[whole] + {"not": 0, "head": 3, "body": 20, "damaged": 0}[torn]))
    restarted(Desk(where / "tree", where / "journal"))


def test_bytes_that_were_noted_and_not_kept_are_named_and_not_put_back(top: Path) -> None:
    desk = prepared(top)
    take(desk, STEPS[0])
    take(desk, STEPS[1])
    data = top / "journal/0.data"
    data.write_bytes(b"\0" * data.stat().st_size)
    restarted(desk)
    problems = rollback(desk.journal, 0)
    assert problems[0] == RESTARTED
    assert [line.split(":")[0] for line in problems[1:]] == [f"{desk.tree}/written"]
    assert "was not kept" in problems[1]
    assert (desk.tree / "written").read_bytes() == b"oldnew bytesof written"
    assert (desk.tree / "appended").read_bytes() == b"old content of appended"
    desk.close()


def test_who_asks_while_a_disk_is_written_shares_the_next_turn(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    begun, go = threading.Semaphore(0), threading.Semaphore(0)

    def syncfs(fd: int) -> None:
        turns.append(fd)
        begun.release()
        assert go.acquire(timeout=20)
        if len(turns) == 2:
            raise OSError(5, "no")

    monkeypatch.setattr(kernel, "syncfs", syncfs)
    flushes, failed = Flushes(), []
    fd = os.open(top, os.O_RDONLY)

    def ask() -> None:
        try:
            flushes.flush(fd)
        except OSError:
            failed.append(True)

    first = threading.Thread(target=ask)
    first.start()
    assert begun.acquire(timeout=20)
    others = [threading.Thread(target=ask) for _ in range(5)]
    for other in others:
        other.start()
    while flushes.waiting(fd) < 5:
        pass
    go.release()
    assert begun.acquire(timeout=20)
    go.release()
    for thread in (first, *others):
        thread.join(20)
    assert (len(turns), len(failed)) == (2, 5)
    os.close(fd)


def test_notes_are_written_out_soon_and_once_for_many(top: Path) -> None:
    desk = prepared(top)
    synced = threading.Event()

    def sync() -> None:
        desk.journal.sync()
        synced.set()

    ahead = SyncThread(sync, lambda: desk.journal.book.unsynced)
    desk.journal.book.behind = ahead.wake_up
    take(desk, STEPS[0])
    assert synced.wait(20)
    ahead.close()
    desk.close()


def test_a_sync_that_failed_is_tried_again(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = prepared(top)
    desk.journal.sync()
    take(desk, STEPS[0])
    with monkeypatch.context() as broken:

        def fsync(fd: int) -> None:
            raise OSError(5, "no")

        broken.setattr(os, "fsync", fsync)
        with pytest.raises(OSError, match="no"):
            desk.journal.sync()
    assert desk.journal.book.unsynced
    desk.journal.sync()
    assert not desk.journal.book.unsynced
    desk.close()


# -- with a disk ---------------------------------------------------------------------------------------------


class Disk:
    """A file system in a file, which can be what a power cut would leave of it. `at` is where it is mounted."""

    def __init__(self, top: Path) -> None:
        self._image, self.at = top / "image", top / "mounted"
        self.at.mkdir()
        with self._image.open("wb") as file:
            file.truncate(16 << 20)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        _run("mount", "-o", "loop", str(self._image), str(self.at))
        (line,) = [line for line in Path("/proc/self/mounts").read_text().splitlines() if f" {self.at} " in line]
        self._device = line.split()[0]

    @contextmanager
    def cut(self) -> Iterator[None]:
        """The disk's present content is all it has. Code that has files of it open closes them inside."""
        saved = self._image.with_name("saved")
        _run("cp", "--sparse=always", str(self._image), str(saved))
        yield
        held = os.open(self._device, os.O_RDONLY)  # or the device goes with its last user
        try:
            _run("umount", str(self.at))
            _run("dd", f"if={saved}", f"of={self._image}", "conv=notrunc", "bs=1M", "status=none")
            _run("blockdev", "--flushbufs", self._device)
            _run("mount", self._device, str(self.at))
        finally:
            os.close(held)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def alone(test: Callable[[Disk], None]) -> Callable[[Path], None]:
    """A test in a process whose mounts nobody else can see: what others have mounted, too, stays mounted."""

    @functools.wraps(test)
    def run(top: Path) -> None:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                assert ctypes.CDLL(None, use_errno=True).unshare(0x20000) == 0  # CLONE_NEWNS
                _run("mount", "--make-rprivate", "/")
                test(Disk(top))
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    del run.__wrapped__  # or its arguments are asked for
    return run


def power_cut(disk: Disk, desk: Desk) -> None:
    with disk.cut():
        desk.close()
    desk.open()
    restarted(desk)


def _loops() -> bool:
    """Whether files can be mounted here."""
    return os.geteuid() == 0 and os.path.exists("/dev/loop-control") and shutil.which("mkfs.ext4") is not None


if _loops():

    @alone
    def test_a_mark_that_counts_is_there_after_a_power_cut(disk: Disk) -> None:
        desk = prepared(disk.at)
        for step in STEPS[:6]:
            take(desk, step)
        desk.journal.mark(1)
        marked = seen(desk.tree)
        assert desk.journal.secure(Flushes())
        for step in STEPS[6:]:
            take(desk, step)
        desk.do("open", 7, "written", os.O_RDWR, 0, 0)
        desk.do("sync", 7, 0)  # which takes all that has become of names with it
        power_cut(disk, desk)
        assert "made" in seen(desk.tree)
        assert rollback(desk.journal, 1) == [RESTARTED]
        assert seen(desk.tree) == marked
        desk.close()

    @alone
    def test_what_was_put_back_is_so_after_a_power_cut(disk: Disk) -> None:
        desk = prepared(disk.at)
        before = seen(desk.tree)
        for step in STEPS:
            take(desk, step)
        _run("sync", "-f", str(disk.at))
        assert rollback(desk.journal, 0, Flushes()) == []
        power_cut(disk, desk)
        assert seen(desk.tree) == before
        desk.close()

    @alone
    def test_undoing_that_was_cut_short_by_a_power_cut_is_done_again(disk: Disk) -> None:
        """The disk may have the note that something was undone, and not what was undone."""
        desk = prepared(disk.at)
        before = seen(desk.tree)
        for step in STEPS:
            take(desk, step)
        _run("sync", "-f", str(disk.at))

        def empty(segment: Segment) -> None:
            desk.journal.sync()
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as interrupted:
            interrupted.setattr(Segment, "empty", empty)
            with pytest.raises(KeyboardInterrupt):
                rollback(desk.journal, 0)
        power_cut(disk, desk)
        assert rollback(desk.journal, 0) == [RESTARTED]
        assert seen(desk.tree) == before
        desk.close()

    def at_home(disk: Disk, *, killed: bool) -> None:
        tree, journal = disk.at / "tree", disk.at / "journal"
        tree.mkdir()
        journal.mkdir()
        (tree / "file").write_bytes(b"before")
        home = HomeProcess()
        job = home.open(tree, journal)
        job.hello()
        job.ask(Op.OPEN, 1, "file", os.O_RDWR, 0, 0)
        job.ask(Op.WRITE, 1, 0, b"marked")
        job.ask(Op.MARK, 1)
        if killed:
            home.kill()
            home = HomeProcess()
        directory = os.open(journal, os.O_RDONLY)
        assert "error" not in home.ask("secure", (directory,), job="1.0", mark=1, run=1)
        os.close(directory)
        with disk.cut():
            job.close()
            home.close()
        assert (tree / "file").read_bytes() == b"marked"
        home = HomeProcess()
        home.open(tree, journal, run=2, back_to=1).close()
        assert home.answer["problems"] == []
        home.close()

    @alone
    def test_a_home_answers_when_a_mark_is_on_the_disk(disk: Disk) -> None:
        at_home(disk, killed=False)

    @alone
    def test_a_home_that_was_not_told_of_a_mark_has_it_on_the_disk_too(disk: Disk) -> None:
        at_home(disk, killed=True)
