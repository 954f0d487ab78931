"""Links that the relay seals itself: with a relay or with a node's threads at the other end, and with one that lies."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import secrets
import socket
import struct
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pool.checkpoint.build import RELAY_SOURCES, build
from pool.network.relay_link import RelayLink
from pool.network.relay_process import VERSION, RelayDiffers, RelayProgram, relay_trouble, usable_relay
from pool.network.sealed_link import KEYS, SealedLink
from pool.starter.native import NativeKeepers
from pool.wire.bulk_stream import FRAME, KEY
from tests.network.support import Bench, bench, between, heard, sealed
from tests.network.test_sealed_link import tcp

TAG = 16


class Peer:
    """The other machine's end of a link, by hand: what it sends may be anything."""

    def __init__(self, end: socket.socket, keys: bytes) -> None:
        self.end = end
        self.end.setblocking(False)
        self._key = AESGCM(keys[KEY:])
        self.number = 0

    def record(self, plain: bytes, number: int | None = None) -> bytes:
        """The next record, or the one of another number."""
        self.number += number is None
        length = struct.pack(">I", len(plain) + TAG)
        nonce = struct.pack(">IQ", 0, self.number if number is None else number)
        return length + self._key.encrypt(nonce, plain, length)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.end, data)


async def peer_of(made: Bench, *parts: int) -> tuple[Peer, asyncio.Event]:
    """A link of the relay to these parts, and the event of its end."""
    here, there = tcp()
    keys, over = secrets.token_bytes(KEYS), asyncio.Event()
    RelayLink(made.relay, parts, here, keys, dialed=True, large=False, ended=over.set)
    await made.traffic()
    return Peer(there, keys), over


async def ended(over: asyncio.Event) -> None:
    async with asyncio.timeout(30):
        await over.wait()


@pytest.mark.parametrize("other", ["relay", "threads"])
async def test_packets_pass_both_ways(sanitized_relay: Path, other: str) -> None:
    """As they were, in order, small ones and many at once."""
    here, there = tcp()
    keys = secrets.token_bytes(KEYS)
    async with bench(sanitized_relay) as one, bench(sanitized_relay) as two:
        near, far = await one.wire(0), await two.wire(1)
        RelayLink(one.relay, [1], here, keys, dialed=True, large=False, ended=lambda: None)
        if other == "relay":
            RelayLink(two.relay, [0], there, keys, dialed=False, large=False, ended=lambda: None)
        else:
            link = SealedLink(there, keys, dialed=False, ended=lambda: None)
            with link.relay:
                two.relay.add_link([0], link.relay, large=False)
        await one.traffic()
        await two.traffic()
        for turn in range(3):
            near.send(between(0, 1, b"there %d" % turn))
            assert await heard(far) == between(0, 1, b"there %d" % turn)
            far.send(between(1, 0, b"back %d" % turn))
            assert await heard(near) == between(1, 0, b"back %d" % turn)
        large = [between(0, 1, bytes([turn]) * 30_000) for turn in range(100)]
        for turn in range(0, 100, 4):
            for packet in large[turn : turn + 4]:
                near.send(packet)
            for packet in large[turn : turn + 4]:
                assert await heard(far) == packet


@pytest.mark.parametrize(
    "harm", ["bytes", "tag", "replayed", "skipped", "empty", "too long", "huge", "no frame", "cut off", "closed"]
)
async def test_a_machine_that_lies_ends_its_link_and_no_other(sanitized_relay: Path, harm: str) -> None:
    async with bench(sanitized_relay) as made:
        wire = await made.wire(0)
        bad, bad_over = await peer_of(made, 1)
        good, good_over = await peer_of(made, 2)
        first = bad.record(sealed(between(1, 0, b"first")))
        await bad.send(first)
        assert await heard(wire) == between(1, 0, b"first")
        record = bytearray(bad.record(sealed(between(1, 0, b"second"))))
        if harm == "bytes":
            record[20] ^= 1
        elif harm == "tag":
            record[-1] ^= 1
        elif harm == "replayed":
            record = bytearray(first)
        elif harm == "skipped":
            record = bytearray(bad.record(sealed(between(1, 0)), number=9))
        elif harm == "empty":
            record = bytearray(bad.record(b"", number=2))
        elif harm == "too long":
            record = bytearray(bad.record(bytes(FRAME + 1), number=2))
        elif harm == "huge":
            record[:4] = b"\xff\xff\xff\xff"
        elif harm == "no frame":
            record = bytearray(bad.record(b"\xff\xff\xff\xff" * 20, number=2))
        elif harm == "cut off":
            del record[30:]
        await bad.send(bytes(record) if harm != "closed" else b"")
        if harm in ("cut off", "closed"):
            bad.end.shutdown(socket.SHUT_WR)
        await ended(bad_over)
        await good.send(good.record(sealed(between(2, 0, b"still"))))
        assert await heard(wire) == between(2, 0, b"still")
        assert not good_over.is_set()
        for peer in (bad, good):
            peer.end.close()


