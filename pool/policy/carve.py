"""Carving dynamic slots out of partitionable ones, and laying a machine's slots out: pure arithmetic on resources.

Resources are a mapping of name to amount: Cpus and GPUs (whole), Memory in MB, Disk in KiB, and whatever else a machine
names in its `MachineResources`. A job's request may be an expression over the slot's ad, as in
`RequestMemory = TARGET.Memory / 4`.

A job that does not fit gets a `CarveRefusal`: data that says which resource is short, how much was wanted and how
much is free. Only `layout` raises an error, since an administrator wrote its setting. Nothing here knows of claims or
states.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pool.classad import ClassAd, evaluate, parse_expr
from pool.decimals import has_digits_only, whole_number
from pool.errors import PoolError

Resources = dict[str, int | float]

STANDARD = ("Cpus", "Memory", "Disk", "GPUs")
#: The share of a job that asks for nothing: a processor, and so little memory and disk that it always fits.
DEFAULTS: Resources = {"Cpus": 1, "Memory": 128, "Disk": 1024, "GPUs": 0}
#: An attribute of a machine that lists its resources' names, the standard ones and its own.
LISTED = "MachineResources"


class LayoutError(PoolError):
    """SLOTS says something that this machine cannot be divided into."""


@dataclass(frozen=True, slots=True)
class CarveRefusal:
    """Why a slot cannot be carved for a job.

    Attributes:
        resource: the first one that does not suffice.
        wanted: the amount asked for; not a number when the request is none.
        free: the amount there is.
    """

    resource: str
    wanted: float
    free: float

    @property
    def text(self) -> str:
        if math.isnan(self.wanted):
            return f"Request{self.resource} is not an amount"
        return f"request for {self.wanted:g} {self.resource}, only {self.free:g} free"


# --- what a job asks for


def demand(slot: ClassAd, job: ClassAd) -> Resources | CarveRefusal:
    """The resources that a job asks of a slot: its Request expressions, evaluated against the slot's ad.

    Standard resources are rounded up to whole ones; a job asks for a resource of the machine's own by
    `Request` and its name, and in the fraction that it says.
    """
    wanted: Resources = {}
    for name in STANDARD:
        value = job.value(f"Request{name}", DEFAULTS[name], target=slot)
        if not _is_amount(value):
            return CarveRefusal(name, math.nan, 0)
        wanted[name] = math.ceil(value)
    for name in named_resources(slot):
        if job.get(f"Request{name}") is not None:
            value = job.value(f"Request{name}", 0, target=slot)
            if not _is_amount(value):
                return CarveRefusal(name, math.nan, 0)
            wanted[name] = value
    return wanted


def named_resources(slot: ClassAd) -> list[str]:
    """Resources of the machine's own that a slot's ad lists."""
    listed = slot.value(LISTED, "")
    if not isinstance(listed, str):
        return []
    standard = {name.lower() for name in STANDARD}
    return [name for name in re.split(r"[\s,]+", listed) if name and name.lower() not in standard]


def _is_amount(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and 0 <= value < math.inf


# --- carving


def carve(
    free: Mapping[str, int | float], wanted: Resources | CarveRefusal
) -> tuple[Resources, Resources] | CarveRefusal:
    """The resources of a dynamic slot and what is left, or the first thing that does not suffice."""
    if isinstance(wanted, CarveRefusal):
        return wanted
    for name, amount in wanted.items():
        if amount > free.get(name, 0):
            return CarveRefusal(name, amount, free.get(name, 0))
    given = {name: amount for name, amount in wanted.items() if amount or name in free}
    return given, subtract(free, given)


def subtract(free: Mapping[str, int | float], given: Mapping[str, int | float]) -> Resources:
    """The rest of `free`."""
    return {name: amount - given.get(name, 0) for name, amount in free.items()}


def add(free: Mapping[str, int | float], given: Mapping[str, int | float]) -> Resources:
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


def reduce_slot(slot: ClassAd, wanted: Mapping[str, int | float]) -> ClassAd:
    """The slot's ad with less free: a small ad over the old one."""
    changed: dict[str, object] = {}
    for name, amount in wanted.items():
        free = slot.value(name, None)
        if isinstance(free, (int, float)):
            changed[name] = free - amount
    return ClassAd(changed, parent=slot)


# --- devices


def devices(machine: Mapping[str, object], amounts: Iterable[float]) -> list[tuple[str, ...]]:
    """Which of a machine's GPUs (`DetectedGPUs`, or numbers from 0) each of its slots has, in their order."""
    detected = machine.get("DetectedGPUs")
    named = [name.strip() for name in detected.split(",") if name.strip()] if isinstance(detected, str) else []
    given: list[tuple[str, ...]] = []
    first = 0
    for amount in amounts:
        after = first + int(amount)
        given.append(tuple(named[n] if n < len(named) else str(n) for n in range(first, after)))
        first = after
    return given


