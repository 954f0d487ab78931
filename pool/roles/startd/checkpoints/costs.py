"""The costs of the checkpoints of one run so far, counted where they are made: see `pool.jobs.costs`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Costs:
    """The counts of one run.

    Args:
        stood_still: seconds for which the job was suspended so far.
    """

    def __init__(self, stood_still: Callable[[], float]) -> None:
        self._stood_still = stood_still
        self._began: float | None = None
        self._reported: dict[str, Any] = {
            "checkpoints": 0,
            "seconds": 0.0,
            "standstill": 0.0,
            "bytes": 0,
            "committed": 0.0,
        }

    def program_runs(self) -> None:
        """The program was started, for the first time in this run or again."""
        if self._began is None:
            self._began = asyncio.get_running_loop().time()

    def begin(self) -> CheckpointStart:
        """A checkpoint is begun."""
        now = asyncio.get_running_loop().time()
        return CheckpointStart(now, now - self._began - self._stood_still() if self._began is not None else 0.0)

    def stored(self, checkpoint: CheckpointStart, sent: int, standstill: float | None = None) -> None:
        """The submit side has a checkpoint.

        Args:
            sent: bytes that travelled.
            standstill: seconds for which the job did not run; None for as long as it took.
        """
        took = asyncio.get_running_loop().time() - checkpoint.started_at
        reported = self._reported
        reported["checkpoints"] += 1
        reported["seconds"] = round(reported["seconds"] + took, 3)
        reported["standstill"] = round(reported["standstill"] + (took if standstill is None else standstill), 6)
        reported["bytes"] += sent
        reported["committed"] = round(checkpoint.work, 3)

    def to_wire(self) -> dict[str, Any] | None:
        """As they are told; None where there was no checkpoint."""
        return dict(self._reported) if self._reported["checkpoints"] else None


class CheckpointStart:
    """When one was begun (monotonic), and how many seconds of work the run had come to."""

    __slots__ = ("started_at", "work")

    def __init__(self, started_at: float, work: float) -> None:
        self.started_at = started_at
        self.work = work
