"""Table 4.1 of the paper, call by call, on mapped files: what works as on a file, and what ends the job by name."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pool.starter.keeper import NativeKeepers
from pool.starter.spec import EndReport
from tests.checkpoint.mapping.conftest import Program
from tests.checkpoint.mapping.support import job, program, python, sh
from tests.starter.support import PYTHON, soon, to_end

#: Comes in pieces: a pipe would give the reader what there is.
FEED_ALL = "(for n in 1 2 3 4 5 6 7 8; do head -c 250000 /dev/zero; test $n -gt 3 || sleep 0.02; done) > data"
#: Blocks that are all of one byte.
COUNT = """
whole = {}
with open('data', 'rb', buffering=0) as file:
    while block := file.read(16384):
        if block.count(block[0]) == 16384:
            whole[block[0]] = whole.get(block[0], 0) + 1
print(*sorted(whole.items()))
"""


async def tried(keepers: NativeKeepers, scratch: Path, programs: Program, case: str, feed: str = FEED_ALL) -> EndReport:
    """A feeder of 2,000,000 bytes, the case, and who counts what it writes."""
    members = (
        sh(scratch, "feed", feed),
        program(scratch, "foo", programs("calls.c"), case),
        python(scratch, "count", COUNT),
    )
    return await to_end(keepers, job(scratch, members, (0, "data", 1, "in"), (1, "out", 2, "data")))


@pytest.mark.parametrize(
    "case",
    [
        "whole_reads",
        "positions",
        "harmless",
        "stdio_stops_early",
        "back_and_forth",
        "looks_and_opens_again",
        "child_reads",
        "many_descriptors",
        "with_signals",
        "seeks_over",
        "by_a_ring",
    ],
)
async def test_what_works_as_on_a_file(keepers: NativeKeepers, scratch: Path, programs: Program, case: str) -> None:
    end = await tried(keepers, scratch, programs, case)
    assert (scratch / "foo.err").read_text() == ""
    assert (end.error, end.members[1].code) == ("", 0)


async def test_writes_of_two_threads_stay_whole(keepers: NativeKeepers, scratch: Path, programs: Program) -> None:
    end = await tried(keepers, scratch, programs, "two_threads")
    assert (end.error, end.members[1].code) == ("", 0)
    assert (scratch / "count.out").read_text() == "(1, 500) (2, 500)\n"


READS = "process foo: in (pipe from feed): "
WRITES = "process foo: out (pipe to count): "


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (
            "read_back",
            READS + "lseek by 0 from SEEK_SET and then read: a pipe can only be read from its beginning to its end",
        ),
        ("patches", WRITES + "lseek by 4 from SEEK_SET and then write: a pipe can only be written from its begin"),
        ("asks_length", READS + "lseek by 0 from SEEK_END: its length is unknown while it is still written"),
        ("shortens", WRITES + "ftruncate to 0: data in a pipe cannot be removed"),
        ("shortens_by_name", WRITES + "truncate: data in a pipe cannot be removed"),
        ("locks", WRITES + "flock: a pipe has one reader and one writer, and no locks; switch the program's lock"),
        ("locks_a_part", WRITES + "fcntl lock: a pipe has one reader and one writer, and no locks; switch the"),
        ("maps", READS + "mmap: a pipe cannot be mapped; let the program read"),
        ("reads_at", READS + "pread: a pipe can only be read from its beginning to its end"),
        ("writes_at", WRITES + "pwrite: a pipe can only be written from its beginning to its end"),
        ("renames", WRITES + "rename: data in a pipe cannot get another name"),
        ("renames_onto", WRITES + "rename: data in a pipe cannot get another name"),
        ("links", WRITES + "link: data in a pipe cannot get another name"),
        ("opens_again_after_reading", READS + "open: it was read and closed before"),
        ("opens_twice", READS + "open: it is already open, and a pipe has only one position"),
        ("appends_after_closing", WRITES + "open: it was written and closed before"),
        ("reads_what_it_writes", WRITES + "open: this process writes the pipe and cannot read it"),
        ("writes_what_it_reads", READS + "open: this process reads the pipe and cannot write it"),
        ("empties_what_it_reads", READS + "open: this process reads the pipe and cannot write it"),
    ],
)
async def test_what_cannot_work_ends_the_job_by_name(
    keepers: NativeKeepers, scratch: Path, programs: Program, case: str, said: str
) -> None:
    end = await tried(keepers, scratch, programs, case, "exec 5> data; head -c 2000000 /dev/zero >&5; sleep 60")
    assert end.cause == "misuse"
    assert end.error.startswith(said)
    assert [one.failed for one in end.members] == [False, True, False]


async def test_who_goes_back_when_the_writer_has_long_ended_is_named_as_well(
    keepers: NativeKeepers, scratch: Path
) -> None:
    late = "until grep -q done feed.out; do sleep 0.01; done; "
    back = "f = open('in')\nf.read(99999)\nf.seek(5)\nf.read(3)\n"
    members = (
        sh(scratch, "feed", "seq 1 30000 > data; echo done"),
        sh(scratch, "foo", f'{late}exec {PYTHON} -c "{back}"'),
        sh(scratch, "bar", f"{late}wc -l < in"),
    )
    end = await to_end(keepers, job(scratch, members, (0, "data", 1, "in"), (0, "data", 2, "in")))
    assert end.error.startswith("process foo: in (pipe from feed): lseek by 5 from SEEK_SET and then read: ")
    assert [one.failed for one in end.members] == [False, True, False]


async def test_what_carries_the_bytes_works_for_the_job(keepers: NativeKeepers, scratch: Path) -> None:
    """The supervisor's processor time is in the job's, and in no process's."""
    members = (
        sh(scratch, "a", "head -c 200000000 /dev/zero > o"),
        *(sh(scratch, name, "wc -c < i") for name in ("b", "c")),
    )
    keeper = await keepers.start(job(scratch, members, (0, "o", 1, "i"), (0, "o", 2, "i")))
    end = await soon(keeper.ended, 20)
    await keeper.forget()
    spent = end.user_cpu + end.system_cpu
    assert spent > sum(one.user_cpu + one.system_cpu for one in end.members) + 0.03


def small(scratch: Path) -> bool:
    """A program of 32 bits that exits with 0, in `small`: no compiler or library for them is needed. False: no x86."""
    source = scratch / "small.s"
    source.write_text(".globl _start\n_start: mov $1,%eax\nxor %ebx,%ebx\nint $0x80\n")
    made = subprocess.run(
        f"as --32 -o {scratch}/small.o {source} && ld -m elf_i386 -o {scratch}/small {scratch}/small.o",
        shell=True,
        check=False,
    )
    return made.returncode == 0


async def test_a_program_of_32_bits_is_named(keepers: NativeKeepers, scratch: Path) -> None:
    if not small(scratch):
        pytest.skip("needs a compiler for 32-bit programs")
    members = (program(scratch, "old", str(scratch / "small")), sh(scratch, "b", "cat i"))
    end = await to_end(keepers, job(scratch, members, (0, "o", 1, "i")))
    assert end.cause == "misuse"
    assert end.error.startswith("process old: its files are mapped to pipes, and it is a program for another instr")
