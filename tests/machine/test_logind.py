"""The desktop's idle hint: what sessions' words mean, a bus that behaves, one that does not, and the real one."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pool.machine import dbus, logind
from pool.machine.dbus import REPLY_SERIAL, SIGNATURE, Message
from pool.machine.logind import SessionIdle, idle_since

NEVER = float("inf")


def session(hint: bool = False, stamp: int = 5_000_000, **others: Any) -> dict[str, Any]:
    return {
        "Seat": ("seat0", "/org/freedesktop/login1/seat/seat0"),
        "Type": "wayland",
        "State": "active",
        "IdleHint": hint,
        "IdleSinceHintMonotonic": stamp,
        **others,
    }


@pytest.mark.parametrize(
    ("sessions", "since"),
    [
        ([], None),
        ([session(True)], 5.0),
        ([session(False)], NEVER),
        ([session(True), session(True, 9_000_000)], 9.0),
        ([session(True), session(False)], NEVER),
        # A desktop that never gave a hint gives none.
        ([session(False, 0)], None),
        ([session(True), session(False, 0)], 5.0),
        # Not at this machine, not graphical, ending, or nonsense.
        ([session(False, Seat=("", "/"))], None),
        ([session(False, Type="tty")], None),
        ([session(False, State="closing")], None),
        ([{}, {"Seat": None}, session(IdleSinceHintMonotonic="x")], None),
    ],
)
def test_what_sessions_say(sessions: list[dict[str, Any]], since: float | None) -> None:
    assert idle_since(sessions) == since


class FakeBus:
    """A system bus with a logind on it.

    Attributes:
        sessions: their properties, by number; a test changes them and calls `change`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sessions: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.answer: Callable[[Message], bytes | None] = lambda message: None
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    def change(self, member: str = "PropertiesChanged") -> None:
        signal = Message(dbus.SIGNAL, 99, {dbus.PATH: "/x", dbus.INTERFACE: "a.b", dbus.MEMBER: member})
        for writer in self._writers:
            writer.write(dbus.encode(signal))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(EOFError, OSError):
            assert (await reader.readline()).startswith(b"\0AUTH EXTERNAL 3")
            writer.write(b"OK 1234\r\n")
            assert await reader.readline() == b"BEGIN\r\n"
            while True:
                fixed = await reader.readexactly(dbus.FIXED)
                message = dbus.decode(fixed + await reader.readexactly(dbus.length(fixed) - dbus.FIXED))
                self.calls.append(message.member)
                writer.write(self.answer(message) or self._reply(message))

    def _reply(self, message: Message) -> bytes:
        fields: dict[int, Any] = {REPLY_SERIAL: message.serial}
        body: tuple[Any, ...] = ()
        if message.member == "ListSessions":
            fields[SIGNATURE] = "a(susso)"
            body = ([(number, 1000, "ada", "seat0", f"/s/{number}") for number in self.sessions],)
        if message.member == "GetAll":
            found = self.sessions[str(message.fields[dbus.PATH]).removeprefix("/s/")]
            if not found:
                gone = {REPLY_SERIAL: message.serial, dbus.ERROR_NAME: "org.freedesktop.DBus.Error.UnknownObject"}
                return dbus.encode(Message(dbus.ERROR, 1, gone))
            kinds = {"Seat": "(so)", "IdleHint": "b", "IdleSinceHintMonotonic": "t"}
            fields[SIGNATURE] = "a{sv}"
            body = ({name: (kinds.get(name, "s"), value) for name, value in found.items()},)
        return dbus.encode(Message(dbus.RETURN, 1, fields, body))


@pytest.fixture
async def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeBus]:
    monkeypatch.setattr(logind, "ROUND", 0.01)
    monkeypatch.setattr(logind, "FIRST", 0.01)
    bus = FakeBus(tmp_path / "bus")
    await bus.open()
    yield bus
    await bus.close()


@contextlib.asynccontextmanager
async def asking(path: Path) -> AsyncIterator[SessionIdle]:
    idle = SessionIdle(str(path))
    await idle.start()
    try:
        yield idle
    finally:
        await idle.stop()


