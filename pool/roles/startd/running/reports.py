"""The way of one job's reports to its schedd, over the connection of its claim, which may be lost and come back."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from pool.jobs.activation import Activation
from pool.roles.base import Spawn
from pool.roles.startd.slots.records import Slot, SlotClaim
from pool.wire import ConnectionLost, DeadlineExceeded, RemoteError

#: The schedd cannot be reached, or does not answer.
TROUBLE = (ConnectionLost, DeadlineExceeded, OSError, TimeoutError)


class JobReports:
    """The reports of one start of a job.

    Attributes:
        start_is_reported: the schedd knows that the program runs.
        after: reports wait until this is set: the schedd hears of the claim's earlier jobs first.
    """

    def __init__(self, slot: Slot, claim: SlotClaim, start: Activation, spawn: Spawn, log: logging.Logger) -> None:
        self._slot = slot
        self._claim = claim
        self._start = start
        self._spawn = spawn
        self._log = log
        self.start_is_reported = False
        self.after: asyncio.Event | None = claim.overtaken[-1].gone if claim.overtaken else None
        #: The measurement that the schedd has, and the event of its next reconnection when it was given that.
        self._known: tuple[Any, asyncio.Event] | None = None

    def report(self, kind: str, data: dict[str, Any]) -> None:
        """Report in the background; see `report_now`."""
        self._spawn(self.report_now(kind, data), kind, alone=True)

    def report_measurement(self, kind: str, data: dict[str, Any], kept: Any) -> None:
        """Report a measurement in the background, unless the schedd has the same already and was there ever since.

        Args:
            kept: the part of it that the schedd keeps.
        """
        news = (kept, self._claim.reconnected)
        if news != self._known:
            self._spawn(self._report_measurement(kind, data, news), kind, alone=True)

    async def _report_measurement(self, kind: str, data: dict[str, Any], news: tuple[Any, asyncio.Event]) -> None:
        if await self._is_delivered(kind, data):
            self._known = news

    async def report_now(self, kind: str, data: dict[str, Any]) -> None:
        """Report something of the running job, if the schedd can be reached: its end will be reported in any case."""
        await self._is_delivered(kind, data)

    async def _is_delivered(self, kind: str, data: dict[str, Any]) -> bool:
        """Report, and say whether the schedd has it."""
        if self.after is not None:
            await self.after.wait()
        link = self._claim.link
        if link is None or link.closed.done():
            return False
        try:
            await link.call(
                "schedd.report",
                {"claim": self._claim.id, "run": self._start.run, "kind": kind, "data": data},
                timeout=10.0,
            )
        except (*TROUBLE, RemoteError):
            return False
        self.start_is_reported = self.start_is_reported or kind == "started"
        return True

    async def acknowledged(self, report: dict[str, Any]) -> dict[str, Any] | None:
        """The schedd's answer to the end, None when the lease was over first."""
        if self.after is not None:
            await self.after.wait()
        claim = self._claim
        params = {"claim": claim.id, "job": list(self._start.job), "run": self._start.run, "report": report}
        while True:
            reconnected = claim.reconnected
            link = claim.link
            if link is not None and not link.closed.done():
                try:
                    answer: dict[str, Any] = await link.call("schedd.ended", params, timeout=60.0)
                    return answer
                except RemoteError as error:
                    said = {"job": self._start.name, "why": str(error)}
                    self._log.error("the schedd does not take an end", extra=said)
                    if not error.retry:
                        return None
                except TROUBLE:
                    pass
            if not await self.another_chance(reconnected):
                return None

    async def another_chance(self, reconnected: asyncio.Event) -> bool:
        """Wait for the schedd to be back, or a while; False once the lease is over."""
        loop, claim = asyncio.get_running_loop(), self._claim
        if loop.time() >= claim.lease_end or self._slot.claim is not claim:
            return False
        try:
            async with asyncio.timeout(min(max(claim.lease_end - loop.time(), 0.1), 5.0)):
                await reconnected.wait()
        except TimeoutError:
            pass
        return True
