"""Troubles around a checkpoint: no disk, no memory, deaths, crowds, jobs that do not listen."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pool.starter.checkpointing import CheckpointFailed
from pool.starter.keeper import NativeKeepers, StartFailed
from tests.checkpoint.conftest import Compile
from tests.checkpoint.machines import inside
from tests.checkpoint.test_checkpoints import goes_on, lines, saved, undisturbed
from tests.conftest import passable
from tests.starter.support import PYTHON, alive, family, hard_kill, shell, soon, spec, until

VFORK = 58  # of x86-64


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of 4 MB, where one may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    mounted = os.getuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    yield place if mounted else None
    if mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_full_disk(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile, small_disk: Path | None
) -> None:
    """The job runs on, nothing stays on the disk, and the next image is as good as any."""
    if small_disk is None:
        pytest.skip("needs to mount a small disk")
    wanted = spec(scratch, compiled("dirty", "-O2"), "100000", "stop")
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) > 1)
    for stop in (False, True):
        with pytest.raises(CheckpointFailed, match="no space left on device"):
            await soon(keeper.checkpoint(small_disk / "image", stop=stop))
        assert os.listdir(small_disk) == []
        at = lines(scratch)
        await until(lambda at=at: lines(scratch) > at)  # type: ignore[misc]
    await saved(keepers, keeper, tmp_path / "image")
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image"))
    (scratch / "stop").touch()
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    assert (scratch / "out").read_text() == undisturbed(scratch, wanted.argv[0], str(lines(scratch)))


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.03])
async def test_a_keeper_that_dies_while_it_puts_back(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile, delay: float
) -> None:
    """No half job is left, and the image is as it was."""
    wanted = spec(scratch, compiled("dirty", "-O2"), "100000", "stop")
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) > 1)
    await saved(keepers, keeper, tmp_path / "image", stop=True)
    before = {process.pid for process in family(os.getpid())}
    task = asyncio.ensure_future(keepers.start(wanted, image=tmp_path / "image"))
    await asyncio.sleep(delay)
    before.add(keepers.fork_server_pid)
    new = [process for process in family(os.getpid()) if process.pid not in before]
    for process in new[:1]:
        hard_kill(process.pid)
    try:
        keeper = await soon(task)
    except StartFailed:
        pass
    else:
        if not keeper.ended.done():
            await keeper.kill()
        await soon(keeper.ended)
        await keeper.forget()
    await until(lambda: not alive([process for process in new if process.pid != keepers.fork_server_pid]))
    await goes_on(keepers, wanted, tmp_path / "image", scratch)


async def test_no_room_for_a_copy(keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile) -> None:
    """Where the job may not make the copy of itself it stands still until its own memory is written."""
    program = compiled("dirty", "-O2")
    who = {"uid": 65534, "gid": 65534, "groups": ()} if os.getuid() == 0 else {}
    for path in (tmp_path, scratch):
        path.chmod(0o777)
    passable(tmp_path)
    wanted = shell(scratch, f"sh -c 'ulimit -p 1; (:)'; ulimit -p 1; exec {program} 100000 stop", **who)
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) > 1)
    assert "fork" in (scratch / "err").read_text()
    for number in range(2):
        report = await soon(keeper.checkpoint(tmp_path / f"image{number}"))
        assert report.refused == ()
        assert report.bytes > 20 << 20
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image1"))
    (scratch / "stop").touch()
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    assert (scratch / "out").read_text() == undisturbed(scratch, program, str(lines(scratch)))


async def test_processes_that_come_and_go(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    """One or another is always being born or dying when the job is stopped."""
    script = "for i in $(seq 1 400); do /bin/echo $i; (exit 3); ls / > /dev/null & done; wait; echo done"
    wanted = shell(scratch, script)
    keeper = await soon(keepers.start(wanted))
    number = 0
    while lines(scratch) < 250:
        aim = lines(scratch) + 25
        await until(lambda aim=aim: lines(scratch) >= aim)  # type: ignore[misc]
        await saved(keepers, keeper, tmp_path / f"image{number}", stop=number % 2 == 1)
        keeper = await soon(keepers.start(wanted, image=tmp_path / f"image{number}"))
        number += 1
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    assert (scratch / "out").read_text().split() == [*map(str, range(1, 401)), "done"]


async def test_a_process_that_does_not_stop(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile
) -> None:
    """It is not one that has ended: there is no image without it, and nothing happens to it."""
    wanted = spec(scratch, compiled("vforks"))
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) == 1 and inside(keeper, {VFORK}))
    report = await soon(keeper.checkpoint(tmp_path / "image", stop=True))
    assert [line for line in report.refused if "to execute a program (vfork)" in line], report.refused
    (scratch / "go").touch()
    await until(lambda: lines(scratch) == 2)
    await saved(keepers, keeper, tmp_path / "image", stop=True)
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image"))
    (scratch / "end").touch()
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    assert (scratch / "out").read_text() == "begins\ngoes on\n"


IGNORES = """
import os, signal, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while not os.path.exists("go"):
    print("still here", flush=True)
    time.sleep(0.01)
