"""Work on large graphs beside the loop: in a thread, so that nobody else waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

#: A graph of more nodes is large: walking through it takes milliseconds.
MANY_NODES = 500


async def beside(nodes: int, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Do pure work on a graph of so many nodes, in a thread where there are many. Nobody changes it meanwhile, or a
    picture of it in the middle of a change is good enough.
    """
    if nodes > MANY_NODES:
        return await asyncio.to_thread(work, *args, **named)
    return work(*args, **named)
