"""Deaths, survivals, and recovery: nodes, fork servers, keepers and jobs killed."""

# A test has the loop to itself: it may block.
# ruff: noqa: ASYNC220

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pool.checkpoint.messages_table import VERSION, Verb
from pool.starter import handle
from pool.starter.cells import Directory
from pool.starter.keeper import KeeperError, NativeKeeper, NativeKeepers
from pool.starter.spec import Pipe
from tests.starter.support import alive, family, hard_kill, opened, shell, soon, spec, to_end, until
from tests.starter.test_members import sh

#: The beginning of struct cell: magic, version, state, pid, number.
CELL = struct.Struct("=IIIiQ")
FORKS = "i=0; while [ $i -lt 40 ]; do (setsid sh -c 'while :; do sleep 0.01; done' &) ; i=$((i+1)); done"


async def test_a_keeper_that_is_killed_takes_its_job_along(keepers: NativeKeepers, scratch: Path) -> None:
    keeper = await keepers.start(shell(scratch, "(setsid sleep 61 &); sleep 60 & sleep 60"))
    await until(lambda: len(alive(family(keeper.pid))) >= 5)
    processes = family(keeper.pid)
    hard_kill(keeper.pid)
    end = await soon(keeper.ended)
    assert end.cause == "killed"
    assert "keeper was killed by signal 9" in end.error
    await until(lambda: not alive(processes))
    await keeper.forget()
    assert (await to_end(keepers, spec(scratch, "/bin/true"))).code == 0


def sleepers(keeper: int, seconds: str) -> int:
    """How many processes of a job sleep for so long."""
    found = 0
    for process in family(keeper):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += process.cmdline() == ["sleep", seconds]
    return found


async def test_a_daemon_does_not_escape(keepers: NativeKeepers, scratch: Path) -> None:
    """Its first process ends when the test has seen the others, however long that takes on a busy machine."""
    daemons = "(setsid sh -c 'sleep 60; :' >/dev/null 2>&1 &); (setsid nohup sleep 60 &)"
    keeper = await keepers.start(shell(scratch, f"{daemons}; while [ ! -e seen ]; do sleep 0.05; done"))
    await until(lambda: sleepers(keeper.pid, "60") == 2)
    processes = family(keeper.pid)
    (scratch / "seen").touch()
    end = await soon(keeper.ended)
    assert (end.code, end.cause) == (0, "exit")
    assert [p for p in alive(processes) if p.pid != keeper.pid] == []


async def test_a_storm_of_forks_is_killed_whole(keepers: NativeKeepers, scratch: Path) -> None:
    keeper = await keepers.start(shell(scratch, f"while :; do {FORKS}; sleep 5; done"))
    await until(lambda: len(family(keeper.pid)) > 40)
    processes = family(keeper.pid)
    await keeper.kill()
    assert (await soon(keeper.ended)).cause == "killed"
    await until(lambda: not alive(processes))


async def test_a_fork_server_that_dies_is_replaced(keepers: NativeKeepers, scratch: Path) -> None:
    keeper = await keepers.start(spec(scratch, "/bin/sleep", "60"))
    first = keepers.fork_server_pid
    hard_kill(first)
    await until(lambda: keepers.fork_server_pid != first)
    assert (await to_end(keepers, shell(scratch, "exit 4", id="2.0.0"))).code == 4
    assert not keeper.ended.done()
    await keeper.suspend()
    await keeper.resume()
    assert (await keeper.usage()).processes == 1
    hard_kill(keeper.pid)  # it has no parent any more that would tell
    end = await soon(keeper.ended)
    assert end.cause == "killed"


async def test_a_start_lost_with_the_fork_server_is_made_again_once(keepers: NativeKeepers, scratch: Path) -> None:
    os.kill(keepers.fork_server_pid, signal.SIGSTOP)
    starts = [asyncio.ensure_future(keepers.start(shell(scratch, "echo ran >> ran", id=f"{n}.0"))) for n in range(5)]
    await asyncio.sleep(0.02)
    hard_kill(keepers.fork_server_pid)
    for started in await soon(asyncio.gather(*starts)):
        await soon(started.ended)
    assert (scratch / "ran").read_text() == "ran\n" * 5


