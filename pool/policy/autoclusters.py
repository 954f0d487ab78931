"""Autoclusters: jobs that no expression in the pool can tell apart are matched as one request.

A job's *signature* is the text of every attribute that can matter to a match: its Requirements and Rank, the
resources it asks for, whatever those refer to, and whatever the machines' expressions refer to. Jobs of equal
signature form an autocluster; the negotiator evaluates it once, however many jobs stand behind it (DESIGN 6).
Nothing here decides about order or fairness.
"""

from __future__ import annotations

from collections.abc import Iterable

from pool.classad import ClassAd

#: What matters to every match, whatever the machines say. Lower case, as all names here.
ALWAYS = frozenset({"requirements", "rank", "requestcpus", "requestmemory", "requestdisk", "requestgpus", "owner"})

#: What differs from job to job without ever being meant as a requirement; a machine that refers to one of
#: these would make every job a cluster of its own, so it sees the value of the autocluster's first job.
NEVER = frozenset({"procid", "clusterid", "jobstatus", "numjobstarts", "enteredcurrentstatus"})


def significant(ad: ClassAd, machine_references: Iterable[str] = ()) -> frozenset[str]:
    """Names (lower case) that can matter to a match of this job, closed over what its expressions refer to."""
    found = set(ALWAYS)
    waiting = [*ALWAYS, *(name.lower() for name in machine_references)]
    while waiting:
        name = waiting.pop()
        if name in NEVER:
            continue
        found.add(name)
        expression = ad.get(name)
        if expression is None:
            continue
        for reference in expression.references():
            lowered = reference.lower()
            if lowered not in found:
                found.add(lowered)
                waiting.append(lowered)
    return frozenset(found - NEVER)


def signature(ad: ClassAd, names: frozenset[str]) -> tuple[str, ...]:
    """The text of each significant attribute that the ad has: equal for jobs that match alike."""
    parts: list[str] = []
    for name in sorted(names):
        expression = ad.get(name)
        if expression is not None:
            parts.append(f"{name}={expression.text}")
    return tuple(parts)
