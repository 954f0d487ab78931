"""A queue on disk and the actions on its jobs, without the rest of a schedd."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from pool.classad import parse_expr
from pool.config import Settings
from pool.jobs.events import JobEvent
from pool.outside import OutsideWorld
from pool.policy.packed import unpack, unpack_over
from pool.policy.queue import JobQueue
from pool.roles.cooperative import WorkTurns
from pool.roles.schedd.core.ledger import Ledger
from pool.roles.schedd.submit.job_actions import JobActions
from pool.roles.schedd.submit.rules import Rules
from pool.store import Store


class Queue:
    """A ledger and its actions, and the events that were told."""

    def __init__(self, path: str) -> None:
        self.now = 1000.0
        outside = OutsideWorld(wall=lambda: self.now)
        self.queue = JobQueue(parse_expr("UserPrio"))
        self.store = Store.open(path, inline=True)
        self.ledger = Ledger(self.store, self.queue, outside, logging.getLogger("test"))
        self.told: list[JobEvent] = []
        self.ledger.listen(self._hear)
        nothing: Any = None
        rules = Rules.from_settings(Settings.load(None, sets={}, environ={}))
        self.acts = JobActions(
            self.ledger,
            nothing,
            outside,
            WorkTurns(),
            offer=lambda owner: None,
            changed=lambda owner, more: None,
            keep_checkpoint=nothing,
            waits_for_inputs=lambda job: job.cluster.id == 4 and self.now < 1003,
            rules=lambda: rules,
        )

    def _hear(self, events: Sequence[JobEvent]) -> None:
        self.told += events
        for event in events:
            if event.kind.ends:
                assert (event.cluster, event.proc) in self.ledger.gone

    async def act(self, action: str, which: dict[str, Any]) -> Any:
        self.now += 1
        also: dict[str, Any] = {"prio": {"value": 7}, "edit": {"edits": {"RequestMemory": "5"}}}
        return await self.acts.act({"action": action, **which, **also.get(action, {})}, "ann", "ann")

    async def told_of(self, kind: str) -> int:
        """For how many jobs there is an event of that kind, which are the first ones."""
        procs = [row.proc async for rows in self.store.events(1) for row in rows if row.kind == kind]
        assert procs == list(range(len(procs)))
        return len(procs)

    async def shown(self) -> list[Any]:
        """All that can be seen of it."""
        queue = self.queue
        jobs = {job.id: (job.status, sorted(job.wire().items(), key=str)) for job in queue.jobs()}
        places = {job.id: (job.group.signature, job.prio) for job in queue.jobs() if job.group is not None}
        groups = [(group.signature, group.idle, group.prios, list(group.order)) for group in queue.groups("ann")]
        history = [
            (*row[:6], sorted(unpack_over(row.ad, row.shared).items(), key=str))
            async for rows in self.store.history()
            for row in rows
        ]
        events = [(*row[:5], unpack(row.data)) async for rows in self.store.events() for row in rows]
        counts = {status: count for status, count in queue.counts.get("ann", {}).items() if count}
        return [jobs, counts, places, groups, history, events, self.told, await self.store.usage()]
