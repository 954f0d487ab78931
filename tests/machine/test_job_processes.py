"""Real processes, read from /proc; a process that runs another program stands for the keeper."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pool.machine.job_processes import has_progress, inspect_keeper, job_pids, read_part
from pool.policy.inspection import InspectedPart, with_waits

PATIENCE = 60.0


@pytest.fixture
def keeper() -> Iterator[Callable[[str, Path], int]]:
    """Starts a Python that stands for a keeper, with a shell below it that runs a text; answers the Python's pid."""
    started: list[subprocess.Popen[bytes]] = []

    def start(script: str, directory: Path) -> int:
        program = f"import subprocess; subprocess.run(['/bin/sh', '-c', {script!r}], cwd={str(directory)!r})"
        started.append(subprocess.Popen([sys.executable, "-IS", "-c", program], start_new_session=True))
        return started[-1].pid

    yield start
    for process in started:
        os.killpg(process.pid, 9)
        process.wait()


async def until(pid: int, condition: Callable[[InspectedPart], bool]) -> InspectedPart:
    """The first look of which this holds."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not condition(part := with_waits(read_part(pid))):
        assert asyncio.get_running_loop().time() < deadline, part
        await asyncio.sleep(0.02)
    return part


def said(part: InspectedPart) -> dict[str, str]:
    return {process.threads[0].name: process.threads[0].waits for process in part.processes}


async def test_a_shell_waits_for_its_children_and_a_reader_for_its_writer(
    keeper: Callable[[str, Path], int], tmp_path: Path
) -> None:
    pid = keeper("sleep 600 | cat; true", tmp_path)
    kinds = {"cat": "write into", "sh": "its child", "sleep": "sleeps"}  # all are shells until they have begun
    part = await until(pid, lambda part: all(kind in said(part).get(name, "") for name, kind in kinds.items()))
    by_name = {process.threads[0].name: process for process in part.processes}
    assert f"waits for {by_name['sleep'].pid} (sleep) to write into pipe:[" in said(part)["cat"]
    assert said(part)["sh"].startswith("waits for its child ")
    assert "sleeps" in said(part)["sleep"]
    assert by_name["cat"].command == "cat"
    assert pid not in job_pids(pid), "the keeper is not of the job"


async def test_a_lock_and_who_has_it(keeper: Callable[[str, Path], int], tmp_path: Path) -> None:
    pid = keeper("flock lock sleep 600 & while flock -n lock true; do sleep 0.02; done; exec flock lock true", tmp_path)

    def last_waits(part: Any) -> list[str]:
        """For the last one's wait alone: at first the sleeper itself may wait for one that only tries."""
        waiting = (one for one in part.processes if "sleep" not in one.command)
        return [one.threads[0].waits for one in waiting if "which" in one.threads[0].waits]

    part = await until(pid, lambda part: bool(last_waits(part)))
    (waiting,) = last_waits(part)
    holder = next(one for one in part.processes if "sleep" in one.command and one.threads[0].name == "flock")
    assert waiting == f"waits for the lock on {tmp_path}/lock, which {holder.pid} (flock) has"


async def test_rates_and_positions_of_what_is_read(keeper: Callable[[str, Path], int], tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(1 << 20))
    pid = keeper("exec 5< data; head -c 4096 <&5 > /dev/null; while :; do :; done", tmp_path)
    await until(pid, lambda part: any(file.fd == 5 and file.position for one in part.processes for file in one.files))
    part, has_moved = await inspect_keeper(pid, 0.3)
    (shell,) = [process for process in part.processes if process.load]
    assert has_moved
    assert shell.load > 0.05
    assert shell.threads[0].state == "R"
    (file,) = [file for file in shell.files if file.fd == 5]
    assert (file.target, file.access) == (f"{tmp_path}/data", "r")
    assert file.position
    assert file.rate == 0.0


async def test_nothing_moves_in_a_job_that_sleeps(keeper: Callable[[str, Path], int], tmp_path: Path) -> None:
    pid = keeper("sleep 600", tmp_path)
    before = await until(pid, lambda part: "sleeps" in said(part).get("sleep", ""))
    assert not has_progress(before, read_part(pid))


def test_of_a_keeper_that_is_gone_there_is_nothing_to_see() -> None:
    with subprocess.Popen(["/bin/true"]) as gone:
        gone.wait()
    assert read_part(gone.pid).processes == ()
