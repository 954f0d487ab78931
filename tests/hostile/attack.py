"""Calls each method so often by each caller, and finds what was given, changed or broken by it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from pool.errors import PoolError
from pool.wire import Connection, Dispatcher, RemoteError
from pool.wire.dispatch import RegisteredMethod
from pool.wire.errors import NotPermitted
from pool.wire.identity import ANONYMOUS
from tests.hostile.drawing import Drawing

#: Callers that may do these may end the node; that is their purpose.
ENDING = {"node.stop", "node.die"}
#: Calls after which what they have queued is removed.
TIDY_AFTER = 200
#: Items that are listened to in one stream.
HEARD = 200


class Target(Protocol):
    """Nodes that are attacked.

    Attributes:
        callers: the names of those who attack.
        silence: seconds after which a stream that says nothing is given up.
        together: calls that are under way at a time.
    """

    callers: tuple[str, ...]
    silence: float
    together: int

    def dispatchers(self) -> Mapping[str, Dispatcher]:
        """The nodes' methods."""

    async def link(self, caller: str, node: str) -> Connection:
        """A connection of a caller to a node."""

    async def ready(self, caller: str) -> dict[str, Any]:
        """See to it that a caller holds what is his; what is to be said in place of what was recorded as such."""

    async def tidy(self) -> None:
        """Remove the jobs that attackers have queued meanwhile: a long queue would only take time."""

    def secrets(self) -> Collection[str]:
        """Texts that no caller may see."""

    def state(self) -> dict[str, Any]:
        """The state that must stay as it is, by what it is."""

    def broken(self) -> list[str]:
        """The calls that do not work any more, and the defects that nodes logged."""


class Attack:
    """One run.

    Attributes:
        wrong: what went wrong, in words. made: the number of calls. answered: those that were not refused.
    """

    def __init__(self, target: Target, drawing: Drawing) -> None:
        self.target = target
        self.drawing = drawing
        self.wrong: list[str] = []
        self.made = self.answered = self._tidied = 0
        self._links: dict[tuple[str, str], Connection] = {}

    async def run(self, calls: int, only: str = "") -> None:
        """Each method of each node, by each caller."""
        for node, dispatcher in self.target.dispatchers().items():
            for name, entry in sorted(dispatcher._methods.items()):
                if only not in name:
                    continue
                self._strangers_may_not(dispatcher, name, entry)
                for caller in self.target.callers:
                    await self._one_method(caller, node, name, entry, calls)
        for link in self._links.values():
            await link.close()
        self.wrong += self.target.broken()

    def _strangers_may_not(self, dispatcher: Dispatcher, name: str, entry: RegisteredMethod) -> None:
        if entry.declared.right is None:
            return
        with contextlib.suppress(NotPermitted):
            dispatcher.find(name, ANONYMOUS, {}, streaming=entry.declared.streaming)
            self.wrong.append(f"a stranger may call {name}")

    async def _one_method(self, caller: str, node: str, name: str, entry: RegisteredMethod, calls: int) -> None:
        before, left = self.target.state(), iter(range(calls))

        async def some() -> None:
            for _ in left:
                await self._call(caller, node, name, entry)

        await asyncio.gather(*(some() for _ in range(min(self.target.together, calls))))
        after = self.target.state()
        if self.made - self._tidied >= TIDY_AFTER:
            self._tidied = self.made
            await self.target.tidy()
        for what in before.keys() | after.keys():
            if before.get(what) != after.get(what):
                change = f"{before.get(what)!r:.300} became {after.get(what)!r:.300}"
                self.wrong.append(f"{caller} with {name} at {node} changed {what}: {change}")

    async def _call(self, caller: str, node: str, name: str, entry: RegisteredMethod) -> None:
        params = replaced(self.drawing.params(name, entry.declared.takes), await self.target.ready(caller))
        given: list[Any] = []
        self.made += 1
        try:
            link = self._links.get((caller, node))
            if link is None or link.closed.done():
                link = self._links[caller, node] = await self.target.link(caller, node)
            if entry.declared.streaming:
                await self._listen(link, name, params, given)
            elif name not in ENDING:
                given.append(await link.call(name, params, timeout=5))
            self.answered += 1
        except RemoteError as error:
            given.append(f"{error} {error.hint}")
            if error.kind == "InternalError":
                self.wrong.append(f"{caller}: {name}({params!r:.1000}): {error}")
        except (PoolError, ValueError, TypeError, OverflowError):
            pass  # it cannot travel, or nobody waits so long
        if given:
            text, said = repr(given), repr(params)
            self.wrong += [
                f"{name} told {caller} {one!r}: {params!r:.300} -> {text:.300}"
                for one in self.target.secrets()
                if one in text and one not in said
            ]

    async def _listen(self, link: Connection, name: str, params: dict[str, Any], given: list[Any]) -> None:
        """Say something in a stream, and hear what comes until it falls silent."""
        stream = await link.stream(name, params)
        try:
            async with asyncio.timeout(self.target.silence):
                for _ in range(self.drawing.chance.randrange(4)):
                    await stream.send(self.drawing.item(name))
                if self.drawing.chance.random() < 0.3:
                    await stream.finish()
                async for item in stream:
                    given.append(item)
                    if len(given) > HEARD:
                        break
        except TimeoutError:
            pass
        finally:
            stream.abort()


def replaced(value: Any, by: Mapping[str, Any]) -> Any:
    """The same with other values, at any depth; lists are found by what they look like."""
    if not by:
        return value
    if isinstance(value, dict):
        return {name: replaced(one, by) for name, one in value.items()}
    if isinstance(value, list):
        return by[str(value)] if str(value) in by else [replaced(one, by) for one in value]
    return by.get(value, value) if isinstance(value, str) else value
