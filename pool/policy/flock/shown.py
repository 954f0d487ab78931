"""Machines and requests as the other pool sees them: nothing in them may give what the agreement does not (EV 8).

A *lent* machine is another pool's. Its ad is published here under a name of its own (SLOT@MACHINE@POOL@NODE, where
NODE has the world role), so it can never pass for a machine of this pool: names of nodes hold no `@`. Jobs with files
on the submit side have them carried, since the machine's FileSystemDomain is the other pool's alone.

A *guest* is a job of another pool. Its owner is USER@POOL, told apart from a local user of the same name everywhere
(EV 4.3.4), and it comes after all jobs of this pool (EV 8: the world's requests last).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from pool.classad import parse_expr
from pool.errors import PoolError
from pool.policy.flock.gangs import WITHOUT_LINKS
from pool.policy.flock.kinds import COUNT, NOT_LENT, count_of
from pool.policy.flock.value import server_value

Wire = dict[str, Any]

#: In a machine's ad: the pool that lends it, and its name there. In a job's ad: the pool that it comes from.
LENDER, LENT_MACHINE, GUEST_OF = "FlockPool", "FlockMachine", "FlockGuestOf"
#: In a guest's ad, set by our world: it does not leave for our own jobs (`guests_leave = false`). In the ad of our
#: machine that it has: its pool, and whether it leaves for our own jobs.
GUEST_STAYS, GUEST_POOL, GUEST_LEAVES = "FlockGuestStays", "RemoteGuestOf", "RemoteGuestLeaves"
#: In a lent machine's ad: the server value of one of its processors (EV 4.3.3).
SERVER_VALUE = "FlockValue"
#: In a job's ad: false keeps it in its own pool.
WANTS_FLOCK = "WantFlock"
#: In a job's ad: it comes after everybody else's.
NICE_USER = "NiceUser"
#: The service names under which a world node is a startd to schedds, and a schedd to negotiators and startds.
AS_STARTD, AS_SCHEDD = "world_machines", "world_jobs"
#: The same as AS_SCHEDD, for users of this pool whose jobs are in the queue of another (`private`).
AS_PRIVATE = "world_private"
#: Attributes of a machine that mean something in its own pool only, or would give its owner power in ours.
_MACHINES_OWN = NOT_LENT | {"requirements"}
#: Attributes of a job that mean something in its own pool only; in lower case.
FOREIGN = frozenset(
    name.lower()
    for name in (
        "Owner", "User", "AcctGroup", "AcctGroupUser", "AccountingGroup", NICE_USER, "Scheduler", "FileSystemDomain",
        "UidDomain", "Submitter", GUEST_OF, GUEST_STAYS,
    )
)  # fmt: skip
#: The conditions for jobs on a lent machine, and each in words. Their user does not keep them at home, they need no
#: links that other pools cannot have, they are no guests themselves (a pool lends only its own machines), and no image
#: of theirs lies on the machine.
GUEST_CONDITIONS = (
    (f"TARGET.{WANTS_FLOCK} =!= false", "a job that may run in other pools, so not with flock = false"),
    (WITHOUT_LINKS, "no ranks that reach no machine of another pool (job_network = private lets them)"),
    (f"TARGET.{GUEST_OF} =?= undefined", "a job of our own pool, since another pool lends us its machine"),
    ('TARGET.ContainerImageSource =!= "local"', "a container image that is not a file of the machine itself"),
)
_GUESTS_ONLY = " && ".join(f"({condition})" for condition, _ in GUEST_CONDITIONS)
_THERE = "a job of another pool cannot work on files of the machine it runs on"


class NotForGuests(PoolError):
    """A job of another pool asks for more than its pool may have here."""


def is_lendable(ad: Mapping[str, Any]) -> bool:
    """Whether a machine of this pool can be shown to another: it is idle and our own. A dedicated machine is, too,
    while its scheduler does not use it (WR 6.4).
    """
    return ad.get("State") == "Unclaimed" and LENDER not in ad and isinstance(ad.get("StartdAddress"), str)


def gives_way(ad: Mapping[str, Any]) -> bool:
    """Whether a machine runs a job of our own pool and may go to a creditor after that job (EV 4.2)."""
    owner = ad.get("RemoteOwner")
    return (
        ad.get("State") == "Claimed"
        and LENDER not in ad
        and not ad.get("DedicatedSchedulers")
        and isinstance(ad.get("StartdAddress"), str)
        and isinstance(owner, str)
        and "@" not in owner
    )


def is_own_machine(ad: Mapping[str, Any]) -> bool:
    """Whether our own pool's jobs may run on a machine now: it is ours, not dedicated, and its owner is away."""
    return LENDER not in ad and not ad.get("DedicatedSchedulers") and ad.get("State") != "Owner"


def is_with_guest(ad: Mapping[str, Any]) -> bool:
    """Whether a job of another pool has a machine."""
    return ad.get("State") in ("Claimed", "Preempting") and "@" in str(ad.get("RemoteOwner", ""))


def processors(ad: Mapping[str, Any]) -> int:
    """The processors that a machine counts for: those of a part, or of the rest of a divided machine. Any other machine
    counts for one, since a job gets all of it."""
    if not (ad.get("PartitionableSlot") is True or ad.get("DynamicSlot") is True):
        return 1
    cpus = ad.get("Cpus")
    return max(0, int(cpus)) if isinstance(cpus, int | float) and not isinstance(cpus, bool) else 0


