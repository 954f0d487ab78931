"""`checkpoints`: those that `rm --checkpoint` has kept, listed and deleted."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from pool.cli import formats, tables
from pool.cli.common import print_error, print_json, print_lines, query_pool
from pool.cli.formats import WireAd
from pool.cli.options import Address, CommandArgument, CommandOption, Json
from pool.cli.selection import UsageProblem, one_job
from pool.cli.tables import Column
from pool.outside import OutsideWorld

if TYPE_CHECKING:
    from pool.client.checkpoints import Deleted, KeptCheckpoint
    from pool.client.pool import Pool


def _attribute_text(name: str) -> Any:
    return lambda one: str(one.get(name) or formats.NOTHING)


COLUMNS = (
    Column("Job", _attribute_text("job")),
    Column("Owner", _attribute_text("owner")),
    Column("MB", lambda one: f"{one['size'] / 1e6:,.1f}", right=True),
    Column("Age", lambda one: formats.duration(one["age"]), right=True),
    Column("Machine", _attribute_text("machine")),
    Column("Kernel", _attribute_text("kernel"), wide=True),
    Column("Processor", lambda one: "any" if one["own"] else str(one["processor"] or one["arch"] or formats.NOTHING)),
    Column("Program", lambda one: os.path.basename(one["command"]) or formats.NOTHING),
)


def checkpoints(
    jobs: Annotated[
        list[str] | None,
        CommandArgument(metavar="JOB", help="Only those of removed jobs (12.3) or clusters (12).", show_default=False),
    ] = None,
    delete: Annotated[bool, CommandOption("--delete", help="Delete them.")] = False,
    as_json: Json = False,
    address: Address = None,
) -> int:
    """List the checkpoints that `rm --checkpoint` has kept; a job with start_from_checkpoint = JOB begins with one.

    The column Processor shows the processor features of the machine that made the checkpoint. A job can start from it
    on machines that have all of these, with any kernel that can save jobs. An administrator sees everybody's.

    \b
    Examples:
      poolnode checkpoints
      poolnode checkpoints --json
      poolnode checkpoints --delete 12.0 13
    """
    if delete and not jobs:
        raise UsageProblem("checkpoints: delete which", hint="name jobs: poolnode checkpoints --delete 12.0 13")
    wanted = [".".join(map(str, one_job(word))) for word in jobs or ()]

    def chosen(found: list[KeptCheckpoint]) -> list[KeptCheckpoint]:
        return [one for one in found if not wanted or one.job in wanted or one.job.partition(".")[0] in wanted]

    async def question(pool: Pool) -> tuple[list[KeptCheckpoint], Deleted | None]:
        from pool.client.checkpoints import delete_checkpoints, kept_checkpoints

        found = chosen(await kept_checkpoints(pool))
        return found, await delete_checkpoints(pool, [one.job for one in found]) if delete else None

    found, deleted = query_pool(address, question)
    clusters = {one.job.partition(".")[0] for one in found}
    missing = [word for word in wanted if word not in clusters and all(one.job != word for one in found)]
    if deleted is not None:
        _print_deleted(deleted, as_json)
    elif as_json:
        print_json(asdict(one) for one in found)
    elif found or not missing:
        print_lines(_lines(found, tables.terminal_width()))
    for word in missing:
        print_error(f"poolnode: no checkpoint of {word} is kept")
    return 1 if missing or (deleted is not None and deleted.refused) else 0


def _lines(found: list[KeptCheckpoint], width: int | None) -> list[str]:
    now = OutsideWorld().wall()
    rows: list[WireAd] = [asdict(one) | {"age": max(now - one.created, 0.0)} for one in found]
    total = sum(one.size for one in found) / 1e6
    lines = tables.render(tables.choose(COLUMNS, width), rows, width) if rows else []
    return [*lines, *([""] if rows else []), f"{formats.amount(len(rows), 'checkpoint')}, {total:,.1f} MB"]


def _print_deleted(deleted: Deleted, as_json: bool) -> None:
    if as_json:
        print_json([{"done": list(deleted.done), "refused": [list(pair) for pair in deleted.refused]}])
    else:
        print_lines([f"{formats.amount(len(deleted.done), 'checkpoint')} deleted"])
    for job, why in deleted.refused:
        print_error(f"poolnode: {job}: {why}")
