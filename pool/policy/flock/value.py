"""Server values: what a machine is worth to a job (EV 4.3.3), each term by itself.

    value = Cpus x speed x (1, or for a machine of another pool 1 - remote_calls_per_second x round_trip) x stays idle

The speed is 1 where the machine's ad gives no KFlops: a million KFlops by its administrator's word. The last term is
I / (I + an hour), if the machine's pool says that it is likely to stay idle for I seconds (`idleness`). The sooner its
own pool needs it again, the less of an hour's job it does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pool.policy.flock.ledger import LEAST_VALUE, MOST_VALUE

#: Kflops of a machine of speed 1.
REFERENCE_KFLOPS = 1e6
#: Remote calls of an ordinary job in a second.
USUAL_CALLS = 1.0
#: Seconds that an ordinary job runs.
USUAL_JOB = 3600.0
#: In the ad of a machine that is offered to another pool: seconds for which it is likely to stay idle.
IDLE_TIME = "FlockIdle"


@dataclass(frozen=True, slots=True)
class ServerValue:
    """The terms of a machine's value.

    Attributes:
        cpus, speed: of the machine. distance: 1 for an own machine, down to 0 for one that is too far away.
        idle: 1 for an own machine, and one of which it is not said; the less, the sooner a job has to leave.
    """

    cpus: float
    speed: float
    distance: float = 1.0
    idle: float = 1.0

    @property
    def value(self) -> float:
        return self.cpus * self.speed * self.distance * self.idle

    @property
    def for_order(self) -> float:
        """The value of one processor, two digits: by this machines of other pools are put in order. A slot that is
        divided has no more to give to a job for being large; and few numbers are quicker to compare than many."""
        return float(f"{self.speed * self.distance * self.idle:.2g}")


def server_value(ad: Mapping[str, Any], round_trip: float = 0.0, calls: float = USUAL_CALLS) -> ServerValue:
    """The value of a machine by its ad, in wire form; numbers that make no sense count as 1.

    Args:
        round_trip: measured, seconds; 0 for an own machine.
        calls: remote calls of the job in a second.
    """
    distance = min(1.0, max(0.0, 1.0 - calls * round_trip))
    stays = _number(ad.get(IDLE_TIME), math.inf)
    return ServerValue(
        _number(ad.get("Cpus"), 1.0),
        _number(ad.get("KFlops"), REFERENCE_KFLOPS) / REFERENCE_KFLOPS,
        distance,
        stays / (stays + USUAL_JOB) if stays < math.inf else 1.0,
    )


def value_in_ledger(ad: Any) -> int:
    """A machine's own value, thousandths, as both sides put it into the ledger."""
    found = server_value(ad if isinstance(ad, Mapping) else {})
    return round(min(MOST_VALUE, max(LEAST_VALUE, 1000 * found.cpus * found.speed)))


def _number(value: Any, otherwise: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        return otherwise
    return float(value)
