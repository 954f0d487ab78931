"""A reader of mapped files that accepts short reads is joined by a kernel's pipe, and sees one."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from pool.starter.keeper import NativeKeepers
from tests.checkpoint.mapping.support import job, python, sh
from tests.checkpoint.mapping.test_last_reader import LEAVES, UNTIL_GO, UNTIL_OVER, WRITER, runs, waits_to_write
from tests.checkpoint.test_checkpoints import saved
from tests.starter.support import soon, to_end, until

#: Writes 100 bytes, and more when those were read.
IN_TWO = "exec 5> o; head -c 100 /dev/zero >&5; until [ -e over ]; do sleep 0.01; done; head -c 50 /dev/zero >&5"
#: Whatever a program asks about the file, it is told of a pipe. A socket would let the read wait for 4,096 bytes.
SEES = """
import errno, fcntl, os, stat
assert stat.S_ISFIFO(os.stat("i").st_mode)
source = os.open("i", os.O_RDONLY)
assert stat.S_ISFIFO(os.fstat(source).st_mode) and os.fstat(source).st_size == 0
for to, whence in ((0, os.SEEK_CUR), (10, os.SEEK_SET), (0, os.SEEK_END)):
    try:
        os.lseek(source, to, whence)
    except OSError as error:
        assert error.errno == errno.ESPIPE
    else:
        raise AssertionError("it is no pipe")
assert len(os.read(source, 4096)) == 100
fcntl.fcntl(source, fcntl.F_SETFL, fcntl.fcntl(source, fcntl.F_GETFL) | os.O_NONBLOCK)
try:
    os.read(source, 4096)
except BlockingIOError:
    pass
else:
    raise AssertionError("it does not wait")
open("over", "w").close()
os.set_blocking(source, True)
assert (len(os.read(source, 4096)), os.read(source, 4096)) == (50, b"")
"""
NO_WAIT = """
import os
source = os.open("i", os.O_RDONLY | os.O_NONBLOCK)
try:
    print(os.read(source, 1))
except BlockingIOError:
    open("over", "w").close()
"""
#: Exit codes by which a process ends the job.
FAILS = frozenset(range(1, 256))
#: 3,000 blocks; and who takes some, and no more while the writer waits for room.
ONE_SIZE_OUT = """
import os
out = os.open("o", os.O_WRONLY | os.O_CREAT)
for number in range(3000): os.write(out, bytes([number % 251]) * BLOCK)
"""
ONE_SIZE_IN = """
import os, time
source, had = os.open("i", os.O_RDONLY), 0
while block := os.read(source, BLOCK):
    assert block == bytes([had % 251]) * BLOCK, len(block)
    if had % 900 == 100 and had < 2000:
        open(f"at{had // 900}", "w").close()
        while not os.path.exists(f"go{had // 900}"): time.sleep(0.005)
    had += 1
