"""Files between home and scratch directory: nothing leaves it, nothing arrives by half."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pool.safe_directory import SafeDirectory
from pool.starter import staging
from pool.starter.staging import Output, StagingError, checked, open_output, receive, send_file


def outputs(scratch: Path, *arguments: Any) -> list[Output]:
    with SafeDirectory(scratch) as safe:
        return staging.outputs(safe, *arguments)


def top_level(scratch: Path) -> dict[str, tuple[int, int]]:
    with SafeDirectory(scratch) as safe:
        return staging.top_level(safe)


class Items:
    """A stream that is a list."""

    def __init__(self, *items: Any) -> None:
        self.items = list(items)
        self.sent: list[Any] = []

    async def send(self, item: Any) -> None:
        self.sent.append(item)

    async def __aiter__(self) -> AsyncIterator[Any]:
        for item in self.items:
            yield item


async def test_files_and_directories_arrive(tmp_path: Path) -> None:
    stream = Items(["dir", "d", 0o755], ["file", "d/x", 0o600, 5], b"he", b"llo", ["file", "empty", 0o755, 0], ["done"])
    assert await receive(stream, tmp_path, None) == 5
    assert (tmp_path / "d/x").read_bytes() == b"hello"
    assert (tmp_path / "d/x").stat().st_mode & 0o777 == 0o600
    assert os.access(tmp_path / "empty", os.X_OK)


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", ""])
async def test_nothing_is_written_outside(tmp_path: Path, name: str) -> None:
    with pytest.raises(StagingError, match="outside"):
        await receive(Items(["file", name, 0o644, 0], ["done"]), tmp_path, None)


async def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    scratch, victim = tmp_path / "s", tmp_path / "victim"
    scratch.mkdir()
    victim.write_text("safe")
    (scratch / "x").symlink_to(victim)
    await receive(Items(["file", "x", 0o644, 1], b"!", ["done"]), scratch, None)
    assert victim.read_text() == "safe"
    assert (scratch / "x").read_text() == "!"
    assert not (scratch / "x").is_symlink()
    (scratch / "d").symlink_to(tmp_path)
    for item in (["file", "d/victim", 0o644, 0], ["dir", "d", 0o755], ["dir", "d/more", 0o755]):
        with pytest.raises(StagingError, match="cannot write"):
            await receive(Items(item, ["done"]), scratch, None)
    assert victim.read_text() == "safe"
    assert not (tmp_path / "more").exists()


async def test_an_end_in_the_middle_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StagingError, match="in the middle") as caught:
        await receive(Items(["file", "x", 0o644, 9], b"half"), tmp_path, None)
    assert caught.value.retry


async def test_more_than_announced_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StagingError, match="more of a file"):
        await receive(Items(["file", "x", 0o644, 2], b"long", ["done"]), tmp_path, None)


class Meanwhile(Items):
    """A stream that does something when the head of a file is sent."""

    def __init__(self, act: Any) -> None:
        super().__init__()
        self.act = act

    async def send(self, item: Any) -> None:
        await super().send(item)
        if isinstance(item, list):
            self.act()


async def test_sending_a_file_that_shrank_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    with SafeDirectory(tmp_path) as safe, pytest.raises(StagingError, match="shorter"):
        await send_file(Meanwhile(lambda: os.truncate(tmp_path / "x", 1)), ["file", "x", 0o644], safe, "x")


async def test_what_grew_is_cut(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    stream = Meanwhile(lambda: (tmp_path / "x").write_bytes(b"abcdef"))
    with SafeDirectory(tmp_path) as safe:
        await send_file(stream, ["file", "x", 0o644], safe, "x")
    assert stream.sent == [["file", "x", 0o644, 3], b"abc"]


async def test_a_pipe_as_output_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")
    with SafeDirectory(tmp_path) as safe, pytest.raises(StagingError, match="not a regular file"):
        await send_file(Items(), ["file", "x", 0o644], safe, "x")


def test_new_and_changed_files_go_home(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("1")
    (tmp_path / "edited").write_text("1")
    before = top_level(tmp_path)
    (tmp_path / "edited").write_text("22")
    (tmp_path / "made").write_text("3")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/deep").write_text("4")
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert [found.name for found in outputs(tmp_path, before, None)] == ["edited", "made"]


def test_outputs_asked_for(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/deep").write_text("4")
    sub, deep = "sub", "sub/deep"
    assert outputs(tmp_path, {}, ("sub",)) == [Output(sub, "sub", directory=True), Output(deep, "sub/deep")]
    assert outputs(tmp_path, {}, ("sub/",)) == [Output(deep, "deep")]
    assert outputs(tmp_path, {}, ("sub/deep",)) == [Output(deep, "deep")]
    assert outputs(tmp_path, {}, ("sub/deep",), {"sub/deep": "/x"}) == [Output(deep, "sub/deep")]
    with pytest.raises(StagingError, match="did not leave its output file nothing"):
        outputs(tmp_path, {}, ("nothing",))
    with pytest.raises(StagingError, match="outside"):
        outputs(tmp_path, {}, ("../x",))


def test_a_link_that_leads_out_is_no_output(tmp_path: Path) -> None:
    """A node run by root would have read the file for a job that could not."""
    scratch, secret = tmp_path / "scratch", tmp_path / "secret"
    scratch.mkdir()
    secret.mkdir()
    (secret / "key").write_text("SECRET")
    (scratch / "there").symlink_to(secret)
    (scratch / "key").symlink_to(secret / "key")
    for name in ("there/key", "there", "key"):
        with pytest.raises(StagingError, match="did not leave"):
            outputs(scratch, {}, (name,))
    (scratch / "made").write_text("")
    (scratch / "alias").symlink_to("made")
    assert outputs(scratch, {}, ("alias",)) == [Output("made", "alias")]


def test_an_output_that_cannot_be_read_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken for a lost connection, and tried again for as long as the claim lived."""

    def forbidden(path: object, *_: object) -> object:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "sub").mkdir()
    (tmp_path / "x").touch()
    safe = SafeDirectory(tmp_path)
    monkeypatch.setattr("pool.safe_directory.open_beneath", lambda fd, name, *_: forbidden(os.fsdecode(name)))
    monkeypatch.setattr("pool.starter.staging.resolved", lambda safe, name: name)
    monkeypatch.setattr(safe, "status", lambda name: os.stat(tmp_path / name))
    for attempt in (
        lambda: staging.outputs(safe, {}, ("sub",)),
        lambda: staging.outputs(safe, {}, None),
        lambda: open_output(safe, "x"),
    ):
        with pytest.raises(StagingError, match=r"cannot read the job.s output .*: Permission denied") as caught:
            attempt()
        assert not caught.value.retry


