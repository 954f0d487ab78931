"""Jobs that run on several machines at once: the parts that a job's ad describes, and the start that each is sent.

A *gang* is a job with `GangParts`: so many claims, started together or not at all. Each part has some of the job's
processes (VS 5.2: a sub job) and whatever of the ad is its own: Requirements, RequestMemory. A pipe between processes
of two parts is a *crossing*: each side has one end of it, and the bytes travel between the machines. Plain data; who
gathers the claims is `pool.policy.gangs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.jobs.activation import Activation
from pool.jobs.pipes.model import Joint

#: The ad's list of parts; and whether they have to be on different machines.
PARTS, APART = "GangParts", "GangApart"
#: In a part's record: the names of its processes, between commas.
PROCESSES = "Processes"


@dataclass(frozen=True, slots=True)
class GangPart:
    """What one machine has of a job.

    Attributes:
        processes: by name, in the order of the description.
        own: attributes in wire form that this part has in place of the job's.
    """

    processes: tuple[str, ...]
    own: dict[str, Any] = field(default_factory=dict)


def attributes_of(parts: Sequence[GangPart], *, apart: bool) -> dict[str, Any]:
    """The ad's attributes in wire form.

    Expressions of a part lie there as lists of their text: they mean something in the ad of a job only.
    """
    records = [ClassAd({PROCESSES: ",".join(part.processes), **part.own}) for part in parts]
    return {**ClassAd({PARTS: records}).to_wire(), APART: apart}


def parts_of(ad: ClassAd) -> tuple[GangPart, ...]:
    """The parts of a job's ad; none for a job that runs on one machine.

    Raises:
        PoolError: the attribute is not what `attributes_of` makes.
    """
    if ad.get(PARTS) is None:
        return ()
    value = ad.value(PARTS, None)
    if not isinstance(value, (tuple, list)) or not value or not all(isinstance(one, ClassAd) for one in value):
        raise PoolError(f"the job's attribute {PARTS} is not a list of ads", hint="submit it from a description file")
    return tuple(_part(one) for one in value)


def _part(record: ClassAd) -> GangPart:
    own: dict[str, Any] = {name: record.value(name, None) for name in record if name != PROCESSES}
    own = {name: list(value) if isinstance(value, (tuple, list)) else value for name, value in own.items()}
    return GangPart(tuple(name for name in str(record.value(PROCESSES, "")).split(",") if name), own)


def part_of(start: Activation, parts: Sequence[GangPart], number: int, gang: str) -> Activation:
    """What one part is started with.

    Args:
        start: that of the whole job on the part's slot.
        gang: the secret that the parts of this start know each other by.
    """
    where = {name: index for index, part in enumerate(parts) for name in part.processes}
    pipes: list[Joint] = []
    crossings: list[tuple[int, int, int]] = []
    for stream, joint in enumerate(start.pipes):
        sides = {where.get(joint.writer), where.get(joint.reader)}
        if number not in sides:
            continue
        if len(sides) > 1:
            (other,) = sides - {number}
            crossings.append((len(pipes), stream, -1 if other is None else other))
        pipes.append(joint)
    return replace(
        start,
        processes=tuple(process for process in start.processes if where.get(process.name) == number),
        pipes=tuple(pipes),
        gang=gang,
        part=number,
        parts=len(parts),
        crossings=tuple(crossings),
    )
