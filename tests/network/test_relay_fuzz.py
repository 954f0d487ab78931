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
#: It runs for longer than it takes to be optimized.
OPTIMIZED = "-O1"


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The fuzzer and the relay's files but `main.c`, compiled with sanitizers."""
    place = tmp_path_factory.mktemp("relay_fuzz")
    sources = [Path(__file__).with_name("relay_fuzz.c"), *sorted(RELAY_SOURCES.glob("*.c"))]
    return {one.name: _compiled(one, place / f"{one.stem}.o") for one in sources if one.name != "main.c"}


def _compiled(source: Path, target: Path) -> Path:
    options = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-DRELAY_SEALS", "-DSEALED_MOST=6000000ull", *SANITIZERS]
    command = [*compiler().split(), *options, OPTIMIZED, f"-I{RELAY_SOURCES}", "-c", "-o", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "sanitize" in done.stderr:
        pytest.skip("needs the sanitizers")
    assert done.returncode == 0, done.stderr
    return target


def _fuzzed(place: Path, objects: dict[str, Path]) -> subprocess.CompletedProcess[str]:
    program = place / "relay_fuzz"
    command = [*compiler().split(), *SANITIZERS, "-o", str(program), *map(str, objects.values()), "-ldl"]
    subprocess.run(command, capture_output=True, text=True, check=True)
    return subprocess.run([program, "14", str(ROUNDS)], capture_output=True, text=True, check=False)


def test_harmed_streams_break_nothing_and_bring_nothing_in(tmp_path: Path, objects: dict[str, Path]) -> None:
    """Bits, missing and doubled bytes, records replayed, swapped and reflected, garbage in records, false lengths."""
    ran = _fuzzed(tmp_path, objects)
    assert (ran.returncode, ran.stdout) == (0, f"{ROUNDS}\n"), ran.stderr


#: Faults that somebody might make: the file, its text, and the text in its place; and a word of the report.
FAULTS = {
    "a part that does not exist": ("judge.c", "if (from >= parts)", "if (from > parts)", "j.from < 3"),
    "an IPv6 head that ends early": ("judge.c", "&& room >= 40", "&& room", "AddressSanitizer"),
    "a TCP head that ends early": ("judge.c", "ETHERNET + head + 20)", "ETHERNET + head)", "AddressSanitizer"),
    "a checksum beyond the end": ("judge.c", "start + offset + 2 <= body", "start + offset <= body", "size - VNET"),
    "a record that is taken twice": ("seal.c", "d->number++;", "", "line "),
    "a tag that is not looked at": (
        "seal.c",
        "done, &rest) == 1 && rest == 0;\n}\n\n#endif",
        "done, &rest) < 2;\n}\n\n#endif",
        "line ",
    ),
    "a frame longer than any": ("ports.c", "FRAME_LEAST || length > FRAME_MOST)", "FRAME_LEAST)", "AddressSanitizer"),
    "a queue without an end": (
        "ports.c",
        "size > QUEUE) {\n        p->dropped++",
        "size > 2 * QUEUE) {\n        p->dropped++",
        "AddressSanitizer",
    ),
    "a large packet whose last piece is lost": ("large.c", "return s->size > 0;", "return !last;", "at == size"),
    "pieces longer than IP can say": ("large.c", "(IP_MOST - heads) / s->segment", "IP_MOST / s->segment", "65535"),
    "segments of nothing": ("large.c", "!segment || ", "", "division by zero"),
    "frames that are carried again": ("ports.c", "p->in_size -= at;", "", "line "),
    "bytes of a splice out of order": ("splice.c", "(to->out, piece + gone,", "(to->out, piece,", "memcmp"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(tmp_path: Path, objects: dict[str, Path], fault: str) -> None:
    name, text, planted, said = FAULTS[fault]
    source = (RELAY_SOURCES / name).read_text()
    assert source.count(text) == 1
    (tmp_path / name).write_text(source.replace(text, planted))
    ran = _fuzzed(tmp_path, {**objects, name: _compiled(tmp_path / name, tmp_path / "planted.o")})
    assert ran.returncode != 0
    assert said in ran.stderr


async def test_nothing_is_left_of_a_key_when_its_link_has_ended(relay: Path) -> None:
    with as_root():
        if os.geteuid() != 0:
            pytest.skip("needs root")
    async with bench(relay) as made:
        wire, near = await made.wire(0), tcp()
        keys, over = secrets.token_bytes(KEYS), asyncio.Event()
        RelayLink(made.relay, [1], near[0], keys, dialed=True, large=False, ended=over.set)
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
