"""Finding the jobs again that outlived an earlier run of this node, by their keepers.

A keeper knows claim and run only; the rest of the job's start comes with the schedd's `resume` and `restore_order`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from pool.outside import OutsideWorld
from pool.policy import carve
from pool.policy.slots import OWNER, SlotEvent
from pool.roles.base import Spawn
from pool.roles.startd.claims.urgent import Urgent
from pool.roles.startd.owner.draining import DrainState
from pool.roles.startd.running.activations import Activations
from pool.roles.startd.running.running_job import RunningJob
from pool.roles.startd.slots import dedicated
from pool.roles.startd.slots.records import Slot, SlotClaim
from pool.roles.startd.slots.table import SlotTable
from pool.starter.keeper import Keeper


def on_top_of_others(keeper: Keeper) -> bool:
    """Whether its slot is on top of another, and so found after that."""
    return bool(keeper.spec.claim.get("urgent"))


def in_order(keeper: Keeper) -> tuple[bool, float]:
    """Keepers in the order in which they are taken up: of those of one claim the one that began first."""
    began = keeper.spec.claim.get("began")
    return on_top_of_others(keeper), float(began) if isinstance(began, (int, float)) else 0.0


class Recovery:
    """Takes up the jobs of an earlier run of this node.

    Args:
        renewals: when the lease of each claim was last asked for, by the earlier run of the role in this process.
    """

    def __init__(
        self,
        table: SlotTable,
        activations: Activations,
        urgent: Urgent,
        drain: DrainState,
        renewals: dict[str, float],
        outside: OutsideWorld,
        spawn: Spawn,
        log: logging.Logger,
    ) -> None:
        self._table = table
        self._activations = activations
        self._urgent = urgent
        self._drain = drain
        self._renewals = renewals
        self._outside = outside
        self._spawn = spawn
        self._log = log

    def adopt(self, keeper: Keeper) -> Slot | None:
        """Find the slot of a keeper's job, and look after the job there; without a slot it is killed."""
        slot = self._slot_of(keeper)
        if slot is not None and slot.claim is not None and slot.claim.id == str(keeper.spec.claim.get("claim")):
            return self._take_up_next(slot, slot.claim, keeper)
        if slot is None or slot.claim is not None:
            self._log.error("a job was found for which there is no slot", extra={"keeper": keeper.id})
            self._spawn(RunningJob.discard(keeper), "discard", alone=True)
            return None
        claim = slot.claim = self._claim_of(keeper.spec.claim)
        slot.key = self._outside.secret(16)
        self._table.claims[claim.id] = slot
        self._table.apply_event(slot, SlotEvent.FIND)
        if self._drain.on:
            claim.retiring = True
        if slot.kind == "urgent" and slot.parent is not None and slot.parent.claim is not None:
            why = f"an urgent job of {claim.submitter} has the slot for a while"
            self._urgent.stop(slot.parent, slot.parent.claim, why)
        running = self._activations.found(slot, claim, keeper)
        self._log.info("a running job was found again", extra={"job": running.name, "slot": slot.name})
        return slot

    def _take_up_next(self, slot: Slot, claim: SlotClaim, keeper: Keeper) -> Slot | None:
        """Look after a job that was begun on a claim before the end of the one before it was acknowledged."""
        if not self._activations.overtaken(claim):
            self._log.error("a second job was found on one claim", extra={"keeper": keeper.id})
            self._spawn(RunningJob.discard(keeper), "discard", alone=True)
            return None
        running = self._activations.found(slot, claim, keeper)
        self._log.info("a running job was found again", extra={"job": running.name, "slot": slot.name})
        return slot

    def _slot_of(self, keeper: Keeper) -> Slot | None:
        """The slot of a keeper's job; a dynamic or an urgent one is made again."""
        note = keeper.spec.claim
        slot = self._table.slot_of(str(note["slot"]))
        parent = self._table.slot_of(str(note.get("parent") or ""))
        if slot is not None or parent is None:
            return slot
        if on_top_of_others(keeper):
            slot = self._urgent.add_guest(parent)
        else:
            had = tuple(str(name) for name in note.get("gpus") or ())
            parent.gpus = (*had, *(name for name in parent.gpus if name not in had))
            resources = dict(note["resources"])
            left = carve.subtract(parent.resources, resources)
            slot = parent.split(str(note["slot"]), resources, left, self._outside.wall())
            self._table.add(slot)
        slot.condition = OWNER
        return slot

    def _claim_of(self, note: dict[str, Any]) -> SlotClaim:
        now = asyncio.get_running_loop().time()
        user = str(note.get("user") or "")
        return SlotClaim(
            id=str(note["claim"]),
            owner=str(note["owner"]),
            submitter=str(note["submitter"]),
            node=str(note["node"]),
            lease=float(note["lease"]),
            asked=min(now, self._renewals.pop(str(note["claim"]), now)),
            born=now,
            since=self._outside.wall(),
            link=None,
            ad_wire=dedicated.remembered(note, {"User": user} if user else {}),
        )
