"""`plan` and `reserve`: a dedicated scheduler's machines over time, and machines promised for a time (WR 6.3, 6.9)."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pool.cli import formats, tables
from pool.cli.chart import draw, draw_svg
from pool.cli.common import print_json, print_lines, query_pool
from pool.cli.options import Address, CommandArgument, CommandOption, Json
from pool.cli.selection import UsageProblem
from pool.cli.tables import Column
from pool.outside import OutsideWorld

if TYPE_CHECKING:
    from pool.client.dedicated import DedicatedPlan
    from pool.client.pool import Pool

#: Seconds in a day.
DAY = 86400.0

COLUMNS = (
    Column("Id", lambda one: str(one["id"])),
    Column("For", lambda one: str(one["user"] or f"group {one['group']}")),
    Column("Machines", lambda one: str(one["count"]), right=True),
    Column("From", lambda one: formats.moment(one["start"])),
    Column("Until", lambda one: formats.moment(one["start"] + one["duration"])),
    Column("Made by", lambda one: str(one["made_by"])),
)


def plan(
    svg: Annotated[Path | None, CommandOption("--svg", metavar="FILE", help="Write the chart to a file.")] = None,
    as_json: Json = False,
    address: Address = None,
) -> None:
    """Show a dedicated scheduler's machines over time: what runs, what is planned, what is reserved.

    The plan is what is expected if nothing else comes. `poolnode why JOB` says
    the same of one job, and how sure it is.

    \b
    Examples:
      poolnode plan                  the machines over time, in the terminal
      poolnode plan --svg plan.svg   the same as a picture
      poolnode plan --json | jq .starts
    """

    async def work(pool: Pool) -> DedicatedPlan:
        from pool.client.dedicated import dedicated_plan

        return await dedicated_plan(pool)

    made = query_pool(address, work)
    if as_json:
        whole: dict[str, Any] = {"scheduler": made.scheduler, "time": made.time, "machines": made.machines}
        whole |= {"accounts": made.accounts, "bars": made.bars, "starts": made.starts}
        whole |= {"reservations": made.reservations, "loans": made.loans}
        print_lines([json.dumps(whole)])
        return
    if svg is not None:
        try:
            svg.write_text(draw_svg(made), encoding="utf-8")
        except OSError as error:
            raise UsageProblem(f"plan: cannot write {svg}: {error.strerror}", hint="name another file") from error
        print_lines([f"the chart is in {svg}"])
        return
    print_lines(draw(made, tables.terminal_width() or 100))


def reserve(
    machines: Annotated[int | None, CommandArgument(metavar="MACHINES", help="How many.", show_default=False)] = None,
    start: Annotated[
        str | None, CommandOption("--from", metavar="TIME", help="14:00, '2026-11-24 14:00', or now. Default: now.")
    ] = None,
    duration: Annotated[str | None, CommandOption("--for", metavar="TIME", help="2h, 90 m, 1 d.")] = None,
    user: Annotated[str | None, CommandOption("--user", help="For this user (administrators).")] = None,
    group: Annotated[str | None, CommandOption("--group", help="For this accounting group (administrators).")] = None,
    requirements: Annotated[
        str | None, CommandOption("--requirements", metavar="EXPR", help="What each machine must fulfil.")
    ] = None,
    listed: Annotated[bool, CommandOption("--list", help="List reservations.")] = False,
    cancel: Annotated[str | None, CommandOption("--cancel", metavar="ID", help="Cancel a reservation.")] = None,
    as_json: Json = False,
    address: Address = None,
) -> None:
    """Reserve machines of the dedicated scheduler for a time, list reservations, or cancel one.

    At that time the machines are free: jobs there are saved, or were not started. Jobs use them with
    `reservation = r7` in their description. Users reserve within a quota,
    administrators without.

    \b
    Examples:
      poolnode reserve 16 --from 14:00 --for 2h
      poolnode reserve --list
      poolnode reserve --cancel r7
    """
    if cancel is not None:
        query_pool(address, lambda pool: _cancel(pool, cancel))
        print_lines([f"reservation {cancel} is cancelled"])
        return
    if listed or machines is None:
        if machines is not None or start or duration:
            raise UsageProblem("reserve: --list takes nothing else", hint="poolnode reserve --list")
        found = query_pool(address, _list)
        if as_json:
            print_json(found)
            return
        print_lines(tables.render(COLUMNS, found, tables.terminal_width()) if found else ["no reservations"])
        return
    if duration is None:
        raise UsageProblem("reserve: for how long?", hint=f"poolnode reserve {machines} --from 14:00 --for 2h")
    begins, seconds = moment(start or "now", OutsideWorld().wall()), span(duration)
    made = query_pool(
        address, lambda pool: _reserve(pool, machines, begins, seconds, user or "", group or "", requirements or "")
    )
    if as_json:
        print_json([made])
        return
    whom = made["user"] or f"group {made['group']}"
    until = formats.moment(made["start"] + made["duration"])
    print_lines(
        [
            f"reservation {made['id']}: {formats.amount(made['count'], 'machine')} for {whom} from "
            f"{formats.moment(made['start'])} until {until}",
            f"jobs use them with: reservation = {made['id']}",
        ]
    )


async def _reserve(
    pool: Pool, machines: int, start: float, duration: float, user: str, group: str, requirements: str
) -> dict[str, Any]:
    from pool.client.dedicated import reserve_machines

    return await reserve_machines(pool, machines, start, duration, user=user, group=group, requirements=requirements)


async def _list(pool: Pool) -> list[dict[str, Any]]:
    from pool.client.dedicated import reservations

    return await reservations(pool)


async def _cancel(pool: Pool, name: str) -> None:
    from pool.client.dedicated import cancel_reservation

    await cancel_reservation(pool, name)


def moment(text: str, now: float) -> float:
    """A time as people write it, in wall seconds: the next such time of day, a date with a time, or now.

    Raises:
        UsageProblem: it is none.
    """
    text = text.strip()
    if text.lower() == "now":
        return now
    for form in ("%H:%M", "%H:%M:%S"):
        try:
            of_day = datetime.datetime.strptime(text, form).time()
        except ValueError:
            continue
        found = datetime.datetime.combine(datetime.datetime.fromtimestamp(now).date(), of_day).timestamp()
        return found if found >= now - 60.0 else found + DAY
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        hint = "as in 14:00, '2026-11-24 14:00', or now"
        raise UsageProblem(f"reserve: '{text}' is no time", hint=hint) from None


def span(text: str) -> float:
    """A duration as people write it, in seconds.

    Raises:
        UsageProblem: it is none.
    """
    from pool.config.kinds import duration

    try:
        return duration(text)
    except ValueError:
        raise UsageProblem(f"reserve: '{text}' is no duration", hint="as in 2h, 90 m, 1 d") from None
