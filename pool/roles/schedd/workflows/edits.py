"""Edits of a work flow that runs. While one is made nothing new is begun, and it is one durable step."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from pool.errors import PoolError
from pool.policy.packed import pack
from pool.policy.queue import Wire
from pool.policy.workflow import NodeRun, NodeState, WorkflowEngine, WorkflowPlan
from pool.policy.workflow.edit import begin_anew, edit_plan
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.workflows.large import beside
from pool.roles.schedd.workflows.records import node_key, plan_key
from pool.store import Change, SetMeta


class WorkflowEdits:
    """The edits of one work flow.

    Args:
        wake: called when the work flow may go on.

    Attributes:
        under_way: how many edits are made or wait; nothing is begun meanwhile.
    """

    def __init__(
        self, workflow: int, engine: WorkflowEngine, context: ScheddContext, *, wake: Callable[[], None]
    ) -> None:
        self._workflow = workflow
        self._engine = engine
        self._context = context
        self._wake = wake
        self._lock = asyncio.Lock()
        self.under_way = 0

    @contextlib.asynccontextmanager
    async def _still(self) -> AsyncIterator[None]:
        self.under_way += 1
        try:
            async with self._lock:
                if self._engine.finished or self._engine.ending:
                    raise PoolError(f"work flow {self._workflow} is ending", hint="submit its file again")
                yield
        finally:
            self.under_way -= 1
            self._wake()

    async def edit(self, new: WorkflowPlan, *, keeps_begun: bool = False, dry: bool = False) -> Wire:
        """Go on with a changed plan; durable when this returns. Nothing is done where a part of it is refused.

        Args:
            keeps_begun: nodes that have begun stay as they are.
            dry: only tell the difference.

        Returns:
            The difference: see `PlanEdit.to_wire`.

        Raises:
            PoolError: the work flow is ending.
        """
        engine = self._engine
        async with self._still():
            edit = await beside(len(new.nodes), edit_plan, engine.plan, engine.runs, new, keeps_begun=keeps_begun)
            if not (edit.refused or dry or edit.is_empty):
                await self._adopt(edit.plan, edit.revived, changed=True)
        return edit.to_wire()

    async def retry(self, names: Sequence[str]) -> list[str]:
        """Do failed nodes again, all where none is named; returns their names.

        Raises:
            PoolError: one has not failed, or the work flow is ending.
        """
        engine = self._engine
        async with self._still():
            found = {
                engine.plan.nodes[at].name: at for at, run in enumerate(engine.runs) if run.state is NodeState.ERROR
            }
            if missing := [name for name in names if name not in found]:
                raise PoolError(f"node {missing[0][:80]} of work flow {self._workflow} has not failed")
            chosen = list(dict.fromkeys(names)) or list(found)
            if not chosen:
                raise PoolError(f"no node of work flow {self._workflow} has failed")
            revived = {found[name]: begin_anew(engine.runs[found[name]]) for name in chosen}
            await self._adopt(engine.plan, revived, changed=False)
        return chosen

    async def _adopt(self, plan: WorkflowPlan, revived: Mapping[int, NodeRun], *, changed: bool) -> None:
        engine = self._engine
        changes: list[Change] = [
            SetMeta(node_key(self._workflow, at), pack(run.to_wire())) for at, run in revived.items()
        ]
        if changed:
            packed = await beside(len(plan.nodes), lambda: pack(plan.to_wire()))
            changes.append(SetMeta(plan_key(self._workflow), packed))
        await self._context.ledger.write_changes(*changes)
        engine.now = self._context.outside.wall()
        for at, run in revived.items():
            engine.add_note(at, "RETRY", code=run.attempt)
        engine.adopt(plan, revived)
