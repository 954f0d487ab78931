"""A mapped file by every name and call that leads to it (VS 4.5.2)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pool.starter.keeper import NativeKeepers, StartFailed
from tests.checkpoint.mapping.conftest import Program
from tests.checkpoint.mapping.support import job, program, sh
from tests.starter.support import to_end

WAYS = [
    "relative",
    "created",
    "absolute",
    "dots",
    "moved",
    "at_directory",
    "second",
    "linked",
    "chain",
    "linked_directory",
    "proc",
    "stream",
    "appended",
    "both_ways",
    "looked_first",
    "truncated",
    "by_thread",
    "duplicated",
    "onto_standard",
    "lowest",
    "without_ring",
    "forked",
    "vforked",
    "spawned",
]


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_leads_to_the_pipe(keepers: NativeKeepers, scratch: Path, programs: Program, way: str) -> None:
    names = programs("names.c")
    members = (
        program(scratch, "foo", names, way, "fort.11", "w"),
        program(scratch, "bar", names, way, "fort.10", "r"),
    )
    end = await to_end(keepers, job(scratch, members, (0, "fort.11", 1, "fort.10")))
    assert (end.code, end.error, [one.code for one in end.members]) == (0, "", [0, 0])
    assert not (scratch / "fort.10").exists()
    assert not (scratch / "fort.11").exists()


async def test_a_static_program(keepers: NativeKeepers, scratch: Path, programs: Program) -> None:
    names = programs("names.c", "-static")
    members = tuple(program(scratch, name, names, "stream", "x", how) for name, how in (("foo", "w"), ("bar", "r")))
    end = await to_end(keepers, job(scratch, members, (0, "x", 1, "x")))
    assert (end.code, end.error) == (0, "")


async def test_each_process_has_its_own_file_in_its_own_directory(keepers: NativeKeepers, scratch: Path) -> None:
    for name in ("one", "two"):
        (scratch / name).mkdir()
    (scratch / "two" / "data").write_text("not this\n")
    members = (
        sh(scratch, "a", "echo yes > out/data; echo no > data; cat data", cwd=str(scratch / "one")),
        sh(scratch, "b", "cat data; cat ../one/data", cwd=str(scratch / "two")),
    )
    (scratch / "one" / "out").mkdir()
    end = await to_end(keepers, job(scratch, members, (0, "out/data", 1, str(scratch / "two" / "data"))))
    assert (end.code, end.error) == (0, "")
    assert (scratch / "a.out").read_text() == "no\n"
    assert (scratch / "b.out").read_text().startswith("yes\n")
    assert (scratch / "two" / "data").read_text() == "not this\n"


async def test_a_mapped_file_in_no_directory_is_named_at_the_start(keepers: NativeKeepers, scratch: Path) -> None:
    members = (sh(scratch, "a", "true"), sh(scratch, "b", "true"))
    with pytest.raises(StartFailed, match="nowhere/x"):
        await keepers.start(job(scratch, members, (0, "nowhere/x", 1, "x")))


async def test_another_users_processes(keepers: NativeKeepers, scratch: Path) -> None:
    """Where the pool runs as root, the supervisor has the job's rights over files and may still look into it."""
    if os.getuid() != 0:
        pytest.skip("needs root")
    os.chown(scratch, 65534, 65534)
    members = (
        sh(scratch, "a", "id -u > o; seq 1 300000 > p"),
        sh(scratch, "b", "cat i; wc -l < j"),
    )
    pipes = ((0, "o", 1, "i"), (0, "p", 1, "j"))
    end = await to_end(keepers, job(scratch, members, *pipes, uid=65534, gid=65534, groups=(), filter="plain"))
    assert (end.code, end.error) == (0, "")
    assert (scratch / "b.out").read_text() == "65534\n300000\n"
