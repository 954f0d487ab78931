"""The checker: holds the record of a round to the four rules of the start contract (docs/architecture.md)."""

from __future__ import annotations

from itertools import pairwise

from tests.chaos.record import JobName, Record, Run


def violations(record: Record) -> list[str]:
    """The rules that the record breaks, a line each."""
    found = [f"the pool failed: {what}" for what in record.failures]
    for job in record.accepted:
        found += lost(job, record) + doubled(job, record) + reused(job, record) + told_once(job, record)
    strangers = set(record.outcomes) - set(record.accepted)
    return found + [f"{_name(job)}: nobody submitted it" for job in sorted(strangers)]


def lost(job: JobName, record: Record) -> list[str]:
    """Rule 1: an accepted job is never lost."""
    if job in record.left:
        return [f"{_name(job)}: it has not ended long after all faults were over ({record.left[job]})"]
    return [] if record.outcomes.get(job) else [f"{_name(job)}: it is in no queue and no history"]


def doubled(job: JobName, record: Record) -> list[str]:
    """Rule 2: two copies never run at the same time."""
    runs = sorted(record.runs.get(job, ()), key=lambda run: run.began)
    return [
        f"{_name(job)}: {_run(one)} still ran when {_run(next_)} began"
        for one, next_ in pairwise(runs)
        if one.ended is None or one.ended > next_.began
    ]


def reused(job: JobName, record: Record) -> list[str]:
    """Rule 3: (job, run) is never used twice."""
    numbers = [run.number for run in record.runs.get(job, ())]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    return [f"{_name(job)}: run {number} was used twice" for number in twice]


def told_once(job: JobName, record: Record) -> list[str]:
    """Rule 4: an end is reported exactly once, and only one that was."""
    outcomes, found = record.outcomes.get(job, ()), []
    if len(outcomes) > 1:
        found.append(f"{_name(job)}: it is {len(outcomes)} times in the history")
    for outcome in outcomes:
        whole = sum(run.whole for run in record.runs.get(job, ()))
        if outcome.status != "completed":
            found.append(f"{_name(job)}: it is {outcome.status}, which nobody asked for")
        elif outcome.exit_code != 0 or outcome.completions != 1:
            found.append(f"{_name(job)}: code {outcome.exit_code}, completed {outcome.completions} times")
        elif not whole:
            found.append(f"{_name(job)}: it is said to be completed, and no run of it came to its end")
    if record.told.get(job, 0) > 1:
        found.append(f"{_name(job)}: its end was told {record.told[job]} times")
    return found


def _name(job: JobName) -> str:
    return f"{job[1]}.{job[2]} of {job[0]}"


def _run(run: Run) -> str:
    return f"run {run.number} on {run.machine} (from {run.began:.3f} s)"
