"""Jobs with a way out without a node: real keepers, the real relay and way out, and servers on loopback."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pool.jobs.activation import Activation, FileMode
from pool.jobs.destinations import HOST_ADDRESS, pack_rules, parse_destinations
from pool.jobs.network import setup_of
from pool.network.rooms import JobNetworks, JobRoom
from pool.network.way_out_process import OutsideTraffic
from pool.starter.keeper import Keeper, NativeKeepers
from tests.starter.support import PYTHON, soon, spec, until

#: The machine's loopback, as a job sees it.
HOST = HOST_ADDRESS


class Rules:
    """A machine's way out with fixed rules.

    Attributes:
        program: of the way out.
    """

    def __init__(
        self,
        program: Path,
        setting: str,
        *,
        denied: Sequence[tuple[str, int]] = (),
        found: Mapping[str, Sequence[str]] | None = None,
        resolver: str = "",
    ) -> None:
        self.program = program
        self.destinations = parse_destinations(setting)
        self.rules = pack_rules(self.destinations, found or {}, resolver, denied)

    async def rules_for(self, nodes: Sequence[str], hosts: str, /) -> bytes:
        return self.rules


def activation() -> Activation:
    return Activation(*((1, 0), 1, "me", FileMode.SHARED, "/bin/true", None, ("true",), {}, "/"))


async def _no_dial(address: str, params: dict[str, Any]) -> socket.socket:
    raise OSError("a job of one part has no links")


class Machine:
    """A machine whose jobs have a way out.

    Args:
        keepers: its keepers.
    """

    def __init__(self, keepers: NativeKeepers, relay: Path, rules: Rules) -> None:
        self.keepers = keepers
        self.rules = rules
        self.networks = JobNetworks("here", _no_dial, secrets.token_hex, relay, rules)

    async def start(self, scratch: Path, text: str, *arguments: object, **more: Any) -> Job:
        """Start a Python program with a way out; what it prints is in `out` and `err` of `scratch`."""
        hosts = ("192.0.2.253 host.poolnode.internal",)
        given = {"network": "private", "network_setup": tuple(setup_of(0, ("here",), hosts, "# none\n")), **more}
        rooms: list[JobRoom] = []

        def asked(keeper: Keeper) -> None:
            rooms.append(self.networks.enter_alone(activation(), keeper))

        wanted = spec(scratch, PYTHON, "-c", text, *map(str, arguments), **given)
        keeper = await soon(self.keepers.start(wanted, asked=asked))
        return Job(keeper, rooms[0], scratch)

    async def close(self) -> None:
        """Wait until nothing is left of the jobs' networks."""
        await soon(asyncio.gather(*(task for _, task in self.networks._alone.values())))


class Job:
    """A running job with a way out."""

    def __init__(self, keeper: Keeper, room: JobRoom, scratch: Path) -> None:
        self.keeper = keeper
        self.room = room
        self.scratch = scratch

    @property
    def way_out(self) -> int:
        """The process of its way out; 0 for none at this moment."""
        return self.room._way_out.pid if self.room._way_out is not None else 0

    @property
    def relay(self) -> int:
        """The process of its relay."""
        return self.room._relay.pid

    def said(self) -> str:
        """The job's output so far."""
        return (self.scratch / "out").read_text()

    async def says(self, text: str) -> None:
        """Wait until the job has printed something."""
        await until(lambda: text in self.said() or self.keeper.ended.done())
        assert text in self.said(), (self.said(), (self.scratch / "err").read_text())

    async def report(self) -> OutsideTraffic:
        """The connections so far."""
        found = await self.room.outside()
        assert found is not None
        return found

    async def seen(self, enough: Callable[[OutsideTraffic], bool]) -> OutsideTraffic:
        """The connections, as soon as they are so."""
        while True:
            found = await soon(self.report())
            if enough(found):
                return found

    async def end(self) -> str:
        """Wait for its end without an error; what it has printed."""
        end = await soon(self.keeper.ended)
        assert end.code == 0, (end, self.said(), (self.scratch / "err").read_text())
        await self.keeper.forget()
        return self.said()

    async def kill(self) -> None:
        """End it."""
        await self.keeper.kill()
        await soon(self.keeper.ended)
        await self.keeper.forget()
