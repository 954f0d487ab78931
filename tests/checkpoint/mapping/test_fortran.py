"""Programs whose runtime opens everything for reading and writing, asks, seeks and patches: gfortran's."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.starter.keeper import NativeKeepers
from pool.starter.spec import EndReport
from tests.checkpoint.machines import needs
from tests.checkpoint.mapping.conftest import Program
from tests.checkpoint.mapping.support import PATH, job, program, sh
from tests.starter.support import to_end


@pytest.fixture(autouse=True)
def compiler() -> None:
    needs("gfortran", "gfortran")


async def run(
    keepers: NativeKeepers, scratch: Path, programs: Program, writes: str, reads: str, n: int, m: int, **env: str
) -> EndReport:
    records = programs("records.f90")
    members = (
        program(scratch, "phnx", records, writes, str(n), str(m), env={**PATH, **env}),
        program(scratch, "geom", records, reads, str(n), str(m)),
    )
    return await to_end(keepers, job(scratch, members, (0, "fort.10", 1, "fort.11")))


@pytest.mark.parametrize(("n", "m"), [(0, 1), (1, 1), (30_000, 10), (3000, 997), (300, 16_000)])
async def test_records_pass_whole(keepers: NativeKeepers, scratch: Path, programs: Program, n: int, m: int) -> None:
    end = await run(keepers, scratch, programs, "w", "r", n, m)
    assert (end.error, [one.code for one in end.members]) == ("", [0, 0])
    end = await run(keepers, scratch, programs, "replace", "r", n, m)
    assert (end.error, [one.code for one in end.members]) == ("", [0, 0])


async def test_records_longer_than_the_runtimes_buffer_say_what_helps(
    keepers: NativeKeepers, scratch: Path, programs: Program
) -> None:
    """The runtime writes a record's length over its beginning when it knows it. The bytes before have gone: a reader
    that finds a length of 0 may well be the first to end.
    """
    writer = program(scratch, "phnx", programs("records.f90"), "w", "5", "1000000")
    pipe = (0, "fort.10", 1, "fort.11")
    end = await to_end(keepers, job(scratch, (writer, sh(scratch, "geom", "wc < fort.11")), pipe))
    assert end.cause == "misuse"
    assert end.error.startswith("process phnx: fort.10 (pipe to geom): lseek by 0 from SEEK_SET and then write: ")
    assert end.error.endswith("set GFORTRAN_UNFORMATTED_BUFFER_SIZE to twice the longest record")
    size = {"GFORTRAN_UNFORMATTED_BUFFER_SIZE": "9000000"}
    end = await run(keepers, scratch, programs, "w", "r", 5, 1_000_000, **size)
    assert (end.error, [one.code for one in end.members]) == ("", [0, 0])


async def test_a_rewind_is_named(keepers: NativeKeepers, scratch: Path, programs: Program) -> None:
    end = await run(keepers, scratch, programs, "w", "again", 30_000, 10)
    assert end.cause == "misuse"
    assert end.error.startswith("process geom: fort.11 (pipe from phnx): lseek by 0 from SEEK_SET and then read")


async def test_stepping_back_and_closing_is_nothing(keepers: NativeKeepers, scratch: Path, programs: Program) -> None:
    end = await run(keepers, scratch, programs, "w", "back", 3000, 997)
    assert (end.error, [one.code for one in end.members]) == ("", [0, 0])
