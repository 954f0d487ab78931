"""The way out of one job network on a machine: a C process (pool/network/way_out), its rules and its report."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from subprocess import PIPE

from pool.network.passing import passed_socket

_REPORT = Struct("=6Q16sH6x")
_SET_RULES, _ASK, _FINISH = b"r", b"?", b"e"
#: Seconds for its start, and for an answer.
PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class OutsideTraffic:
    """The connections to the outside since the way out began.

    Attributes:
        open: connections and pairs of ports now. opened, datagrams: so far.
        refused: by the rules; last_refused is the latest such destination, ADDRESS:PORT or empty.
        failed: connections that the other side or the network refused.
        full: connections beyond the most at a time.
    """

    open: int = 0
    opened: int = 0
    refused: int = 0
    failed: int = 0
    full: int = 0
    datagrams: int = 0
    last_refused: str = ""


def unpack_report(data: bytes) -> OutsideTraffic:
    """The answer of the way out.

    Raises:
        ValueError: it is not one.
    """
    if len(data) != _REPORT.size:
        raise ValueError("cut off")
    now, opened, refused, failed, full, datagrams, address, port = _REPORT.unpack(data)
    last = ipaddress.IPv6Address(address)
    shown = f"[{last}]" if last.ipv4_mapped is None else str(last.ipv4_mapped)
    named = f"{shown}:{port}" if any(address) else ""
    return OutsideTraffic(now, opened, refused, failed, full, datagrams, named)


class WayOutProcess:
    """One way out, from `begin` to `close`.

    Attributes:
        wire, decider: for the relay, after `begin`; they stay this object's.
    """

    def __init__(self, program: Path) -> None:
        self._program = program
        self._process: asyncio.subprocess.Process | None = None
        self._orders: socket.socket | None = None
        self._asking = asyncio.Lock()
        self.wire: socket.socket | None = None
        self.decider: socket.socket | None = None

    @property
    def pid(self) -> int:
        """The process id; 0 before `begin`."""
        return self._process.pid if self._process is not None else 0

    async def begin(self, rules: bytes) -> None:
        """Start it with the packed rules of `pool.jobs.destinations`.

        Raises:
            OSError: it cannot be started, or says why it cannot work.
            TimeoutError: it does not answer.
        """
        kind = socket.AF_UNIX, socket.SOCK_SEQPACKET
        near, far = socket.socketpair(*kind)
        self.decider, deciding = socket.socketpair(*kind)
        self._orders = near
        for end in (near, self.decider):
            end.setblocking(False)
        with far, deciding:
            self._process = await asyncio.create_subprocess_exec(
                *(self._program, str(deciding.fileno())),
                stdin=far.fileno(),
                stderr=PIPE,
                pass_fds=(deciding.fileno(),),
                cwd="/",
                env={},
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(PATIENCE):
                self.wire = await passed_socket(near)
        except OSError as error:
            assert self._process.stderr is not None
            why = (await self._process.stderr.read(1000)).decode(errors="replace").strip()
            raise OSError(why or str(error)) from error
        near.send(_SET_RULES + rules)

    async def ended(self) -> int:
        """Wait for its end."""
        assert self._process is not None
        return await self._process.wait()

    async def finish(self) -> None:
        """Begin nothing more, and wait until all that it has is sent; it ends then.

        Raises:
            OSError: it has ended already.
        """
        if self._orders is not None:
            self._orders.send(_FINISH)
            await self.ended()

    async def report(self) -> OutsideTraffic:
        """The connections so far.

        Raises:
            OSError, ValueError, TimeoutError: it does not answer.
        """
        async with self._asking, asyncio.timeout(PATIENCE):
            if self._orders is None or self.wire is None:
                return OutsideTraffic()
            with contextlib.suppress(BlockingIOError):
                while self._orders.recv(1000):  # answers that came too late
                    pass
            self._orders.send(_ASK)
            return unpack_report(await asyncio.get_running_loop().sock_recv(self._orders, 1000))

    async def close(self) -> None:
        """End it."""
        for end in (self._orders, self.decider, self.wire):
            if end is not None:
                end.close()
        self._orders = self.decider = self.wire = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.communicate()  # its second process holds the pipe, too


async def why_no_way_out(program: Path) -> str:
    """Why this machine cannot give jobs a way out; empty where it can."""
    try:
        process = await asyncio.create_subprocess_exec(program, "--try", stderr=PIPE, cwd="/", env={})
    except OSError as error:
        return f"the program does not start ({(error.strerror or str(error)).lower()})"
    _, said = await process.communicate()
    if process.returncode == 0:
        return ""
    return said.decode(errors="replace").strip().removeprefix("way_out: ")[:200].lower() or "the program has ended"
