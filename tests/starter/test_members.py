"""Jobs of several processes under real keepers: joined by pipes, started together, ended together (VS 3.4, 4.1)."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pool.machine.load import ProcessTrees
from pool.starter.keeper import KeeperSpec, NativeKeepers, StartFailed
from pool.starter.messages import pack_start, unpack_start
from pool.starter.spec import Member, OnFailure, Pipe
from tests.starter.support import alive, family, opened, soon, spec, to_end, until

PATH = {"PATH": "/usr/bin:/bin"}
SOMEBODY = 61234


def sh(name: str, script: str, scratch: Path, **more: Any) -> Member:
    given: dict[str, Any] = {"env": PATH, "cwd": str(scratch), "stderr": str(scratch / f"{name}.err"), **more}
    return Member(name, ("/bin/sh", "-c", script), **given)


def line(scratch: Path, *scripts: str, **more: Any) -> KeeperSpec:
    """p0 | p1 | ..., the last one's stdout in `out`."""
    members = [sh(f"p{i}", script, scratch) for i, script in enumerate(scripts[:-1])]
    members.append(sh(f"p{len(members)}", scripts[-1], scratch, stdout=str(scratch / "out")))
    pipes = tuple(Pipe(i, i + 1) for i in range(len(members) - 1))
    return spec(scratch, *members[0].argv, members=tuple(members), pipes=pipes, **more)


def cores_in(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.name.startswith("core")]


def cores_are_files() -> bool:
    return not Path("/proc/sys/kernel/core_pattern").read_text().startswith(("|", "/"))


async def test_a_pipeline_runs_as_in_a_shell(keepers: NativeKeepers, scratch: Path) -> None:
    end = await to_end(keepers, line(scratch, "seq 1 200000", "grep 7 || exit 9", "wc -l; exit 3"))
    assert (end.code, end.signal, end.cause, end.error) == (3, None, "exit", "")
    assert (scratch / "out").read_text().strip() == str(sum("7" in str(n) for n in range(200001)))
    assert [(one.name, one.code, one.failed) for one in end.members] == [
        ("p0", 0, False),
        ("p1", 0, False),
        ("p2", 3, False),
    ]
    assert all(one.max_rss > 0 and 0 < one.wall <= end.wall + 0.1 for one in end.members)


async def test_who_writes_to_nobody_gets_sigpipe_and_that_is_no_failure(keepers: NativeKeepers, scratch: Path) -> None:
    end = await to_end(keepers, line(scratch, "exec yes", "exec head -n 3"))
    assert (end.code, end.cause) == (0, "exit")
    assert (scratch / "out").read_text() == "y\ny\ny\n"
    assert [(one.code, one.signal, one.failed) for one in end.members] == [
        (None, signal.SIGPIPE, False),
        (0, None, False),
    ]


async def test_one_that_fails_ends_the_job(keepers: NativeKeepers, scratch: Path) -> None:
    end = await to_end(keepers, line(scratch, "exec sleep 60", "kill -SEGV $$", "exec cat", core=0))
    assert (end.code, end.signal, end.cause) == (None, signal.SIGSEGV, "signal")
    assert end.error == "process p1 was killed by signal 11; the others were ended with it"
    assert [(one.signal, one.with_job, one.failed) for one in end.members] == [
        (signal.SIGKILL, True, False),
        (signal.SIGSEGV, False, True),
        (end.members[2].signal, end.members[2].with_job, False),  # it may see the end of file before its own
    ]


@pytest.mark.parametrize(("what", "expected"), [(OnFailure.WAIT, (None, 11)), (OnFailure.IGNORE, (0, None))])
async def test_the_others_go_on_where_that_is_asked(
    keepers: NativeKeepers, scratch: Path, what: OnFailure, expected: tuple[int | None, int | None]
) -> None:
    asked = line(scratch, "echo before; kill -SEGV $$", "exec cat", on_failure=what, core=0)
    end = await to_end(keepers, asked)
    assert (end.code, end.signal) == expected
    assert (scratch / "out").read_text() == "before\n"
    assert [one.with_job for one in end.members] == [False, False]


async def test_a_core_file_lies_in_its_own_directory(keepers: NativeKeepers, scratch: Path) -> None:
    """And the end says that there is one, where the kernel writes core files into the directory at all."""
    (scratch / "two").mkdir()
    members = (
        sh("one", "exec sleep 60", scratch),
        sh("two", "kill -SEGV $$", scratch, cwd=str(scratch / "two")),
    )
    end = await to_end(keepers, spec(scratch, "x", members=members, core=1 << 30))
    assert bool(cores_in(scratch / "two")) == (cores_are_files() and end.core)
    assert end.members[1].core == end.core
    assert not cores_in(scratch)


