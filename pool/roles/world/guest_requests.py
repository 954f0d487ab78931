"""A request of another pool for our machines, from its call until the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgpack

from pool.errors import PoolError
from pool.policy.flock.shown import NICE_USER

Wire = dict[str, Any]
#: Requests of one pool that wait at a time, and bytes of all their ads; more are refused.
MOST_WAITING, MOST_BYTES = 10_000, 64 * 1024 * 1024
#: Users of one pool with such requests: each is a submitter for our negotiator.
MOST_USERS = 500
#: Bytes of one such ad.
LARGEST_AD = 1024 * 1024


class NoMachine(PoolError):
    """This pool has no machine for the request now."""


@dataclass(slots=True)
class GuestRequest:
    """A request of another pool that waits for our negotiator.

    Attributes:
        pool, owner, schedd: whose it is.
        ad: as our negotiator sees it.
        lease: seconds.
        left: how many slots it still wants.
        ahead: how many of these may come ahead of our own jobs.
        oldest: wall time since when it waits.
        pending: how many slots are just being claimed for it. asking: those of them that no startd has given yet.
        refused: whether a cycle found no machine for what is left.
        closed: whether the other pool has its answer, or gets nothing: what is claimed later is given back.
        size: bytes of its ad.
        answered: set once there is a claim, or when there will be none.
        settled: set when nothing more will come.
    """

    pool: str
    owner: str
    schedd: str
    ad: Wire
    lease: float
    left: int
    oldest: float
    ahead: int = 0
    claims: list[Wire] = field(default_factory=list)
    pending: int = 0
    asking: int = 0
    refused: bool = False
    closed: bool = False
    size: int = 0
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    def settle(self) -> None:
        """Let the other pool have its answer, if nothing more will come."""
        if not self.pending and (self.refused or not self.left):
            self.settled.set()
            self.answered.set()

    def give_up(self, most: int) -> int:
        """Have it want so many slots less, if it still wants as many; how many less it wants."""
        less = min(most, self.left)
        self.left -= less
        self.ahead = min(self.ahead, self.left)
        self.settle()
        return less

    def withdraw(self) -> None:
        """Have it end with nothing, whatever is being claimed for it just now."""
        self.left, self.ahead, self.closed = 0, 0, True
        self.settled.set()
        self.answered.set()

    def ad_for(self, ahead: bool) -> Wire:
        """The ad of the part that comes ahead of our own jobs, or of the part that comes after them."""
        return {**self.ad, NICE_USER: not ahead}


def check_request(ad: Wire, owner: str, pool: str, waiting: tuple[int, int], requests: Iterable[GuestRequest]) -> int:
    """The bytes of a further request's ad.

    Args:
        ad, owner, pool: of the request.
        waiting: how many requests of the pool wait, and the bytes of their ads. requests: these.

    Raises:
        NoMachine: with it they would be too many or too large.
    """
    size = len(msgpack.packb(ad, unicode_errors="surrogateescape"))
    if size > LARGEST_AD:
        raise NoMachine(f"{size} bytes of a request are too many", hint="a job with such an ad stays in its pool")
    count, used = waiting
    if count >= MOST_WAITING or used + size > MOST_BYTES:
        raise NoMachine(f"the pool {pool} has {count} requests waiting here", retry=True)
    if count >= MOST_USERS:
        users = {request.owner for request in requests}
        if owner not in users and len(users) >= MOST_USERS:
            raise NoMachine(f"the pool {pool} has {len(users)} users waiting here", retry=True)
    return size
