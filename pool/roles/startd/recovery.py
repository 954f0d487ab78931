"""Finding the jobs again that outlived an earlier run of this node, by their keepers.

A keeper knows claim and run only; what the job was started with comes with the schedd's `resume` and `remind`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pool.policy import carve
from pool.policy.slots import OWNER, SlotEvent
from pool.roles.startd.running.running_job import RunningJob
from pool.roles.startd.slots import dedicated
from pool.roles.startd.slots.records import SlotClaim
from pool.starter.keeper import Keeper

if TYPE_CHECKING:
    from pool.roles.startd.role import Startd


def on_top_of_others(keeper: Keeper) -> bool:
    """What comes behind others, because its slot is on top of one of theirs."""
    return bool(keeper.spec.claim.get("urgent"))


def find(startd: Startd, keeper: Keeper) -> None:
    """Take up a job whose keeper outlived an earlier run of this node."""
    note = keeper.spec.claim
    slot = startd.slot_of(str(note["slot"]))
    parent = startd.slot_of(str(note.get("parent") or ""))
    wall = startd.outside.wall()
    if slot is None and parent is not None and on_top_of_others(keeper):
        slot = startd.urgent.put(parent)
        slot.condition = OWNER
    elif slot is None and parent is not None:
        had = tuple(str(name) for name in note.get("gpus") or ())
        parent.gpus = (*had, *(name for name in parent.gpus if name not in had))
        resources = dict(note["resources"])
        slot = parent.split(str(note["slot"]), resources, carve.take_away(parent.resources, resources), wall)
        slot.condition = OWNER
        startd.slots[slot.name] = slot
    if slot is None or slot.claim is not None:
        startd.log.error("a job was found for which there is no slot", extra={"keeper": keeper.id})
        startd.spawn(RunningJob.discard(keeper), "discard", alone=True)
        return
    now = asyncio.get_running_loop().time()
    claim = SlotClaim(
        id=str(note["claim"]),
        owner=str(note["owner"]),
        submitter=str(note["submitter"]),
        node=str(note["node"]),
        lease=float(note["lease"]),
        asked=min(now, startd.given.leases.pop(str(note["claim"]), now)),
        born=now,
        since=startd.outside.wall(),
        link=None,
        ad_wire=dedicated.remembered(note, {"User": user} if (user := str(note.get("user") or "")) else {}),
    )
    slot.claim = claim
    slot.key = startd.outside.secret(16)
    startd.claims[claim.id] = slot
    startd.owner.happen(slot, SlotEvent.FIND)
    startd.draining.found(slot)
    if slot.kind == "urgent" and slot.parent is not None and slot.parent.claim is not None:
        why = f"an urgent job of {claim.submitter} has the slot for a while"
        startd.urgent.stop(slot.parent, slot.parent.claim, why)
    claim.running = RunningJob.found(startd, slot, claim, keeper)
    startd.log.info("a running job was found again", extra={"job": claim.running.name, "slot": slot.name})
    startd.spawn(claim.running.look_after(claim.running.take_up()), f"job {claim.running.name}", alone=True)
