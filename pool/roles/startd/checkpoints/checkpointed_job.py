"""The running job and the node as the checkpoints of the job see them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pool.config import Settings
from pool.images import BandwidthShare
from pool.jobs.activation import Activation
from pool.jobs.reasons import Reason
from pool.policy.checkpoints import CheckpointWish, wish_of
from pool.policy.starter import Event
from pool.roles.base import Spawn
from pool.roles.startd.slots.records import JobKey, Slot, SlotClaim
from pool.starter.starter import Starter


class CheckpointedJob(Protocol):
    """The running job, as its checkpoints see it.

    Attributes:
        key: see `JobKey`.
        starter: None before it has one.
        ended: no process of it is left. abandoned: nobody wants to hear of it any more.
        forgot: it was found, and the schedd has not said yet what it was started with.
        why: the reason for which it has to leave, if it has to.
        began: wall time of its start. stood_still: seconds for which it was suspended so far.
    """

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> JobKey: ...
    @property
    def start(self) -> Activation: ...
    @property
    def claim(self) -> SlotClaim: ...
    @property
    def slot(self) -> Slot: ...
    @property
    def starter(self) -> Starter | None: ...
    @property
    def ended(self) -> bool: ...
    @property
    def abandoned(self) -> bool: ...
    @property
    def forgot(self) -> bool: ...
    @property
    def why(self) -> Reason | None: ...
    @property
    def started_at(self) -> float: ...
    @property
    def stood_still(self) -> float: ...

    async def handle_event(self, event: Event) -> None: ...

    def claim_note(self) -> dict[str, Any]:
        """The note that the keeper stores of the claim, by which the job is found again."""

    def report_leaving(self) -> None:
        """Tell the schedd that the last checkpoint is made now."""


class ScheddReports(Protocol):
    """The way of reports to the job's schedd (`pool.roles.startd.running.reports`)."""

    async def report_now(self, kind: str, data: dict[str, Any]) -> None: ...

    async def another_chance(self, reconnected: asyncio.Event) -> bool: ...


class ImageRoom(Protocol):
    """The images that this machine offers to others (`pool.roles.startd.images.image_peers`)."""

    def make_room(self) -> None: ...

    def forget(self, job: JobKey) -> None: ...


@dataclass(frozen=True, slots=True)
class CheckpointContext:
    """The node's part in checkpoints.

    Attributes:
        settings: those in force. share: the node's share of the network for checkpoints.
        wants_checkpoint: whether the owner lets the job in a slot be saved before it leaves.
        advertise: the slot's ad has changed.
    """

    settings: Callable[[], Settings]
    wall: Callable[[], float]
    share: BandwidthShare
    peers: ImageRoom
    wants_checkpoint: Callable[[Slot], bool]
    advertise: Callable[[Slot], None]
    spawn: Spawn
    log: logging.Logger


def can_be_saved(running: CheckpointedJob) -> bool:
    """Whether the job can be saved, as far as is known."""
    if running.forgot:
        return False
    wish = wish_of(running.claim.ad)
    if wish is CheckpointWish.SELF:
        return running.start.checkpoint_signal is not None
    wanted = wish in (CheckpointWish.AUTO, CheckpointWish.REQUIRED)
    return wanted and running.starter is not None and running.starter.checkpoints.can_dump
