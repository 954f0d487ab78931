"""Forgets what is left of removed jobs, and gives their space back to the file system, in slices."""

from __future__ import annotations

import asyncio
import logging

from pool.errors import PoolError
from pool.store import ForgetRemoved, RewriteFile, Shrink, Store

#: Seconds between two looks at the free pages of the queue's file, pages given back at a time, seconds in between, and
#: pages (of 4 KiB) that are not worth it.
SHRINK_EVERY, SHRINK_SLICE, SHRINK_PAUSE, FEW_PAGES = 600.0, 250, 0.02, 1000


async def shrink_now_and_again(store: Store, log: logging.Logger) -> None:
    """Make the queue's file smaller whenever there is enough to give back, until cancelled."""
    while True:
        await asyncio.sleep(SHRINK_EVERY)
        try:
            await forget_removed(store)
            await shrink(store, log)
        except PoolError as error:
            log.warning("the queue's file could not be made smaller", extra={"error": str(error)})


async def forget_removed(store: Store) -> None:
    """Delete what is left of the processes of clusters that were too large to go in one step.

    Raises:
        PoolError: the store could not be written.
    """
    left = True
    while left:
        left = any(await store.write(ForgetRemoved()))
        await asyncio.sleep(SHRINK_PAUSE)


async def shrink(store: Store, log: logging.Logger) -> None:
    """Give the space of removed jobs back to the file system; a fifth of the used space stays free.

    Raises:
        PoolError: the store could not be written.
    """
    pages, free = await store.free()
    used = pages - free
    keep = max(FEW_PAGES, used // 5)
    if free > keep and not store.shrinks:
        if free < used:
            return  # it waits until there is less to write anew than to win
        log.info("an older queue's file is written anew, to become smaller", extra={"pages": used})
        await store.write(RewriteFile())
        return
    while free > keep:
        left = (await store.write(Shrink(min(SHRINK_SLICE, free - keep))))[0]
        if left is None or left >= free:
            return
        free = left
        await asyncio.sleep(SHRINK_PAUSE)
