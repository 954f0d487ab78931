"""Everything a role takes from the world: wall time, chance and secrets.

Monotonic time comes from the running event loop; connections, sensors and keepers are handed in where they
are used. Nothing else in the package reads a clock or draws a random number, so that a test or a simulation
can run the real roles in a world of its own making. This module is the one place that may.
"""

from __future__ import annotations

import random
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OutsideWorld:
    """The world as a role sees it.

    Attributes:
        wall: seconds since 1970-01-01 UTC. May jump; never used to measure how long something took.
        ticks: seconds from some moment on, to measure how long something took where that is finer than a turn of the
            loop, whose own time stands still within one.
        chance: the source of every random choice that is not a secret.
        secret: returns that many random bytes as hexadecimal text, for claim ids and tokens.
        thread_cpu: the same of the thread that asks alone.
        find_program: the path of an installed program by its name, None for none.
        cpu: processor seconds (user, system) this process has used so far, for leverage accounting (EV 2.8).
    """

    wall: Callable[[], float] = time.time
    ticks: Callable[[], float] = time.perf_counter
    chance: random.Random = field(default_factory=random.Random)
    secret: Callable[[int], str] = secrets.token_hex
    cpu: Callable[[], float] = time.process_time
    thread_cpu: Callable[[], float] = time.thread_time
    find_program: Callable[[str], str | None] = shutil.which


def boot_seconds() -> float:
    """The clock that goes on while the machine sleeps, and that keepers measure leases by: seconds since it started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