print(had)
"""
#: Ways to open the file twice.
TWICE = {
    "while it is open": "import os; os.open('i', os.O_RDONLY); os.open('i', os.O_RDONLY)",
    "after it was closed": "import os; os.close(os.open('i', os.O_RDONLY)); os.open('i', os.O_RDONLY)",
}


@pytest.mark.parametrize("writer", [IN_TWO, IN_TWO.replace("exec 5> o", "exec 5>&1")], ids=["file", "stdout"])
async def test_the_reader_sees_a_pipe(keepers: NativeKeepers, scratch: Path, writer: str) -> None:
    """Nothing stands between a standard output and the file either."""
    file = "o" if " o;" in writer else ""
    members = (sh(scratch, "a", writer, **({} if file else {"stdout": ""})), python(scratch, "b", SEES, fails=FAILS))
    end = await to_end(keepers, job(scratch, members, (0, file, 1, "i", True)))
    assert (end.error, end.code, (scratch / "b.err").read_text()) == ("", 0, "")


async def test_an_open_that_must_not_wait(keepers: NativeKeepers, scratch: Path) -> None:
    members = (sh(scratch, "a", f"exec 5> o; {UNTIL_OVER}"), python(scratch, "b", NO_WAIT, fails=FAILS))
    end = await to_end(keepers, job(scratch, members, (0, "o", 1, "i", True)))
    assert (end.code, (scratch / "b.out").read_text()) == (0, "")


@pytest.mark.parametrize("block", [1000, 4096, 8192])
async def test_any_program_gets_all_bytes(keepers: NativeKeepers, scratch: Path, block: int) -> None:
    members = (sh(scratch, "a", "seq 1 300000 > o"), sh(scratch, "b", f"dd if=i bs={block} status=none | md5sum"))
    end = await to_end(keepers, job(scratch, members, (0, "o", 1, "i", True)))
    assert end.code == 0
    shell = sh(scratch, "c", "seq 1 300000 | md5sum")
    assert (await to_end(keepers, job(scratch, (shell,)))).code == 0
    assert (scratch / "b.out").read_text() == (scratch / "c.out").read_text()


@pytest.mark.parametrize("writes_first", [True, False])
async def test_saved_before_it_is_opened(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, writes_first: bool
) -> None:
    """The supervisor has the ends that no process has; the writer may wait for room."""
    waits = "" if writes_first else f"{UNTIL_GO}; "
    members = (
        sh(scratch, "a", f"touch on; {waits}exec head -c 3000001 /dev/zero > o"),
        sh(scratch, "b", f"{UNTIL_GO}; wc -c i"),
    )
    wanted = job(scratch, members, (0, "o", 1, "i", True))
    keeper = await soon(keepers.start(wanted))
    await until(lambda: waits_to_write(keeper, "head") if writes_first else (scratch / "on").exists())
    for number in range(2):
        await saved(keepers, keeper, tmp_path / f"image{number}", stop=True)
        keeper = await soon(keepers.start(wanted, image=tmp_path / f"image{number}"), 20)
    (scratch / "go").touch()
    end = await soon(keeper.ended)
    assert (end.error, end.code, end.members[0].code) == ("", 0, 0)
    assert (scratch / "b.out").read_text() == "3000001 i\n"


@pytest.mark.parametrize("block", [1000, 4096, 8192])
async def test_reads_and_writes_of_one_size_are_whole(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, block: int
) -> None:
    """Also where the job is saved: the pipe is full after a whole block only, so no stop is inside a write."""
    members = (
        python(scratch, "a", f"BLOCK = {block}\n{ONE_SIZE_OUT}"),
        python(scratch, "b", f"BLOCK = {block}\n{ONE_SIZE_IN}", fails=FAILS),
    )
    wanted = job(scratch, members, (0, "o", 1, "i", True))
    keeper = await soon(keepers.start(wanted))
    for number in range(3):
        await until(lambda number=number: (scratch / f"at{number}").exists(), 20)  # type: ignore[misc]
        await saved(keepers, keeper, tmp_path / f"image{number}", stop=True)
        (scratch / f"go{number}").touch()
        keeper = await soon(keepers.start(wanted, image=tmp_path / f"image{number}"), 20)
    end = await soon(keeper.ended, 20)
    assert (end.code, (scratch / "b.out").read_text(), (scratch / "b.err").read_text()) == (0, "3000\n", "")


@pytest.mark.parametrize(
    ("script", "printed"),
    [("tail -n 1 i", "300000\n"), ("dd if=i bs=6 skip=2 count=1 status=none", "7\n8\n9\n")],
    ids=["tail", "dd"],
)
async def test_a_program_that_seeks_reads_over_what_it_does_not_want(
    keepers: NativeKeepers, scratch: Path, script: str, printed: str
) -> None:
    """It asks for the position first, and hears that a pipe has none."""
    members = (sh(scratch, "a", "seq 1 300000 > o"), sh(scratch, "b", script))
    end = await to_end(keepers, job(scratch, members, (0, "o", 1, "i", True)))
    assert (end.code, (scratch / "b.out").read_text()) == (0, printed)


@pytest.mark.parametrize("way", TWICE)
async def test_it_is_opened_once(keepers: NativeKeepers, scratch: Path, way: str) -> None:
    members = (sh(scratch, "a", WRITER), python(scratch, "b", TWICE[way]))
    end = await to_end(keepers, job(scratch, members, (0, "o", 1, "i", True)))
    assert end.cause == "misuse"
    said = "process b: i (pipe from a): open: it was open before, and with short_reads a file can be opened once; "
    assert end.error.startswith(said)
    assert [one.failed for one in end.members] == [False, True]


@pytest.mark.parametrize("leaves", ["ends", "closes a low number", "closes", "runs another program"])
async def test_a_reader_that_leaves(keepers: NativeKeepers, scratch: Path, leaves: str) -> None:
    members = (sh(scratch, "a", WRITER), sh(scratch, "b", f"{LEAVES[leaves]}; {UNTIL_OVER}"))
    keeper = await soon(keepers.start(job(scratch, members, (0, "o", 1, "i", True))))
    await until(lambda: waits_to_write(keeper, "cat"))
    (scratch / "go").touch()
    await until(lambda: not runs(keeper, "cat"))
    (scratch / "over").touch()
    end = await soon(keeper.ended)
    assert (end.code, end.members[0].signal, (scratch / "a.err").read_text()) == (0, signal.SIGPIPE, "")


async def test_a_reader_that_never_opens_it(keepers: NativeKeepers, scratch: Path) -> None:
    members = (sh(scratch, "a", WRITER), sh(scratch, "b", UNTIL_GO))
    keeper = await soon(keepers.start(job(scratch, members, (0, "o", 1, "i", True))))
    await until(lambda: waits_to_write(keeper, "cat"))
    (scratch / "go").touch()
    end = await soon(keeper.ended)
    assert (end.code, end.members[0].signal) == (0, signal.SIGPIPE)


async def test_what_passes_through_the_supervisor_has_whole_reads(keepers: NativeKeepers, scratch: Path) -> None:
    """One file to two readers: they are files, which may be opened again before anything is read."""
    script = "import os; os.close(os.open('i', 0)); f = open('i', 'rb', 0); print(len(f.read(100000)), f.tell())"
    members = (
        sh(scratch, "a", "exec 5> o; for n in 1 2 3 4 5; do head -c 20000 /dev/zero >&5; done"),
        *(python(scratch, f"b{n}", script) for n in range(2)),
    )
    end = await to_end(keepers, job(scratch, members, (0, "o", 1, "i", True), (0, "o", 2, "i", True)))
    assert (end.error, end.code) == ("", 0)
    assert [(scratch / f"b{n}.out").read_text() for n in range(2)] == ["100000 100000\n"] * 2


#: Opens its file for appending while it has it open, whoever else has the other end.
APPENDS = """
import os
first = os.open("o", os.O_WRONLY | os.O_CREAT)
os.write(first, b"one ")
os.write(os.open("o", os.O_WRONLY | os.O_APPEND), b"two")
"""


@pytest.mark.parametrize("reads", ["", "i"], ids=["stdin", "file"])
async def test_a_writer_gets_its_own_end_again(keepers: NativeKeepers, scratch: Path, reads: str) -> None:
    """Both ends of a pipe have one inode. The reader has the lower process number, so it is found first."""
    reader = sh(scratch, "b", "cat < i > got" if reads else "cat > got")
    members = (reader, python(scratch, "a", APPENDS))
    end = await to_end(keepers, job(scratch, members, (1, "o", 0, reads, *([True] if reads else []))))
    assert (end.error, end.code, (scratch / "a.err").read_text()) == ("", 0, "")
    assert (scratch / "got").read_text() == "one two"