async def test_an_exit_code_is_a_failure_where_the_job_says_so(keepers: NativeKeepers, scratch: Path) -> None:
    members = (sh("good", "exec sleep 60", scratch), sh("bad", "exit 200", scratch, fails=frozenset({1, 200})))
    end = await to_end(keepers, spec(scratch, "x", members=members))
    assert (end.code, end.cause) == (200, "exit")
    assert end.error == "process bad exited with 200; the others were ended with it"


async def test_all_are_started_or_none(keepers: NativeKeepers, scratch: Path) -> None:
    asked = line(scratch, "echo it ran > ran", "exec cat")
    broken = Member("gone", ("/no/such/program",), PATH, str(scratch), stdout=str(scratch / "out"))
    asked = spec(scratch, "x", members=(*asked.members[:1], broken), pipes=asked.pipes)
    with pytest.raises(StartFailed) as caught:
        await keepers.start(asked)
    said = "cannot start 1.0.0, process gone: exec /no/such/program: no such file or directory"
    seen = " among what the job sees: the system's directories, its own files, and its machine's SHOW_PATHS"
    assert str(caught.value) == said + (seen if asked.isolation == "full" else "")
    assert not (scratch / "ran").exists()


async def test_nobody_else_holds_an_end(keepers: NativeKeepers, scratch: Path) -> None:
    """Of many pipes each process has its own ends and nothing more; one may be born with several."""
    look = "ls -l /proc/self/fd 9>&1 >&2"
    members = (
        sh("a", f"{look}; echo one; echo two >&5", scratch),
        sh("b", f"{look}; exec cat", scratch, stdout=str(scratch / "first")),
        sh("c", f"{look}; exec cat <&4", scratch, stdout=str(scratch / "second")),
    )
    pipes = (Pipe(0, 1), Pipe(0, 2, "/dev/fd/5", "/dev/fd/4"))
    end = await to_end(keepers, spec(scratch, "x", members=members, pipes=pipes))
    assert end.code == 0
    assert (scratch / "first").read_text() == "one\n"
    assert (scratch / "second").read_text() == "two\n"
    assert [(scratch / f"{name}.err").read_text().count("pipe:") for name in "abc"] == [2, 1, 1]


async def test_a_pipe_is_its_processes_users(best: NativeKeepers, scratch: Path) -> None:
    """Each may open its own end anew by name, as `tee /dev/fd/3` and `wc -l /dev/stdin` do."""
    other: dict[str, Any] = {"uid": SOMEBODY, "gid": SOMEBODY, "groups": ()} if best.abilities.other_users else {}
    if other:
        for directory in (scratch, *scratch.parents[:-1]):
            directory.chmod(directory.stat().st_mode | 0o111)
        os.chown(scratch, SOMEBODY, SOMEBODY)
    members = (
        sh("all", "seq 26 | tee /dev/fd/3", scratch),
        sh("first", "cat /dev/stdin", scratch, stdout=str(scratch / "first")),
        sh("second", "cat /dev/fd/0", scratch, stdout=str(scratch / "second")),
        sh("file", "seq 26 > /dev/stdout", scratch),
        sh("mapped", "cat in", scratch, stdout=str(scratch / "mapped")),
    )
    pipes = (Pipe(0, 1), Pipe(0, 2, "/dev/fd/3", ""), Pipe(3, 4, "", "in"))
    end = await to_end(best, spec(scratch, "x", members=members, pipes=pipes, **other))
    errors = [(scratch / f"{member.name}.err").read_text() for member in members]
    assert (end.code, [one.code for one in end.members]) == (0, [0] * 5), errors
    for name in ("first", "second", "mapped"):
        assert (scratch / name).read_text().split() == [str(number) for number in range(1, 27)], name


async def test_each_has_a_directory_of_its_own(keepers: NativeKeepers, scratch: Path) -> None:
    for name in ("one", "two"):
        (scratch / name).mkdir()
    members = tuple(
        sh(name, "pwd; echo x > here", scratch / name, stdout=str(scratch / "out"), append_stdout=True)
        for name in ("one", "two")
    )
    end = await to_end(keepers, spec(scratch, "x", members=members))
    assert end.code == 0
    assert sorted((scratch / "out").read_text().split()) == [str(scratch / "one"), str(scratch / "two")]
    assert (scratch / "one/here").exists()
    assert (scratch / "two/here").exists()


