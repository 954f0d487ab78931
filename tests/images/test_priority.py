"""Threads that give way, and the loop that goes on meanwhile."""

from __future__ import annotations

import asyncio
import os
import threading

import psutil

from pool.images.priority import run_low_priority, run_normal


def _priority() -> tuple[int, int, str]:
    number = threading.get_native_id()
    with open(f"/proc/self/task/{number}/stat", encoding="ascii") as handle:
        nice = int(handle.read().rpartition(")")[2].split()[16])
    return nice, int(psutil.Process(number).ionice().ioclass), threading.current_thread().name


async def test_it_has_the_lowest_priority_for_processor_and_disk() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    nice, disk, name = await run_low_priority(_priority)
    assert (nice, disk) == (19, psutil.IOPRIO_CLASS_IDLE)
    assert name.startswith("images")
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


async def test_what_a_job_waits_for_has_the_priority_of_all_else() -> None:
    here = os.getpriority(os.PRIO_PROCESS, 0)
    with run_normal():
        nice, _, _ = await run_low_priority(_priority)
    assert nice == here
    nice, _, _ = await run_low_priority(_priority)
    assert nice == 19


async def test_the_loop_goes_on_meanwhile() -> None:
    there, go = threading.Event(), threading.Event()

    def wait() -> str:
        there.set()
        assert go.wait(10)
        return "done"

    waiting = asyncio.create_task(run_low_priority(wait))
    assert await asyncio.to_thread(there.wait, 10)
    go.set()
    assert await waiting == "done"
