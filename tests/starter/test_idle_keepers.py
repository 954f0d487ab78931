"""One keeper for job after job: when it is used again, that nothing passes from one job to the next, and its deaths."""

# A test has the loop to itself: it may block.
# ruff: noqa: ASYNC240

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from pool.starter import idle_keepers, native, slow_starts
from pool.starter.keeper import KeeperSpec, NativeKeepers, StartFailed
from tests.starter.support import alive, family, hard_kill, opened, shell, soon, spec, to_end, until


async def run(keepers: NativeKeepers, wanted: KeeperSpec) -> tuple[int, Any]:
    """The keeper's process id, and the end."""
    keeper = await soon(keepers.start(wanted))
    end = await soon(keeper.ended)
    await keeper.forget()
    return keeper.pid, end


@pytest.mark.parametrize("isolation", ["full", "shared"])
async def test_the_next_job_runs_in_the_same_keeper(best: NativeKeepers, scratch: Path, isolation: str) -> None:
    if not best.abilities.ipc:
        pytest.skip("needs the ability ipc")
    kind = {"isolation": isolation, "claim": {"claim": "1"}}
    pids = set()
    for number in range(5):
        pid, end = await run(best, shell(scratch, f"echo {number}; exit {number}", id=f"{number}.0", **kind))
        assert (end.code, end.cause, end.error) == (number, "exit", "")
        assert (scratch / "out").read_text() == f"{number}\n"
        pids.add(pid)
    assert len(pids) == 1


async def test_each_job_has_its_own_account(best: NativeKeepers, scratch: Path) -> None:
    burn = "i=0; x=x; while [ $i -lt 60000 ]; do i=$((i+1)); done; while [ ${#x} -lt 4000000 ]; do x=$x$x; done"
    _, large = await run(best, shell(scratch, burn))
    _, small = await run(best, spec(scratch, "/bin/true"))
    assert small.user_cpu + small.system_cpu < large.user_cpu + large.system_cpu
    assert small.max_rss < large.max_rss
    assert small.wall < large.wall
    _, killed = await run(best, shell(scratch, "kill -9 $$"))
    assert (killed.signal, killed.cause) == (9, "signal")
    keeper = await best.start(shell(scratch, "sleep 60", lease_seconds=0.2))
    assert (await soon(keeper.ended)).cause == "lease"


@pytest.mark.parametrize(
    "leaves",
    [
        "echo x > /tmp/left",
        "mkdir /tmp/left",
        "ipcmk -M 100 >/dev/null || exit 9",
        "ipcmk -S 1 >/dev/null || exit 9",
        "ipcmk -Q >/dev/null || exit 9",
        "python3 -c 'import ctypes; assert ctypes.CDLL(None).mq_open(b\"/left\", 66, 438, None) >= 0' || exit 9",
    ],
)
async def test_what_leaves_something_has_had_its_keeper(best: NativeKeepers, scratch: Path, leaves: str) -> None:
    if not best.abilities.full or not best.abilities.ipc:
        pytest.skip("needs the ability full and the ability ipc")
    kind: dict[str, Any] = {"isolation": "shared" if "python3" in leaves else "full"}
    if kind["isolation"] == "shared":
        kind["env"] = {"PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin"}
    first, end = await run(best, shell(scratch, leaves, **kind))
    if end.code == 9:
        pytest.skip("needs the program that leaves it")
    second, end = await run(best, shell(scratch, "ls -d /tmp/left; ipcs -mqs | grep 0x; exit 0", **kind))
    assert second != first
    assert (scratch / "out").read_text() == ""


async def test_a_daemon_is_dead_before_the_next_begins(best: NativeKeepers, scratch: Path) -> None:
    if not best.abilities.proc or not best.abilities.ipc:
        pytest.skip("needs the ability proc and the ability ipc")
    await run(best, shell(scratch, "(setsid nohup sh -c 'sleep 60; :' >/dev/null 2>&1 &); sleep 0.05"))
    await run(best, shell(scratch, "ls -d /proc/[0-9]* | wc -l"))
    assert int((scratch / "out").read_text()) <= 4  # the keeper, the shell, ls and wc


