"""Writes the beginnings and the ends of a gang's parts together: a thousand nodes begin, and end, in one moment.

A write has everything that is known when it begins; the next one has everything that comes meanwhile. So there
are never more than two writes for a gang, however many parts it has, and each caller's part is durable when its call
returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pool.jobs.events import NODE_ENDED, EventKind
from pool.policy.gangs import BY_ITSELF
from pool.policy.queue import Wire
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.gang import RunningGang
from pool.roles.schedd.core.job_ends import BEGAN
from pool.roles.schedd.core.ledger import JobChange

#: The job's own note of parts that have ended: [part, report] each.
ENDED = "_parts"
#: The job's own note of the nodes whose beginning is in its event log: their numbers.
BEGUN = "_begun"
#: Seconds for which the beginnings of nodes are gathered for one event.
MOMENT = 0.1


class PartEvents:
    """Writes the beginnings and the ends of gangs' parts."""

    def __init__(self, context: ScheddContext) -> None:
        self._context = context

    async def node_started(self, gang: RunningGang) -> None:
        """A node has begun: durable when this returns. The others begin in the same moment, and are written with it."""
        if len(gang.begun) + len(gang.reports) < len(gang.parts):
            await asyncio.sleep(MOMENT)
        await self.write(gang)

    async def saved(self, gang: RunningGang, change: Callable[[], JobChange]) -> None:
        """A node's share of a checkpoint is known: the job's costs are durable when this returns. The other nodes'
        shares come in the same moment, and are written with it.

        Args:
            change: the change of the job, from all that is known when it is written.
        """
        if gang.costing is None:
            gang.costing = self._context.spawn(self._write_costs(gang, change), "costs", alone=True)
        await asyncio.shield(gang.costing)

    async def _write_costs(self, gang: RunningGang, change: Callable[[], JobChange]) -> None:
        await asyncio.sleep(MOMENT)
        async with gang.writing:
            gang.costing = None
            if not gang.finished:
                await self._context.ledger.commit(change())

    async def write(self, gang: RunningGang) -> None:
        """The present beginnings and ends of the gang's parts are durable when this returns."""
        if gang.pending is None:
            gang.pending = self._context.spawn(self._write(gang), "parts", alone=True)
        await asyncio.shield(gang.pending)

    async def _write(self, gang: RunningGang) -> None:
        async with gang.writing:
            gang.pending = None
            known = gang.recorded_begun == len(gang.begun) and gang.recorded_ended == len(gang.reports)
            if not gang.finished and not known:
                await self._context.ledger.commit(*self.steps(gang))

    def steps(self, gang: RunningGang) -> list[JobChange]:
        """The events of what has happened since the last steps, with the ends that the job keeps."""
        job, found = gang.job, list[JobChange]()
        ended = {ENDED: [list(one) for one in gang.reports] or None}
        fresh, gang.recorded_ended = gang.reports[gang.recorded_ended :], len(gang.reports)
        if gang.parallel:
            found += self._record_starts(gang)
            rows = [_row(*one) for one in fresh if _is_recorded(gang, one[1])]
            if rows:
                return [*found, JobChange(job, None, ended, EventKind.NODE_TERMINATED, {"nodes": rows})]
        return [*found, JobChange(job, None, ended)]

    def _record_starts(self, gang: RunningGang) -> list[JobChange]:
        job, found = gang.job, list[JobChange]()
        fresh = list(gang.begun.items())[gang.recorded_begun :]
        gang.recorded_begun = len(gang.begun)
        if fresh:
            rows = [[node, slot] for node, slot in sorted(fresh)]
            told = {BEGUN: sorted(gang.begun)}
            found.append(JobChange(job, None, told, EventKind.NODE_EXECUTE, {"nodes": rows}))
        all_begun = len(gang.begun) + sum(bool(one.get("taken_over")) for _, one in gang.reports) == len(gang.parts)
        if all_begun and job.get(BEGAN) is None:
            changes = {BEGAN: int(self._context.outside.wall())}
            found.append(JobChange(job, None, changes, EventKind.EXECUTE, {"slot": gang.begun[min(gang.begun)]}))
        return found


def _is_recorded(gang: RunningGang, report: Wire) -> bool:
    """Whether an event says that a node has ended: by itself, or killed because the job has."""
    if report.get("taken_over"):
        return False
    return report.get("cause") in BY_ITSELF or gang.is_over


def _row(node: int, report: Wire) -> list[Any]:
    return [node, *(report.get(name) for name in NODE_ENDED[1:])]