def shown_to_creditor(ad: Wire) -> Wire:
    """A machine that gives way, as a pool sees it to which we owe machine time: one to ask for."""
    taken = {"RemoteUser", "RemoteOwner", "RemoteGroup", "RemoteNiceUser", "ClientMachine", "CurrentRank"}
    own = {name: value for name, value in ad.items() if name not in taken}
    return {**own, "State": "Unclaimed", "Activity": "Idle"}


def lent_machine(ad: Wire, slot: str, pool: str, address: str, round_trip: float = 0.0) -> Wire:
    """A machine of another pool as this pool's collector has it.

    Args:
        ad: as the other pool tells it; not trusted. It may stand for many machines (`kinds`).
        slot: its name there, SLOT@MACHINE.
        pool: the other pool.
        address: of this pool's world node.
        round_trip: between the pools, seconds; 0 before it is measured.
    """
    own = {name: value for name, value in ad.items() if name.lower() not in _MACHINES_OWN}
    requirements = next((value for name, value in ad.items() if name.lower() == "requirements"), True)
    many = count_of(ad)
    return {
        **own,
        **({COUNT: many} if many > 1 else {LENT_MACHINE: slot.rpartition("@")[2]}),
        "MyType": "Machine",
        LENDER: pool,
        SERVER_VALUE: server_value(ad, round_trip).for_order,
        "FileSystemDomain": f"flock.{pool}",
        "UidDomain": f"flock.{pool}",
        "StartdAddress": f"{address}#{AS_STARTD}",
        "Rank": 0.0,
        "Requirements": both(requirements, _GUESTS_ONLY),
    }


def guest_request(
    ad: Wire, owner: str, pool: str, *, ahead: bool = False, stays: bool = False, condition: str = ""
) -> Wire:
    """A request of another pool as this pool's negotiator and startds see it.

    Args:
        ad: as the other pool tells it; not trusted.
        owner: the user there.
        pool: the other pool.
        ahead: it comes before all jobs of this pool, which owes the other machine time; else after them.
        stays: it does not leave its machine for jobs of this pool.
        condition: of the machines that its pool may have, as its Requirements say it; empty for none.
    """
    own = {name: value for name, value in ad.items() if name.lower() not in FOREIGN}
    if condition:
        own = with_condition(own, condition)
    guest = f"{owner}@{pool}"
    return {
        **own,
        "Owner": guest,
        "User": guest,
        GUEST_OF: pool,
        "FileSystemDomain": f"flock.{pool}",
        "UidDomain": f"flock.{pool}",
        NICE_USER: not ahead,
        GUEST_STAYS: stays,
    }


def guest_order(order: Wire, pool: str, *, ahead: bool = False, stays: bool = False) -> Wire:
    """The order to start a job of another pool, as our startd gets it.

    Args:
        order: {claim, base, start, shared, own} as a startd takes it; not trusted.
        ahead: its claim was given ahead of this pool's own jobs.
        stays: as in `guest_request`.

    Raises:
        NotForGuests: the job would work on files of this pool's machines.
    """
    check_guest_start(order.get("start"))
    found = dict(order)
    for name in ("shared", "own"):
        part = order.get(name)
        if isinstance(part, dict):
            own = {key: value for key, value in part.items() if str(key).lower() not in FOREIGN}
            owner = next((value for key, value in part.items() if str(key).lower() == "owner"), None)
            guest = {} if owner is None else {"Owner": f"{owner}@{pool}", "User": f"{owner}@{pool}"}
            found[name] = {**own, **guest, GUEST_OF: pool, NICE_USER: not ahead, GUEST_STAYS: stays}
    return found


def check_guest_start(start: Any) -> None:
    """Refuse a start that would show a job of another pool files of the machine: its user there may be able to read
    what a local user lets everybody read.

    Args:
        start: the fields of an `Activation`, or those that differ from the last one; not trusted.

    Raises:
        NotForGuests: in place, or in an image that lies on the machine.
    """
    if not isinstance(start, dict):
        return
    image, source = start.get("image"), start.get("image_source")
    if isinstance(image, str) and image.startswith("/"):
        raise NotForGuests(_THERE, hint="container_image = an archive that is copied, or the URL of an image")
    if isinstance(source, str) and "/" in source and "://" not in source:
        raise NotForGuests(_THERE, hint="container_image = an archive that is copied, or the URL of an image")
    if start.get("mode") == "shared":
        raise NotForGuests(_THERE, hint="should_transfer_files = YES, or remote_io = on")


def with_condition(ad: Wire, condition: str) -> Wire:
    """The same ad, with one more condition in its Requirements."""
    requirements = next((value for name, value in ad.items() if name.lower() == "requirements"), True)
    own = {name: value for name, value in ad.items() if name.lower() != "requirements"}
    return {**own, "Requirements": both(requirements, f"({condition})")}


def both(expression: Any, more: str) -> list[str]:
    """An attribute's value as it travels, and a further condition. A value that is no expression accepts nothing."""
    if isinstance(expression, bool):
        text = "true" if expression else "false"
    elif isinstance(expression, list) and len(expression) == 1 and isinstance(expression[0], str):
        text = expression[0] if _is_whole(expression[0]) else "false"
    else:
        text = "false"
    return [f"({text}) && {more}"]


@functools.lru_cache(maxsize=1024)
def _is_whole(text: str) -> bool:
    """Whether a text is an expression by itself, and not a part that closes brackets of ours."""
    try:
        parse_expr(text)
    except PoolError:
        return False
    return True