async def test_all_of_them_are_asked_to_leave(keepers: NativeKeepers, scratch: Path) -> None:
    script = "trap 'echo asked >> asked; exit 0' TERM; echo ready >> ready; while :; do sleep 0.01; done"
    keeper = await soon(keepers.start(line(scratch, script, script)))
    await until(lambda: (scratch / "ready").exists() and (scratch / "ready").read_text().count("ready") == 2)
    await keeper.vacate()
    end = await soon(keeper.ended)
    assert end.cause == "vacated"
    assert (scratch / "asked").read_text() == "asked\nasked\n"
    await keeper.forget()


async def test_the_job_dies_whole(keepers: NativeKeepers, scratch: Path) -> None:
    keeper = await soon(keepers.start(line(scratch, "exec sleep 60", "exec sleep 60", "exec sleep 60")))
    everybody = family(keeper.pid)
    await until(lambda: len(family(keeper.pid)) >= 4)
    await keeper.kill()
    end = await soon(keeper.ended)
    assert end.cause == "killed"
    assert all(one.with_job for one in end.members)
    await until(lambda: not alive(everybody))
    await keeper.forget()


async def test_an_end_is_read_from_its_cell_with_all_members(scratch: Path, keepers: NativeKeepers) -> None:
    keeper = await soon(keepers.start(line(scratch, "exec sleep 0.2", "cat; exit 4")))
    cell = keepers._directory
    await soon(keeper.ended)
    lies = cell.read(keeper.cell)
    assert lies is not None
    assert lies.report is not None
    assert [row[0] for row in lies.report.ends] == [0, 4]
    assert lies.spec == keeper.spec
    await keeper.forget()


async def test_a_node_that_comes_back_hears_of_all_members(place: Path, program: Path, scratch: Path) -> None:
    before = NativeKeepers(place / "keepers", program)
    await before.open()
    await soon(before.start(line(scratch, "until [ -e go ]; do sleep 0.01; done; exit 7", "cat; exit 4")))
    await before.close(kill=False)
    async with opened(place, program) as keepers:
        (keeper,) = keepers._live.values()
        (scratch / "go").touch()
        end = await soon(keeper.ended)
        assert [(one.name, one.code) for one in end.members] == [("p0", 7), ("p1", 4)]
        await keeper.forget()


async def test_many_members_and_a_second_job_in_the_same_keeper(keepers: NativeKeepers, scratch: Path) -> None:
    for _ in range(2):
        end = await to_end(keepers, line(scratch, "echo x", *["exec cat"] * 63))
        assert end.code == 0
        assert len(end.members) == 64
        assert (scratch / "out").read_text() == "x\n"


async def test_too_many_are_refused(keepers: NativeKeepers, scratch: Path) -> None:
    with pytest.raises(StartFailed, match="at most 64 processes"):
        await keepers.start(line(scratch, *["exec true"] * 65))


def test_a_message_says_all_of_it(tmp_path: Path) -> None:
    members = (
        Member(
            "a",
            ("a", "b c"),
            {"X": "1", "Y": "a=b"},
            "/x",
            "/in",
            "",
            "/err",
            "/bin/a",
            append_stdout=True,
            fails=frozenset({1, 255}),
        ),
        Member("b", ("b",)),
    )
    pipes = (Pipe(0, 1, "fort.11", "fort.10", 4096, 1 << 40, True), Pipe(1, -1))
    whole = spec(tmp_path, "a", members=members, pipes=pipes, on_failure=OnFailure.WAIT, groups=(1, 2), hidden=("/h",))
    assert unpack_start(pack_start(whole, 7, 3)) == whole
    with pytest.raises(StartFailed, match="a process that the job does not have"):
        pack_start(spec(tmp_path, "a", members=members, pipes=(Pipe(0, 2),)), 1, 1)


async def test_the_load_of_all_of_them_is_the_jobs(keepers: NativeKeepers, scratch: Path) -> None:
    """The processes that a machine's owner does not cause (A5, VS 7.4): a busy pipeline counts below its keeper."""
    busy = "while :; do :; done"
    keeper = await soon(keepers.start(line(scratch, busy, busy, busy)))
    trees = ProcessTrees()
    await until(lambda: trees.count([keeper.pid]).running >= 3)
    await keeper.suspend()
    await until(lambda: trees.count([keeper.pid]).running == 0)
    await keeper.resume()
    await until(lambda: trees.count([keeper.pid]).running >= 3)
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()


async def test_a_usage_covers_all(keepers: NativeKeepers, scratch: Path) -> None:
    keeper = await soon(keepers.start(line(scratch, "exec sleep 60", "exec sleep 60")))
    await until(lambda: len(family(keeper.pid)) >= 3)
    usage = await soon(keeper.usage())
    assert usage.processes == 2
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
