"""The way out decides which packets may leave: rules, guarded addresses, answers; no packet confuses it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from pool.checkpoint.build import WAY_OUT_SOURCES, CannotBuild
from pool.jobs.destinations import pack_rules, parse_destinations
from pool.jobs.network import address4, address6
from pool.network import way_out_program
from pool.network.traffic import Traffic
from pool.network.way_out_process import WayOutProcess, why_no_way_out
from tests.conftest import Built
from tests.network.support import HARDWARE, VNET, bench, between, frame, heard, silent

LOOPBACK = "192.0.2.253"


@pytest.fixture(scope="session")
def way_out(built: Built) -> Path:
    """The way out of these sources, with a stop at the first error in memory where the machine has sanitizers."""
    try:
        return built("sanitized_way_out", sanitize=True, sources=WAY_OUT_SOURCES)
    except CannotBuild:
        return built("way_out", sources=WAY_OUT_SOURCES)


@contextlib.asynccontextmanager
async def running(program: Path, setting: str, denied: Sequence[tuple[str, int]] = ()) -> AsyncIterator[WayOutProcess]:
    if why := await why_no_way_out(way_out_program()):
        pytest.skip(f"needs network namespaces ({why})")
    way = WayOutProcess(program)
    try:
        await way.begin(pack_rules(parse_destinations(setting), {}, "", denied))
        yield way
    finally:
        await way.close()


def first(to: str, port: int, *, flags: int = 2) -> bytes:
    """A packet of TCP from part 0; its checksum is left to the device."""
    tcp = struct.pack(">HHIIBBHHH", 1234, port, 7, 0, 5 << 4, flags, 65535, 0, 0)
    return with_body(to, 6, tcp)


def with_body(to: str, protocol: int, body: bytes) -> bytes:
    made = bytearray(frame((address6 if ":" in to else address4)(0), to, body))
    head = 10 + 14 + (40 if ":" in to else 20)
    del made[head : head + 8]  # the header of UDP
    made[10 + 14 + (6 if ":" in to else 9)] = protocol
    if ":" in to:
        made[28:30] = struct.pack(">H", len(body))
    else:
        made[26:28] = struct.pack(">H", 20 + len(body))
    return bytes(made)


def kind(answer: bytes) -> tuple[int, int, int]:
    """Protocol, and type and code of ICMP or the flags of TCP."""
    four = answer[24] >> 4 == 4
    body = answer[24 + (20 if four else 40) :]
    protocol = answer[24 + (9 if four else 6)]
    return (protocol, 0, body[13]) if protocol == 6 else (protocol, body[0], body[1])


#: For a program each is "no route to host".
REFUSED4, REFUSED6 = (1, 3, 13), (58, 1, 3)


@pytest.mark.parametrize(
    ("to", "port"),
    [
        ("192.0.2.1", 81),
        ("198.51.100.1", 80),
        ("127.0.0.1", 80),
        ("169.254.169.254", 80),
        ("0.0.0.0", 80),
        ("224.0.0.1", 80),
        (address4(5), 80),
        (LOOPBACK, 80),
        ("::1", 80),
        ("::ffff:127.0.0.1", 80),
        ("fe80::1", 80),
        ("ff02::1", 80),
        (address6(5), 80),
        ("2001:db8::1", 81),
        ("198.51.100.9", 9618),
    ],
)
async def test_addresses_that_no_rule_allows_or_that_are_guarded(way_out: Path, to: str, port: int) -> None:
    """The rule allows every address on port 80, but for what is the machine's own."""
    denied = [("198.51.100.1", 80), ("", 9618)]
    async with running(way_out, "*:80 *:9618", denied) as way:
        assert way.decider is not None
        way.decider.send(first(to, port))
        if to.startswith("::ffff"):
            way.decider.send(first("127.0.0.1", 80))  # the first one is of no kind that passes
        assert kind(await heard(way.decider)) in (REFUSED4, REFUSED6)
        seen = await way.report()
        assert (seen.refused, seen.opened, seen.failed) == (1, 0, 0)
        shown = "127.0.0.1" if to.startswith("::ffff") else f"[{to}]" if ":" in to else to
        assert seen.last_refused == f"{shown}:{port}"


