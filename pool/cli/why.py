"""`why`: what keeps a job from running, or a machine from being used (D8)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from pool.cli import tables
from pool.cli.common import print_error, print_json, print_lines, query_pool
from pool.cli.options import Address, CommandArgument, Json
from pool.cli.selection import UsageProblem, one_job
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.client.pool import Pool
    from pool.client.why import Explanation

_JOB = re.compile(r"[0-9]+(\.[0-9]*)?")


def why(
    what: Annotated[
        list[str],
        CommandArgument(metavar="JOB|MACHINE", help="A job (12.3), a slot, or a machine.", show_default=False),
    ],
    as_json: Json = False,
    address: Address = None,
) -> int:
    """Say why a job waits, or why a machine runs nothing.

    For a job: its state and the number of machines. Then its conditions, how many machines each rules out, and the
    values of these machines. Then the machines that refuse it, and by which clause; the users of those that match; the
    order of users, the limits that are reached, and the last negotiation's answer. At the end, what would help.

    For a machine: its owner's policy at this moment and the reasons, what would make its job leave, and what the pool's
    idle jobs ask for.

    \b
    Examples:
      poolnode why 12.3
      poolnode why 12                   the first waiting job of cluster 12
      poolnode why donder               every slot of a machine
      poolnode why slot1@donder
      poolnode why 12.3 --json | jq -r .standing
    """
    if not what:
        raise UsageProblem("why: no job and no machine", hint="for example `poolnode why 12.3`")

    async def question(pool: Pool) -> tuple[list[Explanation], list[PoolError]]:
        found: list[Explanation] = []
        unknown: list[PoolError] = []
        for word in what:
            try:
                if _JOB.fullmatch(word):
                    found.append(await pool.why(await _job(pool, one_job(word))))
                else:
                    found += await pool.why_machine(word)
            except PoolError as error:
                unknown.append(error)
        return found, unknown

    explanations, unknown = query_pool(address, question)
    if as_json:
        print_json(explanation.to_json() for explanation in explanations)
    else:
        width = tables.terminal_width()
        for number, explanation in enumerate(explanations):
            print_lines([*([""] if number else []), *explanation.lines(width)])
    for error in unknown:
        print_error(f"poolnode: {error}")
    return 1 if unknown else 0


async def _job(pool: Pool, wanted: tuple[int, ...]) -> tuple[int, int]:
    """The job meant by an id; of a cluster the first one that waits, else the first there is."""
    if len(wanted) == 2:
        return wanted[0], wanted[1]
    jobs = await pool.find([wanted], ["ClusterId", "ProcId", "JobStatus"])
    waiting = [ad for ad in jobs if ad.get("JobStatus") == 1] or jobs
    return (wanted[0], int(waiting[0]["ProcId"])) if waiting else (wanted[0], 0)
