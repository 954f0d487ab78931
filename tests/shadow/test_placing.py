"""Several outputs reach the submit side as one: all of them or none, wherever the schedd dies on the way."""

# A test has the loop to itself: it may block.
# ruff: noqa: ASYNC221, ASYNC240

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pool.errors import PoolError
from pool.policy.packed import pack, unpack
from pool.shadow.access import Access
from pool.shadow.executables import ExecutableStore
from pool.shadow.files import LocalFiles
from pool.shadow.shadow import PLACING, Shadow
from tests.conftest import REPOSITORY
from tests.shadow.test_shadow import Notes, bring, start_of

NAMES = ("one", "two", "sub/three")
ITEMS = [item for name in NAMES for item in (["file", name, 0o644, 3], b"new")]
#: Dies at the n-th call that changes a directory, as kill -9 would have it: nothing is tidied up.
DIES = """
import json, os, sys
from pool.shadow.access import Access
home, at, nameless, names = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True", sys.argv[4:]
if not nameless:
    os.O_TMPFILE = os.O_DIRECTORY | os.O_RDWR | 1 << 30  # as on a file system that has none
    real_open = os.open
    def no_tmpfile(path, flags, *more, **how):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "not supported")
        return real_open(path, flags, *more, **how)
    os.open = no_tmpfile
access = Access()
numbers = [access.create(home + "/" + name, 0o644) for name in names]
for number in numbers:
    access.write(number, b"new")
print(json.dumps([access.sync(number) for number in numbers]), flush=True)
count = 0
def counted(call):
    def made(*given, **how):
        global count
        count += 1
        if count == at:
            os._exit(9)
        return call(*given, **how)
    return made
os.link, os.replace = counted(os.link), counted(os.replace)
access.rename_into_place(numbers)
"""


def whole(home: Path, content: str) -> bool:
    return all((home / name).read_text() == content for name in NAMES)


def nothing_aside(home: Path) -> bool:
    return sorted(os.path.relpath(path, home) for path in home.rglob("*") if path.is_file()) == sorted(NAMES)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    for name in NAMES:
        (tmp_path / name).write_text("old")
    return tmp_path


@pytest.mark.parametrize("nameless", [True, False])
@pytest.mark.parametrize("at", range(1, 8))
def test_a_crash_at_each_step_is_finished_or_undone(home: Path, at: int, nameless: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DIES, str(home), str(at), str(nameless), *NAMES],
        cwd=REPOSITORY, stdout=subprocess.PIPE, check=False,
    )  # fmt: skip
    steps = len(NAMES) * (2 if nameless else 1)
    assert done.returncode == (9 if at <= steps else 0)
    Access().finish(json.loads(done.stdout))
    # From the moment when all have their names aside, they go to their places; before, nothing has happened.
    assert whole(home, "new" if at > steps - len(NAMES) else "old")
    assert nothing_aside(home)


