"""A writer of a mapped file hears of its last reader's going as by a shell's pipe: SIGPIPE, also when it waits."""

from __future__ import annotations

import contextlib
import errno
import signal
from pathlib import Path

import psutil
import pytest

from pool.starter.keeper import NativeKeeper, NativeKeepers
from tests.checkpoint.mapping.support import job, python, sh
from tests.checkpoint.test_checkpoints import saved
from tests.starter.support import family, soon, to_end, until

#: A system call.
WRITE = "1"
UNTIL_GO = "until [ -e go ]; do sleep 0.01; done"
UNTIL_OVER = "until [ -e over ]; do sleep 0.01; done"
WRITER = "exec cat /dev/zero > o"
#: Python ignores the signal; here from the first error on it does not.
WRITES_ON = """
import os, signal
out = os.open("o", os.O_WRONLY | os.O_CREAT)
try:
    while True:
        os.write(out, bytes(65536))
except OSError as error:
    print(error.errno, flush=True)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.write(out, b"more")
"""
#: The ways in which a reader leaves a process that lives on. It ends, or is killed. It closes, or puts something else
#: to the number, which the supervisor hears of for high numbers alone. It runs another program.
LEAVES = {
    "ends": f"(head -c 10 > /dev/null; {UNTIL_GO}) < i",
    "is killed": f"(touch has; exec sleep 1000) < i & {UNTIL_GO}; until [ -e has ]; do sleep 0.01; done; kill -9 $!",
    "child ends": f"exec 3< i; ({UNTIL_GO}) & exec 3<&-",
    "closes a low number": f"exec 3< i; {UNTIL_GO}; exec 3<&-",
    "opens another file there": f"exec 3< i; {UNTIL_GO}; exec 3< /dev/null",
    "closes": """python3 -c '
import os, time
i = os.open("i", os.O_RDONLY)
os.read(i, 10)
while not os.path.exists("go"): time.sleep(0.01)
os.close(i)
while not os.path.exists("over"): time.sleep(0.01)' """,
    "runs another program": """python3 -c '
import os, time
i = os.open("i", os.O_RDONLY)
while not os.path.exists("go"): time.sleep(0.01)
os.execv("/bin/sh", ["sh", "-c", "until [ -e over ]; do sleep 0.01; done"])' """,
}


def waits_to_write(keeper: NativeKeeper, program: str) -> bool:
    """Whether a process of the job that runs this program sleeps in a write."""
    for process in family(keeper.pid)[1:]:
        with contextlib.suppress(psutil.Error, OSError):
            if process.name() == program and process.status() == psutil.STATUS_SLEEPING:
                return Path(f"/proc/{process.pid}/syscall").read_text().split()[0] == WRITE
    return False


def runs(keeper: NativeKeeper, program: str) -> bool:
    for process in family(keeper.pid)[1:]:
        with contextlib.suppress(psutil.Error):
            if process.name() == program and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


async def test_who_writes_to_nobody_gets_sigpipe(keepers: NativeKeepers, scratch: Path) -> None:
    members = (python(scratch, "a", WRITES_ON), sh(scratch, "b", "head -c 100000 i | wc -c"))
    end = await to_end(keepers, job(scratch, members, (0, "o", 1, "i")))
    assert (end.code, end.members[0].signal, end.members[0].failed) == (0, signal.SIGPIPE, False)
    assert (scratch / "a.out").read_text() == f"{errno.EPIPE}\n"
    assert (scratch / "b.out").read_text() == "100000\n"


