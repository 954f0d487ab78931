"""Images that were sent to the submit side and stay a while, for the machine on which their job goes on (C5).

A machine that has made a checkpoint says to the schedd, with it, a ticket. The schedd gives the ticket to the machine
that it next starts the job on, and whoever shows it gets chunks of that one image: no other, and no list of them. Of a
job that has to leave the schedd hears before its last checkpoint is made, so that whoever comes next can come at once
and is sent all of it while it is put together. Nothing here is durable or has to be had: home has it all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from pool.images import Draft, ImageStore, Manifest, send_chunks, send_pieces
from pool.images.transfer import TOGETHER, Pace
from pool.roles.base import Spawn
from pool.roles.startd.slots.records import JobKey, secrets_equal
from pool.wire import Stream
from pool.wire.errors import CallRefused

#: Seconds for which an image is kept after the submit side has it.
KEPT = 600.0


@dataclass(slots=True)
class Offer:
    """One image that may be asked for.

    Attributes:
        draft: holds its chunks in the store.
    """

    ticket: str
    images: ImageStore
    draft: Draft
    chunks: frozenset[bytes]
    timer: asyncio.TimerHandle


@dataclass(slots=True)
class UnfinishedImage:
    """A last checkpoint that is being made.

    Attributes:
        made: its chunks so far: file, index there, digest. over: there will be no more of them.
    """

    made: list[tuple[str, int, bytes]] = field(default_factory=list)
    over: bool = False
    more: asyncio.Event = field(default_factory=asyncio.Event)

    def add_chunks(self, *piece: tuple[str, int, bytes]) -> None:
        """There are more chunks."""
        self.made += piece
        self.more.set()

    def end(self) -> None:
        """There are no more."""
        self.over = True
        self.more.set()

    async def batches(self) -> AsyncIterator[list[tuple[str, int, bytes]]]:
        """All of them, as they are made."""
        place = 0
        while place < len(self.made) or not self.over:
            if place == len(self.made):
                self.more.clear()
                await self.more.wait()
            some = self.made[place : place + TOGETHER]
            place += len(some)
            if some:
                yield some


class ImagePeers:
    """The images that one machine offers, one of each job at most.

    Args:
        images: the store of a schedd's node; blocks on the disk when it is first opened.
        pace: awaited with the bytes about to be sent.
        secret: draws that many random bytes as text.
    """

    def __init__(
        self, images: Callable[[str], ImageStore], pace: Pace, secret: Callable[[int], str], spawn: Spawn
    ) -> None:
        self._images = images
        self._pace = pace
        self._secret = secret
        self._spawn = spawn
        self._tickets: dict[JobKey, str] = {}
        self._offers: dict[JobKey, Offer] = {}
        self._coming: dict[JobKey, UnfinishedImage] = {}

    def ticket(self, job: JobKey) -> str:
        """The secret for the image of a job that is sent next."""
        return self._tickets.setdefault(job, self._secret(16))

    def begin_last(self, job: JobKey) -> str:
        """The last checkpoint of a job is about to be made; the ticket for it."""
        self._coming[job] = UnfinishedImage()
        return self.ticket(job)

    def last_checkpoint(self, job: JobKey) -> UnfinishedImage | None:
        """The last checkpoint of a job that leaves, while it is made."""
        return self._coming.get(job)

    def end_last(self, job: JobKey) -> None:
        """There is no last checkpoint, or it is whole: nobody waits for more of it."""
        coming = self._coming.pop(job, None)
        if coming is not None:
            coming.end()

    def offer_image(self, job: JobKey, images: ImageStore, manifest: Manifest) -> None:
        """The submit side has it: keep its chunks here for a while, in place of those of the one before."""
        self.end_last(job)
        ticket = self._tickets.pop(job, None)
        if ticket is None:
            return
        draft = images.begin(job[1])
        draft.missing(manifest)
        self.forget(job)
        timer = asyncio.get_running_loop().call_later(KEPT, self.forget, job)
        self._offers[job] = Offer(ticket, images, draft, frozenset(manifest.digests()), timer)

    def forget(self, job: JobKey) -> None:
        """The job's image is of no more use here."""
        offer = self._offers.pop(job, None)
        if offer is not None:
            offer.timer.cancel()
            self._spawn(asyncio.to_thread(offer.draft.close), "forget an image", alone=True)

    def withdraw(self, job: JobKey, ticket: str) -> None:
        """The job has ended for good: nobody will ask for its image, also where it is still on its way."""
        offer = self._offers.get(job)
        if secrets_equal(self._tickets.get(job, ""), ticket):
            del self._tickets[job]
        elif offer is not None and secrets_equal(offer.ticket, ticket):
            self.forget(job)

    def make_room(self) -> None:
        """A checkpoint is about to be made: what is only offered does not stand in its way."""
        for job, offer in list(self._offers.items()):
            if offer.images.quota is not None and offer.images.quota_used * 2 > offer.images.quota:
                self.forget(job)

    async def send_ahead(self, params: dict[str, Any], stream: Stream) -> None:
        """The chunks of a last checkpoint as they are made: {job, ticket}; see `pool.images.transfer.send_pieces`.

        Raises:
            CallRefused: there is none for that ticket.
        """
        name, shown = params["job"], params["ticket"]
        job = next(
            (key for key in self._coming if key[1] == name and secrets_equal(self._tickets.get(key, ""), shown)), None
        )
        if job is None:
            raise CallRefused("no such checkpoint is made on this machine")
        coming, images = self._coming[job], await asyncio.to_thread(self._images, job[0])
        await send_pieces(images, coming.batches(), stream, self._pace)
        self.forget(job)  # all of it lies there now

    async def send_chunks(self, params: dict[str, Any], stream: Stream) -> None:
        """Chunks of an image: {job, ticket}; see `pool.images.transfer`.

        Raises:
            CallRefused: there is none for that ticket.
        """
        name, shown = params["job"], params["ticket"]
        found = (key for key, one in self._offers.items() if key[1] == name and secrets_equal(one.ticket, shown))
        job = next(found, None)
        if job is None:
            raise CallRefused("there is no such checkpoint on this machine")
        offer = self._offers[job]
        await send_chunks(offer.images, offer.chunks, stream)
        self.forget(job)  # it lies there now; should it fail there, the submit side has it
