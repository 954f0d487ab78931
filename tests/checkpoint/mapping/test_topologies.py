"""Processes joined in every shape (VS 4.1, figures 7.1 to 7.3), with what each of them sees at the end."""

from __future__ import annotations

import hashlib
import signal
from pathlib import Path

import pytest

from pool.starter.keeper import NativeKeepers
from pool.starter.spec import EndReport, Member
from tests.checkpoint.mapping.support import job, sh
from tests.starter.support import helpers, soon, to_end, until

UNTIL_OVER = "until [ -e over ]; do sleep 0.01; done"
COPY = 'while [ $# -gt 0 ]; do cat "$1" > "$2"; shift 2; done'


def copies(scratch: Path, name: str, *files: str, before: str = "") -> Member:
    """VS 7.1's filecopy: each first file of a pair to the second."""
    quoted = " ".join(files)
    return sh(scratch, name, f"{before}set -- {quoted}; {COPY}")


def good(end: EndReport) -> bool:
    assert (end.code, end.error) == (0, "")
    return True


async def test_figure_7_1(keepers: NativeKeepers, scratch: Path) -> None:
    """Three processes in line, three pipes between each two."""
    names = (1, 2, 3)
    for n in names:
        (scratch / f"in{n}").write_bytes(bytes([n]) * 700_001)
    middle = [name for n in names for name in (f"input{n}", f"output{n}")]
    members = (
        copies(scratch, "p1", *[name for n in names for name in (f"in{n}", f"output{n}")]),
        copies(scratch, "p2", *middle),
        copies(scratch, "p3", *[name for n in names for name in (f"input{n}", f"last{n}")]),
    )
    pipes = [(p, f"output{n}", p + 1, f"input{n}") for n in names for p in (0, 1)]
    assert good(await to_end(keepers, job(scratch, members, *pipes)))
    for n in names:
        assert (scratch / f"last{n}").read_bytes() == bytes([n]) * 700_001


async def test_figure_7_2(keepers: NativeKeepers, scratch: Path) -> None:
    """One to three to one, two pipes between each two, read in another order than they are written."""
    for n in range(1, 7):
        (scratch / f"in{n}").write_bytes(bytes([n]) * 1_500_001)
    first = [name for n in range(1, 7) for name in (f"in{n}", f"output{n}")]
    middle = ["input1", "output1", "input2", "output2"]
    last = [name for n in (6, 5, 4, 3, 2, 1) for name in (f"input{n}", f"last{n}")]
    members = (
        copies(scratch, "p1", *first),
        *(copies(scratch, f"p{n}", *middle) for n in (2, 3, 4)),
        copies(scratch, "p5", *last),
    )
    pipes = [(0, f"output{2 * p + i - 2}", p, f"input{i}") for p in (1, 2, 3) for i in (1, 2)]
    pipes += [(p, f"output{i}", 4, f"input{2 * p + i - 2}") for p in (1, 2, 3) for i in (1, 2)]
    assert good(await to_end(keepers, job(scratch, members, *pipes)))
    for n in range(1, 7):
        assert (scratch / f"last{n}").read_bytes() == bytes([n]) * 1_500_001


async def test_figure_7_3_with_more_than_a_pipe_holds(keepers: NativeKeepers, scratch: Path) -> None:
    """A circle: with the paper it stood still as soon as the file was larger than a pipe."""
    data = hashlib.shake_128(b"circle").digest(9_000_001)
    (scratch / "in1").write_bytes(data)
    members = (
        copies(scratch, "p1", "in1", "output1", "input2", "output2"),
        copies(scratch, "p2", "input1", "output1", "input2", "output2"),
        copies(scratch, "p3", "input1", "output1", "input2", "last"),
    )
    pipes = [(0, f"output{n}", 1, f"input{n}") for n in (1, 2)]
    pipes += [(1, f"output{n}", 2, f"input{n}") for n in (1, 2)]
    pipes += [(2, "output1", 0, "input2")]
    assert good(await to_end(keepers, job(scratch, members, *pipes)))
    assert (scratch / "last").read_bytes() == data


async def test_one_file_to_several_readers_gives_each_all_of_it(keepers: NativeKeepers, scratch: Path) -> None:
    """The paper's first restriction, lifted; one of the readers is slow, one has soon enough."""
    members = (
        sh(scratch, "p1", "seq 1 400000 > data"),
        sh(scratch, "p2", "sleep 0.3; md5sum < data"),
        sh(scratch, "p3", "md5sum data | cut -c1-35 | sed 's/$/-/'"),
        sh(scratch, "p4", "head -n 1 data"),
    )
    pipes = [(0, "data", n, "data") for n in (1, 2, 3)]
    assert good(await to_end(keepers, job(scratch, members, *pipes)))
    wanted = hashlib.md5("".join(f"{n}\n" for n in range(1, 400001)).encode()).hexdigest()
    assert (scratch / "p2.out").read_text().split()[0] == wanted
    assert (scratch / "p3.out").read_text().startswith(wanted)
    assert (scratch / "p4.out").read_text() == "1\n"


async def test_a_process_to_itself(keepers: NativeKeepers, scratch: Path) -> None:
    """The paper's second restriction, lifted."""
    script = "seq 1 500000 > x; test -e x && wc -l < x; seq 1 10 > y; cat z"
    assert good(await to_end(keepers, job(scratch, (sh(scratch, "p", script),), (0, "x", 0, "x"), (0, "y", 0, "z"))))
    assert (scratch / "p.out").read_text().split() == ["500000", *(str(n) for n in range(1, 11))]