@pytest.mark.parametrize("readers", [1, 2])
async def test_who_waits_for_room_that_never_comes_gets_sigpipe(
    keepers: NativeKeepers, scratch: Path, readers: int
) -> None:
    """Joined directly, and by the supervisor: the writer is known to wait when those who never opened it end."""
    members = (
        sh(scratch, "a", "exec head -c 300000000 /dev/zero > o"),
        *(sh(scratch, f"b{n}", UNTIL_GO) for n in range(readers)),
    )
    keeper = await soon(keepers.start(job(scratch, members, *((0, "o", n + 1, "i") for n in range(readers)))))
    await until(lambda: waits_to_write(keeper, "head"))
    (scratch / "go").touch()
    end = await soon(keeper.ended)
    assert (end.code, end.members[0].signal) == (0, signal.SIGPIPE)
    assert (scratch / "a.err").read_text() == ""


@pytest.mark.parametrize("leaves", LEAVES)
async def test_a_reader_that_leaves(keepers: NativeKeepers, scratch: Path, leaves: str) -> None:
    """The writer waits for room when the reader goes, and the reader's member lives on."""
    members = (sh(scratch, "a", WRITER), sh(scratch, "b", f"{LEAVES[leaves]}; {UNTIL_OVER}"))
    keeper = await soon(keepers.start(job(scratch, members, (0, "o", 1, "i"))))
    await until(lambda: waits_to_write(keeper, "cat"))
    (scratch / "go").touch()
    await until(lambda: not runs(keeper, "cat"))
    (scratch / "over").touch()
    end = await soon(keeper.ended)
    assert (end.code, end.members[0].signal) == (0, signal.SIGPIPE)
    assert (scratch / "a.err").read_text() == ""


async def test_two_readers_that_have_enough(keepers: NativeKeepers, scratch: Path) -> None:
    """As in a shell: the supervisor reads for both, and is the one that leaves."""
    members = (sh(scratch, "a", WRITER), *(sh(scratch, f"b{n}", "head -c 100000 i | wc -c") for n in range(2)))
    end = await to_end(keepers, job(scratch, members, (0, "o", 1, "i"), (0, "o", 2, "i")))
    assert (end.code, end.members[0].signal) == (0, signal.SIGPIPE)
    assert [(scratch / name).read_text() for name in ("a.err", "b0.out", "b1.out")] == ["", "100000\n", "100000\n"]


async def test_who_has_it_by_inheritance_reads_all_of_it(keepers: NativeKeepers, scratch: Path) -> None:
    """Those that the supervisor knew to have it end, one after the other."""
    script = f"exec 3< i; (({UNTIL_GO}; wc -c <&3; touch over) & {UNTIL_GO}) & exec 3<&-; wait; {UNTIL_OVER}"
    members = (sh(scratch, "a", "head -c 3000001 /dev/zero > o"), sh(scratch, "b", script))
    keeper = await soon(keepers.start(job(scratch, members, (0, "o", 1, "i"))))
    await until(lambda: waits_to_write(keeper, "head"))
    (scratch / "go").touch()
    end = await soon(keeper.ended)
    assert (end.code, end.members[0].code) == (0, 0)
    assert (scratch / "b.out").read_text() == "3000001\n"


@pytest.mark.parametrize("go", ["before", "after"])
async def test_saved_and_put_back(keepers: NativeKeepers, tmp_path: Path, scratch: Path, go: str) -> None:
    """The reader leaves just before the image, when nobody may have seen to it yet; or where the job goes on."""
    script = f"exec 3< i; {UNTIL_GO}; exec 3<&-; touch gone; {UNTIL_OVER}"
    wanted = job(scratch, (sh(scratch, "a", WRITER), sh(scratch, "b", script)), (0, "o", 1, "i"))
    keeper = await soon(keepers.start(wanted))
    await until(lambda: waits_to_write(keeper, "cat"))
    if go == "before":
        (scratch / "go").touch()
        await until(lambda: (scratch / "gone").exists())
    await saved(keepers, keeper, tmp_path / "image", stop=True)
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image"), 20)
    (scratch / "go").touch()
    await until(lambda: not runs(keeper, "cat"))
    (scratch / "over").touch()
    end = await soon(keeper.ended)
    assert (end.code, end.members[0].signal) == (0, signal.SIGPIPE)
    assert (scratch / "a.err").read_text() == ""
