"""Machines that a dedicated scheduler manages: what one setting makes of their owner's policy (WR 3.1).

A machine with `DEDICATED_SCHEDULER = head` names the schedd that may always have it. WR 3.1 asks three things of such a
machine, and each is a case put before the owner's own expressions, which go on holding for all other jobs:

    START                    true for that scheduler's jobs, whatever the machine's state
    SUSPEND, PREEMPT         false for them: what has begun is not evicted for the owner
    START_URGENT             false while they have the machine
    RANK                     above any other job's: the negotiator gives that scheduler the machine whenever it asks,
                             and nobody preempts it afterwards

The case is `TARGET.Scheduler =?= "DedicatedScheduler@head"`. WR 3.1 lets the scheduler put the attribute `Scheduler`
into its requests. Here no request is believed: negotiator and startd set the attribute themselves (`marked`), from the
submitter, whose node the collector and the startd know by certificate. So an owner who writes the two cases by hand, as
in WR 3.1, is as safe as one who uses the setting.

Several names are a hierarchy (WR 6.4): the first has the highest rank and takes the machine from the second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pool.classad.expr import literal
from pool.decimals import has_digits_only, real_number
from pool.policy.shipped import PolicyError

#: The submitter under which a dedicated scheduler asks and claims is this at the name of its node.
ACCOUNT = "DedicatedScheduler"
#: In a job's ad: the dedicated scheduler that runs it.
SCHEDULER = "Scheduler"
#: In a machine's ad: the dedicated scheduler that it is managed by; and all of them, highest first, between commas.
MANAGED_BY, HIERARCHY = "DedicatedScheduler", "DedicatedSchedulers"
#: In a machine's ad: the dedicated scheduler that has it claimed; the schedulers that lend it, each with the wall time
#: until when; and, in a claimed slot's ad for its schedd alone, for how many more seconds it is lent.
HOLDER, LOANS, LENT_FOR = "DedicatedHolder", "DedicatedLoans", "DedicatedLentFor"
#: The longest time for which a machine is lent, seconds.
LONGEST_LOAN = 366 * 86400.0
#: The rank of the lowest dedicated scheduler of a machine; the next is twice as high. Nothing else gets more than MOST.
RANK, MOST = 1e15, 1e14
#: Schedulers that one machine names at most.
MOST_SCHEDULERS = 16
#: The name of that attribute as it is compared: ads have dozens of names, and hardly any is as long as this one.
_FOLDED, _LENGTH = SCHEDULER.lower(), len(SCHEDULER)
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_PLAIN_TRUE, _PLAIN_FALSE = "true", "false"


def submitter_of(node: str) -> str:
    """The submitter of the dedicated scheduler of a node's schedd."""
    return f"{ACCOUNT}@{node}"


def is_dedicated(submitter: str) -> bool:
    """Whether a submitter is a dedicated scheduler, and no user."""
    return submitter.rpartition("@")[0] == ACCOUNT


def is_reserved(owner: str) -> bool:
    """Whether a user's name is the dedicated schedulers' own."""
    return owner.lower() == ACCOUNT.lower()


def schedulers_of(text: str) -> tuple[str, ...]:
    """The submitters that DEDICATED_SCHEDULER names, highest first; none where it is empty.

    Args:
        text: names of nodes, with or without `DedicatedScheduler@` before them (as HTCondor writes them), between
            commas or spaces.

    Raises:
        PolicyError: one of them is no name, or stands there twice.
    """
    found: list[str] = []
    for word in text.replace(",", " ").split():
        account, at, node = word.strip('"').rpartition("@")
        if (at and account != ACCOUNT) or not _NODE.fullmatch(node):
            raise PolicyError(
                f"DEDICATED_SCHEDULER = {text}: {word} names no schedd",
                hint="write the name of the schedd's node, as in DEDICATED_SCHEDULER = head",
            )
        name = submitter_of(node)
        if name in found:
            raise PolicyError(f"DEDICATED_SCHEDULER = {text}: {word} stands there twice", hint="name each once")
        found.append(name)
    if len(found) > MOST_SCHEDULERS:
        raise PolicyError(f"DEDICATED_SCHEDULER names {len(found)} schedds", hint=f"{MOST_SCHEDULERS} at most")
    return tuple(found)


