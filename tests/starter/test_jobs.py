"""Real jobs under real keepers: their environment, how they end, and the report of that."""

# A test has the loop to itself: it may block.
# ruff: noqa: ASYNC240

from __future__ import annotations

import asyncio
import os
import resource
import signal
from pathlib import Path

import psutil
import pytest

from pool.starter import native
from pool.starter.keeper import KeeperError, NativeKeeper, NativeKeepers, StartFailed
from tests.starter.support import PATIENCE, alive, family, shell, soon, spec, to_end, until


async def test_a_program_runs_to_its_end(keepers: NativeKeepers, scratch: Path) -> None:
    end = await to_end(keepers, shell(scratch, "echo to out; echo to err >&2; exit 3"))
    assert (end.code, end.signal, end.cause, end.error) == (3, None, "exit", "")
    assert (scratch / "out").read_text() == "to out\n"
    assert (scratch / "err").read_text() == "to err\n"
    assert 0 < end.started <= end.ended
    assert 0 <= end.wall < 5
    assert end.max_rss > 0


async def test_a_job_does_not_push_in_when_it_wakes_up(keepers: NativeKeepers, scratch: Path) -> None:
    """Its scheduling policy, the 41st word there, is that of batch work unless the node has another than the usual."""
    await to_end(keepers, shell(scratch, "cut -d' ' -f41 /proc/self/stat"))
    own = os.sched_getscheduler(0)
    expected = os.SCHED_BATCH if own == os.SCHED_OTHER else own
    assert int((scratch / "out").read_text()) == expected


async def test_a_signal_that_ends_it_is_told(keepers: NativeKeepers, scratch: Path) -> None:
    end = await to_end(keepers, shell(scratch, "kill -SEGV $$", core=0))
    assert (end.code, end.signal, end.core, end.cause) == (None, signal.SIGSEGV, False, "signal")


async def test_it_gets_its_own_environment_arguments_and_directory(keepers: NativeKeepers, scratch: Path) -> None:
    wanted = spec(
        scratch,
        "printer",
        "-c",
        'pwd; echo "$1" "$2"; env',
        "name",
        "",
        "two words \udcff",
        program="/bin/sh",
        env={"ONLY": "this=one", "ODD": "a\nb"},
    )
    await to_end(keepers, wanted)
    lines = (scratch / "out").read_bytes().split(b"\n")
    assert lines[:2] == [bytes(scratch), b" two words \xff"]
    assert b"ONLY=this=one" in lines
    assert not any(line.startswith((b"HOME=", b"PATH=")) for line in lines)


async def test_a_large_environment_travels_too(keepers: NativeKeepers, scratch: Path) -> None:
    env = {f"VARIABLE_{n}": "x" * 1000 for n in range(300)} | {"PATH": "/bin:/usr/bin"}
    await to_end(keepers, shell(scratch, "env | wc -c", env=env))
    assert int((scratch / "out").read_text()) > 300_000


async def test_input_comes_from_a_file_and_output_can_be_appended(keepers: NativeKeepers, scratch: Path) -> None:
    (scratch / "in").write_text("from a file\n")
    for _ in range(2):
        wanted = shell(scratch, "cat; echo x >&2", stdin=str(scratch / "in"), append_output=True)
        await to_end(keepers, wanted)
    assert (scratch / "out").read_text() == "from a file\n" * 2
    both = str(scratch / "both")
    await to_end(keepers, shell(scratch, "echo 1; echo 2 >&2; echo 3", stdout=both, stderr=both))
    assert Path(both).read_text() == "1\n2\n3\n"


async def test_nothing_is_inherited(keepers: NativeKeepers, scratch: Path) -> None:
    end = await to_end(keepers, spec(scratch, "/bin/sh", "-c", "exec grep Sig /proc/self/status"))
    text = (scratch / "out").read_text()
    assert end.code == 0
    assert "SigIgn:\t0000000000000000" in text
    assert "SigBlk:\t0000000000000000" in text
    await to_end(keepers, spec(scratch, "ls", "/proc/self/fd"))
    assert (scratch / "out").read_text().split() == ["0", "1", "2", "3"]  # 3 is the directory that ls reads


