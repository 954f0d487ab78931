"""Where a slot's jobs run: its directories, what of the machine they get, and what they may not see."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from pool.roles.startd.slots.records import Slot, SlotClaim
from pool.starter import devices
from pool.starter.place import ExecutionSite

if TYPE_CHECKING:
    from pool.roles.startd.role import Startd

#: Directories of the node's state that no job may look into.
PRIVATE = ("spool", "keepers", "trust")


def place_of(startd: Startd, slot: Slot, claim: SlotClaim) -> ExecutionSite:
    """The place of a claim's jobs, one for all of them."""
    if claim.place is None:
        settings, resources = startd.settings, slot.resources
        memory = int(resources.get("Memory", 0)) * 2**20
        claim.place = ExecutionSite(
            slot=slot.name,
            execute=startd.execute,
            executables=startd.executables,
            cpus=max(1, int(resources.get("Cpus", 1))),
            disk=int(resources.get("Disk", 0)) * 1024 or None if settings.flag("ENFORCE_DISK") else None,
            memory=memory if memory and settings.flag("ENFORCE_MEMORY") else None,
            images=functools.partial(startd.images, claim.node),
            image_cache=startd.image_cache,
            plugins=startd.owner.plugins,
            hidden=_hidden(startd),
            system_calls=settings.text("JOB_SYSTEM_CALLS"),
            network=settings.text("JOB_NETWORK"),
            private_tmp=settings.flag("PRIVATE_TMP"),
            processes=int(settings.number("JOB_PROCESSES")) or None,
            gpus=slot.gpus if startd.machine.get("GPUs") else None,
            devices=devices.files(slot.gpus),
        )
    place: ExecutionSite = claim.place
    return place


def _hidden(startd: Startd) -> tuple[str, ...]:
    """The node's state, and what other jobs have here: they may run as the same user."""
    state = startd.given.state
    private = [state / name for name in PRIVATE] if state is not None else []
    images = startd.execute.parent / "images"
    kept = (startd.executables, startd.image_cache.directory)
    return tuple(str(path) for path in (*private, startd.execute, *kept, images))
