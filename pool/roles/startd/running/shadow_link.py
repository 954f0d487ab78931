"""A starter's way to its shadow: streams by its claim or directly, and the machines that hand images on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from pool.images import Assembly, ImageStore, Manifest
from pool.jobs.activation import Activation
from pool.remoteio.frames import VERSION
from pool.roles.base import Spawn
from pool.roles.links import Links
from pool.roles.startd.images.image_peers import UnfinishedImage
from pool.roles.startd.images.image_prefetch import forget_prepared
from pool.roles.startd.running.direct_shadows import DirectShadows
from pool.roles.startd.slots.records import JobKey, SlotClaim


class ImageTickets(Protocol):
    """The images that this machine offers to others (`pool.roles.startd.images.image_peers`)."""

    def ticket(self, job: JobKey) -> str: ...

    def offer_image(self, job: JobKey, images: ImageStore, manifest: Manifest) -> None: ...

    def last_checkpoint(self, job: JobKey) -> UnfinishedImage | None: ...


class ClaimLink:
    """A starter's way to its shadow, over one claim (`pool.starter.job_start.SubmitSide`).

    Args:
        address: this node's.
        direct: the direct connections to schedds of other pools.
    """

    def __init__(
        self, claim: SlotClaim, address: str, links: Links, peers: ImageTickets, direct: DirectShadows, spawn: Spawn
    ) -> None:
        self._claim = claim
        self._direct = direct
        self._address = address
        self._links = links
        self._peers = peers
        self._spawn = spawn

    async def fetch(self, activation: Activation, executable_wanted: bool) -> Any:
        params = {"claim": self._claim.id, "run": activation.run, "executable": executable_wanted}
        return await self._direct.stream(self._claim, "fetch_inputs", params)

    async def store(self, activation: Activation) -> Any:
        params = {"claim": self._claim.id, "run": activation.run}
        return await self._direct.stream(self._claim, "store_outputs", params)

    async def remote_io(self, run: int, again: bool) -> Any:
        params = {"claim": self._claim.id, "run": run, "again": again, "frames": VERSION}
        return await self._direct.stream(self._claim, "remote_io", params)

    @property
    def is_direct(self) -> bool:
        """Whether it leads to a schedd of another pool directly."""
        return self._direct.is_direct(self._claim)

    @property
    def reachable(self) -> bool:
        if self.is_direct:
            return True
        link = self._claim.link
        return link is not None and not link.closed.done()

    async def store_image(self, activation: Activation, last: bool = False, number: str | None = None) -> Any:
        params: dict[str, Any] = {"claim": self._claim.id, "run": activation.run, "last": last}
        if number is not None:
            return await self._direct.stream(self._claim, "store_image", {**params, "set": number})
        offer = {"address": self._address, "ticket": self._peers.ticket((self._claim.node, activation.name))}
        return await self._direct.stream(self._claim, "store_image", {**params, "nearer": offer})

    def kept_image(self, activation: Activation, images: ImageStore, manifest: Manifest) -> None:
        if not activation.gang:
            self._peers.offer_image((self._claim.node, activation.name), images, manifest)

    async def find_peer(self, activation: Activation) -> Any:
        assert activation.checkpoint_from is not None
        address, ticket = activation.checkpoint_from
        link = await self._links.connect(address)
        return await link.stream("startd.chunks", {"job": activation.name, "ticket": ticket})

    def announce_chunks(self, activation: Activation) -> Callable[[str, int, bytes], None] | None:
        coming = self._peers.last_checkpoint((self._claim.node, activation.name))
        if coming is None:
            return None
        loop = asyncio.get_running_loop()

        def add_chunk(*piece: Any) -> None:
            loop.call_soon_threadsafe(coming.add_chunks, piece)

        return add_chunk

    async def prepared(self, activation: Activation) -> Assembly | None:
        prepared, claim = self._claim.prepared, self._claim
        if prepared is None or prepared.job != activation.name:
            forget_prepared(claim, self._spawn)
            return None
        claim.prepared = None
        return await prepared.wait_complete()

    async def image(self, activation: Activation) -> Any:
        params = {"claim": self._claim.id, "run": activation.run, "generation": activation.checkpoint}
        return await self._direct.stream(self._claim, "fetch_image", params)