async def test_other_jobs_have_other_keepers(best: NativeKeepers, scratch: Path, place: Path) -> None:
    first, _ = await run(best, shell(scratch, "true"))
    others: list[dict[str, Any]] = [
        {"isolation": "shared"},
        {"claim": {"claim": "2"}},
        {"hidden": (str(place / "x"),)},
        {"private_tmp": True},
        {"memory": 1 << 30},
    ]
    for other in others:
        assert (await run(best, shell(scratch, "true", **other)))[0] != first
    without = dataclasses.replace(shell(scratch, "true"), scratch="", stdout="", stderr="", cwd="/")
    assert (await run(best, without))[0] != first
    for path in scratch.iterdir():
        path.unlink()
    scratch.rmdir()
    scratch.mkdir()
    again, end = await run(best, shell(scratch, "echo in the new one"))
    assert end.code == 0
    assert again != first
    assert (scratch / "out").read_text() == "in the new one\n"


async def test_one_that_cannot_start_its_next_job_says_why(best: NativeKeepers, scratch: Path) -> None:
    await run(best, shell(scratch, "true"))
    with pytest.raises(Exception, match="exec /no/such: no such file"):
        await best.start(spec(scratch, "/no/such"))
    assert (await to_end(best, shell(scratch, "exit 3"))).code == 3


async def test_a_waiting_keeper_that_is_killed_is_not_missed(best: NativeKeepers, scratch: Path) -> None:
    pid, _ = await run(best, shell(scratch, "true"))
    hard_kill(pid)
    await until(lambda: not best._waiting and len(best._free) == 1)
    again, end = await run(best, shell(scratch, "exit 3"))
    assert end.code == 3
    assert again != pid


async def test_a_keeper_that_is_killed_before_its_end_is_acknowledged_gets_no_other_job(
    best: NativeKeepers, scratch: Path
) -> None:
    """Its job has ended, and it would wait for another; its cell's socket takes messages though nobody reads them."""
    if not best.abilities.ipc:
        pytest.skip("needs the ability ipc")
    keeper = await soon(best.start(shell(scratch, "true")))
    await soon(keeper.ended)
    hard_kill(keeper.pid)
    await until(lambda: not alive(family(keeper.pid)))
    await run(best, shell(scratch, "true", claim={"claim": "other"}))  # the fork server has told of the death before
    await keeper.forget()
    starting = asyncio.ensure_future(best.start(shell(scratch, "exit 3")))
    again = await soon(starting, native.START_TIME / 4)
    assert (await soon(again.ended)).code == 3
    await again.forget()


@pytest.mark.parametrize("fork_server_too", [False, True])
async def test_a_start_lost_with_a_waiting_keeper_is_made_again_once(
    best: NativeKeepers, scratch: Path, fork_server_too: bool
) -> None:
    if not best.abilities.ipc:
        pytest.skip("needs the ability ipc")
    pid, _ = await run(best, shell(scratch, "true"))
    os.kill(pid, signal.SIGSTOP)
    starting = asyncio.ensure_future(best.start(shell(scratch, "echo ran >> ran; exit 3")))
    await asyncio.sleep(0.02)
    assert not starting.done()
    if fork_server_too:
        dead = best.fork_server_pid
        hard_kill(dead)
        await until(lambda: best.fork_server_pid != dead)
    hard_kill(pid)
    keeper = await soon(starting)
    assert (await soon(keeper.ended)).code == 3
    assert (scratch / "ran").read_text() == "ran\n"
    await keeper.forget()


async def test_a_reused_keeper_that_is_killed_takes_its_job_along(best: NativeKeepers, scratch: Path) -> None:
    await run(best, shell(scratch, "true"))
    keeper = await best.start(shell(scratch, "(setsid sleep 61 &); sleep 60"))
    await until(lambda: len(alive(family(keeper.pid))) >= 3)
    processes = family(keeper.pid)
    hard_kill(keeper.pid)
    end = await soon(keeper.ended)
    assert end.cause == "killed"
    assert end.started > 0
    await until(lambda: not alive(processes))


