"""The relay of one job network: a C process, and the orders to it (pool/network/relay/relay.h has their layouts)."""

from __future__ import annotations

import array
import asyncio
import contextlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from struct import Struct

from pool.errors import PoolError
from pool.network.traffic import Traffic, unpack_traffic

_ORDER = Struct("=II")
#: Seconds for an answer.
PATIENCE = 5.0
#: Exit codes of `relay check`: it cannot seal; and, by the shell's custom, it cannot be started.
SEALS_NOT, NO_LIBRARY = 2, 127
#: The version of its orders and records: relay.h has the same.
VERSION = "3"
#: The name of the relay that needs no library.
STATIC = "relay_static"


class OrderVerb(IntEnum):
    """The kinds of orders."""

    BEGIN = 1
    ADD_WIRE = 2
    ADD_LINK = 3
    REPORT = 4
    HOLD = 5
    ADD_OUT = 6
    ADD_DECIDER = 7
    ADD_SEALED = 8
    ADD_SPLICE = 9


@dataclass(frozen=True, slots=True)
class RelayProgram:
    """The relay of this machine.

    Attributes:
        seals: whether it seals links to other machines itself.
    """

    path: Path
    seals: bool


class RelayDiffers(PoolError):
    """The relay of this installation is of another version than the node."""


async def usable_relay(program: Path) -> RelayProgram:
    """The relay that runs here: it seals links where it finds a library for that. Where it does not even start, for
    want of a C library, there is one beside it that needs none.

    Raises:
        RelayDiffers: it obeys other orders than this node gives.
    """
    code, said = await _check(program)
    static = program.with_name(STATIC)
    if code not in (0, SEALS_NOT) and static.exists():
        program = static
        code, said = await _check(static)
    if code in (0, SEALS_NOT) and said != VERSION:
        raise RelayDiffers(
            f"the relay {program} has version {said or 'none'}, and this node needs {VERSION}",
            hint="install the package again, or run `python -m pool.checkpoint.build`, and restart the node",
        )
    return RelayProgram(program, code == 0)


async def relay_trouble(program: Path) -> str:
    """Why this installation's relay cannot be used, in one line; empty where it can."""
    try:
        await usable_relay(program)
    except RelayDiffers as error:
        return f"{error.message}: {error.hint}"
    return ""


async def _check(program: Path) -> tuple[int, str]:
    """The exit code of `relay check`, and the version that it says."""
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(program, "check", stdin=null, stdout=pipe, cwd="/", env={})
        async with asyncio.timeout(PATIENCE):
            assert process.stdout is not None
            said = await process.stdout.read(100)
            return await process.wait(), said.decode(errors="replace").strip()
    except (OSError, TimeoutError):
        return NO_LIBRARY, ""


class RelayFinder:
    """Finds the relay that runs on this machine, once.

    Args:
        program: the relay of this installation.
    """

    def __init__(self, program: Path) -> None:
        self._program = program
        self._usable: asyncio.Task[RelayProgram] | None = None

    async def __call__(self) -> RelayProgram:
        """For the raised see `usable_relay`."""
        if self._usable is None:
            self._usable = asyncio.get_running_loop().create_task(usable_relay(self._program))
        return await asyncio.shield(self._usable)


class RelayProcess:
    """One relay, from `begin` to `close`. Orders to one that has died do nothing; `ended` tells."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self._orders: socket.socket | None = None
        self._asking = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The process id of the relay; 0 before `begin`."""
        return self._process.pid if self._process is not None else 0

    async def begin(self, parts: int) -> None:
        """Start it for a network of so many parts.

        Raises:
            OSError: it cannot be started.
        """
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with far:
                self._process = await asyncio.create_subprocess_exec(
                    self._program, stdin=far.fileno(), cwd="/", env={}, start_new_session=True
                )
        except BaseException:
            near.close()
            raise
        near.setblocking(False)
        self._orders = near
        self._send(OrderVerb.BEGIN, [parts])

    async def ended(self) -> int:
        """Wait for its end."""
        assert self._process is not None
        return await self._process.wait()

    def add_wire(self, part: int, wire: socket.socket) -> None:
        """Carry the packets of a part here from now on; the caller's socket stays the caller's."""
        self._send(OrderVerb.ADD_WIRE, [part], wire)

    def add_link(self, parts: Sequence[int], stream: socket.socket, *, large: bool) -> None:
        """Carry packets to and from these parts over a stream; the caller's socket stays the caller's.

        Args:
            large: whether the machine behind it takes large packets whole.
        """
        self._send(OrderVerb.ADD_LINK, [int(large), *parts], stream)

    def add_sealed_link(
        self, parts: Sequence[int], peer: socket.socket, keys: bytes, leash: socket.socket, *, large: bool
    ) -> None:
        """Carry packets to and from these parts over a connection to another machine, sealed; the caller's sockets stay
        the caller's.

        Args:
            keys: to send with, and to receive with.
            leash: closed when the link ends.
            large: as of `add_link`.
        """
        numbers = array.array("I", keys).tolist()
        self._send(OrderVerb.ADD_SEALED, [*numbers, int(large), *parts], peer, leash)

    def add_splice(self, one: socket.socket, other: socket.socket, leash: socket.socket) -> None:
        """Carry the bytes of two connections to each other; the caller's sockets stay the caller's.

        Args:
            leash: closed when either of them ends.
        """
        self._send(OrderVerb.ADD_SPLICE, [], one, other, leash)

    def add_way_out(self, wire: socket.socket, decider: socket.socket) -> None:
        """Carry packets for the outside to a way out; the caller's sockets stay the caller's."""
        self._send(OrderVerb.ADD_OUT, [], wire)
        self._send(OrderVerb.ADD_DECIDER, [], decider)

    def hold(self, on: bool) -> None:
        """Let every packet wait, or carry them again; the next `traffic` answers when that is so."""
        self._send(OrderVerb.HOLD, [int(on)])

    async def traffic(self) -> Traffic:
        """The packets so far.

        Raises:
            OSError, ValueError, TimeoutError: it does not answer.
        """
        async with self._asking, asyncio.timeout(PATIENCE):
            if self._orders is None:
                return Traffic({})
            with contextlib.suppress(BlockingIOError):
                while self._orders.recv(1 << 20):  # answers that came too late
                    pass
            self._send(OrderVerb.REPORT, [])
            return unpack_traffic(await asyncio.get_running_loop().sock_recv(self._orders, 1 << 20))

    async def close(self) -> None:
        """End it."""
        if self._orders is not None:
            self._orders.close()
            self._orders = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def _send(self, verb: OrderVerb, numbers: Sequence[int], *passed: socket.socket) -> None:
        if self._orders is None:
            return
        message = _ORDER.pack(verb, len(numbers)) + array.array("I", numbers).tobytes()
        fds = array.array("i", [one.fileno() for one in passed])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if fds else []
        with contextlib.suppress(OSError):  # it has died; a new one is told again
            self._orders.sendmsg([message], rights)
