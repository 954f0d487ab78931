"""Machines of this pool that have jobs of other pools, and give way to jobs of its own (EV 4.2: idle only).

A job of this pool takes an idle machine of this pool first, whatever it prefers. Only then it takes one from a guest:
one machine, from the guest that loses the least by it. A job that can be saved is saved, and loses nothing or what it
did since its last checkpoint. Another one loses all that it did, and has had its machine for a minimum first. Nice jobs
take nothing from anybody. A machine whose own RANK prefers the guest keeps it, since that is its owner's wish.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pool.policy.charges import charge
from pool.policy.flock.guests import is_guest
from pool.policy.flock.shown import GUEST_LEAVES, GUEST_OF, GUEST_POOL, LENDER
from pool.policy.matching import Bits, Pair, SlotIndex, members


class GuestSlots:
    """The slots of one cycle that have jobs of other pools.

    Args:
        claimed: slots with a claim, that may be asked to give way.
        minimum: seconds for which a job that cannot be saved has its machine.

    Attributes:
        lent: machines of other pools.
        all: slots of this pool that have guests.
        leaving: slots whose guests leave now for a job of this pool.
        young: those whose guests leave when they have had their minimum.
        staying: those whose guests stay while our own jobs wait, as is agreed with their pools.
        ahead: those whose guests were given them ahead of our own jobs.
    """

    def __init__(self, picture: SlotIndex, claimed: Bits, minimum: float, now: float) -> None:
        self._picture = picture
        self._minimum = minimum
        self._now = now
        self._losses: dict[int, tuple[bool, float]] = {}
        holders = picture.vocabulary.holders
        self.lent: Bits = picture.slots_where(LENDER, _is_text) if holders[LENDER.lower()] else 0
        self.all = self.leaving = self.young = self.staying = self.ahead = 0
        if not holders[GUEST_POOL.lower()]:
            return
        self.all = claimed & ~self.lent & picture.slots_where(GUEST_POOL, _is_text)
        last = self.all & picture.slots_where("RemoteNiceUser", _is_true)
        leaving = self.all & picture.slots_where(GUEST_LEAVES, _is_true)
        self.ahead = self.all & ~last
        self.staying = last & ~leaving
        if leaving and minimum > 0:
            running = leaving & picture.slots_where("JobStart", _is_time)
            unsaved = running & ~picture.slots_where("JobCanCheckpoint", _is_true)
            self.young = unsaved & picture.slots_where("ClaimStart", self._is_young)
        self.leaving = leaving & ~self.young

    def takes(self, request: Pair) -> bool:
        """Whether a request is one of this pool's jobs that guests leave for."""
        job = request.request
        return not is_guest({GUEST_OF: job.value(GUEST_OF, None)}) and not charge(job).nice

    def loss(self, place: int) -> tuple[bool, float]:
        """The loss of the guest in a slot: whether it cannot be saved, and seconds since its last save or its begin."""
        found = self._losses.get(place)
        if found is None:
            ad = self._picture.ad_at(place)
            saved = ad.value("JobCanCheckpoint", False) is True
            began: Any = ad.value("LastPeriodicCheckpoint" if saved else "JobStart", None)
            lost = max(0.0, self._now - float(began)) if _is_time(began) else 0.0
            found = self._losses[place] = (not saved and lost > 0, lost)
        return found

    def by_loss(self, places: Iterable[int]) -> list[int]:
        """The places of slots, those first whose guests lose the least."""
        return sorted(places, key=self.loss)

    def leave_at(self, bits: Bits) -> float | None:
        """When the first of these slots' guests has had its minimum; None where no such guest is among them."""
        starts = [self._picture.ad_at(place).value("ClaimStart", 0) for place in members(bits & self.young)]
        return min(starts) + self._minimum if starts else None

    def _is_young(self, began: object) -> bool:
        return _is_time(began) and self._now - float(began) < self._minimum  # type: ignore[arg-type]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_true(value: object) -> bool:
    return value is True


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
