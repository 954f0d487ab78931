"""How many workers an executor has, and how many calls each is given ahead. Pure functions."""

from __future__ import annotations

#: Seconds of work that a worker has beside the call that it performs.
AHEAD = 0.05
#: The most calls that one worker has.
MOST = 512
#: How many workers in a row may end before they have connected, until the calls that wait fail.
FAILURES = 3


def calls_for_worker(seconds: float | None, waiting: int, workers: int) -> int:
    """How many calls a worker should have, the one that it performs included.

    Args:
        seconds: what a call took lately; None: none has ended yet.
        waiting: calls that no worker has.
        workers: workers that are connected.
    """
    if seconds is None:
        return 1
    fair = -(-waiting // max(workers, 1))
    return 1 + min(int(AHEAD / max(seconds, 1e-6)), fair, MOST - 1)


def workers_to_start(waiting: int, starting: int, free: int, workers: int, least: int, most: int) -> int:
    """How many worker jobs are submitted now.

    Args:
        waiting: calls that no worker has.
        starting: worker jobs that have not connected yet. free: connected workers without a call.
        workers: all of them. least, most: bounds of that number.
    """
    return max(min(waiting - starting - free, most - workers), least - workers, 0)


def workers_to_end(idle_seconds: dict[str, float], workers: int, least: int, patience: float) -> list[str]:
    """Which idle workers end: those without a call for `patience` seconds, longest first, down to `least` workers.

    Args:
        idle_seconds: of the workers without a call, by job. workers: all of them.
    """
    old = sorted(
        (job for job, seconds in idle_seconds.items() if seconds >= patience), key=lambda job: (-idle_seconds[job], job)
    )
    return old[: max(workers - least, 0)]


def call_to_recall(calls: dict[str, int], quiet: dict[str, float], free: int) -> str | None:
    """The worker that gives back calls it has not begun, because others have none or more can be started.

    Args:
        calls: how many calls each worker has. quiet: seconds since its last answer. free: workers without a call, and
            those that would be started for calls that waited.
    """
    able = [job for job, count in calls.items() if count > 1 and quiet[job] >= AHEAD]
    return max(able, key=lambda job: (calls[job], job)) if free and able else None