async def test_what_is_noted_is_finished_at_the_next_start(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes, real, calls = Notes(), os.replace, 0

    class Died(BaseException):
        pass

    def dies(*given: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Died
        real(*given)

    monkeypatch.setattr("os.replace", dies)
    monkeypatch.setattr("os.unlink", lambda path: None)  # the dead tidy nothing up
    with pytest.raises(Died):
        await bring(home, start_of(home, NAMES, {}), *ITEMS[:4], keep=notes.keep)
    monkeypatch.undo()
    assert ((home / "one").read_text(), (home / "two").read_text()) == ("new", "old")
    ((name, packed),) = notes.items()
    assert name.startswith(f"{PLACING}1.0.1 ")
    assert unpack(packed)[0] == "alice"
    files = LocalFiles()
    claims, kept = SimpleNamespace(claims={}), ExecutableStore(None, lambda _: files)
    shadow = Shadow(claims, kept, lambda _: files, notes.keep, notes.tell)
    await shadow.finish(dict(notes))
    assert ((home / "one").read_text(), (home / "two").read_text()) == ("new", "new")
    assert notes == {}
    assert nothing_aside(home)
    await files.close()


#: The same for outputs that are too many to be kept open: three of them, two of which are set aside first.
MANY_DIE = (
    DIES[: DIES.index("access = Access()")]
    + """
access = Access()
def begin(name):
    number = access.create(home + "/" + name, 0o644)
    access.write(number, b"new")
    return number
count = 0
def counted(call):
    def made(*given, **how):
        global count
        count += 1
        if count == at:
            os._exit(9)
        return call(*given, **how)
    return made
os.link, os.replace, os.fsync, os.unlink = map(counted, (os.link, os.replace, os.fsync, os.unlink))
journal = access.begin_journal(home + "/journal")
access.set_aside(journal, [begin(name) for name in names[:2]])
access.set_aside(journal, [begin(names[2])])
access.commit_journal(journal)
print("committed", flush=True)
while not access.place_some(journal, 2):
    pass
"""
)


@pytest.mark.parametrize("nameless", [True, False])
async def test_many_are_finished_or_undone_wherever_they_are_cut_short(home: Path, nameless: bool) -> None:
    files, seen = LocalFiles(), set()
    for at in range(1, 40):
        for name in NAMES:
            (home / name).write_text("old")
        done = subprocess.run(
            [sys.executable, "-c", MANY_DIE, str(home), str(at), str(nameless), *NAMES],
            cwd=REPOSITORY, stdout=subprocess.PIPE, check=False,
        )  # fmt: skip
        finished = await files.finish_journal(str(home / "journal"))
        committed = done.stdout == b"committed\n"
        assert whole(home, "new" if committed else "old") or (not committed and whole(home, "new") and finished)
        if nameless:
            assert nothing_aside(home)
        seen.add(committed)
        if done.returncode == 0:
            break
    else:
        pytest.fail("it never came to its end")
    assert seen == {True, False}
    await files.close()


async def test_thousands_of_outputs_need_few_descriptors(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 outputs ran into the limit of descriptors, and the job started again and again without a word."""
    notes, most = Notes(), 3000
    names = [f"out.{number}" for number in range(most)]
    items = [item for name in names for item in (["file", name, 0o640, 3], b"new")]
    used = len(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 200, hard))
    try:
        assert (await bring(home, start_of(home, None, {}), *items, keep=notes.keep))[1] == 3 * most
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sorted(path.name for path in home.iterdir()) == sorted([*names, "one", "two", "sub"])
    assert all((home / name).read_text() == "new" for name in names)
    assert notes == {}


async def test_many_that_do_not_all_come_leave_nothing(home: Path) -> None:
    notes = Notes()
    names = [f"out.{number}" for number in range(300)]
    items = [item for name in names for item in (["file", name, 0o640, 3], b"new")]
    with pytest.raises(PoolError, match="refused"):
        await bring(home, start_of(home, None, {}), *items, ["file", ".profile", 0o644, 0], keep=notes.keep)
    assert nothing_aside(home)
    assert notes == {}


async def test_many_that_were_cut_short_are_finished_at_the_next_start(home: Path) -> None:
    files = LocalFiles()
    many = await files.begin_journal(str(home / "journal"))
    await many.set_aside([await files.create(str(home / name)) for name in NAMES])
    await files._call("commit_journal", "", many._number)
    notes = Notes({f"{PLACING}1.0.1 1": pack(["alice", str(home / "journal")])})
    claims, kept = SimpleNamespace(claims={}), ExecutableStore(None, lambda _: files)
    shadow = Shadow(claims, kept, lambda _: files, notes.keep, notes.tell)
    await shadow.finish(dict(notes))
    assert whole(home, "")
    assert nothing_aside(home)
    assert notes == {}
    await files.close()


def test_a_journal_of_somebody_elses_is_not_believed(home: Path) -> None:
    (home / "journal").symlink_to(home / "one")
    with pytest.raises(OSError, match="symbolic links"):
        Access().finish_journal(str(home / "journal"), 0)
    (home / "journal").unlink()
    os.mkfifo(home / "journal")
    with pytest.raises(PermissionError):
        Access().finish_journal(str(home / "journal"), 0)


async def test_a_note_that_cannot_be_kept_changes_nothing(home: Path) -> None:
    async def full(name: str, value: bytes | None) -> None:
        raise PoolError("cannot write store: the disk is full", retry=True)

    with pytest.raises(PoolError, match="the disk is full"):
        await bring(home, start_of(home, ("one", "two", "sub"), {}), *ITEMS, keep=full)
    assert whole(home, "old")
    assert nothing_aside(home)


async def test_one_that_cannot_be_put_in_place_keeps_the_others_out(home: Path) -> None:
    notes = Notes()

    async def keep(name: str, value: bytes | None) -> None:
        await notes.keep(name, value)
        (home / "two").unlink()
        (home / "two").mkdir()  # somebody makes a directory of that name meanwhile

    with pytest.raises(PoolError, match="two"):
        await bring(home, start_of(home, ("one", "two", "sub"), {}), *ITEMS, keep=keep)
    assert (home / "one").read_text() == "old"
    assert (home / "sub" / "three").read_text() == "old"
    assert sorted(os.listdir(home)) + os.listdir(home / "sub") == ["one", "sub", "two", "three"]


async def test_several_come_home_and_one_needs_no_note(home: Path) -> None:
    noted = []

    async def keep(name: str, value: bytes | None) -> None:
        noted.append(value is not None)

    await bring(home, start_of(home, ("one",), {}), ["file", "one", 0o644, 3], b"new", keep=keep)
    assert (home / "one").read_text() == "new"
    assert noted == []
    await bring(home, start_of(home, ("one", "two", "sub"), {}), *ITEMS, keep=keep)
    assert whole(home, "new")
    assert noted == [True, False]
    assert nothing_aside(home)