async def test_files_and_standard_descriptors_mixed(keepers: NativeKeepers, scratch: Path) -> None:
    members = (
        sh(scratch, "a", "seq 1 300000"),
        sh(scratch, "b", "wc -l < in > out"),
        sh(scratch, "c", "cat"),
    )
    assert good(await to_end(keepers, job(scratch, members, (0, "", 1, "in"), (1, "out", 2, ""))))
    assert (scratch / "c.out").read_text() == "300000\n"


async def test_a_deadlock_is_named_and_ends_the_job(keepers: NativeKeepers, scratch: Path) -> None:
    members = (sh(scratch, "a", "exec cat i > o"), sh(scratch, "b", "exec cat i > o"))
    end = await to_end(keepers, job(scratch, members, (0, "o", 1, "i"), (1, "o", 0, "i")))
    assert end.cause == "misuse"
    assert end.error.startswith("deadlock: ")
    assert "a waits to read i (pipe from b)" in end.error
    assert "b waits to read i (pipe from a)" in end.error


async def test_a_buffer_that_is_full_to_its_bound_is_named(keepers: NativeKeepers, scratch: Path) -> None:
    members = (sh(scratch, "a", "cat /dev/zero > o; cat i"), sh(scratch, "b", "cat i > o"))
    end = await to_end(keepers, job(scratch, members, (0, "o", 1, "i"), (1, "o", 0, "i")))
    assert end.cause == "misuse"
    assert "a waits to write o (pipe to b)" in end.error
    assert end.error.endswith("o holds 64 MiB, as much as it may")


async def test_who_never_opens_ends_it_when_it_exits(keepers: NativeKeepers, scratch: Path) -> None:
    members = (sh(scratch, "a", "exec true"), sh(scratch, "b", "cat i | wc -c"))
    assert good(await to_end(keepers, job(scratch, members, (0, "o", 1, "i"))))
    assert (scratch / "b.out").read_text() == "0\n"
    members = (sh(scratch, "a", "exec cat /dev/zero > o"), sh(scratch, "b", "exec true"))
    end = await to_end(keepers, job(scratch, members, (0, "o", 1, "i"), id="2.0.0"))
    assert (end.code, end.members[0].signal) == (0, signal.SIGPIPE)


async def test_the_end_comes_when_all_writers_have_closed(keepers: NativeKeepers, scratch: Path) -> None:
    """A child that has it still holds the end back, the process that opened it does not."""
    members = (
        sh(scratch, "a", "(sleep 0.3; echo late) > o & exec >&-; cat go > after"),
        sh(scratch, "b", "cat i"),
    )
    (scratch / "go").write_text("x")
    assert good(await to_end(keepers, job(scratch, members, (0, "o", 1, "i"))))
    assert (scratch / "b.out").read_text() == "late\n"
    members = (
        sh(scratch, "a", "echo x > o; cat back"),
        sh(scratch, "b", "cat i; echo done > reply"),
    )
    pipes = [(0, "o", 1, "i"), (1, "reply", 0, "back")]
    assert good(await to_end(keepers, job(scratch, members, *pipes, id="2.0.0")))
    assert (scratch / "a.out").read_text() == "done\n"


SEEKS = """exec python3 -c '
import os, time
os.lseek(os.open("i", os.O_RDONLY), 2, os.SEEK_SET)
open("still", "w").close()
while not os.path.exists("over"): time.sleep(0.01)'"""
#: Something that stays as it is until `over`: what a seek did not pass over; a reader that has gone, of one who has
#: nothing to write.
STILL = {
    "a seek": (f"echo much > o; {UNTIL_OVER}", SEEKS),
    "a reader": (
        f"exec 3> o; echo x >&3; {UNTIL_OVER}",
        "head -c 2 i; touch still",
        f"{UNTIL_OVER}; cat i > /dev/null",
    ),
}


@pytest.mark.parametrize("what", STILL)
async def test_the_supervisor_sleeps_while_nothing_happens(keepers: NativeKeepers, scratch: Path, what: str) -> None:
    members = tuple(sh(scratch, f"m{n}", script) for n, script in enumerate(STILL[what]))
    keeper = await soon(keepers.start(job(scratch, members, *((0, "o", n, "i") for n in range(1, len(members))))))
    await until(lambda: (scratch / "still").exists())
    (supervisor,) = helpers(keeper)
    used, times = -1.0, 0

    def sleeps() -> bool:
        nonlocal used, times
        before, used = used, sum(supervisor.cpu_times()[:2])
        times = times + 1 if used == before else 0
        return times == 20

    await until(sleeps, 20)
    (scratch / "over").touch()
    assert good(await soon(keeper.ended))


async def test_a_supervisor_that_is_killed_is_no_fault_of_the_job(keepers: NativeKeepers, scratch: Path) -> None:
    members = (sh(scratch, "a", "exec cat /dev/zero > o"), sh(scratch, "b", "echo on; exec cat i > /dev/null"))
    keeper = await soon(keepers.start(job(scratch, members, (0, "o", 1, "i"))))
    await until(lambda: (scratch / "b.out").exists() and (scratch / "b.out").read_text() == "on\n")
    (supervisor,) = helpers(keeper)
    supervisor.kill()
    end = await soon(keeper.ended, 20)
    assert (end.cause, end.error) == ("killed", "the supervisor of its mapped files died")
    assert helpers(keeper) == []
