"""Carving dynamic slots out of partitionable ones, and laying a machine's slots out: pure arithmetic on resources.

Resources are a mapping of name to amount: Cpus (whole), Memory in MB, Disk in KiB, GPUs (whole), and any custom ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pool.classad import ClassAd
from pool.errors import PoolError

Resources = dict[str, int | float]

STANDARD = ("Cpus", "Memory", "Disk", "GPUs")
#: What a job gets that asks for nothing.
DEFAULTS: Resources = {"Cpus": 1, "Memory": 128, "Disk": 1024, "GPUs": 0}


class LayoutError(PoolError):
    """SLOTS says something that this machine cannot be divided into."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a slot cannot be carved for a job.

    Attributes:
        resource: the first one that does not suffice.
    """

    resource: str
    wanted: float
    free: float

    @property
    def text(self) -> str:
        return f"request for {self.wanted:g} {self.resource}, only {self.free:g} free"


def demand(slot: ClassAd, job: ClassAd) -> Resources | Refusal:
    """What a job asks of a slot: its Request expressions, evaluated against the slot's ad."""
    wanted: Resources = {}
    for name in STANDARD:
        value = job.value(f"Request{name}", DEFAULTS[name], target=slot)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            return Refusal(name, math.nan, 0)
        wanted[name] = math.ceil(value)
    for name in slot:
        # A custom resource that the job asks for and the slot has.
        if name not in wanted and name not in STANDARD and job.get(f"Request{name}") is not None:
            value = job.value(f"Request{name}", 0, target=slot)
            if isinstance(value, (int, float)):
                wanted[name] = value
    return wanted


def carve(free: Mapping[str, int | float], wanted: Resources | Refusal) -> tuple[Resources, Resources] | Refusal:
    """The resources of a dynamic slot and what is left, or the first thing that does not suffice."""
    if isinstance(wanted, Refusal):
        return wanted
    for name, amount in wanted.items():
        if amount > free.get(name, 0):
            return Refusal(name, amount, free.get(name, 0))
    given = {name: amount for name, amount in wanted.items() if amount or name in free}
    return given, take_away(free, given)


def take_away(free: Mapping[str, int | float], given: Mapping[str, int | float]) -> Resources:
    """What is left of `free`."""
    return {name: amount - given.get(name, 0) for name, amount in free.items()}


def give_back(free: Mapping[str, int | float], given: Mapping[str, int | float]) -> Resources:
    """`free` with a dynamic slot's resources again."""
    return {name: amount + given.get(name, 0) for name, amount in free.items()}


def fits(slot: ClassAd, wanted: Mapping[str, int | float]) -> bool:
    """Whether a slot's ad shows enough of everything."""
    for name, amount in wanted.items():
        if amount:
            free = slot.value(name, 0)
            if not isinstance(free, (int, float)) or free < amount:
                return False
    return True


def lessen(slot: ClassAd, wanted: Mapping[str, int | float]) -> ClassAd:
    """The slot's ad with less free: a small ad over the old one."""
    changed: dict[str, object] = {}
    for name, amount in wanted.items():
        free = slot.value(name, None)
        if isinstance(free, (int, float)):
            changed[name] = free - amount
    return ClassAd(changed, parent=slot)


def layout(setting: str, machine: Mapping[str, object]) -> list[tuple[str, str, Resources]]:
    """A machine's slots: (name, kind, resources).

    Args:
        setting: SLOTS: `partitionable` for one slot to carve, or the number of equal static slots.
        machine: facts with DetectedCpus, Memory, Disk, DetectedGPUs.

    Raises:
        LayoutError: the setting is neither.
    """
    whole: Resources = {
        "Cpus": _amount(machine, "Cpus"),
        "Memory": _amount(machine, "Memory"),
        "Disk": _amount(machine, "Disk"),
    }
    gpus = _amount(machine, "GPUs")
    if gpus:
        whole["GPUs"] = gpus
    if setting.strip().lower() == "partitionable":
        return [("slot1", "partitionable", whole)]
    if not setting.strip().isdigit() or not int(setting):
        raise LayoutError(f"SLOTS = {setting}: expected `partitionable` or a number of slots")
    number = int(setting)
    each = {name: int(amount) // number for name, amount in whole.items()}
    each["Cpus"] = max(1, each["Cpus"])
    return [(f"slot{n}", "static", dict(each)) for n in range(1, number + 1)]


def _amount(machine: Mapping[str, object], name: str) -> int:
    value = machine.get(name, 0)
    return int(value) if isinstance(value, (int, float)) else 0
