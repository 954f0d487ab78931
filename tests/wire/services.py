"""Helpers for the tests of the wire: a service with one method of each kind, and how to wait for something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pool.errors import PoolError
from pool.wire import Call, Dispatcher, Right, Service, Stream, method, streaming


class Sour(PoolError):
    """Something a method raises."""


class Echo(Service):
    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.callers: list[Any] = []
        self.ended: list[str] = []
        self.gate = asyncio.Event()
        self.running = 0

    @method(Right.READ)
    async def say(self, call: Call, params: dict[str, Any]) -> Any:
        self.callers.append(call.identity)
        return params

    @method(None)
    async def ping(self, call: Call, params: dict[str, Any]) -> str:
        return "pong"

    @method(Right.READ)
    async def left(self, call: Call, params: dict[str, Any]) -> float | None:
        return None if call.deadline is None else call.deadline - asyncio.get_running_loop().time()

    @method(Right.READ)
    async def sour(self, call: Call, params: dict[str, Any]) -> None:
        raise Sour("it is sour", hint="add sugar", retry=True)

    @method(Right.READ)
    async def broken(self, call: Call, params: dict[str, Any]) -> None:
        raise KeyError("secret")

    @method(Right.NEGOTIATE)
    async def match(self, call: Call, params: dict[str, Any]) -> None: ...

    @method(Right.READ)
    async def big(self, call: Call, params: dict[str, Any]) -> bytes:
        return b"x" * int(params["size"])

    @method(Right.READ)
    async def odd(self, call: Call, params: dict[str, Any]) -> Any:
        return {1, 2}

    @method(Right.READ)
    async def hear(self, call: Call, params: dict[str, Any]) -> None:
        self.heard.append(params["n"])

    @method(Right.READ)
    async def slow(self, call: Call, params: dict[str, Any]) -> str:
        self.running += 1
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        self.ended.append("slow")
        return "done"

    @method(Right.READ, cancellable=True)
    async def patient(self, call: Call, params: dict[str, Any]) -> None:
        self.running += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.ended.append("patient cancelled")
            raise
        finally:
            self.running -= 1

    @method(Right.READ)
    async def back(self, call: Call, params: dict[str, Any]) -> Any:
        return await call.connection.call("echo.say", {"hello": "caller"})

    @streaming(Right.READ)
    async def count(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        try:
            for number in range(params["n"]):
                await stream.send([number, b"x" * params.get("size", 0)])
                self.heard.append(number)
            if params.get("sour"):
                raise Sour("half-way")
        except asyncio.CancelledError:
            self.ended.append("count cancelled")
            raise

    @streaming(Right.READ)
    async def total(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        total = 0
        async for item in stream:
            total += len(item)
        await stream.send(total)

    @streaming(Right.READ)
    async def hang(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        try:
            await self.gate.wait()
        finally:
            self.ended.append("hang")


def serving() -> tuple[Echo, Dispatcher]:
    echo, dispatcher = Echo(), Dispatcher()
    dispatcher.add("echo", echo)
    return echo, dispatcher


async def soon(condition: Callable[[], bool]) -> None:
    """Lets the loop turn until the condition holds."""
    end = asyncio.get_running_loop().time() + 5
    while not condition():
        assert asyncio.get_running_loop().time() < end, "it did not come about"
        await asyncio.sleep(0.001)