@pytest.mark.parametrize(
    ("name", "content", "mode", "errno", "says"),
    [
        ("missing", None, 0, 2, "no such file"),
        ("plain", b"#!/bin/sh\n", 0o644, 13, "not marked executable"),
        ("strange", b"MZ\x90\x00", 0o755, 8, "neither a program for this machine"),
        (
            "script",
            b"#!/usr/bin/no-such-thing -x\n",
            0o755,
            2,
            "interpreter is missing: /usr/bin/no-such-thing",
        ),
    ],
)
async def test_a_program_that_cannot_run_is_named(
    keepers: NativeKeepers, scratch: Path, name: str, content: bytes | None, mode: int, errno: int, says: str
) -> None:
    path = scratch / name
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    with pytest.raises(StartFailed) as failed:
        await keepers.start(spec(scratch, str(path)))
    assert (failed.value.call, failed.value.path, failed.value.errno) == ("exec", str(path), errno)
    assert says in failed.value.message
    assert "\n" not in str(failed.value)
    assert failed.value.retry is False
    assert (await to_end(keepers, spec(scratch, "/bin/true"))).code == 0  # the cell is free again


@pytest.mark.parametrize(
    ("change", "call"),
    [
        ({"cwd": "/no/such/place"}, "chdir"),
        ({"stdin": "/no/input"}, "open stdin"),
        ({"stdout": "/no/such/place/out"}, "open stdout"),
        ({"stderr": "/proc/version"}, "open stderr"),
    ],
)
async def test_the_step_that_failed_is_named(
    keepers: NativeKeepers, scratch: Path, change: dict[str, str], call: str
) -> None:
    with pytest.raises(StartFailed) as failed:
        await keepers.start(spec(scratch, "/bin/true", **change))
    assert failed.value.call == call
    assert failed.value.path == next(iter(change.values()))
    assert failed.value.hint or call == "exec"


async def test_a_name_without_a_slash_is_looked_for(keepers: NativeKeepers, scratch: Path) -> None:
    (scratch / "mine").write_text("#!/bin/sh\nexit 7\n")
    (scratch / "mine").chmod(0o755)
    assert (await to_end(keepers, spec(scratch, "mine"))).code == 7
    assert (await to_end(keepers, spec(scratch, "true"))).code == 0
    with pytest.raises(StartFailed, match="exec no-such-program: no such file"):
        await keepers.start(spec(scratch, "no-such-program"))


async def test_a_nul_byte_is_refused_in_words(keepers: NativeKeepers, scratch: Path) -> None:
    with pytest.raises(StartFailed, match="NUL"):
        await keepers.start(spec(scratch, "/bin/echo", "a\0b"))


async def test_limits_hold(keepers: NativeKeepers, scratch: Path) -> None:
    wanted = shell(scratch, "ulimit -n; ulimit -t; ulimit -c; ulimit -f", nofile=64, cpu=100, core=0, fsize=512 * 1024)
    await to_end(keepers, wanted)
    assert (scratch / "out").read_text().split() == ["64", "100", "0", "1024"]
    high = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    end = await to_end(keepers, shell(scratch, "true", nofile=high + 1 if high > 0 else 1024, nice=3))
    assert end.code == 0


async def test_cpu_time_of_children_is_counted(keepers: NativeKeepers, scratch: Path) -> None:
    burn = "sh -c 'i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done' & wait"
    end = await to_end(keepers, shell(scratch, burn))
    assert end.user_cpu + end.system_cpu > 0.005
    assert end.user_cpu + end.system_cpu <= end.wall * 2 + 0.1


