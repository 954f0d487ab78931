"""Faults at an exact step: a node dies right before or right after it has served a certain call.

    pool.trap("startd.activate", Phase.BEFORE, victim="m1")

The trap springs once. BEFORE: the call arrived and nothing was done with it. AFTER: it was done, and the answer never
leaves. Caller or callee may be the victim; so each message of the protocol can be the last one a side ever saw.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pool.wire import Call, Dispatcher, Identity
from pool.wire.dispatch import RegisteredMethod


class TrapPhase(StrEnum):
    """When a trap springs: before the method runs, or after it and before its answer."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(slots=True)
class Trap:
    """One fault.

    Attributes:
        method: `role.verb` at which it springs.
        count: at which of its calls, counted from 1.
        spring: what happens then.
        sprung: whether it has.
    """

    method: str
    phase: TrapPhase
    spring: Callable[[], Coroutine[Any, Any, None]]
    count: int = 1
    sprung: bool = False


@dataclass(slots=True)
class Traps:
    """The traps of one pool, and every method that was called, for tests that want to know the steps there are."""

    waiting: list[Trap] = field(default_factory=list)
    called: dict[str, int] = field(default_factory=dict)

    def next_trap(self, method: str, phase: TrapPhase) -> Trap | None:
        """The trap that springs at this call, counting it."""
        for trap in self.waiting:
            if trap.method == method and trap.phase is phase and not trap.sprung:
                trap.count -= 1
                if trap.count <= 0:
                    trap.sprung = True
                    return trap
        return None


class TrappedDispatcher(Dispatcher):
    """A dispatcher whose calls pass the traps."""

    def __init__(self, traps: Traps) -> None:
        super().__init__()
        self.dead = False
        self._traps = traps
        #: By name, the method and the same with the traps around it.
        self._trapped: dict[str, tuple[RegisteredMethod, RegisteredMethod]] = {}

    def find(self, name: str, identity: Identity, params: object, *, streaming: bool) -> RegisteredMethod:
        """The method to run for this caller, with the traps around it."""
        entry = super().find(name, identity, params, streaming=streaming)
        if streaming:
            return entry
        known = self._trapped.get(name)
        if known is None or known[0] is not entry:
            known = self._trapped[name] = entry, self._with_traps(entry)
        return known[1]

    def _with_traps(self, entry: RegisteredMethod) -> RegisteredMethod:
        name, function = entry.name, entry.function
        traps = self._traps

        async def trapped(call: Call, given: dict[str, Any]) -> Any:
            traps.called[name] = traps.called.get(name, 0) + 1
            if not traps.waiting:
                return await function(call, given)
            before = traps.next_trap(name, TrapPhase.BEFORE)
            if before is not None:
                await self._trigger(before)
            result = await function(call, given)
            after = traps.next_trap(name, TrapPhase.AFTER)
            if after is not None:
                await self._trigger(after)
            return result

        return replace(entry, function=trapped)

    async def _trigger(self, trap: Trap) -> None:
        """Let it happen; a call whose own node died goes no further."""
        await asyncio.shield(asyncio.get_running_loop().create_task(trap.spring()))
        if self.dead:
            raise asyncio.CancelledError
