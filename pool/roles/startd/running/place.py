"""Where a slot's jobs run: its directories, what of the machine they get, and what they may not see."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pool.config import Settings
from pool.config.places import PRIVATE
from pool.images import ImageStore
from pool.jobs.activation import Activation
from pool.jobs.destinations import OutsideNames
from pool.jobs.huge_pages import HUGE_PAGES, NEVER, has_spare_memory
from pool.network.rooms import JobRoom
from pool.roles.startd.slots.records import Slot, SlotClaim, Wire
from pool.starter import devices
from pool.starter.image_cache import ImageCache
from pool.starter.keeper import Keeper
from pool.starter.place import ExecutionSite


@dataclass(frozen=True, slots=True)
class SlotPlaces:
    """The places of one machine's slots.

    Attributes:
        settings: those in force.
        machine: the machine's facts.
        state: directory of the node's state; None keeps nothing.
        execute: of the scratch directories. executables: of those that are kept.
        vacate: removes what the last claim on a slot has left.
        images: the store of a schedd's node; blocks on the disk when it is first opened.
        plugins: the transfer program of each scheme of URLs that is not the machine's own.
        outside_names, join_outside: see `ExecutionSite`.
    """

    settings: Callable[[], Settings]
    machine: Callable[[], Wire]
    state: Path | None
    execute: Path
    vacate: Callable[[str], None]
    executables: Path
    images: Callable[[str], ImageStore]
    image_cache: ImageCache
    plugins: Mapping[str, str]
    outside_names: Callable[[], OutsideNames | None]
    join_outside: Callable[[Activation, Keeper], JobRoom]

    def place_of(self, slot: Slot, claim: SlotClaim) -> ExecutionSite:
        """The place of a claim's jobs, one for all of them.

        Raises:
            OSError: what the last claim has left cannot be removed.
        """
        if claim.place is None:
            self.vacate(slot.name)
            settings, resources = self.settings(), slot.resources
            machine, megabytes = self.machine(), int(resources.get("Memory", 0))
            enforced = settings.flag("ENFORCE_MEMORY")
            claim.place = ExecutionSite(
                slot=slot.name,
                execute=self.execute,
                executables=self.executables,
                cpus=max(1, int(resources.get("Cpus", 1))),
                disk=int(resources.get("Disk", 0)) * 1024 or None if settings.flag("ENFORCE_DISK") else None,
                memory=megabytes * 2**20 if megabytes and enforced else None,
                images=functools.partial(self.images, claim.node),
                image_cache=self.image_cache,
                plugins=self.plugins,
                hidden=self._hidden(),
                system_calls=settings.text("JOB_SYSTEM_CALLS"),
                network=settings.text("JOB_NETWORK"),
                outside_names=self.outside_names,
                join_outside=self.join_outside,
                private_tmp=settings.flag("PRIVATE_TMP"),
                huge_pages=str(machine.get(HUGE_PAGES, NEVER)),
                spare_memory=has_spare_memory(megabytes, int(machine.get("AvailableMemory", 0)), enforced=enforced),
                processes=int(settings.number("JOB_PROCESSES")) or None,
                gpus=slot.gpus if machine.get("GPUs") else None,
                devices=devices.files(slot.gpus),
            )
        return claim.place

    def _hidden(self) -> tuple[str, ...]:
        """The node's state, and what other jobs have here: they may run as the same user."""
        private = [self.state / name for name in PRIVATE] if self.state is not None else []
        images = self.execute.parent / "images"
        kept = (self.executables, self.image_cache.directory)
        return tuple(str(path) for path in (*private, self.execute, *kept, images))
