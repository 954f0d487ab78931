"""The files that an execute machine may put into a user's directories at a job's end: those asked for, and nothing
else.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pool.errors import PoolError
from pool.jobs.activation import Activation, FileMode
from pool.shadow.access import OUTPUT_MARK, Access
from pool.shadow.arriving import Note
from pool.shadow.executables import ExecutableStore
from pool.shadow.files import LocalFiles
from pool.shadow.shadow import Shadow
from pool.wire import Stream


@dataclass
class Items:
    """A stream whose other side has said all it will say."""

    brought: list[Any]
    sent: list[Any] = field(default_factory=list)

    async def __aiter__(self) -> AsyncIterator[Any]:
        for item in self.brought:
            yield item

    async def send(self, item: Any) -> None:
        self.sent.append(item)

    async def finish(self) -> None:
        pass


def start_of(home: Path, outputs: tuple[str, ...] | None, remaps: dict[str, str]) -> Activation:
    return Activation(
        (1, 0),
        1,
        "alice",
        FileMode.TRANSFER,
        "/bin/true",
        None,
        ("true",),
        {},
        str(home),
        outputs=outputs,
        remaps=remaps,
    )


class Notes(dict[str, bytes]):
    """The schedd's part of its shadow."""

    async def keep(self, name: str, value: bytes | None) -> None:
        if value is None:
            del self[name]
        else:
            self[name] = value

    async def tell(self, job: Any, text: str) -> None:
        raise AssertionError(f"no job was to be told {text}")


async def bring(
    home: Path, start: Activation, *items: Any, keep: Note | None = None, told: list[str] | None = None
) -> Any:
    async def tell(job: Any, text: str) -> None:
        (told if told is not None else []).append(text)

    files = LocalFiles()
    claims = {"c": SimpleNamespace(job={"UserLog": "job.log"}, run=1, start=start, owner="alice", node_outputs=None)}
    executables = ExecutableStore(None, lambda _: files)
    shadow = Shadow(SimpleNamespace(claims=claims), executables, lambda _: files, keep or Notes().keep, tell)
    stream = Items([*items, ["done"]])
    try:
        await shadow.store_outputs({"claim": "c", "run": 1}, cast(Stream, stream))
    finally:
        await files.close()
    return stream.sent[-1]


@pytest.mark.parametrize(
    ("outputs", "remaps", "name", "place"),
    [
        (None, {}, "out.txt", "out.txt"),
        (("deep/out.txt",), {}, "out.txt", "out.txt"),
        (("deep/out.txt",), {"deep/out.txt": "b.txt"}, "deep/out.txt", "b.txt"),
        ((".state",), {}, ".state", ".state"),
        (("results",), {}, "results/one", "results/one"),
        (("results/",), {}, "one", "one"),
    ],
)
async def test_what_was_asked_for_comes_home(
    tmp_path: Path, outputs: tuple[str, ...] | None, remaps: dict[str, str], name: str, place: str
) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    assert (await bring(tmp_path, start_of(tmp_path, outputs, remaps), ["file", name, 0o644, 2], b"hi")) == ["ok", 2]
    assert (tmp_path / place).read_bytes() == b"hi"