async def test_a_keeper_that_outlives_its_fork_server_while_it_starts_a_job_is_watched(
    best: NativeKeepers, scratch: Path
) -> None:
    """Its parent cannot tell of its death any more: neither while the job runs, nor while it would wait for another."""
    members = (sh("r", "exec cat", scratch, stdout=str(scratch / "out")),)
    waits_for_its_end = spec(scratch, "x", members=members, pipes=(Pipe(-1, 0),))
    for dies in (True, False):
        theirs, ours = os.pipe()
        asked: list[NativeKeeper] = []
        starting = asyncio.ensure_future(best.start(waits_for_its_end, asked=asked.append))
        await until(lambda asked=asked: bool(asked) and _pid_in_cell(best, asked[0]) > 0)  # type: ignore[misc]
        first = best.fork_server_pid
        hard_kill(first)
        await until(lambda first=first: best.fork_server_pid != first)  # type: ignore[misc]
        assert (await to_end(best, spec(scratch, "/bin/true", id="2.0.0"))).code == 0  # the new one has had the start
        best.hand(asked[0], Verb.END, 0, theirs)
        keeper = await soon(starting)
        os.close(theirs)
        if dies:
            hard_kill(keeper.pid)
            assert (await soon(keeper.ended)).cause == "killed"
            os.close(ours)
        else:
            os.close(ours)
            assert (await soon(keeper.ended)).cause == "exit"
        pid = keeper.pid
        await keeper.forget()
        await until(lambda pid=pid: not alive(family(pid)))  # type: ignore[misc]


def _pid_in_cell(keepers: NativeKeepers, keeper: NativeKeeper) -> int:
    cell = keepers._directory.read(keeper.cell)
    return cell.pid if cell is not None and cell.number == keeper.number else 0


async def test_a_fork_server_killed_under_load_loses_and_doubles_nothing(best: NativeKeepers, scratch: Path) -> None:
    async def one(n: int) -> None:
        keeper = await best.start(shell(scratch, f"echo {n} >> ran{n}", id=f"{n}.0"))
        assert (await keeper.ended).cause == "exit"
        await keeper.forget()

    work = asyncio.gather(*(one(n) for n in range(100)))
    for _ in range(4):
        await asyncio.sleep(0.03)
        hard_kill(best.fork_server_pid)
        dead = best.fork_server_pid
        await until(lambda dead=dead: best.fork_server_pid != dead)  # type: ignore[misc]
    await soon(work)
    assert all((scratch / f"ran{n}").read_text() == f"{n}\n" for n in range(100))


async def test_jobs_go_on_without_their_node_and_are_found(place: Path, program: Path, scratch: Path) -> None:
    async with opened(place, program) as first:
        running = await first.start(shell(scratch, "sleep 60", id="1.0.0", claim={"slot": "slot1", "n": [1, None]}))
        ending = await first.start(shell(scratch, "sleep 0.1; exit 6", id="2.0.0", stdout="", append_output=True))
        done = await first.start(shell(scratch, "exit 5", id="3.0.0", stdout=""))
        await soon(done.ended)
        forgotten = await first.start(shell(scratch, "exit 5", id="4.0.0", stdout=""))
        await soon(forgotten.ended)
        await forgotten.forget()
        await first.close(kill=False)
        await until(lambda: not alive(family(ending.pid)))

        second = NativeKeepers(place / "keepers", program)
        found = {keeper.id: keeper for keeper in await second.open()}
        assert sorted(found) == ["1.0.0", "2.0.0", "3.0.0"]
        assert found["1.0.0"].spec == running.spec
        assert found["1.0.0"].pid == running.pid
        assert (await soon(found["2.0.0"].ended)).code == 6
        assert (await soon(found["3.0.0"].ended)).code == 5
        assert (await found["1.0.0"].usage()).processes == 2
        another = await second.start(spec(scratch, "/bin/true", id="5.0.0"))  # in none of the cells in use
        assert (await soon(another.ended)).code == 0
        await found["1.0.0"].vacate()
        assert (await soon(found["1.0.0"].ended)).cause == "vacated"
        for keeper in [*found.values(), another]:
            await keeper.forget()
        await second.close(kill=True)

        third = NativeKeepers(place / "keepers", program)
        assert await third.open() == []
        await third.close(kill=True)


