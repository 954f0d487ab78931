"""The store of executables: one copy of each content, kept for as long as somebody needs it."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

from pool.policy.queue import IDLE, QueuedCluster, QueuedJob
from pool.shadow.executables import ExecutableStore
from pool.shadow.files import LocalFiles
from pool.shadow.serving import ServedFiles


def store(directory: Path, remembered: dict[int, str | None] | None = None) -> ExecutableStore:
    files = LocalFiles(inline=True)
    told = remembered if remembered is not None else {}
    return ExecutableStore(directory / "kept", lambda owner: files, told.__setitem__)


def script(directory: Path, name: str, text: str) -> str:
    path = directory / name
    path.write_text(text)
    return str(path)


async def test_one_content_is_kept_once(tmp_path: Path) -> None:
    kept = store(tmp_path)
    one = await kept.store("me", script(tmp_path, "a", "x"))
    assert one is not None
    assert await kept.store("me", script(tmp_path, "b", "x")) == one
    assert await kept.store("me", script(tmp_path, "a", "y and more")) != one
    assert len(os.listdir(tmp_path / "kept")) == 2
    path = kept.path(one)
    assert path is not None
    assert path.read_text() == "x"


async def test_files_of_one_name_are_kept_apart_while_both_are_read(tmp_path: Path) -> None:
    """A cluster's program is stored while its start offers it; two users may call different programs the same."""
    files = ServedFiles("me", os.getuid(), os.getgid(), os.getgroups())
    kept = ExecutableStore(tmp_path / "kept", lambda owner: files)
    paths = []
    for directory in ("a", "a", "b"):
        (tmp_path / directory).mkdir(exist_ok=True)
        paths.append(script(tmp_path / directory, "job.sh", directory * 5_000_000))
    try:
        digests = await asyncio.gather(*(kept.store("me", path) for path in paths))
    finally:
        await files.close()
    for letter, digest in zip("aab", digests, strict=True):
        text = letter * 5_000_000
        assert digest == hashlib.sha256(text.encode()).hexdigest()
        copy = kept.path(digest)
        assert copy is not None
        assert copy.read_text() == text
    assert len(os.listdir(tmp_path / "kept")) == 2


async def test_clusters_of_one_turn_share_a_look_at_their_executable(tmp_path: Path) -> None:
    remembered: dict[int, str | None] = {}
    kept = store(tmp_path, remembered)
    path = script(tmp_path, "a", "x")
    looks: list[str] = []
    look = kept.store

    async def counted(owner: str, path: str) -> str | None:
        looks.append(path)
        return await look(owner, path)

    kept.store = counted  # type: ignore[method-assign]
    for turn, content in enumerate(("x", "another one")):
        (tmp_path / "a").write_text(content)
        for cluster in range(3):
            kept.store_soon(QueuedCluster(10 * turn + cluster, "me", {"Cmd": path}))
        kept.store_soon(QueuedCluster(10 * turn + 3, "you", {"Cmd": path}))
        await asyncio.gather(*kept._tasks)
    assert looks == [path] * 4
    digests = [hashlib.sha256(content).hexdigest() for content in (b"x", b"another one")]
    assert remembered == {10 * turn + cluster: digests[turn] for turn in range(2) for cluster in range(4)}


async def test_copies_nobody_needs_go(tmp_path: Path) -> None:
    remembered: dict[int, str | None] = {}
    kept = store(tmp_path, remembered)
    one, other = [await kept.store("me", script(tmp_path, name, name)) for name in "ab"]
    assert one is not None
    assert other is not None
    kept.restore(1, one)
    kept.restore(2, other)
    kept.tidy({1, 2}, before=2e9)
    assert len(os.listdir(tmp_path / "kept")) == 2, "a queued cluster needs its copy, however old"
    kept.tidy({1}, before=0.0)
    assert len(os.listdir(tmp_path / "kept")) == 2, "a fresh one stays for a while"
    assert remembered == {2: None}
    kept.tidy({1}, before=4e9)
    assert os.listdir(tmp_path / "kept") == [one]
    assert await kept.store("me", str(tmp_path / "b")) == other, "it is stored again when it is needed again"


def test_a_job_with_a_program_of_its_own_has_no_stored_one(tmp_path: Path) -> None:
    kept = store(tmp_path)
    cluster = QueuedCluster(1, "me", {"Cmd": "/a"})
    kept.restore(1, "0" * 64)
    assert kept.digest_of(QueuedJob(cluster, 0, IDLE, None, None)) == "0" * 64
    assert kept.digest_of(QueuedJob(cluster, 1, IDLE, {"Cmd": "/b"}, None)) is None
