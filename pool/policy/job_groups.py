"""A group of idle jobs: those of one owner that no expression can tell apart, in the order of their starts."""

from __future__ import annotations

from pool.classad import ClassAd
from pool.policy.charges import charge
from pool.policy.idle_order import IdleOrder

#: The places of a group's jobs that the negotiator sees separately.
MOST_RUNS = 100


class JobGroup:
    """The idle jobs of one owner that no expression can tell apart.

    `rejected` is why the last negotiation found nothing for them, and when (wall seconds); not kept over a restart.
    """

    __slots__ = ("ad", "charge", "id", "idle", "order", "owner", "prios", "rejected", "signature")

    def __init__(self, number: int, owner: str, signature: bytes, ad: ClassAd) -> None:
        self.id = number
        self.owner = owner
        self.signature = signature
        self.ad = ad
        self.charge = charge(ad)
        self.order = IdleOrder()
        self.idle = 0
        #: How many of its idle jobs have which place by PRIO.
        self.prios: dict[float, int] = {}
        self.rejected: tuple[str, float] | None = None

    def job_added(self, prio: float, cluster: int, proc: int) -> None:
        """An idle job has come."""
        self.order.add(prio, cluster, proc)
        self.idle += 1
        self.prios[prio] = self.prios.get(prio, 0) + 1

    def jobs_added(self, prio: float, cluster: int, first: int, count: int) -> None:
        """Idle jobs of a cluster have come that follow each other."""
        self.order.add_range(prio, cluster, first, count)
        self.idle += count
        self.prios[prio] = self.prios.get(prio, 0) + count

    def job_removed(self, prio: float, cluster: int, proc: int) -> None:
        """An idle job has left."""
        self.order.remove(prio, cluster, proc)
        self._count_out(prio, 1)

    def jobs_removed(self, prio: float, cluster: int, first: int, count: int) -> None:
        """Idle jobs of a cluster have left that follow each other."""
        self.order.remove_range(prio, cluster, first, count)
        self._count_out(prio, count)

    def _count_out(self, prio: float, count: int) -> None:
        self.idle -= count
        left = self.prios.get(prio, 0) - count
        if left > 0:
            self.prios[prio] = left
        else:
            self.prios.pop(prio, None)

    def runs(self, skip: int, most: int) -> list[list[float]]:
        """The places of its jobs by PRIO, as [place, how many], the highest first: those of `most` jobs after the first
        `skip`. So many runs at most; the last stands for all that follow."""
        found: list[list[float]] = []
        for prio in sorted(self.prios, reverse=True):
            count = self.prios[prio]
            skip, count = max(0, skip - count), max(0, count - skip)
            count = min(count, most)
            most -= count
            if count and len(found) < MOST_RUNS:
                found.append([prio, count])
            elif count:
                found[-1][1] += count
        return found