async def test_signals_reach_the_first_process(keepers: NativeKeepers, scratch: Path) -> None:
    keeper = await keepers.start(
        shell(scratch, "trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.01; done")
    )
    await until(lambda: (scratch / "out").read_text() == "ready\n")
    await keeper.signal(signal.SIGUSR1)
    end = await soon(keeper.ended)
    assert (end.code, end.cause) == (5, "exit")
    assert (scratch / "out").read_text() == "ready\ngot\n"


async def test_suspended_jobs_stand_still_and_go_on(keepers: NativeKeepers, scratch: Path) -> None:
    keeper = await keepers.start(shell(scratch, "sleep 30 & while :; do sleep 0.005; echo; done"))
    size = (scratch / "out").stat
    await until(lambda: size().st_size > 2)
    await keeper.suspend()
    await asyncio.sleep(0.05)
    before = size().st_size
    await asyncio.sleep(0.05)
    assert size().st_size == before
    assert (await keeper.usage()).processes >= 2
    await keeper.resume()
    await until(lambda: size().st_size > before)
    await keeper.kill()
    assert (await soon(keeper.ended)).cause == "killed"


async def test_vacate_is_soft_first(keepers: NativeKeepers, scratch: Path) -> None:
    keeper = await keepers.start(
        shell(scratch, "trap 'echo saving; exit 9' TERM; echo ready; while :; do sleep 0.01; done")
    )
    await until(lambda: (scratch / "out").read_text() == "ready\n")
    await keeper.suspend()
    await keeper.vacate()  # also when it stands still
    end = await soon(keeper.ended)
    assert (end.code, end.cause) == (9, "vacated")
    assert (scratch / "out").read_text() == "ready\nsaving\n"


async def test_an_end_counts_before_what_is_asked_after_it(keepers: NativeKeepers, scratch: Path) -> None:
    """Also where the keeper has not seen it yet, and finds both at once."""
    keeper = await keepers.start(shell(scratch, "echo ready; until [ -e go ]; do sleep 0.01; done; exit 7"))
    await until(lambda: (scratch / "out").read_text() == "ready\n")
    (_, program, *_) = family(keeper.pid)
    os.kill(keeper.pid, signal.SIGSTOP)
    (scratch / "go").touch()
    await until(lambda: program.status() == psutil.STATUS_ZOMBIE)
    await keeper.vacate()
    os.kill(keeper.pid, signal.SIGCONT)
    end = await soon(keeper.ended)
    assert (end.code, end.cause) == (7, "exit")


async def test_vacate_is_hard_after_the_grace(keepers: NativeKeepers, scratch: Path) -> None:
    keeper = await keepers.start(shell(scratch, "trap '' TERM; echo ready; sleep 60; sleep 60", grace=0.1))
    await until(lambda: (scratch / "out").read_text() == "ready\n")
    processes = family(keeper.pid)
    await keeper.vacate()
    end = await soon(keeper.ended)
    assert (end.signal, end.cause) == (signal.SIGKILL, "vacated")
    await until(lambda: not alive(processes))


async def test_the_lease_ends_it_and_renewing_does_not(keepers: NativeKeepers, scratch: Path) -> None:
    keeper = await keepers.start(spec(scratch, "/bin/sleep", "60", lease_seconds=0.3))
    for _ in range(5):
        keeper.renew(0.3)
        await asyncio.sleep(0.1)
    assert not keeper.ended.done()
    end = await soon(keeper.ended)
    assert (end.signal, end.cause) == (signal.SIGKILL, "lease")
    assert "lease" in end.error
    assert 0.7 < end.wall < 1.5


