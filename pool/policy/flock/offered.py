"""Bounds on what one other pool's offers may take here: its machines stand in our collector, and in each cycle."""

from __future__ import annotations

from typing import Any

import msgpack

Wire = dict[str, Any]
#: Machines, and kinds of machines, of one pool; and bytes of all their ads.
MOST_OFFERS, MOST_BYTES = 5_000, 16 * 1024 * 1024
#: Bytes of one ad.
LARGEST_AD = 64 * 1024
#: Offers in one message: honest worlds send a tenth of it.
MOST_IN_MESSAGE = 1000


class OfferBounds:
    """The size of all that one pool offers just now.

    Args:
        most: offers, and bytes.
    """

    def __init__(self, most: tuple[int, int] = (MOST_OFFERS, MOST_BYTES)) -> None:
        self._most_offers, self._most_bytes = most
        self._sizes: dict[str, int] = {}
        self._bytes = 0

    def admit(self, slot: str, ad: Wire | None) -> bool:
        """Count an offer in, in the place of an earlier one for the slot; False where it is too much, and the slot is
        not to be had."""
        self._bytes -= self._sizes.pop(slot, 0)
        if ad is None:
            return True
        size = len(slot) + len(msgpack.packb(ad, unicode_errors="surrogateescape"))
        fits = size <= LARGEST_AD and self._bytes + size <= self._most_bytes and len(self._sizes) < self._most_offers
        if fits:
            self._sizes[slot] = size
            self._bytes += size
        return fits
