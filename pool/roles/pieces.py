"""Long work for one asker, done in pieces between which the loop is free, and given up when it takes too long."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

from pool.errors import PoolError

T = TypeVar("T")
#: Seconds of work after which others get their turn, and in all.
TURN, LONGEST = 0.005, 5.0


async def in_pieces(work: Generator[None, None, T], what: str, longest: float = LONGEST) -> T:
    """What the work returns.

    Args:
        what: what is being done, for the message.

    Raises:
        PoolError: it takes longer than `longest` seconds of this process's time.
    """
    loop = asyncio.get_running_loop()
    spent, since = 0.0, loop.time()
    try:
        while True:
            try:
                next(work)
            except StopIteration as end:
                found: T = end.value
                return found
            now = loop.time()
            if now - since > TURN:
                spent += now - since
                if spent > longest:
                    raise PoolError(
                        f"cannot {what}: its expressions take too long to evaluate",
                        hint="write simpler requirements",
                    )
                await asyncio.sleep(0)
                since = loop.time()
    finally:
        work.close()
