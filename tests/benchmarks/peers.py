"""The programs that are measured beside us. Each is started once and then asked in turns.

A peer that is not installed is left out of the run and said so.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import sys
from collections.abc import AsyncIterator

from tests.conftest import REPOSITORY


class HyperQueue:
    """HyperQueue's server and one worker, in a process of their own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def run(self, tasks: int) -> tuple[float, float]:
        """Seconds for that many `/bin/true`: until the last had run, and until its client said so."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(b"%d\n" % tasks)
        async with asyncio.timeout(300):
            last, told = (await self._process.stdout.readline()).split()
        return float(last), float(told)


@contextlib.asynccontextmanager
async def hyperqueue(slots: int) -> AsyncIterator[HyperQueue | None]:
    """A running HyperQueue with that many slots; None where it is not installed."""
    if importlib.util.find_spec("hyperqueue") is None:
        print("hyperqueue is not installed (pip install '.[bench]'): left out", file=sys.stderr)
        yield None
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.benchmarks.hyperqueue_peer", str(slots)),
        cwd=REPOSITORY,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin
    assert process.stdout
    try:
        async with asyncio.timeout(60):
            if (await process.stdout.readline()).strip() != b"ready":
                print("hyperqueue did not start: left out", file=sys.stderr)
                yield None
                return
        yield HyperQueue(process)
    finally:
        process.stdin.close()
        await process.wait()


async def xargs(slots: int, times: int) -> float:
    """Seconds `xargs` takes for that many `/bin/true`, as many at once as there are slots."""
    program = shutil.which("xargs") or "xargs"
    loop = asyncio.get_running_loop()
    began = loop.time()
    process = await asyncio.create_subprocess_exec(
        program, f"-P{slots}", "-n1", "/bin/true", stdin=asyncio.subprocess.PIPE, env={"PATH": os.defpath}
    )
    await process.communicate(b"x\n" * times)
    return loop.time() - began
