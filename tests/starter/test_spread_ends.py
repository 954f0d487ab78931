"""Jobs with a pipe to another machine: the keeper is handed the end that is the job's, and waits for it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from pool.starter.keeper import KeeperSpec, NativeKeepers
from pool.starter.spec import Pipe
from tests.starter.support import spec
from tests.starter.test_members import line, sh


def reader(scratch: Path, script: str) -> KeeperSpec:
    """Its stdin comes from elsewhere, its stdout goes to `out`."""
    members = (sh("r", script, scratch, stdout=str(scratch / "out")),)
    return spec(scratch, "x", members=members, pipes=(Pipe(-1, 0),))


def writer(scratch: Path, script: str) -> KeeperSpec:
    return spec(scratch, "x", members=(sh("w", script, scratch),), pipes=(Pipe(0, -1),))


async def test_a_pipe_from_elsewhere_gives_its_bytes_and_its_end(keepers: NativeKeepers, scratch: Path) -> None:
    theirs, ours = os.pipe()
    keeper = await keepers.start(reader(scratch, "exec wc -c"), ends={0: theirs})
    os.close(theirs)
    os.write(ours, b"x" * 5000)
    os.close(ours)
    end = await asyncio.wait_for(keeper.ended, 20)
    assert (end.code, (scratch / "out").read_text().strip()) == (0, "5000")
    await keeper.forget()


async def test_who_writes_elsewhere_hears_that_nobody_reads(keepers: NativeKeepers, scratch: Path) -> None:
    """It gets SIGPIPE, and that is no failure, as within one machine."""
    ours, theirs = os.pipe()
    keeper = await keepers.start(writer(scratch, "exec yes"), ends={0: theirs})
    os.close(theirs)
    assert await asyncio.to_thread(os.read, ours, 4) == b"y\ny\n"
    os.close(ours)
    end = await asyncio.wait_for(keeper.ended, 20)
    assert [(one.signal, one.failed) for one in end.members] == [(signal.SIGPIPE, False)]
    await keeper.forget()


async def test_a_part_in_the_middle_and_another_in_the_same_keeper_after_it(
    keepers: NativeKeepers, scratch: Path
) -> None:
    """Each end goes where it belongs, beside pipes of this machine; a keeper that waited takes such a job, too."""
    asked = line(scratch, "exec sort", "exec uniq")
    asked = spec(scratch, "x", members=asked.members, pipes=(Pipe(-1, 0), *asked.pipes, Pipe(1, -1, "/dev/fd/5")))
    for _ in range(2):
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        keeper = await keepers.start(asked, ends={0: theirs_in, 2: theirs_out})
        for fd in (theirs_in, theirs_out):
            os.close(fd)
        os.write(ours_in, b"b\na\nb\n")
        os.close(ours_in)
        assert (await asyncio.wait_for(keeper.ended, 20)).code == 0
        assert os.read(ours_out, 10) == b""  # nobody holds the writing end any more
        os.close(ours_out)
        assert (scratch / "out").read_text() == "a\nb\n"
        await keeper.forget()


async def test_what_is_spread_is_not_saved_in_part(best: NativeKeepers, scratch: Path) -> None:
    theirs, ours = os.pipe()
    keeper = await best.start(reader(scratch, "exec cat"), ends={0: theirs})
    os.close(theirs)
    assert await keeper.examine() == ("its processes run on several machines",)
    os.close(ours)
    await asyncio.wait_for(keeper.ended, 20)
    await keeper.forget()
