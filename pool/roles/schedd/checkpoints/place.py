"""The place of a schedd's checkpoints: a store that can be away, and the checkpoints that wait for it meanwhile."""

from __future__ import annotations

import logging

from pool.images import ImageError, ImageStore
from pool.images.priority import run_low_priority
from pool.policy.queue import QueuedJob
from pool.roles.schedd.checkpoints.pending_checkpoints import PendingCheckpoints


class CheckpointPlace:
    """Where checkpoints are stored, as it is now.

    Args:
        store: None where there is none, or it cannot be reached yet.
        waiting: the checkpoints that arrived while the store was away; None where nothing can wait.

    Attributes:
        away: the address of the store and the reason, while it cannot be reached; jobs that have checkpoints wait.
        stuck: the address and the reason, while checkpoints that wait cannot be put into a store that is there.
    """

    def __init__(self, store: ImageStore | None, waiting: PendingCheckpoints | None, log: logging.Logger) -> None:
        self.store = store
        self.away: tuple[str, str] | None = None
        self.waiting = waiting
        self.stuck: tuple[str, str] | None = None
        self._log = log
        self._report_damage(store)

    def server_returned(self, store: ImageStore) -> None:
        """The store that was away can be reached."""
        self.store, self.away = store, None
        self._report_damage(store)

    def _report_damage(self, store: ImageStore | None) -> None:
        for line in store.damaged if store is not None else ():
            self._log.error("a checkpoint is damaged", extra={"what": line})

    def waits_for_server(self, job: QueuedJob) -> bool:
        """Whether a job waits for its checkpoints: without them it would begin from its beginning."""
        return (self.away is not None and bool(job.get("NumCkpts"))) or self._waits(job)

    @property
    def may_have_jobs_wait(self) -> bool:
        """Whether there may be a job that waits for its checkpoints."""
        return self.away is not None or (self.waiting is not None and self.waiting.is_open)

    def why_waiting(self) -> tuple[str, str]:
        """The place that jobs wait for, and why their checkpoints cannot be had."""
        return self.away or self.stuck or ("submit side", "it is on its way to where checkpoints are kept")

    def _waits(self, job: QueuedJob) -> bool:
        return self.waiting is not None and self.waiting.is_open and name_of(job) in self.waiting

    async def bring_waiting(self) -> None:
        """Put the checkpoints that wait into the store.

        Raises:
            ImageError: some are not.
        """
        if self.waiting is not None and self.store is not None:
            await run_low_priority(self.waiting.deliver, self.store)

    def for_new(self, job: QueuedJob) -> ImageStore:
        """The store for a job's next checkpoint: it waits, too, behind one that waits or while the store is away.

        Raises:
            ImageError: it cannot be kept.
        """
        if self.waiting is not None and (self.away is not None or self._waits(job)):
            return self.waiting.store
        if self.away is not None:
            raise ImageError(f"checkpoints cannot be kept now: {self.away[1]}", retry=True)
        if self.store is None:
            raise ImageError("this schedd keeps no checkpoints")
        return self.store


def name_of(job: QueuedJob) -> str:
    """The name under which a job's checkpoints are stored."""
    return f"{job.id[0]}.{job.id[1]}"
