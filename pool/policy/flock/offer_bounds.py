"""Bounds on the machines that one other pool offers: our collector keeps them, and each cycle looks at them."""

from __future__ import annotations

from typing import Any

import msgpack

Wire = dict[str, Any]
#: Offers of one pool, each a machine or a kind of machines, and bytes of all their ads.
MOST_OFFERS, MOST_BYTES = 5_000, 16 * 1024 * 1024
#: Bytes of one ad.
LARGEST_AD = 64 * 1024
#: Offers in one message; our own world sends a tenth of that.
MOST_IN_MESSAGE = 1000


def is_plain_name(text: str) -> bool:
    """Whether a name of another pool's slot, startd or claim is short, and keeps to its place in a line."""
    return len(text) < 500 and text.isprintable() and " " not in text


def is_small(ad: Wire) -> bool:
    """Whether an ad of another pool may stand in our collector."""
    return size_of(ad) <= LARGEST_AD


def size_of(ad: Wire) -> int:
    """Bytes of an ad on the wire."""
    return len(msgpack.packb(ad, unicode_errors="surrogateescape"))


class OfferBounds:
    """The size of all present offers of one pool.

    Args:
        most: the largest number of offers, and of bytes.
    """

    def __init__(self, most: tuple[int, int] = (MOST_OFFERS, MOST_BYTES)) -> None:
        self._most_offers, self._most_bytes = most
        self._sizes: dict[str, int] = {}
        self._bytes = 0

    def admit(self, slot: str, ad: Wire | None) -> bool:
        """Count an offer in place of an earlier one for the slot; None ends it. False: it is too much, and is not
        taken."""
        self._bytes -= self._sizes.pop(slot, 0)
        if ad is None:
            return True
        size = len(slot) + size_of(ad)
        fits = size <= LARGEST_AD and self._bytes + size <= self._most_bytes and len(self._sizes) < self._most_offers
        if fits:
            self._sizes[slot] = size
            self._bytes += size
        return fits