@pytest.mark.parametrize(
    ("outputs", "name"),
    [
        (None, ".profile"),
        (None, ".ssh/authorized_keys"),
        (None, "bin/ls"),
        (("out.txt",), "other.txt"),
        (("out.txt",), ".profile"),
        (("results",), "results2"),
        (("results/",), ".profile"),
        ((), "any"),
        (("out.txt",), "../out.txt"),
    ],
)
async def test_what_was_not_asked_for_is_refused(tmp_path: Path, outputs: tuple[str, ...] | None, name: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for item in (["file", name, 0o644, 2], ["dir", name, 0o755]):
        with pytest.raises(PoolError, match="refused"):
            await bring(home, start_of(home, outputs, {}), item, b"hi")
    assert sorted(os.listdir(home)) + os.listdir(tmp_path) == ["home"]


async def test_what_nobody_named_replaces_nothing_of_its_owners(tmp_path: Path) -> None:
    """A machine that somebody has broken into overwrote any visible file there, and wrote through links."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.write_text("mine")
    (home / "link").symlink_to(elsewhere)
    (home / "dangling").symlink_to(tmp_path / "new")
    os.mkfifo(home / "fifo")
    for name in ("script.sh", "prog"):
        (home / name).write_text("mine")
        (home / name).chmod(0o755)
    (home / "job.log").write_text("mine")
    start = replace(start_of(home, None, {}), executable=str(home / "prog"), inputs=("input.sh",))
    for name in ("link", "dangling", "fifo", "script.sh", "prog", "job.log"):
        with pytest.raises(PoolError) as caught:
            await bring(home, start, ["file", name, 0o755, 4], b"evil")
        assert "transfer_output_files" in caught.value.hint
        assert not caught.value.retry
    assert elsewhere.read_text() == "mine"
    assert not (tmp_path / "new").exists()
    assert [(home / name).read_text() for name in ("script.sh", "prog", "job.log")] == ["mine"] * 3
    (home / "input.sh").write_text("old")
    (home / "input.sh").chmod(0o755)
    for name in ("input.sh", "new"):
        await bring(home, start, ["file", name, 0o644, 3], b"new")
        assert (home / name).read_text() == "new"
    named = replace(start, outputs=("script.sh", "link"))
    await bring(home, named, ["file", "script.sh", 0o644, 3], b"new", ["file", "link", 0o644, 3], b"new")
    assert ((home / "script.sh").read_text(), elsewhere.read_text()) == ("new", "new")
    remapped = replace(start, remaps={"a": "thesis"})
    (home / "thesis").write_text("old")
    await bring(home, remapped, ["file", "a", 0o644, 3], b"new")
    assert (home / "thesis").read_text() == "new"


async def test_a_file_of_data_that_nobody_named_stays_and_the_output_is_put_beside_it(tmp_path: Path) -> None:
    start, told = start_of(tmp_path, None, {}), list[str]()
    if not keeps_attributes(tmp_path):
        pytest.skip("needs a file system with extended attributes of users")
    (tmp_path / "thesis").write_text("mine")
    await bring(tmp_path, start, ["file", "thesis", 0o644, 4], b"evil", ["file", "out", 0o644, 3], b"one", told=told)
    assert (tmp_path / "thesis").read_text() == "mine"
    assert (tmp_path / f"thesis.{start.name}").read_text() == "evil"
    (text,) = told
    assert text.startswith(f"thesis was written as thesis.{start.name}: ")
    # A later run replaces what an earlier one has brought, as users expect; but not once they have changed it.
    for turn in ("two", "six"):
        items = (["file", "out", 0o755, 3], turn.encode(), ["file", "thesis", 0o644, 3], turn.encode())
        await bring(tmp_path, start, *items, told=told)
        names = ("out", "thesis", f"thesis.{start.name}")
        assert [(tmp_path / name).read_text() for name in names] == [turn, "mine", turn]
    (tmp_path / "out").chmod(0o644)
    with (tmp_path / "out").open("a") as file:
        file.write(" and mine")
    await bring(tmp_path, start, ["file", "out", 0o644, 3], b"new", told=told)
    assert (tmp_path / "out").read_text() == "six and mine"
    assert (tmp_path / f"out.{start.name}").read_text() == "new"
    # Beside it, too, nothing of its owner's is replaced.
    (tmp_path / f"out.{start.name}").write_text("mine as well")
    with pytest.raises(PoolError, match="out"):
        await bring(tmp_path, start, ["file", "out", 0o644, 3], b"new", told=told)
    assert (tmp_path / f"out.{start.name}").read_text() == "mine as well"


def keeps_attributes(directory: Path) -> bool:
    """Whether files there can have attributes of users'."""
    probe = directory / "probe"
    probe.touch()
    try:
        os.setxattr(probe, OUTPUT_MARK, b"x")
    except OSError:
        return False
    finally:
        probe.unlink()
    return True


@pytest.mark.parametrize("item", [["file", "out", 0o4755, 3], ["dir", "out", 0o2777], ["file", "out", -1, 3], ["file"]])
async def test_nothing_comes_home_that_runs_as_its_owner(tmp_path: Path, item: list[Any]) -> None:
    """A machine that somebody has broken into made a program of the owner's with the set-user-ID bit."""
    with pytest.raises(PoolError, match="a stream said"):
        await bring(tmp_path, start_of(tmp_path, None, {}), item, b"new")
    assert os.listdir(tmp_path) == []
    number = (access := Access()).create(str(tmp_path / "out"), 0o4755)
    access.commit(number, sync=False)
    assert (tmp_path / "out").stat().st_mode & 0o7000 == 0


async def test_holes_stay_holes(tmp_path: Path) -> None:
    """Of an output on the submit side, and of an input on its way from there."""
    items = [["file", "out", 0o644, 1 << 32], b"begin", ["hole", (1 << 32) - 8], b"end"]
    assert await bring(tmp_path, start_of(tmp_path, None, {}), *items) == ["ok", 8]
    status = (tmp_path / "out").stat()
    assert status.st_size == 1 << 32
    assert status.st_blocks * 512 < 1 << 20
    for wrong in ([["hole", 5]], [["file", "x", 0o644, 5], ["hole", 6]]):
        with pytest.raises(PoolError, match="hole"):
            await bring(tmp_path, start_of(tmp_path, None, {}), *wrong)
    files, came, number = LocalFiles(), bytearray(), 0
    async for piece in files.pieces(str(tmp_path / "out"), 1 << 32):
        if isinstance(piece, int):
            number += piece
        else:
            came += piece
    await files.close()
    assert len(came) + number == 1 << 32
    assert len(came) < 1 << 20
    assert came.startswith(b"begin")
    assert came.endswith(b"end")
