"""Jobs with a pipe to another machine: the keeper is handed the end that is the job's, and waits for it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

from pool.starter.keeper import KeeperSpec, NativeKeeper, NativeKeepers
from pool.starter.spec import Pipe
from tests.starter.support import spec, until
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


async def test_an_end_does_not_go_to_what_is_left_of_another_keeper(best: NativeKeepers, scratch: Path) -> None:
    """After a restart of the node, a cell's name may still lead to a keeper that is gone in a moment."""
    for number in range(2):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left:
            if number == 0:
                left.bind(best._directory.socket(0))
            theirs, ours = os.pipe()
            keeper = await asyncio.wait_for(best.start(reader(scratch, "exec wc -c"), ends={0: theirs}), 20)
            os.close(theirs)
            os.write(ours, b"x" * 5000)
            os.close(ours)
            assert (await asyncio.wait_for(keeper.ended, 20)).code == 0
            assert keeper.cell == 0
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


async def test_a_quiet_writer_elsewhere_is_no_deadlock(best: NativeKeepers, scratch: Path) -> None:
    """Of a mapped file whose other end is on another machine: a `cat` here, between that stream and the file."""
    members = (
        sh("cat", "exec cat", scratch),
        sh("reader", "exec cat in", scratch, stdout=str(scratch / "out")),
        sh("writer", "read x <&5; echo $x > back", scratch),
        sh("other", "exec cat", scratch),
    )
    pipes = (Pipe(-1, 0), Pipe(0, 1, "", "in"), Pipe(-1, 2, "", "/dev/fd/5"), Pipe(2, 3, "back", ""), Pipe(3, -1))
    theirs_in, ours_in = os.pipe()
    theirs_five, ours_five = os.pipe()
    ours_out, theirs_out = os.pipe()
    keeper = await best.start(
        spec(scratch, "x", members=members, pipes=pipes), ends={0: theirs_in, 2: theirs_five, 4: theirs_out}
    )
    for fd in (theirs_in, theirs_five, theirs_out):
        os.close(fd)
    os.write(ours_in, b"x" * 5000)
    done, _ = await asyncio.wait([keeper.ended], timeout=1.5)
    assert not done, keeper.ended.result()
    os.write(ours_five, b"word\n")
    for fd in (ours_in, ours_five):
        os.close(fd)
    assert await asyncio.to_thread(os.read, ours_out, 10) == b"word\n"
    os.close(ours_out)
    end = await asyncio.wait_for(keeper.ended, 20)
    assert (end.code, end.error, (scratch / "out").read_text()) == (0, "", "x" * 5000)
    await keeper.forget()


WAIT = "while [ ! -e go ]; do sleep 0.02; done"


async def put_back(keepers: NativeKeepers, asked: KeeperSpec, image: Path, end: int) -> NativeKeeper:
    """Another start of it between new ends; takes the end over."""
    keeper = await keepers.start(asked, image=image, ends={0: end})
    os.close(end)
    return keeper


async def test_a_reader_is_saved_with_what_lies_in_its_pipe(best: NativeKeepers, scratch: Path, tmp_path: Path) -> None:
    theirs, ours = os.pipe()
    asked = reader(scratch, f"{WAIT}; exec cat")
    keeper = await best.start(asked, ends={0: theirs})
    os.close(theirs)
    os.write(ours, b"before ")
    assert await keeper.examine() == ()
    told: list[frozenset[int]] = []
    report = await keeper.checkpoint(tmp_path / "image", let_go=told.append)
    assert (report.refused, report.held, told) == ((), frozenset({0}), [frozenset({0})])
    await keeper.kill()
    await asyncio.wait_for(keeper.ended, 20)
    await keeper.forget()
    os.close(ours)

    theirs, ours = os.pipe()
    again = await put_back(best, asked, tmp_path / "image", theirs)
    os.write(ours, b"and after")
    os.close(ours)
    (scratch / "go").touch()
    end = await asyncio.wait_for(again.ended, 20)
    assert (end.code, (scratch / "out").read_text()) == (0, "before and after")
    await again.forget()


async def test_a_writer_is_saved_with_what_nobody_has_taken(best: NativeKeepers, scratch: Path, tmp_path: Path) -> None:
    """Also when it ends with its image; and no more than that: what was taken out before is not in it."""
    ours, theirs = os.pipe()
    asked = writer(scratch, f"printf 'taken left'; {WAIT}; printf ' more'")
    keeper = await best.start(asked, ends={0: theirs})
    os.close(theirs)
    assert await asyncio.to_thread(os.read, ours, 6) == b"taken "
    report = await keeper.checkpoint(tmp_path / "image", stop=True)
    assert (report.refused, report.held) == ((), frozenset({0}))
    await asyncio.wait_for(keeper.ended, 20)
    await keeper.forget()
    assert os.read(ours, 10) == b"left"
    os.close(ours)

    ours, theirs = os.pipe()
    again = await put_back(best, asked, tmp_path / "image", theirs)
    (scratch / "go").touch()
    assert (await asyncio.wait_for(again.ended, 20)).code == 0
    assert os.read(ours, 20) == b"left more"
    assert os.read(ours, 20) == b""
    os.close(ours)
    await again.forget()


async def test_an_end_that_is_closed_stays_closed(best: NativeKeepers, scratch: Path, tmp_path: Path) -> None:
    """The bytes in the pipe then belong to the node, which hears so."""
    ours, theirs = os.pipe()
    asked = writer(scratch, f"echo last; exec >&-; touch closed; {WAIT}")
    keeper = await best.start(asked, ends={0: theirs})
    os.close(theirs)
    await until((scratch / "closed").exists)
    report = await keeper.checkpoint(tmp_path / "image", stop=True)
    assert (report.refused, report.held) == ((), frozenset())
    await asyncio.wait_for(keeper.ended, 20)
    await keeper.forget()
    assert os.read(ours, 10) == b"last\n"
    os.close(ours)

    ours, theirs = os.pipe()
    again = await put_back(best, asked, tmp_path / "image", theirs)
    assert os.read(ours, 10) == b""
    (scratch / "go").touch()
    assert (await asyncio.wait_for(again.ended, 20)).code == 0
    os.close(ours)
    await again.forget()