def property_name(gpu: str) -> str:
    """The attribute of a machine that says what one of its GPUs is."""
    return f"GPUs_{gpu.replace('-', '_')}" if not has_digits_only(gpu) else f"GPUs_GPU_{gpu}"


def available(machine: Mapping[str, object], gpus: Iterable[str]) -> list[str] | None:
    """`AvailableGPUs` in wire form: the properties of these GPUs; None where nothing is known of any.

    Each is written out, so that an expression over it looks at nothing else.
    """
    known = [text[0] for name in gpus if isinstance(text := machine.get(property_name(name)), list) and text]
    return [f"{{ {', '.join(known)} }}"] if known else None


def suitable(
    machine: Mapping[str, object], gpus: Sequence[str], count: int, job: ClassAd, now: float
) -> tuple[str, ...]:
    """So many of these GPUs for a job, first of all those that its RequireGPUs is true for."""
    demand = job.get("RequireGPUs")
    if demand is None or count >= len(gpus):
        return tuple(gpus[:count])

    def fits(name: str) -> bool:
        only = available(machine, [name])
        if only is None:
            return False
        one = ClassAd.from_wire({"AvailableGPUs": only})
        question = parse_expr("countMatches(MY.RequireGPUs, TARGET.AvailableGPUs)", syntax="old")
        return bool(evaluate(question, job, one, now) == 1)

    return tuple(sorted(gpus, key=lambda name: not fits(name))[:count])


# --- laying out

_SHARE = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*(?:,|$|(?=\s))")
_SPELLED = {name.lower(): name for name in STANDARD}
_WHOLE = frozenset({"Cpus", "GPUs"})


def layout(setting: str, machine: Mapping[str, object]) -> list[tuple[str, str, Resources]]:
    """A machine's slots: (name, kind, resources).

    Args:
        setting: SLOTS: `partitionable` for one slot to carve, or the number of equal static slots. Behind it may
            stand how much of the machine the pool gets in all: `partitionable cpus=6 memory=50%`; a number is in the
            resource's own unit (MB of memory, KiB of disk). More slots than processors are allowed: each then
            has one, and they share.
        machine: facts with Cpus, Memory, Disk, GPUs, and `MachineResources` where there are more.

    Raises:
        LayoutError: the setting says nothing of the kind, or more than the machine has.
    """
    kind, _, shares = setting.strip().partition(" ")
    whole = _granted(setting, _everything(machine), shares)
    if kind.lower() == "partitionable":
        return [("slot1", "partitionable", whole)]
    number = whole_number(kind)
    if not number:
        raise LayoutError(
            f"SLOTS = {setting}: expected `partitionable` or a number of slots",
            hint="for example `SLOTS = partitionable`, `SLOTS = 4`, `SLOTS = 4 memory=50%`",
        )
    return [(f"slot{n + 1}", "static", _part(whole, n, number)) for n in range(number)]


def _everything(machine: Mapping[str, object]) -> Resources:
    whole: Resources = {name: _amount(machine, name) for name in ("Cpus", "Memory", "Disk")}
    names: Iterable[str] = ("GPUs",)
    listed = machine.get(LISTED)
    if isinstance(listed, str):
        names = ("GPUs", *(name for name in listed.replace(",", " ").split() if name.lower() not in _SPELLED))
    for name in names:
        if amount := _amount(machine, name):
            whole[name] = amount
    return whole


def _granted(setting: str, whole: Resources, shares: str) -> Resources:
    """The pool's share of the machine."""
    given = dict(whole)
    spelled = {name.lower(): name for name in (*whole, *STANDARD)}
    position = 0
    while shares[position:].strip(" ,\t"):
        match = _SHARE.match(shares, position)
        name = spelled.get(match[1].lower()) if match else None
        if match is None or name is None:
            raise LayoutError(
                f"SLOTS = {setting}: expected RESOURCE=AMOUNT or RESOURCE=PERCENT%, found "
                f"`{shares[position:].strip()}`",
                hint=f"resources of this machine: {', '.join(whole)}",
            )
        has = whole.get(name, 0)
        amount = float(match[2]) * (has / 100 if match[3] else 1)
        if amount > has:
            raise LayoutError(f"SLOTS = {setting}: this machine has {has:g} {name}, not {amount:g}")
        given[name] = max(1, int(amount)) if name == "Cpus" else int(amount)
        position = match.end()
    return given


def _part(whole: Resources, n: int, number: int) -> Resources:
    """The n-th of equal parts; what is whole and does not divide goes to the first ones."""
    part: Resources = {}
    for name, amount in whole.items():
        each, rest = divmod(int(amount), number)
        part[name] = each + (n < rest if name in _WHOLE else 0)
    part["Cpus"] = max(1, part["Cpus"])
    return part


def _amount(machine: Mapping[str, object], name: str) -> int:
    value = machine.get(name, 0)
    return int(value) if isinstance(value, (int, float)) else 0
