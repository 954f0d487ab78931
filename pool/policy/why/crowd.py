"""The machines of a pool as somebody who waits sees them: what each could be, and whom it serves now.

A partitionable slot counts once, together with its dynamic slots: a job waits for the whole of it, not for the part
that is free now. So `Memory` of a slot that is full of jobs is its whole memory, not 96 MB, and "largest machine has 32
GB" is true tomorrow as well.

Answers about many machines come as whole numbers whose bits are machines, so that "and", "or" and counting are cheap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pool.classad import ClassAd
from pool.policy.carve import STANDARD, named_resources
from pool.policy.slot_names import parent_of
from pool.policy.urgent import SLOT_TYPE


@dataclass(slots=True)
class MatchableSlot:
    """A slot that jobs can be matched with.

    Attributes:
        whole: its ad, with nothing carved out of it.
        now: its ad as advertised.
        parts: the ads of its dynamic slots.
    """

    name: str
    whole: ClassAd
    now: ClassAd
    parts: list[ClassAd] = field(default_factory=list)

    @property
    def state(self) -> str:
        return text(self.now, "State") or "Unknown"

    def serves(self) -> list[ClassAd]:
        """The ads of the slots here that somebody has: itself, or its dynamic slots."""
        return [ad for ad in (self.now, *self.parts) if text(ad, "RemoteUser") or text(ad, "RemoteOwner")]


def whole_slots(slots: Mapping[str, ClassAd]) -> list[MatchableSlot]:
    """Slots by name, dynamic ones joined to the slot they were carved out of.

    An ad that says what it cannot be (a dynamic slot without the slot it is part of) stands for itself.
    """
    found: dict[str, MatchableSlot] = {}
    parts: list[tuple[str, ClassAd]] = []
    for name, ad in slots.items():
        if ad.held("SlotType") == SLOT_TYPE:
            continue  # on top of another, for as long as an urgent job is there
        if ad.held("DynamicSlot") is True:
            parts.append((name, ad))
        else:
            found[name] = MatchableSlot(name, ad, ad)
    for name, ad in parts:
        parent = found.get(parent_of(name))
        if parent is None:
            found[name] = MatchableSlot(name, ad, ad)
        else:
            parent.parts.append(ad)
    for place in found.values():
        if place.parts:
            place.whole = _undivided(place)
    return list(found.values())


def _undivided(place: MatchableSlot) -> ClassAd:
    total: dict[str, Any] = {}
    for name in (*STANDARD, *named_resources(place.now)):
        free = number(place.now, name)
        if free is not None:
            total[name] = free + sum(number(part, name) or 0 for part in place.parts)
    return ClassAd(total, parent=place.now)


def machine_of(ad: ClassAd, name: str) -> str:
    """The machine that a slot is part of."""
    return text(ad, "Machine") or name.rpartition("@")[2]


def text(ad: ClassAd, name: str) -> str:
    """An attribute that should be a string; empty when it is anything else."""
    value = ad.held(name)
    return value if isinstance(value, str) else ""


def number(ad: ClassAd, name: str) -> int | float | None:
    """An attribute that should be a plain number; None when it is anything else."""
    value = ad.held(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value else None


def numbers(mask: int) -> list[int]:
    """Which bits are set, lowest first."""
    shown = bin(mask)[:1:-1]
    found: list[int] = []
    at = shown.find("1")
    while at >= 0:
        found.append(at)
        at = shown.find("1", at + 1)
    return found