async def test_frames_may_be_cut_anywhere(sanitized_relay: Path) -> None:
    """In records, and records in pieces of any size; garbage inside sealed records is dropped, or ends the link."""
    rng = random.Random(7)
    async with bench(sanitized_relay) as made:
        wire = await made.wire(0)
        peer, _ = await peer_of(made, 1)
        packets = [between(1, 0, rng.randbytes(rng.randrange(1, 3_000))) for _ in range(60)]
        stream = b"".join(map(sealed, packets))
        records = b""
        while stream:
            size = rng.randrange(1, 9_000)
            records, stream = records + peer.record(stream[:size]), stream[size:]

        async def send() -> None:
            nonlocal records
            while records:
                size = rng.randrange(1, 5_000)
                await peer.send(records[:size])
                records = records[size:]

        sending = asyncio.get_running_loop().create_task(send())
        for packet in packets:
            assert await heard(wire) == packet
        await sending
        peer.end.close()
        for _ in range(20):
            liar, over = await peer_of(made, 1)
            await liar.send(liar.record(rng.randbytes(rng.randrange(1, 2_000))))
            liar.end.close()
            await ended(over)


async def test_a_new_link_takes_the_place_of_the_earlier(sanitized_relay: Path) -> None:
    async with bench(sanitized_relay) as made:
        wire = await made.wire(0)
        first, first_over = await peer_of(made, 1)
        second, second_over = await peer_of(made, 1)
        await ended(first_over)
        await second.send(second.record(sealed(between(1, 0, b"anew"))))
        assert await heard(wire) == between(1, 0, b"anew")
        assert not second_over.is_set()
        for peer in (first, second):
            peer.end.close()


async def test_a_peer_that_does_not_read_costs_packets_and_no_memory(sanitized_relay: Path) -> None:
    async with bench(sanitized_relay) as made:
        wire, other = await made.wire(0), await made.wire(2)
        peer, over = await peer_of(made, 1)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(60):
            while not (await made.traffic()).dropped:
                for _ in range(50):
                    await loop.sock_sendall(wire, between(0, 1, bytes(30_000)))
        wire.send(between(0, 2, b"beside"))
        assert await heard(other) == between(0, 2, b"beside")
        assert not over.is_set()
        peer.end.close()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def test_the_relay_that_can_be_used_here(relay: Path, tmp_path: Path) -> None:
    assert await usable_relay(relay) == RelayProgram(relay, True)
    static = build(tmp_path / "relay_static", sources=RELAY_SOURCES, static=True)
    assert digest(static) != digest(relay)
    assert await usable_relay(static) == RelayProgram(static, False), "it cannot open a library"
    broken = tmp_path / "relay"
    broken.write_text("#!/no/such/loader\n")
    os.chmod(broken, 0o755)
    assert await usable_relay(broken) == RelayProgram(static, False), "the one beside it needs nothing"
    assert await relay_trouble(relay) == ""
    assert f"#define VERSION {VERSION}\n" in (RELAY_SOURCES / "relay.h").read_text()


@pytest.mark.parametrize(("says", "has"), [("echo 1", "1"), ("exit 2", "none"), ("echo 1 2 3; exit 2", "1 2 3")])
async def test_a_relay_of_another_version_is_refused_in_one_line(tmp_path: Path, says: str, has: str) -> None:
    """Relays before version 2 said none."""
    other = tmp_path / "relay"
    other.write_text(f"#!/bin/sh\n{says}\n")
    other.chmod(0o755)
    with pytest.raises(RelayDiffers, match=f"has version {has}, and this node needs {VERSION}"):
        await usable_relay(other)
    why = await relay_trouble(other)
    assert "install the package again" in why
    assert "\n" not in why
    keepers = NativeKeepers(tmp_path / "keepers", relay=other)
    await keepers.open()
    try:
        assert not keepers.abilities.private_network
        assert keepers.abilities.private_network_why
    finally:
        await keepers.close(kill=True)