async def test_a_port_that_nobody_listens_on_refuses_as_it_would_without_a_way_out(way_out: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    async with running(way_out, f"localhost:{port}") as way:
        assert way.decider is not None
        way.decider.send(first(LOOPBACK, port))
        answer = await heard(way.decider)
        assert kind(answer) == (6, 0, 0x14)  # RST and ACK
        assert answer[24 + 12 : 24 + 20] == socket.inet_aton(LOOPBACK) + socket.inet_aton(address4(0))
        assert struct.unpack_from(">I", answer, 24 + 20 + 8) == (8,)
        assert (await way.report()).failed == 1


async def test_datagrams_go_out_and_answers_come_back(way_out: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.setblocking(False)
        port = server.getsockname()[1]
        async with running(way_out, f"localhost:{port}") as way:
            assert way.decider is not None
            sent = bytearray(frame(address4(0), LOOPBACK, b"question"))
            sent[24 + 22 : 24 + 24] = struct.pack(">H", port)
            way.decider.send(bytes(sent))
            data, source = await asyncio.get_running_loop().sock_recvfrom(server, 100)
            assert data == b"question"
            server.sendto(b"answer", source)
            answer = await heard(way.decider)
            assert answer.endswith(b"answer")
            assert struct.unpack_from(">HHH", answer, 24 + 20) == (port, 1000, 14)
            seen = await way.report()
            assert (seen.open, seen.datagrams) == (1, 1)


async def test_no_frame_stops_it(way_out: Path) -> None:
    """Random frames, cut ones, wrong lengths, fragments, each kind of protocol, on a way out that allows all."""
    chance = random.Random(14)
    async with running(way_out, "dns") as way:
        assert way.decider is not None
        seeds = [first("192.0.2.1", 80), first("2001:db8::1", 80), frame(address4(0), "192.0.2.1"), between(0, 1)]
        for turn in range(3000):
            data = bytearray(chance.choice(seeds))
            for _ in range(chance.randrange(4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            with contextlib.suppress(BlockingIOError):
                way.decider.send(bytes(data[: chance.randrange(1, len(data) + 1)] if turn % 3 == 0 else data))
            if turn % 50 == 0:
                await way.report()
                with contextlib.suppress(BlockingIOError):
                    while way.decider.recv(1 << 17):
                        pass
        assert (await way.report()).opened == 0


async def test_the_relay_gives_each_packet_that_leaves_to_its_place(relay: Path) -> None:
    """First packets and datagrams to the decider, the rest of TCP to the kernel; what comes back only to a part."""
    async with bench(relay) as made:
        wires = [await made.wire(part) for part in range(2)]
        wires[0].send(first("192.0.2.1", 80))
        seen = await made.counted(1)
        assert seen.outside == 1
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
        for pair in pairs:
            for end in pair:
                end.setblocking(False)
        (kernel, kernel_far), (decider, decider_far) = pairs
        made.relay.add_way_out(kernel_far, decider_far)
        for packet, to in (
            (first("192.0.2.1", 80), decider),
            (first("192.0.2.1", 80, flags=16), kernel),
            (first("192.0.2.1", 80, flags=0x18), kernel),
            (first("2001:db8::1", 80, flags=16), kernel),
            (frame(address4(0), "192.0.2.1"), decider),
            (with_body("2001:db8::1", 44, bytes(40)), decider),
            (first("192.0.2.1", 80, flags=16)[:50], decider),
        ):
            wires[0].send(packet if len(packet) > 50 else packet[:26] + struct.pack(">H", 26) + packet[28:])
            assert (await heard(to))[24:44] == packet[24:26] + (
                packet[26:44] if len(packet) > 50 else b"\0\x1a" + packet[28:44]
            )
        back = frame("192.0.2.1", address4(1))
        decider.send(back)
        assert await heard(wires[1]) == back
        kernel.send(back)
        assert await heard(wires[1]) == back
        for forged in (
            between(0, 1),
            frame("192.0.2.1", address4(3)),
            frame("192.0.2.1", "192.0.2.2"),
            VNET + HARDWARE,
        ):
            decider.send(forged)
        await made.seen(lambda seen: seen.unreachable == 4)
        assert all(map(silent, wires))
        decider.close()

        def refused_again(seen: Traffic) -> bool:  # the relay may see a packet before it sees that the way out is gone
            wires[0].send(first("192.0.2.1", 80))
            return seen.outside > 1

        await made.seen(refused_again)
