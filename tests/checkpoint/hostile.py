"""Images that nobody should trust: fields of every table set to what no keeper writes, rows added to every table, other
bytes behind texts and registers; the checksum fits each time.

`python -m tests.checkpoint.hostile SECONDS [SEED]` tries them under sanitizers and says what went wrong; tests try few.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pool.checkpoint.build import build, compiler
from pool.starter.keeper import KeeperSpec, NativeKeepers, StartFailed
from tests.starter.support import opened, soon, spec, until

MASK, ODD = (1 << 64) - 1, 0x9E3779B97F4A7C15
#: struct header of pool/checkpoint/image/image.c: size and sum, then a count and a size of rows for each table.
SIZE_AT, SUM_AT, TABLES_AT = 16, 24, 32
VALUES = (0, 1, 2, 3, 0x7F, 0xFFF, 0x1000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
WIDE = (0, 1, 1 << 31, 1 << 40, (1 << 47) - 4096, 1 << 47, (1 << 63) - 1, 1 << 63, MASK - 4095, MASK)


def checksum(data: bytes) -> int:
    """As `checksum` in pool/checkpoint/image/image.c."""
    lanes = list(range(1, 9))
    whole = len(data) // 64 * 64
    for row in struct.iter_unpack("=8Q", data[:whole]):
        for i, word in enumerate(row):
            lanes[i] = (lanes[i] ^ word) * ODD & MASK
            lanes[i] ^= lanes[i] >> 29
    total = len(data) - whole
    for byte in data[whole:]:
        total = (total ^ byte) * ODD & MASK
    for lane in lanes:
        total = ((total << 17 | total >> 47) & MASK ^ lane) * ODD & MASK
    return total ^ total >> 32


class Meta:
    """The `meta` of an image, taken apart: `head` before the tables, `machine` behind them, and the rows of each."""

    def __init__(self, meta: bytes) -> None:
        (size,) = struct.unpack_from("=Q", meta, SIZE_AT)
        self.head, body, at = bytearray(meta[:TABLES_AT]), meta[len(meta) - size :], 0
        self.sizes: list[int] = []
        self.tables: list[bytearray] = []
        while not self.sizes or self.sizes[-1] != 1:
            count, each = struct.unpack_from("=II", meta, TABLES_AT + 8 * len(self.sizes))
            self.sizes.append(each)
            self.tables.append(bytearray(body[at : at + count * each]))
            at += (count * each + 7) & ~7
        self.machine = bytearray(meta[TABLES_AT + 8 * len(self.sizes) : len(meta) - size])

    def packed(self) -> bytes:
        """The file again, with a checksum that fits."""
        body = b"".join(bytes(rows).ljust((len(rows) + 7) & ~7, b"\0") for rows in self.tables)
        tables = zip(self.tables, self.sizes, strict=True)
        counts = [struct.pack("=II", len(rows) // each, each) for rows, each in tables]
        struct.pack_into("=QQ", self.head, SIZE_AT, len(body), checksum(body) ^ checksum(bytes(self.machine)))
        return bytes(self.head) + b"".join(counts) + bytes(self.machine) + body


def twisted(meta: bytes, chance: random.Random) -> bytes:
    """One that is wrong somewhere."""
    image = Meta(meta)
    how = chance.random()
    if how < 0.15:
        _twist(image.machine, chance)
    elif how < 0.3:
        _twist(image.tables[-1], chance)
    elif how < 0.5:  # rows of any table, also of those that this job has none of
        table = chance.randrange(len(image.tables) - 1)
        rows, each = image.tables[table], image.sizes[table]
        for _ in range(chance.choice((1, 1, 3, 400))):
            if rows and chance.random() < 0.5:
                at = chance.randrange(len(rows) // each) * each
                rows += rows[at : at + each]
            else:
                words = chance.choices((0, 0, 1, 2, 3, 4096, 0xFFFFFFFF), k=each // 4)
                rows += struct.pack(f"={len(words)}I", *words)
    else:
        there = [number for number, rows in enumerate(image.tables[:-1]) if rows]
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            table = chance.choice(there)
            each = image.sizes[table]
            at = chance.randrange(len(image.tables[table]) // each) * each
            row = image.tables[table][at : at + each]
            _twist(row, chance)
            image.tables[table][at : at + each] = row
    return image.packed()


def _twist(data: bytearray, chance: random.Random) -> None:
    if chance.random() < 0.3 and len(data) >= 8:
        struct.pack_into("=Q", data, chance.randrange(len(data) // 8) * 8, chance.choice(WIDE))
    elif chance.random() < 0.7:
        struct.pack_into("=I", data, chance.randrange(len(data) // 4) * 4, chance.choice(VALUES))
    else:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def variants(meta: bytes, seed: int) -> Iterator[bytes]:
    """Without end, and the same each time."""
    chance = random.Random(seed)
    while True:
        yield twisted(meta, chance)


def job(scratch: Path) -> KeeperSpec:
    """One that has something of everything."""
    program = scratch / "kinds"
    source = Path(__file__).parent / "programs" / "kinds.c"
    subprocess.run([*compiler().split(), "-O1", "-pthread", "-o", program, source], check=True)
    return spec(scratch, str(program))


async def image_of(keepers: NativeKeepers, wanted: KeeperSpec, scratch: Path, image: Path) -> bytes:
    """An image of that job, and what is in its `meta`."""
    keeper = await soon(keepers.start(wanted))
    await until(lambda: (scratch / "out").exists() and (scratch / "out").read_text() == "ready\n")
    report = await soon(keeper.checkpoint(image, stop=True))
    assert report.refused == ()
    await soon(keeper.ended)
    await keeper.forget()
    return (image / "meta").read_bytes()


async def tried(keepers: NativeKeepers, wanted: KeeperSpec, image: Path, meta: bytes) -> bool:
    """Whether a job came of that `meta`, which is then ended; else it was refused in words."""
    (image / "meta").write_bytes(meta)
    try:
        keeper = await soon(keepers.start(wanted, image=image))
    except StartFailed:
        return False
    if not keeper.ended.done():
        await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
    return True


def _found(place: Path, number: int, one: bytes, what: str) -> None:
    (place / f"variant{number}").write_bytes(one)
    print(number, what, flush=True)


def _reports(place: Path) -> Iterator[str]:
    """The sanitizers' output, once."""
    for path in place.glob("sanitizer*"):
        yield path.read_text()[:3000]
        path.unlink()


