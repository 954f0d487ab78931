"""The desktop session's idle hint: what logind says of the sessions at this machine's seats, over the system bus.

Asked once, and again when logind says that something changed; nothing polls, and whoever wants to know gets
what is known at that moment. Where there is no bus, no logind, or no desktop that gives hints, nothing is
known, and terminals and input devices have to do. A lost bus is looked for again, ever more rarely.

A session's word counts like this. Only graphical ones at a seat have hints of their own (a text terminal's would be its
access time, which is read anyway). A session that never gave a hint since it began has a desktop that gives none, and
says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

from pool.machine import dbus
from pool.machine.dbus import MalformedMessage, Message

BUS = "/run/dbus/system_bus_socket"
_BUS_NAME, _LOGIND = "org.freedesktop.DBus", "org.freedesktop.login1"
_SESSION = f"{_LOGIND}.Session"
_RULES = (
    f"type='signal',sender='{_LOGIND}',interface='org.freedesktop.DBus.Properties',member='PropertiesChanged'",
    f"type='signal',sender='{_LOGIND}',interface='{_LOGIND}.Manager',member='SessionNew'",
    f"type='signal',sender='{_LOGIND}',interface='{_LOGIND}.Manager',member='SessionRemoved'",
)
_TELLING = frozenset({"PropertiesChanged", "SessionNew", "SessionRemoved"})
_GRAPHICAL = frozenset({"x11", "wayland", "mir"})
MICRO = 1e-6
#: Seconds: for an answer; between two rounds of questions; before a bus is looked for again, at first and at most.
ANSWER, ROUND, FIRST, LATER = 10.0, 1.0, 5.0, 300.0


def idle_since(sessions: Iterable[Mapping[str, Any]]) -> float | None:
    """When the desktop was last used, in monotonic seconds; infinity while it is, None when nobody says.

    Args:
        sessions: the properties of each session, as logind names them.
    """
    youngest: float | None = None
    for session in sessions:
        seat = session.get("Seat")
        at_a_seat = isinstance(seat, (tuple, list)) and bool(seat) and bool(seat[0])
        if not at_a_seat or session.get("Type") not in _GRAPHICAL or session.get("State") == "closing":
            continue
        stamp = session.get("IdleSinceHintMonotonic")
        if not isinstance(stamp, int) or not stamp:
            continue
        since = stamp * MICRO if session.get("IdleHint") else float("inf")
        youngest = since if youngest is None else max(youngest, since)
    return youngest


class SessionIdle:
    """Keeps what logind says.

    Args:
        bus: the path of the system bus's socket.
    """

    def __init__(self, bus: str = BUS) -> None:
        self._bus = bus
        self._task: asyncio.Task[None] | None = None
        self._since: float | None = None
        #: Set whenever an answer has come in or the bus was lost.
        self.reported = asyncio.Event()

    async def start(self) -> None:
        """Begin to ask; returns at once."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="logind")

    async def stop(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def idle(self, now: float) -> float | None:
        """Seconds for which the desktop has not been used, as far as is known; None when it is not."""
        return None if self._since is None else max(0.0, now - self._since)

    async def _run(self) -> None:
        pause = FIRST
        while True:
            link = _BusLink()
            try:
                await link.open(self._bus)
                pause = FIRST
                await self._follow(link)
            except (OSError, EOFError, TimeoutError, MalformedMessage, BusError):
                pass
            finally:
                await link.close()
                self._set_since(None)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LATER)

    async def _follow(self, link: _BusLink) -> None:
        for rule in _RULES:
            await link.call_method(_BUS_NAME, "/org/freedesktop/DBus", _BUS_NAME, "AddMatch", "s", rule)
        while True:
            link.changed.clear()
            self._set_since(idle_since(await _sessions(link)))
            await link.wait_for_change()
            await asyncio.sleep(ROUND)

    def _set_since(self, since: float | None) -> None:
        self._since = since
        self.reported.set()


class BusError(Exception):
    """The bus, or the one asked, answered with an error."""


async def _sessions(link: _BusLink) -> list[dict[str, Any]]:
    listed = await link.call_method(_LOGIND, "/org/freedesktop/login1", f"{_LOGIND}.Manager", "ListSessions")
    found: list[dict[str, Any]] = []
    for entry in listed[0] if listed else ():
        # One that has ended meanwhile answers with an error.
        with contextlib.suppress(BusError):
            answer = await link.call_method(
                _LOGIND, str(entry[-1]), "org.freedesktop.DBus.Properties", "GetAll", "s", _SESSION
            )
            if answer and isinstance(answer[0], dict):
                found.append(answer[0])
    return found


class _BusLink:
    """A connection to the bus: questions and answers by number, and that something changed."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._serial = 0
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._listener: asyncio.Task[None] | None = None

    async def open(self, path: str) -> None:
        """Connect, say who we are (the kernel vouches for it), and take a name."""
        async with asyncio.timeout(ANSWER):
            reader, self._writer = await asyncio.open_unix_connection(path)
            who = str(os.geteuid()).encode().hex().encode()
            self._writer.write(b"\0AUTH EXTERNAL " + who + b"\r\n")
            if not (await reader.readline()).startswith(b"OK "):
                raise BusError("the bus does not let us in")
            self._writer.write(b"BEGIN\r\n")
        self._listener = asyncio.get_running_loop().create_task(self._listen(reader), name="system bus")
        await self.call_method(_BUS_NAME, "/org/freedesktop/DBus", _BUS_NAME, "Hello")

    async def call_method(
        self, who: str, path: str, interface: str, member: str, signature: str = "", *body: Any
    ) -> tuple[Any, ...]:
        """One question; the values of the answer.

        Raises:
            BusError: an error came back.
        """
        assert self._writer is not None
        self._serial += 1
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[self._serial] = answer
        self._writer.write(dbus.encode(dbus.call(self._serial, who, path, interface, member, signature, *body)))
        try:
            async with asyncio.timeout(ANSWER):
                message = await answer
        finally:
            self._waiting.pop(self._serial, None)
        if message.kind == dbus.ERROR:
            raise BusError(str(message.fields.get(dbus.ERROR_NAME)))
        return message.body

    async def wait_for_change(self) -> None:
        """Until logind says that something changed.

        Raises:
            EOFError: the bus is gone.
        """
        assert self._listener is not None
        change = asyncio.ensure_future(self.changed.wait())
        try:
            await asyncio.wait({change, self._listener}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()
        if self._listener.done():
            raise EOFError

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                fixed = await reader.readexactly(dbus.FIXED)
                message = dbus.decode(fixed + await reader.readexactly(dbus.length(fixed) - dbus.FIXED))
                if message.kind == dbus.SIGNAL:
                    if message.member in _TELLING:
                        self.changed.set()
                    continue
                answer = self._waiting.get(int(message.fields.get(dbus.REPLY_SERIAL, 0)))
                if answer is not None and not answer.done():
                    answer.set_result(message)
        except (OSError, EOFError, MalformedMessage) as error:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(EOFError(str(error)))

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()
