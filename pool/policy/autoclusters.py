"""Autoclusters: jobs that no expression in the pool can tell apart are matched as one request.

A job's *signature* is the text of every attribute that can matter to a match: its Requirements and Rank, the
resources it asks for, whatever those refer to, and whatever the machines' expressions refer to. Jobs of equal
signature form an autocluster; the negotiator evaluates it once, however many jobs stand behind it.
Nothing here decides about order or fairness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pool.classad.expr import from_wire
from pool.policy.packed import pack

#: The attributes that matter to every match, whatever the machines ask. Lower case, as all names here.
ALWAYS = frozenset(
    {
        "requirements",
        "rank",
        "requestcpus",
        "requestmemory",
        "requestdisk",
        "requestgpus",
        "owner",
        "jobleaseduration",  # claims are made with it
        "acctgroup",  # whose quota, turn and limits it is: see `pool.policy.charges`
        "niceuser",
        "urgent",  # whom it may suspend: see `pool.policy.urgent`
        "concurrencylimits",
        "gangparts",  # such a job takes several slots: see `pool.policy.gangs`
        "gangapart",
    }
)

#: The values that are the same for all jobs that are matched: they are idle.
NEVER = frozenset({"jobstatus"})

#: The attributes in which jobs of one cluster differ without a difference of their own.
OF_EACH_JOB = "procid"

#: Sets of expressions for which it is kept what matters to them: a user's jobs mostly have the same.
KEPT = 1000

Ad = Mapping[str, Any]


class Autoclusters:
    """The signatures of jobs' ads, which are given in wire form by lower-case names.

    Args:
        references: names (lower case) that machines' expressions refer to.
    """

    def __init__(self, references: Iterable[str] = ()) -> None:
        self.references = frozenset(references)
        self._known: dict[tuple[tuple[str, str], ...], frozenset[str]] = {}

    def significant(self, ad: Ad) -> frozenset[str]:
        """Names (lower case) that can matter to a match of this job, closed over what its expressions refer to."""
        expressions = tuple([(name, value[0]) for name, value in ad.items() if type(value) is list])
        found = self._known.get(expressions)
        if found is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            found = self._known[expressions] = closed(dict(expressions), ALWAYS | self.references)
        return found

    def signature(self, ad: Ad) -> bytes:
        """Every significant attribute that the ad has: equal for jobs that match alike."""
        return pack([(name, ad[name]) for name in sorted(self.significant(ad) & ad.keys())])


def closed(expressions: Mapping[str, str], names: Iterable[str]) -> frozenset[str]:
    """These names and all that they refer to, directly or by way of an ad's expressions.

    A job's number, its starts and its waiting time belong to them where an expression reads them. Such jobs match
    differently, and a group of them would be refused because of its first job.
    """
    found: set[str] = set()
    waiting = set(names) - NEVER
    while waiting:
        name = waiting.pop()
        found.add(name)
        if name in expressions:
            waiting |= {reference.lower() for reference in from_wire(expressions[name]).references()} - found - NEVER
    return frozenset(found)


def looked_at(names: Iterable[str], *ads: Ad) -> frozenset[str]:
    """These names (lower case) and all that they refer to by way of any of several ads' expressions, in wire form."""
    expressions = [{name.lower(): value for name, value in ad.items() if type(value) is list} for ad in ads]
    found: set[str] = set()
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        found.add(name)
        for known in expressions:
            if name in known:
                waiting |= {reference.lower() for reference in from_wire(known[name][0]).references()} - found
    return frozenset(found)
