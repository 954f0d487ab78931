"""Images that went home from here and are kept a while, for the machine on which their job goes on (C5).

A machine that has made a checkpoint says to the schedd, with it, a ticket. The schedd gives the ticket to the machine
that it next starts the job on, and whoever shows it gets chunks of that one image: no other, and no list of them.
Nothing here is durable or has to be had: home has it all.
"""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pool.images import Draft, ImageStore, Manifest, send_chunks
from pool.wire import Stream
from pool.wire.errors import Refused

if TYPE_CHECKING:
    from pool.roles.startd.role import Startd

#: Seconds for which an image is kept after it went home.
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


class Peers:
    """The images that one machine offers, one of each job at most."""

    def __init__(self, startd: Startd) -> None:
        self._startd = startd
        self._tickets: dict[str, str] = {}
        self._offers: dict[str, Offer] = {}

    def ticket(self, job: str) -> str:
        """A new secret for the image of a job that goes home now."""
        self._tickets[job] = self._startd.outside.secret(16)
        return self._tickets[job]

    def hold(self, job: str, images: ImageStore, manifest: Manifest) -> None:
        """It is at home: keep its chunks here for a while, in place of those of the one before."""
        ticket = self._tickets.pop(job, None)
        if ticket is None:
            return
        draft = images.begin(job)
        draft.missing(manifest)
        self.forget(job)
        timer = asyncio.get_running_loop().call_later(KEPT, self.forget, job)
        self._offers[job] = Offer(ticket, images, draft, frozenset(manifest.digests()), timer)

    def forget(self, job: str) -> None:
        """The job's image is of no more use here."""
        offer = self._offers.pop(job, None)
        if offer is not None:
            offer.timer.cancel()
            self._startd.spawn(asyncio.to_thread(offer.draft.close), "forget an image")

    def make_room(self) -> None:
        """A checkpoint is about to be made: what is only offered does not stand in its way."""
        for job, offer in list(self._offers.items()):
            if offer.images.quota is not None and offer.images.used * 2 > offer.images.quota:
                self.forget(job)

    async def give(self, params: dict[str, Any], stream: Stream) -> None:
        """Chunks of an image: {job, ticket}; see `pool.images.carrying`.

        Raises:
            Refused: there is none for that ticket.
        """
        offer = self._offers.get(str(params["job"]))
        if offer is None or not hmac.compare_digest(offer.ticket, str(params["ticket"])):
            raise Refused("there is no such checkpoint on this machine")
        await send_chunks(offer.images, offer.chunks, stream)
        self.forget(str(params["job"]))  # it lies there now; should it fail there, home has it