def test_names_that_are_taken() -> None:
    assert checked("a//b/") == "a/b"
    for name in ("/a", "..", "a/../b", "", "a\0b"):
        with pytest.raises(StagingError, match="outside"):
            checked(name)


async def test_holes_stay_holes_both_ways(tmp_path: Path) -> None:
    """A file of 4 GB with 208 kB in it went to the submit side as 4 GB."""
    scratch, home = tmp_path / "scratch", tmp_path / "home"
    scratch.mkdir()
    home.mkdir()
    data = {place << 26: os.urandom(4096) for place in range(1, 53)}
    with (scratch / "sparse").open("wb") as file:
        for place, content in data.items():
            os.pwrite(file.fileno(), content, place)
        file.truncate(1 << 32)
    out = Items()
    with SafeDirectory(scratch) as safe:
        sent = await send_file(out, ["file", "sparse", 0o644], safe, "sparse")
    assert sent < 8 << 20
    assert sent == sum(len(item) for item in out.sent if isinstance(item, bytes))
    await receive(Items(*out.sent, ["done"]), home, None)
    with (home / "sparse").open("rb") as file:
        status = os.fstat(file.fileno())
        assert status.st_size == 1 << 32
        assert status.st_blocks * 512 < 8 << 20
        assert all(os.pread(file.fileno(), 4096, place) == content for place, content in data.items())


async def test_a_hole_is_part_of_what_was_announced(tmp_path: Path) -> None:
    for items in ([["hole", 1]], [["file", "x", 0o644, 5], ["hole", 6]], [["file", "x", 0o644, 5], ["hole", -1]]):
        with pytest.raises(StagingError, match="hole"):
            await receive(Items(*items, ["done"]), tmp_path, None)
