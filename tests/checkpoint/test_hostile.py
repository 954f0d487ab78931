"""Images that somebody wrote who wishes ill: no more comes of them than of a job."""

from __future__ import annotations

import itertools
import os
import re
import resource
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pool.starter.keeper import NativeKeepers, StartFailed
from tests.checkpoint.conftest import Compile
from tests.checkpoint.hostile import Meta, image_of, job, tried, variants
from tests.checkpoint.test_checkpoints import lines, saved
from tests.conftest import passable
from tests.starter.support import opened, soon, spec, until

#: Tables of pool/checkpoint/image/image.h, and places of fields in their rows.
PROCESSES, THREADS, FILES, BYTES = 0, 1, 5, -1
NICE, LIMITS, POLICY, FLAGS, SIZE, PATH = 32, 152, 96, 4, 24, 80


def reports(directory: Path) -> list[str]:
    """Of the sanitizers."""
    return [path.read_text() for path in directory.glob("sanitizer*")]


def limits_of(pid: int) -> str:
    return Path(f"/proc/{pid}/limits").read_text()


@pytest.fixture
async def sanitized(
    tmp_path: Path, sanitized_keeper: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[NativeKeepers]:
    log = tmp_path / "sanitizer"
    monkeypatch.setenv("ASAN_OPTIONS", f"detect_leaks=0:log_path={log}")
    monkeypatch.setenv("UBSAN_OPTIONS", f"print_stacktrace=1:log_path={log}")
    async with opened(tmp_path, sanitized_keeper) as keepers:
        yield keepers
    assert reports(tmp_path) == []


async def test_images_that_nobody_should_trust(sanitized: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    """Refused in words, or a job that runs or dies as jobs do. `python -m tests.checkpoint.hostile 300` tries more."""
    if not sanitized.abilities.checkpoint:
        pytest.skip("needs the ability checkpoint")
    wanted, image = job(scratch), tmp_path / "image"
    meta = await image_of(sanitized, wanted, scratch, image)
    fork_server = sanitized.fork_server_pid
    assert await tried(sanitized, wanted, image, Meta(meta).packed())
    came = [await tried(sanitized, wanted, image, one) for one in itertools.islice(variants(meta, 11), 50)]
    assert set(came) == {True, False}
    assert sanitized.fork_server_pid == fork_server


async def test_an_image_gives_no_rights(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile
) -> None:
    """Neither a better priority nor more than the job's limits, nor a file that its user may not write."""
    who: dict[str, Any] = {"uid": 65534, "gid": 65534, "groups": ()} if os.getuid() == 0 else {}
    for path in (tmp_path, scratch):
        path.chmod(0o777)
    passable(tmp_path)
    other = scratch / "other"
    other.write_text("somebody else's")
    other.chmod(0o444)
    wanted = spec(scratch, compiled("steps", "-static"), "1000000", nice=5, fsize=1 << 30, **who)
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) > 1)
    (process,) = psutil.Process(keeper.pid).children()
    policy, image = os.sched_getscheduler(process.pid), tmp_path / "image"
    await saved(keepers, keeper, image)
    meta = (image / "meta").read_bytes()

    greedy = Meta(meta)
    struct.pack_into("=i", greedy.tables[PROCESSES], NICE, -20)
    struct.pack_into("=QQ", greedy.tables[PROCESSES], LIMITS + 16 * resource.RLIMIT_FSIZE, 1 << 62, 1 << 62)
    struct.pack_into("=ii", greedy.tables[THREADS], POLICY, os.SCHED_FIFO, 50)
    (image / "meta").write_bytes(greedy.packed())
    keeper = await soon(keepers.start(wanted, image=image))
    at = lines(scratch)
    await until(lambda: lines(scratch) > at)
    (process,) = psutil.Process(keeper.pid).children()
    assert (process.nice(), os.sched_getscheduler(process.pid)) == (5, policy)
    assert re.search(rf"Max file size +{1 << 30} +{1 << 30} ", limits_of(process.pid))
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()

    files = Meta(meta)
    text = str(other).encode() + b"\0"
    each, rows = files.sizes[FILES], files.tables[FILES]
    written = [at for at in range(0, len(rows), each) if struct.unpack_from("=I", rows, at + FLAGS)[0] & os.O_WRONLY]
    assert written
    for at in written:
        struct.pack_into("=Q", rows, at + SIZE, 0)
        struct.pack_into("=II", rows, at + PATH, len(files.tables[BYTES]), len(text))
    files.tables[BYTES] += text
    (image / "meta").write_bytes(files.packed())
    with pytest.raises(StartFailed, match="permission denied"):
        await soon(keepers.start(wanted, image=image))
    assert other.read_text() == "somebody else's"
