"""Taking in a submit piece by piece, so that a million jobs hold nobody up.

The differences of its jobs come in lists, are checked, and are made ready for store and queue; nothing is stored or
queued here, so that what breaks off in the middle has never been.
"""

from __future__ import annotations

from typing import Any

from pool.errors import PoolError
from pool.policy.packed import pack
from pool.policy.paged_table import PagedTable
from pool.policy.queue import Wire
from pool.roles.schedd.core.validation import clean, holding, split_held

#: Jobs in one submit; more are refused, in words.
MOST_JOBS = 1_000_000
#: Bytes of all their differences.
MOST_BYTES = 1 << 30
#: Jobs that are worked on before others get their turn on the loop: a few milliseconds.
TURN = 500


def _check_count(count: int) -> None:
    if not 1 <= count <= MOST_JOBS:
        raise PoolError(f"cannot queue {count} jobs at once", hint=f"between 1 and {MOST_JOBS} are possible")


class ClusterIntake:
    """One cluster as it comes in.

    Args:
        ad: what its jobs share, as accepted from the client; what it says of being held is taken out.
        count: how many jobs; None: as many as differences come.
        differs: whether differences will come, one for each job.

    Attributes:
        deltas, packed: what came so far, and the same for the store; None where no job differs.
        held: single processes to be held from the beginning, with their reasons.
        all_held: why all others are to be held; None where they are not.
        names: attributes in which any job differs.
    """

    def __init__(self, ad: Wire, count: int | None, *, differs: bool) -> None:
        self._is_open = count is None
        if count is not None:
            _check_count(count)
        self.ad = ad
        self.count = MOST_JOBS if count is None else count
        self.deltas: list[Wire | None] | None = [] if differs else None
        self.packed: list[bytes | None] | None = [] if differs else None
        self.names: set[str] = set()
        self._whole, self._reason = holding(ad)
        self.held: PagedTable[Wire] = PagedTable()
        self.all_held: Wire | None = self._reason if self._whole and not differs else None
        self._size = 0

    def add_deltas(self, deltas: Any) -> None:
        """The differences of the next jobs.

        Raises:
            PoolError: they are none, or too many, or too large.
        """
        if self.deltas is None or self.packed is None or not isinstance(deltas, list):
            raise PoolError("cannot queue: the differences are no list")
        first = len(self.deltas)
        if first + len(deltas) > self.count:
            if self._is_open:
                _check_count(first + len(deltas))
            raise self._bad_count(first + len(deltas))
        found = [clean(delta) for delta in deltas]
        for proc, state in split_held(found, self._whole, self._reason).items():
            self.held[first + proc] = state
        for delta in found:
            packed = pack(delta) if delta else None
            self.deltas.append(delta or None)
            self.packed.append(packed)
            if delta and packed:
                self._size += len(packed)
                self.names.update(delta)
        if self._size > MOST_BYTES:
            raise PoolError(
                f"cannot queue: the jobs' differences are larger than {MOST_BYTES >> 20} MiB",
                hint="queue them in several clusters",
            )

    def replace(self, place: int, delta: Wire) -> None:
        """Give a job other differences than came."""
        assert self.deltas is not None
        assert self.packed is not None
        self.deltas[place] = delta or None
        self.packed[place] = pack(delta) if delta else None
        self.names.update(delta)

    def hold_all(self, reason: Wire) -> None:
        """Hold the jobs that are not to be held already."""
        if self.all_held is None:
            self.all_held = reason

    def held_state(self, proc: int) -> Wire | None:
        """Why a process is to be held from the beginning; None where it is not."""
        return self.held.get(proc) or self.all_held

    @property
    def is_any_idle(self) -> bool:
        """Whether one of the jobs may be started."""
        return self.all_held is None and len(self.held) < self.count

    def complete(self) -> None:
        """All have come. Raises PoolError when there are not as many differences as jobs."""
        if self._is_open:
            self.count = len(self.deltas or ())
            _check_count(self.count)
        if self.deltas is not None and len(self.deltas) != self.count:
            raise self._bad_count(len(self.deltas))

    def _bad_count(self, found: int) -> PoolError:
        return PoolError(f"cannot queue {self.count} jobs with {found} differences", hint="one for each job")
