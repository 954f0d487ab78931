"""Programs that go by a file's length, which is not known of a mapped one until it is all written: none loses anything
without a word.
"""

from __future__ import annotations

import signal
import tarfile
from pathlib import Path

import pytest

from pool.starter.keeper import NativeKeepers
from tests.checkpoint.mapping.support import job, python, sh
from tests.checkpoint.test_checkpoints import saved
from tests.starter.support import soon, to_end, until

DONE = "until [ -e done ]; do sleep 0.01; done"
#: A writer that is not at its end while the reader looks; or that has written nothing yet.
WRITERS = {
    "before": f"exec 3> o; seq 1 1000 >&3; touch some; {DONE}",
    "after": f"exec 3> o; touch some; {DONE}; seq 1 1000 >&3",
}
SOME = "until [ -e some ]; do sleep 0.01; done"
ALL = "until [ -e all ]; do sleep 0.01; done"
#: As rsync: another process looks than opens, and none closes but by ending.
BY_TWO = """
import os, stat, sys
assert os.stat("i").st_size == 0
if os.fork() == 0:
    file = os.open("i", os.O_RDONLY)
    assert stat.S_ISREG(os.fstat(file).st_mode)
    os._exit(0)
sys.exit(os.wait()[1])
"""


@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize("comes", WRITERS)
async def test_tar_that_takes_a_pipe_for_empty_ends_the_job(
    keepers: NativeKeepers, scratch: Path, comes: str, readers: int
) -> None:
    """Joined directly, and by the supervisor; what it did not read is there already, or comes when it has gone."""
    tar = sh(scratch, "b", f"{SOME}; tar cf b.tar i; touch done")
    members = (sh(scratch, "a", WRITERS[comes]), tar, sh(scratch, "c", "cat i > /dev/null"))[: readers + 1]
    end = await to_end(keepers, job(scratch, members, *((0, "o", n + 1, "i") for n in range(readers))))
    assert end.cause == "misuse"
    assert end.error.startswith("process b: i (pipe from a): none of the ")
    assert (end.members[1].failed, end.signal) == (True, signal.SIGKILL)


async def test_two_processes_that_take_it_for_empty(keepers: NativeKeepers, scratch: Path) -> None:
    script = f"import os\nwhile not os.path.exists('some'): pass\n{BY_TWO}"
    members = (sh(scratch, "a", WRITERS["before"]), python(scratch, "b", script))
    keeper = await soon(keepers.start(job(scratch, members, (0, "o", 1, "i"))))
    end = await soon(keeper.ended)
    assert (end.cause, end.members[1].failed) == ("misuse", True), (scratch / "b.err").read_text()


async def test_it_is_remembered_where_the_job_goes_on(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    members = (sh(scratch, "a", WRITERS["after"]), sh(scratch, "b", f"{SOME}; tar cf b.tar i; touch read"))
    wanted = job(scratch, members, (0, "o", 1, "i"))
    keeper = await soon(keepers.start(wanted))
    await until(lambda: (scratch / "read").exists())
    await saved(keepers, keeper, tmp_path / "image", stop=True)
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image"), 20)
    (scratch / "done").touch()
    end = await soon(keeper.ended)
    assert end.cause == "misuse"
    assert "process b: i (pipe from a)" in end.error


async def test_who_reads_after_all_and_who_finds_it_empty_go_on(keepers: NativeKeepers, scratch: Path) -> None:
    """After tar somebody else reads it; one that was never written is empty; one that is all written has its length."""
    script = f"{SOME}; tar cf b.tar i; touch done; wc -l < i; tar cf e.tar e; {ALL}; tar cf w.tar w"
    writer = f"{WRITERS['before']}; : > e; seq 1 100 > w; touch all"
    members = (sh(scratch, "a", writer), sh(scratch, "b", script))
    pipes = ((0, "o", 1, "i"), (0, "e", 1, "e"), (0, "w", 1, "w"))
    end = await to_end(keepers, job(scratch, members, *pipes))
    assert (end.error, end.code, (scratch / "b.err").read_text()) == ("", 0, "")
    assert (scratch / "b.out").read_text() == "1000\n"
    with tarfile.open(scratch / "w.tar") as tar:
        kept = tar.extractfile("w")
        assert kept is not None
        assert kept.read() == "".join(f"{n}\n" for n in range(1, 101)).encode()


async def test_sort_takes_no_small_file_for_granted(keepers: NativeKeepers, scratch: Path) -> None:
    """It would sort a few lines at a time, through files in its directory for such, of which there is none here."""
    members = (
        sh(scratch, "a", f"exec 3> o; touch some; {DONE}; seq 20000 -1 1 >&3"),
        sh(scratch, "b", f"{SOME}; touch done; TMPDIR=/nonexistent sort -n i"),
    )
    end = await to_end(keepers, job(scratch, members, (0, "o", 1, "i")))
    assert (end.error, end.code, (scratch / "b.err").read_text()) == ("", 0, "")
    assert (scratch / "b.out").read_text() == "".join(f"{n}\n" for n in range(1, 20001))
