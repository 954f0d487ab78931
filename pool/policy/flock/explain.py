"""Another pool with one job's eyes: how many of its idle machines would take the job, and from when on (EV 8; D8).

The machines are known by the ads that the other pool shows. Machines whose ads say the same about who may come in and
when are looked at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pool.classad import ClassAd, requirements_accept
from pool.policy.flock.value import server_value
from pool.policy.why.other_pools import OtherPool

Wire = dict[str, Any]
#: Kinds of machines that are looked at for the time at which they open, and minutes between two looks.
MOST_KINDS, STEP = 10, 30
DAY = 24 * 60
#: Attributes of a machine that its own Requirements may ask for without being another kind of machine by it.
_ITS_OWN = frozenset({"name", "machine", "flockmachine", "myaddress", "startdaddress"})
#: Kinds of machines that `values` tells.
MOST_VALUES = 5


def explain_pool(pool: str, machines: Iterable[Mapping[str, Any]], job: ClassAd, now: float, why: str) -> OtherPool:
    """Counts a pool's idle machines by what they are to a job.

    Args:
        machines: as our collector has them, in wire form.
        now: wall seconds.
        why: the last refusal of that pool for a job of its owner.
    """
    idle = fit = unmet = refused = 0
    closed: dict[str, ClassAd] = {}
    for wire in machines:
        idle += 1
        ad = ClassAd.from_wire(dict(wire))
        if not requirements_accept(job, ad, now):
            unmet += 1
        elif requirements_accept(ad, job, now):
            fit += 1
        else:
            refused += 1
            closed.setdefault(_kind(wire), ad)
    opens = ""
    if refused and not fit:
        kinds = list(closed.values())[:MOST_KINDS]
        minutes = [found for ad in kinds if (found := minutes_until_open(ad, job, now)) is not None]
        opens = _clock(min(minutes)) if minutes else ""
    return OtherPool(pool, idle, fit, unmet, refused, opens, why=why if fit else "")


def minutes_until_open(machine: ClassAd, job: ClassAd, now: float) -> tuple[int, int] | None:
    """When a machine that refuses a job now would take it within a day, by its own clock alone.

    Returns:
        The minutes until then, and the minute of the day by the machine's clock; None where no time of day helps.
    """
    clock, day = machine.value("ClockMin", None), machine.value("ClockDay", None)
    if not isinstance(clock, int) or not isinstance(day, int) or isinstance(clock, bool):
        return None

    held = {name: value for _, name, value in machine.all()}

    def takes(minutes: int) -> bool:
        at, days = (clock + minutes) % DAY, (clock + minutes) // DAY
        later = ClassAd({**held, "clockmin": at, "clockday": (day + days) % 7})
        return requirements_accept(later, job, now + 60.0 * minutes)

    first = next((minutes for minutes in range(STEP, DAY + 1, STEP) if takes(minutes)), None)
    if first is None:
        return None
    low, high = first - STEP, first
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if takes(middle) else (middle, high)
    return high, (clock + high) % DAY


def _clock(found: tuple[int, int]) -> str:
    return f"{found[1] // 60:02}:{found[1] % 60:02}"


def _kind(wire: Mapping[str, Any]) -> str:
    """Machines of one kind have one text."""
    told = {name: value for name, value in wire.items() if name.lower() not in _ITS_OWN}
    return json.dumps(told, sort_keys=True, default=str)


def values(machines: Iterable[Mapping[str, Any]], round_trip: float) -> list[Wire]:
    """The server values of a pool's idle machines with each term (EV 4.3.3), the best first: {count, cpus, speed,
    distance, idle, value}

    Args:
        round_trip: seconds between here and there.
    """
    counted: dict[tuple[float, ...], int] = {}
    for ad in machines:
        found = server_value(ad, round_trip)
        key = (found.value, found.cpus, found.speed, found.distance, found.idle)
        counted[key] = counted.get(key, 0) + 1
    names = ("value", "cpus", "speed", "distance", "idle")
    return [
        {**dict(zip(names, key, strict=True)), "count": counted[key]}
        for key in sorted(counted, reverse=True)[:MOST_VALUES]
    ]