async def test_a_keeper_that_died_without_its_node_is_told_as_lost(place: Path, program: Path, scratch: Path) -> None:
    async with opened(place, program) as first:
        keeper = await first.start(spec(scratch, "/bin/sleep", "60"))
        await first.close(kill=False)
        hard_kill(keeper.pid)
        second = NativeKeepers(place / "keepers", program)
        (found,) = await second.open()
        end = await soon(found.ended)
        assert end.cause == "killed"
        assert end.error
        await found.forget()
        await second.close(kill=True)


async def test_the_lease_holds_without_a_node(place: Path, program: Path, scratch: Path) -> None:
    async with opened(place, program) as first:
        keeper = await first.start(spec(scratch, "/bin/sleep", "60", lease_seconds=0.3))
        processes = family(keeper.pid)
        await first.close(kill=False)
        await until(lambda: not alive(processes))
        second = NativeKeepers(place / "keepers", program)
        (found,) = await second.open()
        assert (await soon(found.ended)).cause == "lease"
        await second.close(kill=True)


NODE = """
import asyncio, sys
from pool.starter.keeper import KeeperSpec, NativeKeepers
async def main():
    keepers = NativeKeepers(sys.argv[1], sys.argv[2])
    await keepers.open()
    keeper = await keepers.start(KeeperSpec(id="1.0.0", argv=("/bin/sleep", "60"), env={}, cwd=sys.argv[3],
        scratch=sys.argv[3], uid=%d, gid=%d, lease_seconds=60))
    print(keepers.fork_server_pid, keeper.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.parametrize("fork_server_too", [False, True])
async def test_a_node_that_is_killed_leaves_its_jobs(
    place: Path, program: Path, scratch: Path, repository: Path, fork_server_too: bool
) -> None:
    code = NODE % (os.getuid(), os.getgid())
    node = subprocess.Popen(
        [sys.executable, "-c", code, str(place / "keepers"), str(program), str(scratch)],
        cwd=repository,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert node.stdout is not None
    line = await asyncio.get_running_loop().run_in_executor(None, node.stdout.readline)
    fork_server, pid = map(int, line.split())
    if fork_server_too:
        hard_kill(fork_server)
    node.kill()
    node.wait()
    node.stdout.close()
    async with opened(place, program) as keepers:
        await until(lambda: not alive([p for p in family(fork_server) if p.pid == fork_server]))
        (keeper,) = keepers._live.values()
        assert keeper.pid == pid
        assert (await keeper.usage()).processes == 1
        await keeper.kill()
        assert (await soon(keeper.ended)).cause == "killed"


async def test_two_nodes_cannot_have_one_directory(best: NativeKeepers, place: Path, program: Path) -> None:
    with pytest.raises(KeeperError, match="another node is using it"):
        await NativeKeepers(place / "keepers", program).open()


async def test_a_directory_is_taken_over_from_a_node_that_is_just_ending(place: Path, program: Path) -> None:
    """A node that is killed while it starts a fork server leaves a process that has its lock until it execs."""
    before = Directory(place / "keepers")
    before.open()
    child = subprocess.Popen(["sleep", "0.5"], pass_fds=[before._lock])
    before.close()
    async with opened(place, program) as keepers:
        assert child.poll() == 0
        assert keepers.fork_server_pid
    child.wait()


async def test_a_missing_program_is_named(place: Path) -> None:
    with pytest.raises(KeeperError, match=r"no such file.*pool\.checkpoint\.build"):
        await NativeKeepers(place / "keepers", place / "keeper").open()


async def test_a_program_that_is_no_keeper_is_named(place: Path) -> None:
    with pytest.raises(KeeperError, match="ended at once with status 1"):
        await NativeKeepers(place / "keepers", "/bin/false").open()


async def test_a_damaged_cell_is_not_believed(place: Path, program: Path, scratch: Path) -> None:
    async with opened(place, program) as first:
        keeper = await first.start(shell(scratch, "exit 0"))
        await soon(keeper.ended)
        await first.close(kill=True)
        cell = place / "keepers" / "cell.0"
        content = bytearray(cell.read_bytes())
        content[100] ^= 0xFF
        cell.write_bytes(content)
        (place / "keepers" / "cell.7").write_bytes(b"garbage")
        (place / "keepers" / "cell.8").write_bytes(b"")
        second = NativeKeepers(place / "keepers", program)
        (found,) = await second.open()
        assert (await soon(found.ended)).cause == "killed"
        await found.forget()
        assert (await to_end(second, spec(scratch, "/bin/true"))).code == 0
        await second.close(kill=True)


async def test_what_a_keeper_of_another_version_left_keeps_no_start_back(
    place: Path, program: Path, scratch: Path
) -> None:
    """Its numbers are not those of today: a start with a lower one is not taken for one that had its turn."""
    async with opened(place, program) as first:
        for _ in range(3):
            assert (await to_end(first, spec(scratch, "/bin/true"))).code == 0
    cell = place / "keepers" / "cell.0"
    content = bytearray(cell.read_bytes())
    content[4:8] = (VERSION - 1).to_bytes(4, sys.byteorder)
    cell.write_bytes(content)
    async with opened(place, program) as second:
        assert (await to_end(second, spec(scratch, "/bin/true"))).code == 0


async def test_closing_with_kill_leaves_nothing(place: Path, program: Path, scratch: Path) -> None:
    keepers = NativeKeepers(place / "keepers", program)
    await keepers.open()
    started = [await keepers.start(spec(scratch, "/bin/sleep", "60", id=f"{n}.0")) for n in range(4)]
    processes = [process for keeper in started for process in family(keeper.pid)]
    fork_server = keepers.fork_server_pid
    await keepers.close(kill=True)
    await until(lambda: not alive(processes) and not alive(family(fork_server)))


async def test_a_keeper_that_does_not_answer_is_ended_by_force(
    keepers: NativeKeepers, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle, "ANSWER_TIME", 0.2)
    keeper = await keepers.start(shell(scratch, "sleep 60 & sleep 60"))
    await until(lambda: len(alive(family(keeper.pid))) >= 3)
    processes = family(keeper.pid)
    os.kill(keeper.pid, signal.SIGSTOP)
    with pytest.raises(KeeperError, match="does not answer"):
        await keeper.usage()
    keeper.end_by_force()
    assert (await soon(keeper.ended)).cause == "killed"
    await until(lambda: not alive(processes))
    await keeper.forget()


async def test_cells_of_another_version_are_used_again(place: Path, program: Path, scratch: Path) -> None:
    """A node that was upgraded cannot read the numbers of the runs before, which may be higher than its own."""
    async with opened(place, program) as before:
        for number in range(3):
            assert (await to_end(before, shell(scratch, "exit 0", id=f"{number}.0.0"))).code == 0
    cells = [path for path in (place / "keepers").glob("cell.*") if path.suffix[1:].isdigit()]
    assert cells
    for path in cells:
        magic, _, state, pid, _ = CELL.unpack_from(path.read_bytes())
        with path.open("r+b") as cell:
            cell.write(CELL.pack(magic, VERSION - 1, state, pid, 1000))
    async with opened(place, program) as upgraded:
        assert (await to_end(upgraded, shell(scratch, "exit 4", id="9.0.0"))).code == 4