async def until(idle: SessionIdle, now: float, value: float | None) -> None:
    async with asyncio.timeout(5):
        while idle.idle(now) != value:
            idle.reported.clear()
            if idle.idle(now) != value:
                await idle.reported.wait()


async def test_the_hint_is_known_and_followed(bus: FakeBus) -> None:
    bus.sessions = {"1": session(True), "2": {}}
    async with asking(bus.path) as idle:
        assert idle.idle(8.0) is None
        await until(idle, 8.0, 3.0)
        assert idle.idle(10.0) == 5.0
        bus.sessions["1"] = session(False, 9_000_000)
        bus.change()
        await until(idle, 10.0, 0.0)
        bus.sessions.clear()
        bus.change("SessionRemoved")
        await until(idle, 10.0, None)


async def test_nothing_is_asked_between_changes(bus: FakeBus) -> None:
    bus.sessions = {"1": session(True)}
    async with asking(bus.path) as idle:
        await until(idle, 5.0, 0.0)
        asked = list(bus.calls)
        assert asked == ["Hello", "AddMatch", "AddMatch", "AddMatch", "ListSessions", "GetAll"]
        bus.change("SomethingElse")
        for _ in range(100):
            await asyncio.sleep(0)
        assert bus.calls == asked


async def test_many_changes_are_one_round_of_questions(bus: FakeBus) -> None:
    bus.sessions = {"1": session(True)}
    async with asking(bus.path) as idle:
        await until(idle, 5.0, 0.0)
        idle.reported.clear()
        for _ in range(500):
            bus.change()
        async with asyncio.timeout(5):
            await idle.reported.wait()
        assert bus.calls.count("ListSessions") <= 3


async def test_a_bus_that_goes_is_looked_for_again(bus: FakeBus) -> None:
    bus.sessions = {"1": session(True)}
    async with asking(bus.path) as idle:
        await until(idle, 5.0, 0.0)
        await bus.close()
        await until(idle, 5.0, None)
        bus.path.unlink(missing_ok=True)
        await bus.open()
        await until(idle, 5.0, 0.0)


@pytest.mark.parametrize("answer", [b"\x00" * 200, b"l\x02\x00\x01" + b"\xff" * 12, dbus.encode(Message(9, 1))])
async def test_a_bus_that_talks_nonsense_is_no_bus(
    bus: FakeBus, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logind, "ANSWER", 0.05)
    bus.answer = lambda message: answer
    async with asking(bus.path) as idle:
        for _ in range(2):
            idle.reported.clear()
            async with asyncio.timeout(5):
                await idle.reported.wait()
            assert idle.idle(5.0) is None


async def test_a_machine_without_a_bus(tmp_path: Path) -> None:
    async with asking(tmp_path / "none") as idle:
        async with asyncio.timeout(5):
            await idle.reported.wait()
        assert idle.idle(5.0) is None


CONFIGURATION = """<busconfig><type>custom</type><listen>unix:path={}</listen><auth>EXTERNAL</auth>
<policy context='default'><allow send_destination='*' eavesdrop='true'/><allow eavesdrop='true'/>
<allow own='*'/></policy></busconfig>"""


async def test_a_real_bus_without_logind(tmp_path: Path) -> None:
    """dbus-daemon itself reads what we write, and answers that there is no logind."""
    daemon = shutil.which("dbus-daemon")
    if daemon is None:
        pytest.skip("needs dbus-daemon")
    (tmp_path / "bus.conf").write_text(CONFIGURATION.format(tmp_path / "real"))
    options = (f"--config-file={tmp_path}/bus.conf", "--nofork", "--print-address")
    process = await asyncio.create_subprocess_exec(daemon, *options, stdout=PIPE, stderr=DEVNULL)
    link = logind._BusLink()
    try:
        assert process.stdout is not None
        assert b"unix:path" in await process.stdout.readline()
        await link.open(f"{tmp_path}/real")
        listed = await link.call_method(
            "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "ListNames"
        )
        assert "org.freedesktop.DBus" in listed[0]
        with pytest.raises(logind.BusError, match="ServiceUnknown"):
            await logind._sessions(link)
    finally:
        await link.close()
        process.terminate()
        await process.wait()
