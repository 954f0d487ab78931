"""Files with the state of a work flow at one moment, written again as it changes: NODE_STATUS_FILE and DOT."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from pool.policy.workflow import WorkflowEngine
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.workflows.written_files import WorkflowFiles

#: Seconds between two drawings of a graph that changes.
DRAWING = 1.0


class WorkflowPictures:
    """The pictures of one work flow.

    Args:
        held: of nodes' jobs, how many are held.
    """

    def __init__(
        self,
        workflow: int,
        owner: str,
        engine: WorkflowEngine,
        context: ScheddContext,
        files: WorkflowFiles,
        held: Callable[[], dict[int, int]],
    ) -> None:
        self._workflow = workflow
        self._owner = owner
        self._engine = engine
        self._context = context
        self._files = files
        self._held = held
        wanted = engine.plan.files
        seconds = wanted.get("seconds")
        self._seconds = max(1.0, float(seconds)) if isinstance(seconds, int) else 60.0
        self._always = wanted.get("always") is True
        dot = wanted.get("dot")
        self._draws = "always" if isinstance(dot, dict) and dot.get("update") is True else "once" if dot else ""
        self._written = {"status": -self._seconds, "dot": -DRAWING}
        self._planned: set[str] = set()

    def changed(self) -> None:
        """Have the files written: now, or when their time has come."""
        if self._engine.finished:
            return
        if "status" in self._engine.plan.files:
            self._plan("status", self._seconds, self._write_status)
        if self._draws:
            self._plan("dot", DRAWING, self._write_dot)
            self._draws = "" if self._draws == "once" else self._draws

    def _plan(self, name: str, seconds: float, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if name in self._planned:
            return
        self._planned.add(name)
        loop = asyncio.get_running_loop()
        wait = max(0.0, self._written[name] + seconds - loop.time())
        loop.call_later(wait, lambda: self._context.spawn(self._write(name, write), "work flow status", alone=True))

    async def _write(self, name: str, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._planned.discard(name)
        if not self._engine.finished:
            self._written[name] = asyncio.get_running_loop().time()
            await write()

    async def _write_status(self) -> None:
        following = int(self._context.outside.wall() + self._seconds)
        await self._files.write_status(self._owner, self._workflow, self._engine, following, self._held())
        if self._always:
            self.changed()

    async def _write_dot(self) -> None:
        await self._files.write_dot(self._owner, self._workflow, self._engine)

    async def write_last(self) -> None:
        """The state at the end."""
        await self._files.write_status(self._owner, self._workflow, self._engine, 0, self._held())
        if self._draws:
            await self._write_dot()
