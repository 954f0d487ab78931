"""From `role.verb` to the method that serves it, and the one place where rights are checked.

    class Echo(Service):
        @method(Right.READ)
        async def say(self, call, params): return params["text"]

    dispatcher.add("echo", Echo())      # now `echo.say` is served on every connection of this dispatcher

A method that declares no right does not exist. The right None is for everybody, strangers included.
Transport, deadlines and errors' way back are the connection's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pool.errors import PoolError
from pool.metering import Meter
from pool.wire.errors import CallRefused, Cancelled, DeadlineExceeded, NoSuchMethod, NoSuchRole, NotPermitted
from pool.wire.identity import Identity, Right
from pool.wire.parameter_checks import Takes, check

if TYPE_CHECKING:
    from pool.wire.connection import Connection

log = logging.getLogger("pool.wire")

MARK = "__pool_method__"
NOTHING_SAID: Takes = {}
LATE = "its deadline has passed"
STOPPED = "its role was stopped"
Method = TypeVar("Method", bound=Callable[..., Awaitable[Any]])


@dataclass(frozen=True, slots=True)
class Declared:
    """The declaration of a method.

    Attributes:
        right: what the caller needs; None is open to strangers.
        streaming: it has a stream.
        cancellable: it is cancelled when nobody waits for it any more: given up, past its deadline,
        connection gone.
        takes: what its parameters look like, as far as it says.
    """

    right: Right | None
    streaming: bool
    cancellable: bool
    takes: Takes


@dataclass(slots=True)
class Call:
    """The caller of a method, as the method sees it.

    Attributes:
        identity: who calls.
        connection: the way back; the method may call on it, and keep it.
        deadline: in the loop's time, None when the caller waits without end.
    """

    identity: Identity
    connection: Connection
    deadline: float | None = None


class Service:
    """Something with methods; subclass it and declare them."""


def method(
    right: Right | None, *, cancellable: bool = False, takes: Takes = NOTHING_SAID
) -> Callable[[Method], Method]:
    """Declares `async def verb(self, call, params) -> result`.

    A method runs to its end even when its caller is gone, so that what it changes is changed whole; its
    answer is then dropped. One that only waits and changes nothing is declared `cancellable`.
    """

    def declare(function: Method) -> Method:
        setattr(function, MARK, Declared(right, False, cancellable, takes))
        return function

    return declare


def streaming(right: Right | None, *, takes: Takes = NOTHING_SAID) -> Callable[[Method], Method]:
    """Declares `async def verb(self, call, params, stream) -> None`.

    It is cancelled when the stream is given up or the connection is gone. The stream ends when it returns.
    """

    def declare(function: Method) -> Method:
        setattr(function, MARK, Declared(right, True, True, takes))
        return function

    return declare


async def outcome(entry: RegisteredMethod, call: Call, *args: Any) -> tuple[Any, BaseException | None]:
    """Runs a method: its result, or what it raised. A defect is logged here, with its trace."""
    try:
        if entry.meter is not None:
            return await entry.meter.measured(entry.function(call, *args)), None
        return await entry.function(call, *args), None
    except PoolError as error:
        return None, error
    except asyncio.CancelledError as error:
        if error.args == (LATE,):
            return None, DeadlineExceeded(f"{entry.name} took longer than the caller would wait")
        if error.args == (STOPPED,):
            return None, NoSuchRole(f"{entry.name} is served no more", hint="it may be starting again", retry=True)
        return None, Cancelled(f"{entry.name} was given up", retry=True)
    except Exception as error:
        log.error("a method failed", exc_info=error, extra={"method": entry.name, "caller": str(call.identity)})
        return None, error


@dataclass(frozen=True, slots=True)
class RegisteredMethod:
    """A method that can be called."""

    name: str
    function: Callable[..., Coroutine[Any, Any, Any]]
    declared: Declared
    running: set[asyncio.Task[Any]]  # those of the service that can be cancelled
    meter: Meter | None = None

    def watch(self, task: asyncio.Task[Any], seconds: float | None) -> None:
        """Have this run cancelled after so many seconds, or when the service is removed."""
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        if seconds is not None:
            timer = task.get_loop().call_later(seconds, task.cancel, LATE)
            task.add_done_callback(lambda _: timer.cancel())


def cancel_soon(task: asyncio.Task[Any], why: str | None = None) -> None:
    """Cancel a task, but not before its first step, which takes care of how it ends."""
    task.get_loop().call_soon(task.cancel, why)


class Dispatcher:
    """The methods of a node. One for all its connections."""

    def __init__(self) -> None:
        self._methods: dict[str, RegisteredMethod] = {}
        self._services: dict[str, list[Service]] = {}

    def add(self, name: str, service: Service, meter_of: Callable[[str], Meter | None] = lambda verb: None) -> None:
        """Serve the methods of `service` as `name.verb`. Several services may share a name.

        Args:
            meter_of: counts the processor time of the method of that verb.

        Raises:
            ValueError: a method of that name is served already.
        """
        running: set[asyncio.Task[Any]] = set()
        found: dict[str, RegisteredMethod] = {}
        for verb in dir(type(service)):
            declared = getattr(getattr(type(service), verb, None), MARK, None)
            if isinstance(declared, Declared):
                full = f"{name}.{verb}"
                found[full] = RegisteredMethod(full, getattr(service, verb), declared, running, meter_of(verb))
        twice = found.keys() & self._methods.keys()
        if twice:
            raise ValueError(f"{', '.join(sorted(twice))} is served already")
        self._methods.update(found)
        self._services.setdefault(name, []).append(service)

    def remove(self, name: str) -> None:
        """Serve `name` no more. Its streams end; calls under way are answered."""
        self._services.pop(name, None)
        for full in [full for full in self._methods if full.rpartition(".")[0] == name]:
            for task in list(self._methods.pop(full).running):
                cancel_soon(task, STOPPED)

    def find(self, name: str, identity: Identity, params: object, *, streaming: bool) -> RegisteredMethod:
        """The method to run for this caller.

        Raises:
            CallRefused: there is none, the caller may not, or it is called in the wrong way.
        """
        entry = self._methods.get(name)
        if entry is None:
            raise self._missing(name, identity)
        right = entry.declared.right
        if right is not None and right not in identity.rights:
            raise NotPermitted(
                f"{identity} may not call {name}: it needs the right to {right}",
                hint=_who_may(identity, right),
            )
        if entry.declared.streaming is not streaming:
            raise CallRefused(f"{name} is {'a stream' if entry.declared.streaming else 'no stream'}")
        if type(params) is not dict:
            raise CallRefused(f"the parameters of {name} are not a map")
        if entry.declared.takes:
            check(name, entry.declared.takes, params)
        return entry

    def _missing(self, name: str, identity: Identity) -> CallRefused:
        role = name.rpartition(".")[0]
        if identity.kind == "anonymous":
            return NotPermitted(f"strangers may not call {name}", hint="ask the pool's administrator for a token")
        if role not in self._services:
            hint = "it may be starting, or run on another node"
            return NoSuchRole(f"no {role or name} runs here", hint=hint, retry=True)
        return NoSuchMethod(f"there is no method {name}", hint="the other node may be of another version")


def _who_may(identity: Identity, right: Right) -> str:
    """The way out for a caller without a right."""
    if identity.kind == "anonymous":
        return "ask the pool's administrator for a token"
    if right in (Right.ADMINISTER, Right.MAINTAIN):
        return "root and the node's user may, on its machine; from elsewhere a user with an administrator's token"
    return ""
