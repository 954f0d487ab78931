"""Rows and totals of `status`: startd ads joined with what each machine's own queue holds (EV 2.8).

The paper's table has one line for a machine: what its owner's jobs do elsewhere (Run, Tot, Prio) and what the
machine itself does for others (State, LdAvg, Idle). A machine has several slots today, so each slot has its
line, and the queue's figures stand on the first. Pure functions over wire-form ads.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pool.cli import formats
from pool.cli.formats import NOTHING, WireAd
from pool.cli.tables import Column, layout
from pool.policy.account_names import written_accounts

_DIGITS = re.compile(r"([0-9]+)")

# The attributes a row is made of; ads of schedds bring the second line's.
MACHINE_NEEDS = (
    "Name", "Machine", "State", "Activity", "LoadAvg", "TotalLoadAvg", "KeyboardIdle", "Arch", "OpSys",
    "Cpus", "Memory", "RemoteOwner", "RemoteUser", "Draining", "PolicyTrouble",
)  # fmt: skip
SCHEDD_NEEDS = (
    "Name",
    "Machine",
    "TotalRunningJobs",
    "TotalIdleJobs",
    "TotalHeldJobs",
    "TotalJobAds",
    "Priority",
)


def _text(name: str) -> Any:
    return lambda ad: formats.text(ad.get(name))


def _count(name: str) -> Any:
    return lambda ad: formats.text(ad.get(name)) if name in ad else NOTHING


def _load(ad: WireAd) -> str:
    load = formats.number(ad.get("TotalLoadAvg"))
    load = formats.number(ad.get("LoadAvg")) if load is None else load
    return NOTHING if load is None else f"{load:.2f}"


def _activity(ad: WireAd) -> str:
    drains = ad.get("Draining") is True and ad.get("State") != "Drained"
    return formats.text(ad.get("Activity")) + (", drains" if drains else "")


MACHINES: tuple[Column, ...] = (
    Column("Name", _text("Name"), short=lambda ad: formats.cut(without_domain(formats.text(ad.get("Name"))), 16)),
    Column("Run", _count("Run"), right=True),
    Column("Tot", _count("Tot"), right=True),
    Column("Prio", _count("Prio"), right=True),
    Column("State", _text("State")),
    Column("Activity", _activity),
    Column("LdAvg", _load, right=True),
    Column("Idle", lambda ad: formats.duration(formats.number(ad.get("KeyboardIdle"))), right=True),
    Column("Cpus", _text("Cpus"), right=True, wide=True),
    Column("Memory", _text("Memory"), right=True, wide=True),
    Column("User", _text("User"), wide=True),
    Column("Arch", _text("Arch")),
    Column("OpSys", _text("OpSys")),
)


def natural_key(name: str) -> list[str | int]:
    """A key that sorts slot2 before slot10. Text and numbers alternate, so that keys always compare."""
    parts: list[str | int] = list(_DIGITS.split(name))
    parts[1::2] = map(int, parts[1::2])
    return parts


def key(ad: WireAd) -> tuple[list[str | int], list[str | int]]:
    return natural_key(machine_of(ad)), natural_key(formats.text(ad.get("Name")))


def machine_of(ad: WireAd) -> str:
    """The machine's name: `Machine`, or what follows the `@` of the slot's name."""
    name = ad.get("Machine") or ad.get("Name") or NOTHING
    return str(name).rpartition("@")[2]


def without_domain(name: str) -> str:
    """`slot1@donder` of `slot1@donder.some.domain`."""
    slot, at, machine = name.rpartition("@")
    return f"{slot}{at}{machine.partition('.')[0]}"


def _account(ad: WireAd) -> str:
    """The account that a slot serves; empty where it serves nobody."""
    return str(ad.get("RemoteUser") or ad.get("RemoteOwner") or "")


def rows(slots: Sequence[WireAd], schedds: Sequence[WireAd]) -> list[dict[str, Any]]:
    """One row for each slot, sorted by machine, and one for each machine that only has a queue."""
    queues: dict[str, tuple[int, int, Any]] = {}
    for ad in schedds:
        running = int(formats.number(ad.get("TotalRunningJobs"), 0) or 0)
        total = formats.number(ad.get("TotalJobAds"))
        if total is None:
            total = running + sum(formats.number(ad.get(n), 0) or 0 for n in ("TotalIdleJobs", "TotalHeldJobs"))
        queues[machine_of(ad)] = (running, int(total), ad.get("Priority", 0))
    users = written_accounts(_account(ad) for ad in slots)
    found = []
    seen: set[str] = set()
    for ad in sorted(slots, key=key):
        machine = machine_of(ad)
        row = {**ad, "User": users[_account(ad)]}
        if machine not in seen:
            seen.add(machine)
            if machine in queues:
                row["Run"], row["Tot"], row["Prio"] = queues[machine]
        found.append(row)
    for machine in sorted(queues.keys() - seen, key=natural_key):
        run, total, prio = queues[machine]
        found.append({"Name": machine, "Machine": machine, "Run": run, "Tot": total, "Prio": prio})
    return found


def troubles(found: Iterable[WireAd]) -> list[str]:
    """The troubles of owners' policies, one line for each machine and trouble."""
    lines = {
        f"{machine_of(row)}: {formats.text(row['PolicyTrouble'])} (its owner's policy)": None
        for row in found
        if row.get("PolicyTrouble")
    }
    return list(lines)


def totals(found: Iterable[WireAd]) -> list[str]:
    """EV 2.8's lines under the table, one for each platform and one for all.

    Machines, slots and slots claimed count what the platform offers; jobs and running what its queues hold.
    """
    counts: dict[str, Counter[str]] = {}
    machines: dict[str, set[str]] = {}
    whole: Counter[str] = Counter()
    everything: set[str] = set()
    for row in found:
        key = f"{formats.text(row.get('Arch'))}/{formats.text(row.get('OpSys'))}" if "State" in row else "queues only"
        here = counts.setdefault(key, Counter())
        if "State" in row:
            machines.setdefault(key, set()).add(machine_of(row))
            everything.add(machine_of(row))
            here["slots"] += 1
            here["claimed"] += row.get("State") == "Claimed"
        here["jobs"] += row.get("Tot") or 0
        here["running"] += row.get("Run") or 0
    body = []
    for key in sorted(counts):
        body.append(_totals_row(key, len(machines.get(key, ())), counts[key]))
        whole.update(counts[key])
    if not body:
        return []
    body.append(_totals_row("", len(everything), whole))
    return [line.rstrip() for line in layout([""] * 6, body, right=[False, *[True] * 5])[1:]]


def _totals_row(name: str, machines: int, count: Counter[str]) -> list[str]:
    return [
        name,
        formats.amount(machines, "machine"),
        formats.amount(count["slots"], "slot"),
        f"{count['claimed']:,} claimed",
        formats.amount(count["jobs"], "job"),
        f"{count['running']:,} running",
    ]
