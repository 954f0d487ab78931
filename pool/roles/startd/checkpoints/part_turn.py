"""The turn of one part of a job to stand still for the last checkpoint of all its parts (VS 5.3).

The part waits for its turn (`JobCheckpoints`); the schedd's steps give it (`ParallelCheckpoint`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pool.errors import PoolError

#: Seconds until the schedd is told again that a part has to leave.
AGAIN = 5.0


class PartTurn:
    """The turn of one part.

    Attributes:
        number: of the set of images that is being made now; empty for none.
        waits: set when the part waits for its turn.
    """

    def __init__(self) -> None:
        self.number = ""
        self.waits = asyncio.Event()
        #: Done with the number of the last set when it is the part's turn.
        self._turn: asyncio.Future[str] | None = None
        #: Done when the part has stood still for the last set.
        self._stood: asyncio.Future[None] | None = None

    @property
    def is_asked_for(self) -> bool:
        """Whether the part waits for its turn, or has waited."""
        return self._turn is not None

    async def wait(self, ended: asyncio.Future[Any], tell: Callable[[], Awaitable[None]]) -> str | None:
        """Wait until the part is to stand still for the last set; the number of that, None if the part has ended.

        Args:
            ended: done when no process of the part is left.
            tell: tells the schedd that the part has to leave; called again until a set is begun.

        Raises:
            PoolError: there is no such set.
        """
        turn: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._turn = turn
        news: tuple[asyncio.Future[Any], ...] = (turn, ended)
        self.waits.set()
        while not turn.done() and not ended.done():
            if not self.number:
                await tell()
            await asyncio.wait(news, timeout=AGAIN, return_when=asyncio.FIRST_COMPLETED)
        if not turn.done():
            turn.cancel()
            return None
        return await turn

    async def grant(self, number: str) -> bool:
        """Have the waiting part stand still for the last set; False if it does not wait any more.

        Raises:
            PoolError: it could not be saved.
        """
        assert self._turn is not None
        if self._turn.done():
            return False
        self._stood = asyncio.get_running_loop().create_future()
        self._turn.set_result(number)
        await asyncio.shield(self._stood)
        return True

    def refuse(self, error: PoolError) -> None:
        """There is no last set: the part waits no more."""
        if self._turn is not None and not self._turn.done():
            self._turn.set_exception(error)

    def has_stood(self) -> None:
        """The part has stood still for the last set."""
        if self._stood is not None and not self._stood.done():
            self._stood.set_result(None)

    def has_failed(self, error: PoolError) -> None:
        """The part cannot be saved for the last set."""
        if self._stood is not None and not self._stood.done():
            self._stood.set_exception(error)
            self._stood.exception()  # heard of, whether anybody waits or not


def refusal(job: str, why: str) -> PoolError:
    """The error of a part that cannot take a step of its job's checkpoint."""
    return PoolError(f"a part of job {job} cannot be checkpointed: {why}", retry=True)