async def test_usage_of_the_living(keepers: NativeKeepers, scratch: Path) -> None:
    keeper = await keepers.start(shell(scratch, "sleep 60 & sleep 60 & while :; do :; done"))
    await until(lambda: len(alive(family(keeper.pid))) >= 4)
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while (usage := await soon(keeper.usage())).user_cpu <= 0.01:
        assert asyncio.get_running_loop().time() < deadline, "a job that computes has used no processor"
        await asyncio.sleep(0.01)
    assert usage.processes == 3
    assert usage.max_rss >= usage.rss > 1000
    await keeper.kill()
    end = await soon(keeper.ended)
    assert (await keeper.usage()).user_cpu == end.user_cpu
    await keeper.signal(signal.SIGTERM)  # all are without effect now
    await keeper.vacate()
    keeper.renew(1)


async def test_memory_over_its_limit_ends_it(keepers: NativeKeepers, scratch: Path) -> None:
    script = "x=x; while [ ${#x} -lt 60000000 ]; do x=$x$x; done; echo big; sleep 60"
    keeper = await keepers.start(shell(scratch, script, memory=40 << 20))
    end = await soon(keeper.ended)
    assert (end.cause, end.signal) == ("memory", signal.SIGKILL)
    assert "40 MiB" in end.error


async def test_a_start_that_is_not_waited_for_is_undone(best: NativeKeepers, scratch: Path) -> None:
    os.mkfifo(scratch / "fifo")
    starting = asyncio.ensure_future(best.start(spec(scratch, "/bin/sleep", "60", stdin=str(scratch / "fifo"))))
    await asyncio.sleep(0.1)
    assert not starting.done()  # the open of a fifo without a writer hangs, and holds up nobody else:
    assert (await to_end(best, spec(scratch, "/bin/true"))).code == 0
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not best._live


@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
async def test_a_named_pipe_without_its_other_end_fails_the_start(
    best: NativeKeepers, scratch: Path, stream: str
) -> None:
    """It was waited for until the lease ended, on a slot that stayed claimed."""
    os.mkfifo(scratch / "fifo")
    wanted = spec(scratch, "/bin/sleep", "60", lease_seconds=4.0, **{stream: str(scratch / "fifo")})
    with pytest.raises(StartFailed, match="named pipe, and no process opened its other end") as caught:
        await soon(best.start(wanted))
    assert caught.value.call == f"open {stream}"
    assert not caught.value.retry
    assert (await to_end(best, spec(scratch, "/bin/true", id="2.0.0"))).code == 0


async def test_a_keeper_that_hangs_in_the_start_is_ended(
    best: NativeKeepers, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "INSIST_AFTER", 0.3)
    os.mkfifo(scratch / "fifo")
    starting = asyncio.ensure_future(best.start(spec(scratch, "/bin/sleep", "60", stdin=str(scratch / "fifo"))))
    await until(lambda: any(cell_of(best, keeper) for keeper in best._live.values()))
    (keeper,) = best._live.values()
    hung = family(cell_of(best, keeper))
    hung[0].suspend()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(starting)
    assert not best._live
    await until(lambda: not alive(hung))
    assert (await to_end(best, spec(scratch, "/bin/true", id="2.0.0"))).code == 0


def cell_of(keepers: NativeKeepers, keeper: NativeKeeper) -> int:
    """The process that a job's keeper runs as; 0 when it has none yet."""
    cell = keepers._directory.read(keeper.cell)
    return cell.pid if cell is not None and cell.number == keeper.number else 0


async def test_a_running_job_cannot_be_forgotten(best: NativeKeepers, scratch: Path) -> None:
    keeper = await best.start(spec(scratch, "/bin/sleep", "60"))
    with pytest.raises(KeeperError, match="still running"):
        await keeper.forget()
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
    await keeper.forget()


async def test_many_at_a_time(keepers: NativeKeepers, scratch: Path) -> None:
    async def one(n: int) -> int | None:
        place = scratch / str(n)
        place.mkdir()
        return (await to_end(keepers, shell(place, f"exit {n}", id=f"1.{n}.0"))).code

    assert await soon(asyncio.gather(*(one(n) for n in range(60)))) == list(range(60))
    assert len(keepers._free) + len(keepers._waiting) == 60