def managed(texts: Mapping[str, str], schedulers: Sequence[str]) -> dict[str, str]:
    """An owner's expressions with the dedicated case before them; unchanged where there is no dedicated scheduler.

    A case that decides nothing is left out, so that a policy of constants stays one.
    """
    if not schedulers:
        return dict(texts)
    made = dict(texts)
    ours = " || ".join(_is(name) for name in schedulers)
    theirs = " && ".join(f"TARGET.{SCHEDULER} =!= {literal(name).text}" for name in schedulers)
    start = texts["START"].strip()
    if start.lower() != _PLAIN_TRUE:
        made["START"] = f"({ours})" if start.lower() == _PLAIN_FALSE else f"({ours}) || ({start})"
    for name in ("SUSPEND", "PREEMPT"):
        if texts[name].strip().lower() != _PLAIN_FALSE:
            made[name] = f"({theirs}) && ({texts[name]})"
    if texts["START_URGENT"].strip().lower() != _PLAIN_FALSE:
        made["START_URGENT"] = f"(MY.CurrentRank ?: 0) < {_number(RANK)} && ({texts['START_URGENT']})"
    made["RANK"] = _bounded(texts["RANK"])
    for height, name in enumerate(reversed(schedulers)):
        made["RANK"] = f"ifThenElse({_is(name)}, {_number(RANK * 2**height)}, {made['RANK']})"
    return made


def manager_attributes(schedulers: Sequence[str]) -> dict[str, Any]:
    """The manager of a machine by its ad, in wire form."""
    if not schedulers:
        return {}
    return {MANAGED_BY: schedulers[0], HIERARCHY: ", ".join(schedulers)}


def managers_of(ad: Mapping[str, Any]) -> tuple[str, ...]:
    """The dedicated schedulers that a machine's ad in wire form names, highest first. An owner may have written
    `DedicatedScheduler` alone, as for HTCondor."""
    named = ad.get(HIERARCHY) or ad.get(MANAGED_BY)
    return tuple(named.replace(",", " ").split()) if isinstance(named, str) else ()


def said_loans(loans: Mapping[str, float]) -> dict[str, Any]:
    """The loans of a machine by its ad, in wire form.

    Args:
        loans: of each scheduler that lends it, the wall time until when.
    """
    if not loans:
        return {}
    return {LOANS: ", ".join(f"{name}={until:.0f}" for name, until in sorted(loans.items()))}


def loans_of(ad: Mapping[str, Any]) -> dict[str, float]:
    """The loans that a machine's ad in wire form says, as wall times; of what makes no sense nothing is believed."""
    said = ad.get(LOANS)
    found: dict[str, float] = {}
    for word in said.split(", ") if isinstance(said, str) else ():
        name, equals, until = word.rpartition("=")
        if equals and is_dedicated(name) and has_digits_only(until) and len(until) < 16:
            found[name] = float(until)
    return found if len(found) <= MOST_SCHEDULERS else {}


def is_upper(submitter: str, managers: Sequence[str]) -> bool:
    """Whether a machine with these dedicated schedulers names others below this one."""
    return submitter in managers[:-1]


def rank_of(submitter: str, managers: Sequence[str]) -> float:
    """How much a machine with these dedicated schedulers likes one of them; 0 for one that it does not name."""
    return RANK * 2.0 ** (len(managers) - 1 - managers.index(submitter)) if submitter in managers else 0.0


def marked(ad: Mapping[str, Any], submitter: str, *, dedicated: bool = True) -> dict[str, Any]:
    """A request's or job's ad in wire form with the attribute `Scheduler` that is true of it, whatever it said itself.

    Args:
        submitter: as authenticated.
        dedicated: whether it is a job of the dedicated scheduler, not one that it lends a machine to.
    """
    rest = {name: value for name, value in ad.items() if len(name) != _LENGTH or name.lower() != _FOLDED}
    if dedicated and is_dedicated(submitter):
        rest[SCHEDULER] = submitter
    return rest


def claims_to_be(ad: Mapping[str, Any], submitter: str) -> bool:
    """Whether an ad claims to be of this dedicated scheduler."""
    return is_dedicated(submitter) and ad.get(SCHEDULER) == submitter


def _is(name: str) -> str:
    return f"TARGET.{SCHEDULER} =?= {literal(name).text}"


def _bounded(rank: str) -> str:
    """A RANK that stays below every dedicated scheduler's, though it goes by what a job's user writes.

    The value that counts is the one that is bounded: a job's attribute with random() may be another when it is read
    again.
    """
    number = real_number(rank)
    if number is not None:
        return rank if number <= MOST else _number(MOST)
    return f"(({rank}) =?= undefined ? 0.0 : min({{{_number(MOST)}, {rank}}}))"


def _number(value: float) -> str:
    return f"{value:.1f}"
