"""Two streams as one: what comes on either is sent on the other."""

from __future__ import annotations

import asyncio
import contextlib

from pool.errors import PoolError
from pool.wire.stream import Stream


async def pass_both_ways(near: Stream, far: Stream) -> None:
    """Pass items on in both directions until the method that serves `far` is done, or `near` is given up.

    Raises:
        RemoteError: that method raised it.
    """
    async with far:
        up = asyncio.get_running_loop().create_task(_pass_on(near, far))
        try:
            async for item in far:
                await near.send(item)
            if not far.is_over:
                await near.finish()
                await up
        finally:
            up.cancel()
            with contextlib.suppress(asyncio.CancelledError, PoolError):
                await up


async def _pass_on(source: Stream, target: Stream) -> None:
    async for item in source:
        await target.send(item)
    await target.finish()