async def test_a_fork_server_that_dies_ends_the_waiting(best: NativeKeepers, scratch: Path) -> None:
    pid, _ = await run(best, shell(scratch, "true"))
    running = await best.start(shell(scratch, "sleep 0.3", claim={"claim": "2"}))
    dead = best.fork_server_pid
    hard_kill(dead)
    await until(lambda: best.fork_server_pid != dead)
    await until(lambda: not alive(family(pid)))
    await soon(running.ended)
    await running.forget()
    await until(lambda: not alive(family(running.pid)))
    await until(lambda: len(best._free) == 2)
    assert (await to_end(best, shell(scratch, "exit 4"))).code == 4


async def test_nobody_waits_for_a_node_that_is_gone(place: Path, program: Path, scratch: Path) -> None:
    async with opened(place, program) as first:
        pid, _ = await run(first, shell(scratch, "true"))
        running = await first.start(shell(scratch, "sleep 0.2; exit 5", id="2.0.0"))
        await first.close(kill=False)
        await until(lambda: not alive(family(pid)) or pid == running.pid)
        second = NativeKeepers(place / "keepers", program)
        (found,) = await second.open()
        assert (await soon(found.ended)).code == 5
        await found.forget()
        await until(lambda: not alive(family(running.pid)))  # its parent is not the new node's fork server
        assert (await to_end(second, shell(scratch, "exit 3"))).code == 3
        await second.close(kill=True)


async def test_nobody_waits_for_long(best: NativeKeepers, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_keepers, "STAY", 0.2)
    pid, _ = await run(best, shell(scratch, "true"))
    await until(lambda: not alive(family(pid)) and len(best._free) == 1)
    assert (await to_end(best, shell(scratch, "exit 3"))).code == 3


async def test_a_job_cannot_stop_what_comes_after_it(best: NativeKeepers, scratch: Path) -> None:
    """It does to its keeper, its /tmp and its cover what it may."""
    if not best.abilities.full or not best.abilities.ipc:
        pytest.skip("needs the ability full and the ability ipc")
    hostile = (
        "for s in 1 2 3 9 10 12 13 14 15 17 18 19 20 23 31 34 64; do kill -$s 1; kill -$s -1; done 2>/dev/null; "
        f"touch {best._directory.path}/x; ulimit -n 3; exit 0"
    )
    for isolation in ("full", "shared"):
        # In `full` its /tmp is its own; in `shared` it is this machine's, which a test must not touch.
        await run(
            best, shell(scratch, ("chmod 0 /tmp; " if isolation == "full" else "") + hostile, isolation=isolation)
        )
        shutil.copy("/bin/true", scratch / "true")
        script = "echo ok > $TMPDIR/t && rm $TMPDIR/t; ulimit -n"
        env = {"PATH": "/usr/bin:/bin", "TMPDIR": "/tmp" if isolation == "full" else str(scratch)}
        _, end = await run(best, shell(scratch, script, isolation=isolation, env=env))
        assert end.code == 0
        assert int((scratch / "out").read_text()) > 3


async def test_a_waiting_keeper_that_does_not_take_its_start_fails_it(
    best: NativeKeepers, scratch: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The job may begin elsewhere; before that the log says where the start stands."""
    if not best.abilities.ipc:
        pytest.skip("no System V objects of a job's own: keepers are not used again")
    monkeypatch.setattr(slow_starts, "SLOW", 0.1)
    monkeypatch.setattr(native, "START_TIME", 0.5)
    monkeypatch.setattr(best._starts, "_most", 0.5)
    pid, _ = await run(best, shell(scratch, "true"))
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(StartFailed, match="nothing has come of it"):
        await soon(best.start(shell(scratch, "echo ran >> ran")))
    (said,) = [record for record in caplog.records if record.message == "a start takes long"]
    assert said.keeper.startswith(f"has not read it: {pid} T")  # type: ignore[attr-defined]
    monkeypatch.undo()
    os.kill(pid, signal.SIGCONT)
    await until(lambda: not best._live)
    assert (await run(best, shell(scratch, "exit 3")))[1].code == 3
