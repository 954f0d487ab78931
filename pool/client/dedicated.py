"""The dedicated scheduler of a schedd: what it plans, and reservations of its machines (WR 6.3, 6.9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pool.client.pool import Pool


@dataclass(frozen=True, slots=True)
class DedicatedPlan:
    """The expected starts and ends, if nothing else comes.

    Attributes:
        scheduler: whose plan it is.
        time: when it was made, wall seconds.
        machines: how many machines the scheduler has.
        bars: what has machines, from when to when: each with label (a job or a reservation), user, what (running,
            planned, reserved or lent), machines (how many), names (where they are known), start and end (wall seconds;
            the end is None where it is not known).
        starts: of each waiting job, in the queue's order: job, user, size, start, earliest, latest (None where they are
            not known), waits_for, behind, basis and words.
        reservations: all of them, the first to begin in front.
        loans: machines that the scheduler lends to another, or has from another, until a time: each with slot, lender,
            borrower ("" while nobody has it), until (wall seconds), and gang (the job there cannot be saved).
        accounts: "pool" where users are ordered by the pool's accounts, "own" by what the scheduler itself counted.
    """

    scheduler: str
    time: float
    machines: int
    bars: tuple[dict[str, Any], ...]
    starts: tuple[dict[str, Any], ...]
    reservations: tuple[dict[str, Any], ...]
    loans: tuple[dict[str, Any], ...] = ()
    accounts: str = "own"


async def dedicated_plan(pool: Pool) -> DedicatedPlan:
    """The plan of the node's dedicated scheduler.

    Raises:
        PoolError: there is no schedd, or the collector does not say which machines are dedicated.
    """
    answer = await pool.call("schedd.dedicated_plan", {})
    return DedicatedPlan(
        str(answer["scheduler"]),
        float(answer["time"]),
        int(answer["machines"]),
        tuple(answer["bars"]),
        tuple(answer["starts"]),
        tuple(answer["reservations"]),
        tuple(answer["loans"]),
        str(answer["accounts"]),
    )


async def reserve_machines(
    pool: Pool,
    machines: int,
    start: float,
    duration: float,
    *,
    user: str = "",
    group: str = "",
    requirements: str = "",
) -> dict[str, Any]:
    """Reserve machines of the node's dedicated scheduler. Written down when this returns.

    Args:
        start: wall seconds.
        duration: seconds.
        user, group: for whom; an administrator reserves for others.
        requirements: an expression that each machine fulfils.

    Raises:
        PoolError: it cannot be promised; says why, and the way out.
    """
    params: dict[str, Any] = {"machines": machines, "start": start, "duration": duration}
    params |= {"user": user, "group": group, "requirements": requirements}
    made: dict[str, Any] = await pool.call("schedd.reserve_machines", params)
    return made


async def reservations(pool: Pool) -> list[dict[str, Any]]:
    """All reservations, the first to begin in front."""
    found: list[dict[str, Any]] = await pool.call("schedd.reservations", {})
    return found


async def cancel_reservation(pool: Pool, name: str) -> None:
    """Cancel a reservation.

    Raises:
        PoolError: there is none of that name, or it is another's.
    """
    await pool.call("schedd.cancel_reservation", {"id": name})
