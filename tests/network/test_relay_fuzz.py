"""Links of the relay under attack: harmed streams under sanitizers, keys that are used up, what is left of a key."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
from pathlib import Path

import pytest

from pool.checkpoint.build import RELAY_SOURCES, SANITIZERS, compiler
from pool.network.relay_link import RelayLink
from pool.network.sealed_link import KEYS
from pool.wire.bulk_stream import KEY
from tests.network.support import bench, between, heard, sealed
from tests.network.test_relay_seal import Peer, ended
from tests.network.test_sealed_link import tcp
from tests.ordinary_user import as_root

#: Rounds here. By hand: `relay_fuzz SEED 0 SECONDS`.
ROUNDS = 30


def test_harmed_streams_break_nothing_and_bring_nothing_in(tmp_path: Path) -> None:
    """Bits, missing and doubled bytes, records replayed, swapped and reflected, garbage in records, false lengths."""
    program, here = tmp_path / "relay_fuzz", Path(__file__).with_name("relay_fuzz.c")
    sources = [str(source) for source in sorted(RELAY_SOURCES.glob("*.c")) if source.name != "main.c"]
    options = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-DRELAY_SEALS", "-DSEALED_MOST=3000000ull", *SANITIZERS]
    command = [*compiler().split(), *options, f"-I{RELAY_SOURCES}", "-o", str(program), str(here), *sources, "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "sanitize" in done.stderr:
        pytest.skip("needs the sanitizers")
    assert done.returncode == 0, done.stderr
    ran = subprocess.run([program, "14", str(ROUNDS)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, f"{ROUNDS}\n"), ran.stderr


async def test_nothing_is_left_of_a_key_when_its_link_has_ended(relay: Path) -> None:
    with as_root():
        if os.geteuid() != 0:
            pytest.skip("needs root")
    async with bench(relay) as made:
        wire, near = await made.wire(0), tcp()
        keys, over = secrets.token_bytes(KEYS), asyncio.Event()
        RelayLink(made.relay, [1], near[0], keys, dialed=True, ended=over.set)
        peer = Peer(near[1], keys)
        await peer.send(peer.record(sealed(between(1, 0, b"in use"))))
        assert await heard(wire) == between(1, 0, b"in use")
        with as_root():
            assert _has_in_memory(made.relay.pid, keys[KEY:])
        peer.end.close()
        await ended(over)
        await made.traffic()
        with as_root():
            assert [_has_in_memory(made.relay.pid, half) for half in (keys[:KEY], keys[KEY:])] == [False, False]


def _has_in_memory(pid: int, data: bytes) -> bool:
    """Whether a process has these bytes in memory that it may write."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            where, rights, *_ = line.split()
            if "w" not in rights:
                continue
            begin, end = (int(number, 16) for number in where.split("-"))
            memory.seek(begin)
            if data in memory.read(end - begin):
                return True
    return False
