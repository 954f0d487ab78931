"""`q`, `globalq`, `history` and `summary`: what the queues hold and held (EV 2.8)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

from pool.cli import columns, tables
from pool.cli.common import names, print_ads, print_error, print_json, print_lines, query_pool
from pool.cli.options import Address, Attributes, CommandOption, Constraint, Jobs, Json, Limit, Long
from pool.cli.selection import Selection, UsageProblem, select

if TYPE_CHECKING:
    from pool.client.pool import Pool
    from pool.jobs.job_columns import JobColumns

Ad = dict[str, Any]
#: Jobs that are laid out, in the order of their ids, at a time: a queue of any length is listed in bounded memory.
AT_ONCE = 20_000


def q(
    jobs: Jobs = None,
    constraint: Constraint = None,
    held: Annotated[bool, CommandOption("--held", help="Held jobs, and why they are held.")] = False,
    idle: Annotated[
        bool, CommandOption("--idle", help="Idle jobs, and why the last negotiation had nothing for them.")
    ] = False,
    attributes: Attributes = None,
    limit: Limit = None,
    long: Long = False,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """List queued jobs.

    \b
    ID         cluster.process               PRI      higher goes first
    OWNER      whose job it is               SIZE     image size, megabytes
    SUBMITTED  when it came                  ARCH_OS  the platform it asks for
    CPU_USAGE  processor time, ended runs    COMMAND  its program
    ST         U idle and never begun, I idle, R running, H held, C completed,
               X removed, S suspended, > sending output
    Times are d+hh:mm:ss. A pipe or a wide terminal also gets RUN_TIME and HOST.

    \b
    Examples:
      poolnode q                        everybody's jobs
      poolnode q alice 12 13.4          alice's jobs, cluster 12 and job 13.4
      poolnode q --held                 what is held, and why
      poolnode q --idle                 what waits, and why
      poolnode q -c 'JobPrio > 5'       whatever an expression says
      poolnode q -a ClusterId,ProcId,RequestMemory
      poolnode q --json | jq .Cmd
    """
    from pool.cli.job_groups import render_groups
    from pool.jobs.job_columns import each_job, of_item, values

    chosen = select(jobs or [])
    if held and idle:
        raise UsageProblem("--held and --idle are different jobs", hint="give one or the other")
    if held or idle:
        status = f"JobStatus == {5 if held else 1}"
        constraint = f"{status} && ({constraint})" if constraint else status
    whole = as_json or long
    layout = columns.HELD if held else columns.IDLE if idle else columns.JOBS
    wanted = names(attributes)
    shown = _shown(layout, wanted)
    states: Counter[int] = Counter()
    missing = set() if constraint or limit is not None else set(chosen.ids)

    def show(jobs: list[JobColumns], *, first: bool) -> None:
        for group in jobs:
            states.update(values(group, "JobStatus", 0))
            if missing:
                clusters = values(group, "ClusterId", 0)
                missing.difference_update(zip(clusters), zip(clusters, values(group, "ProcId"), strict=True))
        if whole:
            ads = [ad for group in jobs for ad in each_job(group)]
            ads.sort(key=_id)
            print_ads(ads, as_json=as_json)
        else:
            lines = render_groups(shown, jobs, tables.terminal_width())
            print_lines(lines if first else lines[1:])

    async def question(pool: Pool) -> None:
        params = _parameters(chosen, constraint, _attributes(shown, wanted, whole), limit)
        if not whole:
            params["columns"] = True
        jobs: list[JobColumns] = []
        first, count = True, 0
        async for batch in pool.batches("schedd.query", params):
            for item in batch:
                group = of_item(item)
                jobs.append(group)
                count += len(group[1]["ProcId"])
            if count >= AT_ONCE:
                show(jobs, first=first)
                jobs, first, count = [], False, 0
        if jobs or first:
            show(jobs, first=first)

    query_pool(address, question)
    if not whole and wanted is None:
        print_lines(["", columns.state_totals(states)])
    for name in sorted(missing):
        text = ".".join(map(str, name))
        print_error(f"poolnode: {text} is not in the queue (if it was, `poolnode history {text}` has it)")
    return 0


def globalq(
    jobs: Jobs = None,
    constraint: Constraint = None,
    limit: Limit = None,
    long: Long = False,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """List the queued jobs of every machine of the pool, one queue after the other.

    The columns are those of `poolnode q`. A queue that does not answer is named on standard error, and the
    exit status is then 1.

    \b
    Examples:
      poolnode globalq
      poolnode globalq alice
      poolnode globalq --json | jq -r 'select(.JobStatus == 5) | .HoldReason'
    """
    chosen = select(jobs or [])
    whole = as_json or long
    width = tables.terminal_width()
    shown = tables.choose(columns.JOBS, width)
    needs = None if whole else tables.attributes_of(shown)

    async def question(pool: Pool) -> tuple[list[tuple[str, list[Ad]]], list[str]]:
        return await _every_queue(pool, chosen, constraint, needs, limit)

    queues, silent = query_pool(address, question)
    first = True
    for name, ads in queues:
        if whole:
            print_ads(({"ScheddName": name, **ad} for ad in ads), as_json=as_json)
            continue
        if ads:
            print_lines([] if first else [""])
            print_lines([f"Hostname: {name}", *tables.render(shown, ads, width)])
            first = False
    if not whole:
        everything = [ad for _, ads in queues for ad in ads]
        found = f"{len(queues)} queue{'s' if len(queues) != 1 else ''}"
        print_lines([*([] if first else [""]), f"{found}, {columns.job_totals(everything)}"])
    for line in silent:
        print_error(f"poolnode: {line}")
    return 1 if silent else 0


def history(
    jobs: Jobs = None,
    constraint: Constraint = None,
    limit: Limit = None,
    attributes: Attributes = None,
    long: Long = False,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """List jobs that have left the queue, newest first.

    EXIT is the exit status, or the signal that ended the job; ST is C for completed, X for removed.

    \b
    Examples:
      poolnode history --limit 20
      poolnode history alice -c 'ExitCode != 0'
      poolnode history 12.3 --long
    """
    chosen = select(jobs or [])
    whole = as_json or long
    wanted = names(attributes)
    shown = _shown(columns.HISTORY, wanted)
    ads = query_pool(
        address,
        lambda pool: _query(pool, "schedd.history", chosen, constraint, _attributes(shown, wanted, whole), limit),
    )
    if whole:
        print_ads(ads, as_json=as_json)
    else:
        print_lines(tables.render(shown, ads, tables.terminal_width()))
    return 0


def summary(as_json: Json = False, address: Address = None) -> int:
    """The share of each user in the pool: completed jobs, local and remote processor time, leverage.

    Leverage is remote processor time for each second that placing the jobs, moving their files and following
    them took on this machine, checkpoints included.

    \b
    Work, Lost   run time whose results reached the submit side, as output or
                 checkpoint; run time that was lost, and had to be repeated
    Saving       time from the begin of a checkpoint until the submit side had it
    Saved MB     megabytes that were sent for checkpoints

    \b
    Example:
      poolnode summary
    """
    users = query_pool(address, lambda pool: pool.summary())
    users.sort(key=lambda user: (-(user.get("remote_cpu") or 0), str(user["owner"])))
    if as_json:
        print_json(users)
    else:
        print_lines(columns.summary_lines(users, tables.terminal_width()))
    return 0


def _id(ad: Ad) -> tuple[int, int]:
    return ad.get("ClusterId", 0), ad.get("ProcId", 0)


def _shown(layout: tuple[tables.Column, ...], wanted: list[str] | None) -> list[tables.Column]:
    return columns.attributes(wanted) if wanted else tables.choose(layout, tables.terminal_width())


def _attributes(shown: list[tables.Column], wanted: list[str] | None, whole: bool) -> list[str] | None:
    """The attributes to ask for: all for whole ads, else those that the columns read, and the state for the totals."""
    if whole:
        return [*wanted, "ClusterId", "ProcId"] if wanted else None
    return list(dict.fromkeys([*tables.attributes_of(shown), "ClusterId", "ProcId", "JobStatus"]))


async def _query(
    pool: Pool,
    method: str,
    chosen: Selection,
    constraint: str | None,
    attributes: list[str] | None,
    limit: int | None,
    at: str | None = None,
) -> list[Ad]:
    return await pool.gather(method, _parameters(chosen, constraint, attributes, limit), at=at)


def _parameters(
    chosen: Selection, constraint: str | None, attributes: list[str] | None, limit: int | None
) -> dict[str, Any]:
    params = chosen.parameters(constraint)
    if attributes is not None:
        params["attributes"] = attributes
    if limit is not None:
        params["limit"] = limit
    return params


async def _every_queue(
    pool: Pool, chosen: Selection, constraint: str | None, attributes: list[str] | None, limit: int | None
) -> tuple[list[tuple[str, list[Ad]]], list[str]]:
    """The jobs of each schedd that the collector knows, by name, and a line for each that did not answer."""
    import asyncio

    from pool.errors import PoolError

    schedds = await pool.advertised("Scheduler", attributes=["Name", "ScheddAddress"])
    here = (await pool.info()).get("address")
    several = asyncio.Semaphore(16)

    async def query_one(schedd: Ad) -> list[Ad] | str:
        name, at = schedd.get("Name", "?"), schedd.get("ScheddAddress")
        async with several:
            try:
                found = await _query(
                    pool, "schedd.query", chosen, constraint, attributes, limit, at=None if at == here else at
                )
            except PoolError as error:
                return f"the queue of {name} does not answer: {error.message}"
            return sorted(found, key=_id)

    schedds.sort(key=lambda schedd: str(schedd.get("Name")))
    answers = await asyncio.gather(*map(query_one, schedds))
    queues, silent = [], []
    for schedd, answer in zip(schedds, answers, strict=True):
        if isinstance(answer, str):
            silent.append(answer)
        else:
            queues.append((str(schedd.get("Name", "?")), answer))
    return queues, silent
