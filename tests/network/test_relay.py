"""The relay carries a network's packets, and nothing else: forged addresses, other networks and floods end in it."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from pathlib import Path

import psutil
import pytest

from pool.jobs.network import address4, address6
from tests.network.support import HARDWARE, VNET, Bench, bench, between, frame, heard, heard_whole, sealed, silent


@pytest.mark.parametrize("six", [False, True])
async def test_packets_go_to_the_part_that_they_are_for(relay: Path, six: bool) -> None:
    async with bench(relay) as made:
        wires = [await made.wire(part) for part in range(3)]
        far = await made.link(3)
        wires[0].send(between(0, 1, b"here", six=six))
        assert await heard(wires[1]) == between(0, 1, b"here", six=six)
        wires[1].send(between(1, 3, b"away", six=six))
        assert await heard(far) == sealed(between(1, 3, b"away", six=six))
        far.send(sealed(between(3, 2, b"back", six=six)))
        assert await heard(wires[2]) == between(3, 2, b"back", six=six)
        seen = await made.counted(2)
        size = (40 if six else 20) + 8 + 4
        assert seen.pairs == {(0, 1): (1, size), (1, 3): (1, size)}
        assert all(map(silent, (*wires, far)))


@pytest.mark.parametrize("to", ["224.0.0.1", "239.1.2.3", "255.255.255.255", "10.77.255.255", "ff02::1"])
async def test_multicast_and_broadcast_reach_every_other_part(relay: Path, to: str) -> None:
    async with bench(relay) as made:
        wires = [await made.wire(part) for part in range(2)]
        far, further = await made.link(2), await made.link(3)
        sent = frame((address6 if ":" in to else address4)(0), to)
        wires[0].send(sent)
        assert await heard(wires[1]) == sent
        assert await heard(far) == await heard(further) == sealed(sent)
        back = frame((address6 if ":" in to else address4)(2), to)
        far.send(sealed(back))
        assert await heard(wires[0]) == await heard(wires[1]) == back
        await made.counted(1)
        assert all(map(silent, (*wires, far, further)))  # no machine passes on what it got from another


async def test_a_part_speaks_with_its_own_address_only(relay: Path) -> None:
    """Forged sources, and hardware addresses that mean nothing."""
    async with bench(relay) as made:
        one, other, far = await made.wire(0), await made.wire(1), await made.link(2)
        forged = [
            between(1, 0),
            between(2, 1),
            between(2, 1, six=True),
            frame("192.0.2.1", address4(1)),
            frame("10.77.0.0", address4(1)),
            frame("fd70:6f6f:6c01::1", address6(1)),
            frame("::1", address6(1)),
            frame(address4(60000), address4(1)),
        ]
        for sent in forged:
            one.send(sent)
        seen = await made.counted(len(forged))
        assert seen.forged == len(forged)
        for sent in (between(0, 1), between(1, 0), between(3, 0), frame("8.8.8.8", address4(0))):
            far.send(sealed(sent))  # the other machine has part 2 only
        one.send(frame(address4(0), address4(1), hardware=b"\1\2\3\4\5\6"))
        assert await heard(other) == frame(address4(0), address4(1), hardware=HARDWARE)
        assert (await made.counted(len(forged) + 5)).forged == len(forged) + 4
        assert all(map(silent, (one, other, far)))


async def test_nothing_leaves_for_the_host_or_another_network(relay: Path) -> None:
    async with bench(relay) as made, bench(relay) as another:
        wire, there = await made.wire(0), await another.wire(1)
        outside = [frame(address4(0), to) for to in ("127.0.0.1", "10.0.0.1", "192.168.1.1", "8.8.8.8", "10.77.0.0")]
        outside += [frame(address6(0), to) for to in ("::1", "fe80::1", "2001:db8::1")]
        outside += [between(0, 4), between(0, 60000)]
        for sent in outside:
            wire.send(sent)
        assert (await made.counted(len(outside))).outside == len(outside)
        wire.send(between(0, 1))  # a part of this network that is nowhere, and one of the other network with its number
        seen = await made.counted(len(outside) + 1)
        assert (seen.unreachable, seen.outside) == (1, len(outside))
        await another.traffic()
        assert silent(wire)
        assert silent(there)


async def test_nothing_passes_while_a_checkpoint_of_all_parts_is_made(relay: Path) -> None:
    async with bench(relay) as made:
        one, other, far = await made.wire(0), await made.wire(1), await made.link(2)
        made.relay.hold(True)
        await made.traffic()
        sent = [between(0, 1), between(0, 2), frame(address4(0), "224.0.0.1")]
        for packet in sent:
            one.send(packet)
        far.send(sealed(between(2, 1)))
        for _ in range(3):  # all that the relay could take in, it has taken in
            assert not (await made.traffic()).pairs
        assert all(map(silent, (one, other, far)))
        made.relay.hold(False)
        assert {await heard(other) for _ in range(3)} == {sent[0], sent[2], between(2, 1)}
        assert await heard_whole(far, 2) == [sent[1], sent[2]]
        one.send(between(0, 1, b"again"))
        assert await heard(other) == between(0, 1, b"again")
        assert all(map(silent, (one, other, far)))


async def test_a_link_that_ends_while_packets_are_held_is_closed_afterwards(relay: Path) -> None:
    """And the relay does not look at it again and again meanwhile."""
    async with bench(relay) as made:
        wire, far = await made.wire(0), await made.link(1)
        made.relay.hold(True)
        await made.traffic()
        far.send(sealed(between(1, 0, b"last")))
        far.shutdown(socket.SHUT_RDWR)
        before = _processor_time(made)
        for _ in range(50):
            await made.traffic()
            await asyncio.sleep(0.002)
        assert _processor_time(made) - before < 0.05
        assert silent(wire)
        made.relay.hold(False)
        assert await heard(wire) == between(1, 0, b"last")
        wire.send(between(0, 1))
        await made.seen(lambda traffic: traffic.unreachable == 1)


@pytest.mark.parametrize("kind", [0x0806, 0x88CC, 0x8100, 0x0000])
async def test_arp_and_other_protocols_are_nothing_here(relay: Path, kind: int) -> None:
    async with bench(relay) as made:
        one, other = await made.wire(0), await made.wire(1)
        one.send(VNET + b"\xff" * 6 + HARDWARE + struct.pack(">H", kind) + bytes(100))
        assert (await made.counted(1)).malformed == 1
        assert silent(other)


async def test_frames_of_every_wrong_form_are_dropped(relay: Path) -> None:
    good = between(0, 1)
    six = between(0, 1, six=True)
    wrong = [good[:size] for size in (1, 9, 10, 23, 24, 43)]
    wrong += [good[:24] + bytes([0x44]) + good[25:], good[:24] + bytes([0x65]) + good[25:]]
    wrong += [good[:26] + struct.pack(">H", length) + good[28:] for length in (0, 19, 33, 65535)]
    wrong += [six[:60], six[:28] + struct.pack(">H", 65535) + six[30:]]
    async with bench(relay) as made:
        one, other = await made.wire(0), await made.wire(1)
        for sent in wrong:
            one.send(sent)
        assert (await made.counted(len(wrong))).malformed == len(wrong)
        assert silent(other)


@pytest.mark.parametrize(
    "vnet",
    [
        struct.pack("=BBHHHH", 1, 0, 0, 0, 30, 30),  # a checksum beyond the end
        struct.pack("=BBHHHH", 1, 0, 0, 0, 65535, 65535),
        struct.pack("=BBHHHH", 0, 1, 54, 1000, 0, 0),  # segments without a checksum
        struct.pack("=BBHHHH", 1, 1, 54, 0, 34, 16),  # segments of nothing
        struct.pack("=BBHHHH", 1, 3, 54, 1000, 34, 6),  # fragments of UDP, which no kernel makes any more
        struct.pack("=BBHHHH", 0, 0, 9999, 0, 0, 0),
        struct.pack("=BBHHHH", 64, 0, 0, 0, 0, 0),
    ],
)
async def test_another_machine_cannot_lie_about_the_work_left_to_the_kernel(relay: Path, vnet: bytes) -> None:
    async with bench(relay) as made:
        wire, far = await made.wire(0), await made.link(1)
        far.send(sealed(frame(address4(1), address4(0), vnet=vnet)))
        far.send(sealed(between(1, 0, b"good")))
        assert await heard(wire) == between(1, 0, b"good")
        assert (await made.traffic()).malformed == 1


@pytest.mark.parametrize("length", [0, 43, (256 << 10) + 25, 2**32 - 1])
async def test_a_link_that_carries_something_else_is_closed(relay: Path, length: int) -> None:
    async with bench(relay) as made:
        wire, far, good = await made.wire(0), await made.link(1), await made.link(2)
        await made.traffic()
        far.send(struct.pack("=I", length))
        assert await heard(far) == b""
        good.send(sealed(between(2, 0)))
        assert await heard(wire) == between(2, 0)


async def test_frames_arrive_whole_however_a_link_cuts_them(relay: Path) -> None:
    async with bench(relay) as made:
        wire, far = await made.wire(0), await made.link(1)
        sent = [between(1, 0, random.Random(size).randbytes(size)) for size in (0, 1, 1400, 60_000, 3, 64_900)]
        stream, at, rng = b"".join(map(sealed, sent)), 0, random.Random(1)
        came: list[bytes] = []
        while at < len(stream):
            at += far.send(stream[at : at + rng.choice((1, 3, 7, 100, 70_000))])
            while len(came) < len(sent) and at >= len(b"".join(map(sealed, sent[: len(came) + 1]))):
                came.append(await heard(wire))
        assert came == sent


async def test_a_flood_costs_bounded_memory_and_stops_nobody_else(relay: Path) -> None:
    """Part 0 floods a machine that does not read; the others go on, and the relay stays small."""
    async with bench(relay) as made:
        flooding, one, other = await made.wire(0), await made.wire(1), await made.wire(2)
        await made.link(3)
        before = _memory(made)
        big, sent = between(0, 3, bytes(60_000)), 0
        while sent < 2000:
            try:
                flooding.send(big)
                sent += 1
            except BlockingIOError:
                one.send(between(1, 2))
                assert await heard(other) == between(1, 2)
        assert (await made.counted(sent)).dropped > sent - 100
        assert _memory(made) - before < 3 << 20


async def test_a_node_that_ends_while_packets_are_held_holds_none_any_more(relay: Path) -> None:
    """The last words of its way out reach the job."""
    async with bench(relay) as made:
        wire, last = await made.wire(0), frame("192.0.2.1", address4(0))
        out, decider = (socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2))
        with out[0], decider[0]:
            with out[1], decider[1]:
                made.relay.add_way_out(out[1], decider[1])
            made.relay.hold(True)
            await made.traffic()
            assert made.relay._orders is not None
            out[0].send(last)
            made.relay._orders.close()
            assert await heard(wire) == last
        async with asyncio.timeout(30):
            assert await made.relay.ended() == 0


def _processor_time(made: Bench) -> float:
    times = psutil.Process(made.relay.pid).cpu_times()
    return times.user + times.system


def _status(made: Bench) -> str:
    return Path(f"/proc/{made.relay.pid}/status").read_text()


def _memory(made: Bench) -> int:
    return int(_status(made).partition("VmRSS:")[2].split()[0]) * 1024


async def test_random_frames_break_nothing(sanitized_relay: Path) -> None:
    rng, loop = random.Random(14), asyncio.get_running_loop()
    async with bench(sanitized_relay) as made:
        one, other, far = await made.wire(0), await made.wire(1), await made.link(2, 3)
        good = [between(0, 1, bytes(200)), between(0, 2, six=True), frame(address4(0), "224.0.0.1")]
        good += [between(2, 0, bytes(100)), between(3, 1, six=True)]
        for turn in range(3000):
            sent = bytearray(rng.choice(good))
            for _ in range(rng.randrange(4)):
                sent[rng.randrange(len(sent))] = rng.randrange(256)
            cut = bytes(sent[: rng.choice((len(sent), rng.randrange(1, len(sent) + 1)))])
            if turn % 2:
                await loop.sock_sendall(one, cut)  # the relay may be slow, and its queue is of ten frames
            elif len(cut) >= 44:
                await loop.sock_sendall(far, sealed(cut))
            if turn % 20 == 0:
                await made.traffic()
                for end in (one, other, far):
                    while not silent(end):
                        pass
        await made.traffic()


async def test_it_ends_with_its_node_and_has_no_rights(relay: Path) -> None:
    async with bench(relay) as made:
        await made.wire(0)
        await made.traffic()
        status = _status(made)
        assert "NoNewPrivs:\t1" in status
        assert "CapEff:\t0000000000000000" in status
        assert status.partition("Uid:")[2].split()[0] != "0"
        memory = int(status.partition("RssAnon:")[2].split()[0])  # the rest is files, which all relays share
        assert memory < 1024, memory
        assert made.relay._orders is not None
        made.relay._orders.close()
        assert await made.relay.ended() == 0
