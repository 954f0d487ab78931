"""The steps of the thesis' W-startd, as pure functions (EV 5.3 to 5.5, 6.4).

The World Machine as it was built is a mode for tests and for comparison (`pool.testing.classic_world`); pools run the
ideal design of EV 4.3 and 8. An interval's lists are as old as the interval: a machine that is in one may be taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Wire = dict[str, Any]


@dataclass(slots=True)
class FreeMachines:
    """The idle machines of one pool, as its last FREE_MACHINES told (FREE_MACH_LIST).

    Attributes:
        stamp: seconds, when it told. machines: by their names there, in its order.
    """

    stamp: float
    machines: dict[str, Wire] = field(default_factory=dict)


def appearance(lists: Mapping[str, FreeMachines], now: float, recent: float) -> tuple[str, str] | None:
    """The machine that the world shows its own central manager until the next interval: (pool, slot).

    The first of the first list that is recent enough; None where the world shows that it is unavailable.

    Args:
        recent: seconds that a list is good for; a pool that is silent for longer is down.
    """
    for pool, one in lists.items():
        if now - one.stamp <= recent and one.machines:
            return pool, next(iter(one.machines))
    return None


def machine_for(
    lists: Mapping[str, FreeMachines], fits: Callable[[Wire], bool], likes: Callable[[Wire], bool]
) -> tuple[str, str] | None:
    """The machine of GIVE_MACHINE, whose pool gets the request: (pool, slot).

    The first that meets the job's requirements and its preferences, else the first that meets the requirements.
    """
    found = None
    for pool, one in lists.items():
        for slot, machine in one.machines.items():
            if fits(machine):
                if likes(machine):
                    return pool, slot
                found = found or (pool, slot)
    return found
