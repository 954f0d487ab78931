"""Users' priorities: what the pool's negotiator says of them, and an administrator's word on them (A6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pool.client.pool import Pool


@dataclass(frozen=True, slots=True)
class Priorities:
    """Everybody's standing at one moment.

    Attributes:
        policy: `updown`, `fairshare` or `equal`.
        accounts: in order of service, the first to be served in front. Each has name, index (up-down: higher goes
            first), real, factor and effective (fair share: lower goes first). Then running (slot weight held), slots,
            wants (whether it has jobs to run), used (weighted seconds ever), since and last (wall seconds, None for
            never).
        groups: each with name, share, alone, entitled and held (slot weight).
        weight: slot weight of the pool.
        domain: of the pool's own users; other pools' users are USER@POOL.
    """

    policy: str
    accounts: tuple[dict[str, Any], ...]
    groups: tuple[dict[str, Any], ...]
    weight: float
    domain: str = ""


async def priorities(pool: Pool) -> Priorities:
    """Everybody's standing.

    Raises:
        PoolError: the negotiator does not answer.
    """
    answer = await pool.call("negotiator.priorities", {}, at=await pool.negotiator())
    return Priorities(
        str(answer["policy"]),
        tuple(answer["accounts"]),
        tuple(answer["groups"]),
        float(answer["weight"]),
        str(answer.get("domain", "")),
    )


async def set_priority(
    pool: Pool,
    user: str,
    *,
    factor: float | None = None,
    priority: float | None = None,
    reset: bool = False,
    forget: bool = False,
) -> dict[str, Any] | None:
    """Change a user's account; it is kept when this returns. Returns the account, None when it was forgotten.

    Args:
        factor: what the user's usage is multiplied by under fair share.
        priority: the real priority to have from now on.
        reset: forget what was used, but not the factor.
        forget: forget the account.

    Raises:
        PoolError: there is no such account, a number cannot be, or the caller may not.
    """
    params = {"user": user, "factor": factor, "priority": priority, "reset": reset, "forget": forget}
    answer = await pool.call("negotiator.set_priority", params, at=await pool.negotiator())
    account: dict[str, Any] | None = answer["account"]
    return account
