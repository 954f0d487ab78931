"""The logs that tools follow while a work flow runs: `FILE.dagman.out`, and the job state log of JOBSTATE_LOG.

Lines about a step are in the files before the next step of the node begins. After a restart of the schedd both files
are read again: what is missing is added, and nothing is written twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pool.errors import PoolError
from pool.outside import OutsideWorld
from pool.policy.workflow import NodeNote, NodeState, WorkflowEngine
from pool.policy.workflow.logs import (
    RECOVERY,
    OldLines,
    dagman_lines,
    first_lines,
    internal_event,
    job_tag,
    jobstate_event,
    last_line,
    progress_lines,
    stamp,
)
from pool.roles.schedd.workflows.large import beside
from pool.shadow.files import UserFiles

#: Seconds between two tables of nodes by state.
TABLE = 5.0
#: Seconds between two additions to the files: many nodes that begin and end at once are told of in one.
TOGETHER = 0.01
#: Told before the step is durable: it may be told, and begun, once more after a restart.
_BEFORE = ("PRE_SCRIPT_STARTED", "POST_SCRIPT_STARTED", "SUBMITTING")
#: States of nodes about which there is more to tell.
_GOES_ON = (NodeState.PRERUN, NodeState.SUBMITTED, NodeState.POSTRUN, NodeState.READY)


class WorkflowLogs:
    """The logs of one work flow.

    Args:
        files: of its owner.
        stem: the path before `.dagman.out`.
        jobstate: the path of the job state log; empty for none.
    """

    def __init__(
        self,
        workflow: int,
        engine: WorkflowEngine,
        files: UserFiles,
        outside: OutsideWorld,
        log: logging.Logger,
        stem: str,
        jobstate: str,
    ) -> None:
        self._workflow = workflow
        self._engine = engine
        self._files = files
        self._outside = outside
        self._log = log
        self._out = f"{stem}.dagman.out"
        self._jobstate = jobstate
        self._notes: list[NodeNote] = []
        self._again: list[NodeNote] = []
        self._resumed = self._is_open = self._broken = False
        self._lock = asyncio.Lock()
        self._next = 1
        self._old: OldLines | None = None
        self._sequence: dict[int, tuple[int, int]] = {}
        self._tags: dict[int, str] = {}
        self._known: dict[str, list[int]] = {}
        self._table_at = -TABLE
        self._written_at = -TOGETHER

    def resumed(self) -> None:
        """All that was noted so far happened, or may have, before this run of the schedd."""
        self._resumed = True
        self._again = self._engine.take_notes()

    async def flush(self, *, end: int | None = None) -> None:
        """Write all that is noted. What another call is writing is written, too, when this returns.

        Args:
            end: the exit code, where the work flow has ended.
        """
        if self._is_open and not self._engine.notes and end is None and not self._lock.locked():
            return
        async with self._lock:
            if self._is_open and not self._engine.notes and end is None:
                return
            loop = asyncio.get_running_loop()
            if end is None and (wait := self._written_at + TOGETHER - loop.time()) > 0:
                await asyncio.sleep(wait)
            self._written_at = loop.time()
            notes = self._engine.take_notes()
            out: list[str] = []
            states: list[str] = []
            if not self._is_open:
                self._is_open = True
                await self._begin(out, states)
            for note in notes:
                self._add(note, out, states, self._old if note.event in _BEFORE else None)
            now = self._outside.wall()
            if end is not None or self._table_at + TABLE <= loop.time():
                self._table_at = loop.time()
                table = await beside(len(self._engine.runs), progress_lines, self._engine)
                out += [f"{stamp(now)} {line}" for line in table]
            if end is not None:
                out.append(f"{stamp(now)} {last_line(self._workflow, end)}")
                states.append(f"{int(now)} {internal_event(f'DAGMAN_FINISHED {end}')}")
            await self._append(self._out, out)
            if self._jobstate:
                await self._append(self._jobstate, states)

    def _add(self, note: NodeNote, out: list[str], states: list[str], old: OldLines | None = None) -> None:
        node = self._engine.plan.nodes[note.node]
        for line in dagman_lines(note, node.name, node.retries):
            if old is None or not old.has_out(node.name, note.attempt, line):
                out.append(f"{stamp(note.time)} {line}")
        if self._jobstate:
            said = jobstate_event(note, node.name, self._tag(note.node), self._number(note))
            if said is not None and (old is None or not old.has_state(said)):
                states.append(f"{int(note.time)} {said}")

    def _number(self, note: NodeNote) -> int:
        """The number of a node's attempt in the job state log, from its first line on."""
        known = self._sequence.get(note.node)
        if known is not None and known[0] == note.attempt:
            return known[1]
        before = self._known.pop(self._engine.plan.nodes[note.node].name, [])
        number = before[note.attempt] if len(before) > note.attempt else self._next
        self._next = max(self._next, number + 1)
        self._sequence[note.node] = note.attempt, number
        return number

    def _tag(self, at: int) -> str:
        plan = self._engine.plan
        jobs = plan.nodes[at].jobs
        if not jobs:
            return "-"
        template = plan.templates[jobs[0].template]
        if jobs[0].template not in self._tags:
            self._tags[jobs[0].template] = job_tag(template.ad)
        own = template.deltas[jobs[0].first] if template.deltas is not None else None
        return job_tag(template.ad | own) if own else self._tags[jobs[0].template]

    # -- beginnings --------------------------------------------------------------------------------------------------

    async def _begin(self, out: list[str], states: list[str]) -> None:
        now, plan = self._outside.wall(), self._engine.plan
        names = {plan.nodes[note.node].name for note in self._again}
        names |= {plan.nodes[at].name for at, run in enumerate(self._engine.runs) if run.state in _GOES_ON}
        old = OldLines(self._workflow, names, rescued=plan.rescue > 0)
        if self._resumed:
            await self._read(self._out, old.add_out)
        if self._jobstate and (self._resumed or plan.rescue):
            await self._read(self._jobstate, old.add_state)
        self._next, self._known = old.highest + 1, old.numbers
        out += [f"{stamp(now)} {line}" for line in first_lines(plan, self._workflow)]
        states.append(f"{int(now)} {internal_event(f'DAGMAN_STARTED {self._workflow}.0')}")
        if old.begun:
            out += [f"{stamp(now)} {line}" for line in RECOVERY]
        if old.logged:
            states.append(f"{int(now)} {internal_event('RECOVERY_STARTED')}")
        for note in self._again:
            self._add(note, out, states, old)
        if old.logged:
            states.append(f"{int(now)} {internal_event('RECOVERY_FINISHED')}")
        self._again = []
        self._old = old if old.begun or old.logged else None

    async def _read(self, path: str, add: Callable[[str], None]) -> None:
        rest = b""
        try:
            async for piece in self._files.read(path):
                *whole, rest = (rest + piece).split(b"\n")
                for raw in whole:
                    add(raw.decode(errors="surrogateescape"))
                await asyncio.sleep(0)
            if rest:  # a line that was cut short
                await self._files.append(path, b"\n")
        except PoolError:
            return

    async def _append(self, path: str, lines: list[str]) -> None:
        if not lines:
            return
        data = "\n".join(lines) + "\n"
        try:
            await self._files.append(path, data.encode(errors="surrogateescape"))
            self._broken = False
        except PoolError as error:
            if not self._broken:
                self._log.warning("a work flow's log cannot be written", extra={"file": path, "why": str(error)})
            self._broken = True
