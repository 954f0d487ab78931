"""A job's network over two machines: links and relays that break are made again, strangers are refused."""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pool.jobs.activation import Activation, FileMode
from pool.network import rooms
from pool.network.rooms import CardsDiffer, JobNetworks, JobRoom, machines_of
from pool.network.sealed_link import KEYS
from pool.starter.network_meter import NetworkMeter
from pool.wire.errors import CallRefused
from tests.network.support import between, heard
from tests.starter.support import until

CARDS = [
    {"node": "one", "address": "one", "network": "private"},
    {"node": "two", "address": "two", "network": "private"},
]


def start(part: int) -> Activation:
    return Activation(
        *((1, 0), 1, "me", FileMode.SHARED, "/bin/true", None, ("true",), {}, "/"), gang="secret", part=part, parts=2
    )


class NoSetup:
    network_setup: tuple[str, ...] = ()


class Wires:
    """A keeper that hands out the near end of a datagram socket as its job's wire."""

    def __init__(self) -> None:
        self.starting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.far: socket.socket | None = None
        self.spec = NoSetup()
        self.pid = 0
        self.asked = 0
        self.fails = 0

    def wire(self, fd: int, /) -> None:
        self.asked += 1
        with socket.socket(fileno=os.dup(fd)) as answer:
            if self.asked <= self.fails:
                answer.send((13).to_bytes(4, "little"))
                return
            far, near = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            with near:
                near.setblocking(False)
                rights = array.array("i", [near.fileno()])
                answer.sendmsg([bytes(4)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        if self.far is not None:
            self.far.close()
        far.setblocking(False)
        self.far = far


class TwoMachines:
    """Two machines with one part each, and the connections between them."""

    def __init__(self, relay: Path) -> None:
        self.dialed: list[socket.socket] = []
        #: The machines that nobody can connect to.
        self.hidden: set[str] = set()
        self.refused = 0
        dials = {node: partial(self._dial, node) for node in ("one", "two")}
        self.networks = {node: JobNetworks(node, dial, secrets.token_hex, relay) for node, dial in dials.items()}
        self.keepers = [Wires(), Wires()]

    async def _dial(self, node: str, address: str, params: dict[str, Any]) -> socket.socket:
        if address in self.hidden:
            self.refused += 1
            raise OSError("no route")
        with socket.create_server(("127.0.0.1", 0)) as server:
            here = socket.create_connection(server.getsockname())
            there, _ = server.accept()
        self.networks[address].accept(params, node, there)
        self.dialed.append(here.dup())
        return here

    def room(self, part: int) -> JobRoom:
        room = self.networks[("one", "two")[part]].room_of(start(part))
        assert room is not None
        return room

    async def passes(self, one: int, other: int, data: bytes) -> None:
        """A packet comes from part to part; it is sent until it does, as TCP would."""
        async with asyncio.timeout(30):
            while True:
                source, target = self.keepers[one].far, self.keepers[other].far
                if source is not None and target is not None:
                    with contextlib.suppress(OSError):
                        source.send(between(one, other, data))
                    with contextlib.suppress(TimeoutError, OSError):
                        async with asyncio.timeout(0.1):
                            if await heard(target) == between(one, other, data):
                                return
                await asyncio.sleep(0.01)


@pytest.fixture
async def machines(relay: Path) -> AsyncIterator[TwoMachines]:
    made = TwoMachines(relay)
    for part, node in ((1, "two"), (0, "one")):
        made.networks[node].enter(start(part), CARDS, made.keepers[part])
    yield made
    for part, node in enumerate(("one", "two")):
        await made.networks[node].leave(start(part))
        assert made.networks[node].room_of(start(part)) is None
    for end in (*made.dialed, *(keeper.far for keeper in made.keepers)):
        if end is not None:
            end.close()


async def test_packets_pass_both_ways(machines: TwoMachines) -> None:
    await machines.passes(0, 1, b"there")
    await machines.passes(1, 0, b"back")
    assert len(machines.dialed) in (1, 2), "the other machine connects, too, where the first is slow"


async def test_the_connections_of_a_part_are_known_though_it_gave_its_wire_before_it_ran(machines: TwoMachines) -> None:
    """Else its last bytes would not be waited for."""
    await machines.passes(0, 1, b"there")
    keeper = machines.keepers[0]
    keeper.pid = os.getpid()
    keeper.starting.set_result(None)
    await until(lambda: 0 in machines.room(0)._tables)
    assert "rem_address" in machines.room(0)._tables[0].read()


async def test_a_link_that_breaks_is_made_again(machines: TwoMachines) -> None:
    for turn in range(3):
        await machines.passes(0, 1, b"%d" % turn)
        machines.dialed[-1].shutdown(socket.SHUT_RDWR)
    await machines.passes(1, 0, b"back")
    assert 4 <= len(machines.dialed) <= 8


@pytest.mark.parametrize("part", [0, 1])
async def test_a_relay_that_is_killed_is_started_again(machines: TwoMachines, part: int) -> None:
    await machines.passes(0, 1, b"before")
    os.kill(machines.room(part)._relay.pid, signal.SIGKILL)
    await machines.passes(0, 1, b"after")
    await machines.passes(1, 0, b"and back")


async def test_a_part_is_measured_also_after_its_relay_was_killed(machines: TwoMachines) -> None:
    meter = NetworkMeter(0)
    await machines.passes(0, 1, b"x" * 100)
    first = await meter.measure(machines.room(0))
    assert set(first.sent) == {1}
    assert first.sent[1] >= 100
    os.kill(machines.room(0)._relay.pid, signal.SIGKILL)
    await machines.passes(0, 1, b"y" * 10)
    then = await meter.measure(machines.room(0))
    assert then.sent[1] > first.sent[1]
    assert (then.to_outside, then.dropped, then.down) == (0, 0, {})


async def test_a_machine_that_is_out_of_reach_is_said(machines: TwoMachines) -> None:
    await machines.passes(0, 1, b"there")
    assert machines.room(0).down == machines.room(1).down == {}

    machines.hidden = {"one", "two"}
    machines.dialed[-1].shutdown(socket.SHUT_RDWR)
    await until(lambda: [set(machines.room(part).down) for part in range(2)] == [{"two"}, {"one"}])


@pytest.mark.parametrize("hidden", ["one", "two"])
async def test_one_direction_is_enough(machines: TwoMachines, monkeypatch: pytest.MonkeyPatch, hidden: str) -> None:
    """The machine that can reach the other one connects, at the start and after the link broke."""
    monkeypatch.setattr(rooms, "OTHER_WAY", 0.1)
    machines.hidden = {hidden}
    await machines.passes(0, 1, b"there")
    await machines.passes(1, 0, b"back")
    assert 1 <= len(machines.dialed) <= 3, "again only where a busy machine was late with the first"
    assert machines.refused or hidden == "one"
    machines.dialed[-1].shutdown(socket.SHUT_RDWR)
    await machines.passes(1, 0, b"again")
    assert machines.room(0).down == machines.room(1).down == {}


async def test_where_both_connect_the_link_of_the_lower_part_stays(
    machines: TwoMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "OTHER_WAY", 0.1)
    monkeypatch.setattr(rooms, "SELDOM", 60.0)
    machines.hidden, under_way, let_go = {"one", "two"}, asyncio.Event(), asyncio.Event()
    refused: list[str] = []

    async def late(address: str, params: dict[str, Any]) -> socket.socket:
        under_way.set()
        await let_go.wait()
        here, there = socket.socketpair()
        with here:
            try:
                machines.networks[address].accept(params, "two", there)
            except CallRefused as error:
                refused.append(error.message)
                raise
        raise AssertionError("it was accepted")

    machines.room(1)._dial = late
    async with asyncio.timeout(30):
        await under_way.wait()
    machines.hidden = set()
    await machines.passes(0, 1, b"over the link of the lower one")
    let_go.set()
    await until(lambda: refused == ["there is a link already"])
    await machines.passes(1, 0, b"back")
    assert len(machines.dialed) == 1


async def test_a_keeper_that_cannot_yet_is_asked_again(relay: Path) -> None:
    machines = TwoMachines(relay)
    machines.keepers[1].fails = 2
    machines.networks["two"].enter(start(1), CARDS, machines.keepers[1])
    machines.networks["one"].enter(start(0), CARDS, machines.keepers[0])
    await machines.passes(0, 1, b"at last")
    assert machines.keepers[1].asked == 3
    for part, node in enumerate(("one", "two")):
        await machines.networks[node].leave(start(part))


async def test_a_machine_without_a_part_gets_no_link(machines: TwoMachines) -> None:
    network = machines.networks["two"]
    key = {"gang": "secret", "run": 1, "key": secrets.token_bytes(KEYS)}
    for node, params in (
        ("three", key),
        ("two", key),
        ("one", key | {"gang": "another"}),
        ("one", key | {"run": 2}),
        ("one", key | {"key": b"short"}),
    ):
        here, there = socket.socketpair()
        with here, pytest.raises(CallRefused):
            network.accept(params, node, there)
        assert there.fileno() < 0


def test_all_parts_have_such_a_network_or_none() -> None:
    assert machines_of(CARDS) == {"one": [0], "two": [1]}
    assert machines_of([CARDS[0], None, CARDS[0]]) == {"one": [0, 2]}
    with pytest.raises(CardsDiffer, match="different networks"):
        machines_of([CARDS[0], {"node": "two", "address": "two"}])
