"""A personal pool in a process of its own: `python -m tests.benchmarks.personal_process SLOTS --state DIR`.

Lasts until SIGTERM or SIGINT.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import uvloop

from pool.node import personal


async def serve(slots: int, state: Path) -> None:
    """Run the pool until it is stopped."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with personal(state, slots=slots):
        await stop.wait()


if __name__ == "__main__":
    _, count, _, directory = sys.argv
    uvloop.run(serve(int(count), Path(directory)))