async def _search(place: Path, seconds: float, seed: int) -> None:
    log, scratch, image = place / "sanitizer", place / "scratch", place / "image"
    os.environ["ASAN_OPTIONS"] = f"detect_leaks=0:log_path={log}"
    os.environ["UBSAN_OPTIONS"] = f"print_stacktrace=1:log_path={log}"
    scratch.mkdir()
    counts = {True: 0, False: 0}
    async with opened(place, build(place / "keeper", sanitize=True)) as keepers:
        wanted = job(scratch)
        meta = await image_of(keepers, wanted, scratch, image)
        fork_server, end = keepers.fork_server_pid, time.monotonic() + seconds
        slowest = 0.0
        for number, one in enumerate(variants(meta, seed)):
            if time.monotonic() > end:
                break
            began = time.monotonic()
            try:
                counts[await tried(keepers, wanted, image, one)] += 1
            except Exception as error:
                _found(place, number, one, repr(error))
            slowest = max(slowest, time.monotonic() - began)
            for report in _reports(place):
                _found(place, number, one, report)
            if keepers.fork_server_pid != fork_server:
                fork_server = keepers.fork_server_pid
                _found(place, number, one, "the fork server has ended")
    print(f"{counts[True]} restored, {counts[False]} refused, the slowest in {slowest:.1f} s; {place}")


if __name__ == "__main__":
    asyncio.run(_search(Path(tempfile.mkdtemp()), float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
