"""Asking the pool for the drop-ins: where to, which jobs, which attributes.

`-pool` names the node to connect to, and `-name` a schedd of its pool. Without them it is the node that `poolnode`
itself would ask. Attributes are asked for by name, and jobs that are alike in them come as one ad with their numbers;
an ad whose expressions need more is asked for again.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pool.errors import PoolError
from pool.jobs.job_columns import JobColumns, each_job, of_item

if TYPE_CHECKING:
    from pool.client.pool import Pool

T = TypeVar("T")
WireAd = dict[str, Any]
#: The shown attributes of some jobs, and their ProcIds.
AlikeJobs = tuple[WireAd, list[int]]

_ID = re.compile(r"([0-9]{1,18})(?:\.(-?[0-9]{1,18})?)?")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.@+-]*\$?")

_STANDARD = """
AccountingGroup AcctGroup AcctGroupUser Args Arguments BytesRecvd BytesSent ClusterId Cmd CommittedTime
CompletionDate CpusProvisioned CumulativeSuspensionTime DAGManJobId DAGNodeName DiskUsage EnteredCurrentStatus
Environment Err ExitBySignal ExitCode ExitReason ExitSignal ExitStatus FileSystemDomain HoldReason HoldReasonCode
HoldReasonSubCode ImageSize In Iwd JobBatchName JobCurrentStartDate JobDescription JobLeaseDuration JobNotification
JobPrio JobRunCount JobStartDate JobStatus JobUniverse LastHoldReason LastHoldReasonCode LastHoldReasonSubCode
LastJobStatus LastRejMatchReason LastRejMatchTime LastRemoteHost LastRemoteWallClockTime LastSuspensionTime
LastVacateTime LeaveJobInQueue MaxHosts MemoryUsage MinHosts MyType NumCkpts NumHolds NumJobCompletions
NumJobMatches NumJobReconnects NumJobStarts NumRestarts NumShadowStarts NumSystemHolds OnExitHold OnExitRemove Out
Owner PeriodicHold PeriodicRelease PeriodicRemove ProcId QDate Rank ReleaseReason RemoteHost RemoteSysCpu
RemoteUserCpu RemoteWallClockTime RemoveReason RequestCpus RequestDisk RequestGPUs RequestMemory Requirements
ResidentSetSize ShadowBday ShouldTransferFiles TargetType TotalSubmitProcs TotalSuspensions TransferInput
TransferOutput TransferringInput TransferringOutput TransferQueued User UserLog VacateReason VacateReasonCode
WhenToTransferOutput
"""
#: Attributes as the schedd spells them, by their folded names: it is asked by these spellings.
STANDARD = {name.lower(): name for name in _STANDARD.split()}


def ask_pool(address: str | None, question: Callable[[Pool], Coroutine[Any, Any, T]]) -> T:
    """Connect, ask, disconnect. Arguments as for `Pool.connect`."""
    import asyncio

    from pool.client.garbage import collect_rarely

    async def connected() -> T:
        from pool.client.pool import Pool

        async with await Pool.connect(_address(address)) as pool:
            return await question(pool)

    collect_rarely()
    return asyncio.run(connected())


def _address(given: str | None) -> str | None:
    """`host:port`, `<host:port?...>` of an ad, or what `poolnode --address` takes."""
    if given is None:
        return None
    return given[1:].partition("?")[0].rstrip(">") if given.startswith("<") else given


async def schedd_address(pool: Pool, name: str | None) -> str | None:
    """Where the schedd of a name is; None for the node's own.

    Raises:
        PoolError: the pool has no schedd of that name.
    """
    if name is None:
        return None
    info = await pool.info()
    if name in (info.get("node"), info.get("address")):
        return None
    for ad in await pool.advertised("Scheduler", attributes=["Name", "ScheddAddress"]):
        found = str(ad.get("Name") or "")
        if found == name or found.partition("@")[2] == name:
            address = str(ad["ScheddAddress"])
            return None if address == info.get("address") else address
    raise PoolError(f"Collector has no record of schedd/submitter {name}", hint="`condor_status -schedd` lists them")


def selection(words: Sequence[str], constraints: Sequence[str] = ()) -> dict[str, Any]:
    """The parameters of a query for ids, users and constraints: jobs that any word names and all constraints allow.

    Raises:
        PoolError: a word is neither an id nor a user.
    """
    ids: list[list[int]] = []
    owners: list[str] = []
    for word in words:
        if found := _ID.fullmatch(word):
            ids.append([int(found[1])] if found[2] is None else [int(found[1]), int(found[2])])
        elif _USER.fullmatch(word):
            owners.append(word)
        else:
            raise PoolError(f"{word} is not a valid identifier of jobs", hint="give 12, 12.3 or a user's name")
    params: dict[str, Any] = {}
    both = " && ".join(f"({one})" for one in constraints)
    if len(owners) + bool(ids) > 1 or (ids and both):
        parts = [f'{"User" if "@" in one else "Owner"} == "{one}"' for one in owners]
        parts += ["(" + " && ".join(map("{} == {}".format, ("ClusterId", "ProcId"), one)) + ")" for one in ids]
        chosen = "(" + " || ".join(parts) + ")"
        return {"constraint": f"{chosen} && {both}" if both else chosen}
    if ids:
        params["ids"] = ids
    if owners:
        params["owner"] = owners[0]
    if both:
        params["constraint"] = both
    return params


async def job_groups(
    pool: Pool, params: dict[str, Any], wanted: Sequence[str], *, at: str | None = None, method: str = "schedd.query"
) -> list[JobColumns]:
    """Jobs with the attributes that are wanted, and with those that these need, as the schedd groups them.

    Args:
        params: as `selection` makes them.
        wanted: names as a user writes them. at: the schedd's address.
    """
    names = list(
        dict.fromkeys([STANDARD.get(name.lower(), name) for name in wanted] + ["ClusterId", "ProcId", "JobStatus"])
    )
    while True:
        groups: list[JobColumns] = []
        async for batch in pool.batches(method, params | {"attributes": names, "columns": True}, at=at):
            groups += map(of_item, batch)
        missing = _not_there(groups, [name for name in names if name.lower() not in STANDARD])
        if missing:  # nowhere so spelled: the ads say whether it is there in another spelling
            return list(map(of_item, await pool.gather(method, params, at=at)))
        more = _also_needed(groups, names)
        if not more:
            return groups
        names += more


def alike(groups: Iterable[JobColumns]) -> Iterator[AlikeJobs]:
    """Jobs that differ in their numbers alone together, the others each with an ad of its own."""
    for shared, columns in groups:
        if list(columns) == ["ProcId"]:
            yield shared, columns["ProcId"]
        else:
            yield from ((ad, [ad["ProcId"]]) for ad in each_job((shared, columns)))


def _not_there(groups: Iterable[JobColumns], names: Sequence[str]) -> bool:
    return bool(names) and any(name not in shared.keys() | columns for shared, columns in groups for name in names)


def _also_needed(groups: Iterable[JobColumns], names: Sequence[str]) -> list[str]:
    """Attributes that the values of others mention, and that were not asked for."""
    found_values = (
        value for shared, columns in groups for part in (shared.values(), *columns.values()) for value in part
    )
    texts = {value[0] for value in found_values if type(value) is list and len(value) == 1}
    if not texts:
        return []
    from pool.classad import ParseError, parse_expr

    known = {name.lower() for name in names}
    found: dict[str, str] = {}
    for text in texts:
        if not isinstance(text, str):
            continue
        try:
            mentioned = parse_expr(text, syntax="old").references()
        except ParseError:
            continue
        for name in mentioned:
            if name.lower() not in known and name.lower() in STANDARD:
                found[name.lower()] = STANDARD[name.lower()]
    return list(found.values())


def write(text: str) -> None:
    """Write to standard output what the drop-ins lay out by bytes.

    Raises:
        OSError: it cannot be written.
    """
    sys.stdout.flush()
    out = getattr(sys.stdout, "buffer", None)
    if out is None:
        sys.stdout.write(text)
    else:
        out.write(text.encode("latin-1"))
        out.flush()


def print_error(text: str) -> None:
    """A line for the person: standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def ask_schedd(address: str | None, name: str | None, question: Callable[[Pool], Coroutine[Any, Any, T]]) -> T:
    """As `ask_pool`, of the schedd of a name: what changes a queue goes to its own node.

    Args:
        address: `-pool`. name: `-name`.
    """

    async def at_the_schedd(pool: Pool) -> T:
        at = await schedd_address(pool, name)
        if at is None:
            return await question(pool)
        from pool.client.pool import Pool as Connected

        async with await Connected.connect(at) as other:
            return await question(other)

    return ask_pool(address, at_the_schedd)
