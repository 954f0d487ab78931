"""`status`: the machines of the pool (EV 2.8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pool.cli import columns, machines, tables
from pool.cli.common import names, print_ads, print_lines, query_pool
from pool.cli.options import Address, Attributes, CommandArgument, CommandOption, Constraint, Json, Long
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import Pool

KINDS = {"machines": "Machine", "schedds": "Scheduler", "submitters": "Submitter", "negotiator": "Negotiator"}


def status(
    which: Annotated[
        list[str] | None, CommandArgument(metavar="NAME", help="Machines or slots.", show_default=False)
    ] = None,
    constraint: Constraint = None,
    kind: Annotated[
        str,
        CommandOption(
            "--type",
            metavar="KIND",
            help="Ads of machines, schedds, submitters, negotiator or any (with --long or --json).",
        ),
    ] = "machines",
    other_pool: Annotated[
        str | None,
        CommandOption("--pool", metavar="POOL", help="The machines of another pool that lends to this one."),
    ] = None,
    totals: Annotated[bool, CommandOption("--total", help="Only the totals.")] = False,
    attributes: Attributes = None,
    long: Long = False,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """List the pool's machines: what their queues hold, and what each slot does for others.

    \b
    Run, Tot   jobs of this machine's queue that run somewhere, and all of them
    Prio       the machine's priority for obtaining machines
    State      Owner: its owner uses it. Unclaimed: free. Matched, Claimed: given
               to somebody. Preempting: a job is moved off. Drained: out of use
    Activity   Idle, Busy, Suspended, Retiring, Vacating, Killing; Yielding: it
               stands still for an urgent job, which has a slot of its own on top
    LdAvg      load average of one minute
    Idle       time since a key was touched, d+hh:mm:ss
    A pipe or a wide terminal also gets Cpus, Memory (MB) and the user served.

    \b
    Examples:
      poolnode status
      poolnode status donder slot1@ijs
      poolnode status -c 'Memory > 4096 && State == "Unclaimed"'
      poolnode status --type schedds --long
      poolnode status --pool chem
      poolnode status --json | jq -r 'select(.State == "Claimed") | .Name'
    """
    from pool.cli.selection import UsageProblem

    if kind not in KINDS and kind.lower() != "any":
        raise UsageProblem(f"there is no type '{kind}'", hint=f"the types are {', '.join(KINDS)}, any")
    if other_pool is not None and kind != "machines":
        raise UsageProblem("--pool shows machines", hint="leave --type out")
    wanted = names(attributes)
    other = kind != "machines"
    if long or as_json or wanted or other:
        ask_for = wanted if wanted is None else [*wanted, "Name", "Machine"]
        ads = query_pool(
            address,
            lambda pool: _advertised(pool, other_pool, KINDS.get(kind, "Any"), constraint, ask_for),
        )
        _check_names(which, ads, constraint, kind)
        ads = sorted(_named(ads, which), key=machines.key)
        if long or as_json or (other and not wanted):
            print_ads(ads, as_json=as_json)
        else:
            print_lines(tables.render(columns.attributes(wanted or []), ads, tables.terminal_width()))
        return 0

    async def question(pool: Pool) -> list[dict[str, Any]]:
        import asyncio

        slots, schedds = await asyncio.gather(
            _advertised(pool, other_pool, "Machine", constraint, machines.MACHINE_NEEDS),
            pool.advertised("Scheduler", attributes=machines.SCHEDD_NEEDS),
        )
        if other_pool is not None:
            schedds = []
        if constraint is not None:  # what the expression chose are machines: queues of others do not belong here
            chosen = {machines.machine_of(ad) for ad in slots}
            schedds = [ad for ad in schedds if machines.machine_of(ad) in chosen]
        _check_names(which, [*slots, *schedds], constraint, kind)
        return machines.rows(_named(slots, which), _named(schedds, which))

    found = query_pool(address, question)
    width = tables.terminal_width()
    if not totals:
        print_lines([*tables.render(tables.choose(machines.MACHINES, width), found, width), ""])
    print_lines(machines.totals(found) or ["no machines"])
    print_lines(machines.troubles(found))
    return 0


async def _advertised(
    pool: Pool, other_pool: str | None, kind: str, constraint: str | None, attributes: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Ads of this pool, or the machines of another."""
    if other_pool is None:
        return await pool.advertised(kind, constraint=constraint, attributes=attributes)
    from pool.client.calls import question

    asked = {"pool": other_pool, **question(None, None, constraint, attributes, None)}
    return await pool.gather("world.machines_of", asked, at=await pool.collector())


def _check_names(which: list[str] | None, ads: list[dict[str, Any]], constraint: str | None, kind: str) -> None:
    """Refuse names that no ad has. With a constraint a known name may be missing, too: nothing is refused then.

    Raises:
        PoolError: which name it is.
    """
    for name in which or () if constraint is None else ():
        if not _named(ads, [name]):
            what = {"machines": "machine or slot", "any": "ad"}.get(kind.lower(), kind.removesuffix("s"))
            lists = "status" if kind == "machines" else f"status --type {kind}"
            raise PoolError(f"the pool has no {what} {name}", hint=f"`poolnode {lists}` lists them")


def _named(ads: list[dict[str, Any]], which: list[str] | None) -> list[dict[str, Any]]:
    """Those whose name, or whose machine's name with or without its domain, is among `which`."""
    if not which:
        return ads
    return [
        ad
        for ad in ads
        if ad.get("Name") in which
        or machines.machine_of(ad) in which
        or machines.machine_of(ad).partition(".")[0] in which
    ]