"""


async def test_a_job_that_ignores_every_signal(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    wanted = spec(scratch, sys.executable, "-c", IGNORES, isolation="shared")
    keeper = await soon(keepers.start(wanted))
    for number in range(3):
        at = lines(scratch)
        await until(lambda at=at: lines(scratch) > at)  # type: ignore[misc]
        for sent in (2, 15, 20, 40):
            await keeper.signal(sent)
        await saved(keepers, keeper, tmp_path / f"image{number}", stop=number != 1)
        keeper = await soon(keepers.start(wanted, image=tmp_path / f"image{number}"))
    (scratch / "go").touch()
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()


@pytest.mark.parametrize(("processes", "threads"), [(200, 0), (1, 2000)])
async def test_a_crowd(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile, processes: int, threads: int
) -> None:
    program = compiled("many")
    wanted = spec(scratch, program, str(processes), str(threads))
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) == 1)
    for number in range(2):
        report = await saved(keepers, keeper, tmp_path / f"image{number}", stop=number == 1)
        assert report.processes == processes + 1
        keeper = await soon(keepers.start(wanted, image=tmp_path / f"image{number}"))
        there = psutil.Process(keeper.pid).children(recursive=True)
        assert sum(process.num_threads() for process in there) == processes + 1 + threads
        # Each may run wherever this process may: they share a processor with who puts them back, until then.
        alike = {frozenset(os.sched_getaffinity(one.id)) for process in there for one in process.threads()}
        assert alike == {frozenset(os.sched_getaffinity(0))}
    (scratch / "go").touch()
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    assert (scratch / "out").read_text() == undisturbed(scratch, program, str(processes), str(threads))


NEST = """
import os, sys, time
os.chdir("/tmp")
for depth in range(1500):
    os.mkdir("d")
    os.chdir("d")
with open("bottom", "w") as file:
    file.write("still here")
os.chdir("/job")
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
print(open("/tmp/" + "d/" * 1500 + "bottom").read())
"""


async def test_a_nest_in_a_tmp_of_its_own(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    """Deeper than descriptors or a stack reach."""
    if not keepers.abilities.full:
        pytest.skip("needs the ability full")
    wanted = spec(scratch, PYTHON, "-c", NEST, cwd="/job", stdout="/job/out", stderr="/job/err", fixed=True)
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) == 1)
    await saved(keepers, keeper, tmp_path / "image", stop=True)
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image"))
    (scratch / "go").touch()
    assert (await soon(keeper.ended)).code == 0, (scratch / "err").read_text()
    await keeper.forget()
    assert (scratch / "out").read_text() == "ready\nstill here\n"


async def test_a_job_that_ends_while_its_checkpoint_begins_is_not_saved(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path
) -> None:
    """The keeper has not heard of its end yet: an image without a process could never be restored."""
    program = """
import os, socket, time
one, other = socket.socketpair()
socket.send_fds(one, [b"in flight: the checkpoint waits for a moment"], [0])
print("there", flush=True)
while not os.path.exists("end"): time.sleep(0.001)
os._exit(0)  # an interpreter that closes its files first has a quiet moment in which it can be saved
"""
    keeper = await soon(keepers.start(spec(scratch, PYTHON, "-c", program)))
    await until(lambda: lines(scratch) == 1)
    job = family(keeper.pid)[1]
    making = asyncio.ensure_future(keeper.checkpoint(tmp_path / "image", stop=True))
    await until(lambda: len(family(keeper.pid)) > 2)
    os.kill(keeper.pid, signal.SIGSTOP)
    try:
        (scratch / "end").touch()
        await until(lambda: job.status() == psutil.STATUS_ZOMBIE)
        dumpers = [one for one in family(keeper.pid)[1:] if one != job]
        await until(lambda: all(one.status() == psutil.STATUS_ZOMBIE for one in dumpers))
    finally:
        os.kill(keeper.pid, signal.SIGCONT)
    with pytest.raises(CheckpointFailed, match="ended"):
        await soon(making)
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    assert not (tmp_path / "image").exists()
