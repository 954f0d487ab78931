"""Images as an enemy makes them: none writes beside itself, fills the disk or the memory, or leaves anything behind."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from pool.starter import layers
from pool.starter.layers import Room
from pool.starter.place import UnixAccount
from pool.starter.unpacking import ROOT, CannotUnpack, unpack
from tests.starter.test_unpacking import Entry, archive, layer

OWN = UnixAccount(os.getuid(), os.getgid(), None, "me", "/", switch=False)
MB = 1 << 20


def entries(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member, text in members:
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return data.getvalue()


def unpacked(tmp_path: Path, *parts: bytes, most: int | None = None) -> Path:
    image = archive(tmp_path / "image.tar", "docker", *parts)
    layers.unpack(str(image), str(tmp_path / "inner" / "root"), Room(most))
    return tmp_path / "inner" / "root"


@pytest.fixture(autouse=True)
def _place(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "outside").write_text("mine")


HOSTILE: dict[str, list[Entry]] = {
    "a link to the outside, and a file through it": [("l", "out", "../.."), ("f", "out/outside", "theirs")],
    "an absolute link, and a file through it": [("l", "out", "/"), ("f", "out/outside", "theirs")],
    "a hard link to the outside": [("h", "second", "../../outside"), ("f", "second", "theirs")],
    "a hard link through a link": [("l", "out", "../.."), ("h", "second", "out/outside")],
    "a whiteout of the outside": [("l", "out", "../.."), ("f", "out/.wh.outside", "")],
    "a whiteout of what is above": [("f", ".wh...", ""), ("f", ".wh..", "")],
    "an opaque directory that is a link": [("l", "out", "../.."), ("f", "out/.wh..wh..opq", "")],
    "a directory in the place of a link": [("l", "out", "../.."), ("d", "out", ""), ("f", "out/outside", "theirs")],
    "names that climb": [("f", "../../outside", "theirs"), ("f", "/../outside", "theirs"), ("d", "..", "")],
}


@pytest.mark.parametrize("what", HOSTILE)
def test_nothing_outside_is_touched(tmp_path: Path, what: str) -> None:
    with contextlib.suppress(ValueError):
        unpacked(tmp_path, layer([("f", "keep", "kept")]), layer(HOSTILE[what]))
    assert (tmp_path / "outside").read_text() == "mine"
    assert (tmp_path / "outside").stat().st_nlink == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image.tar", "inner", "outside"]
    assert [path.name for path in (tmp_path / "inner").iterdir()] == ["root"]


def test_no_file_gives_rights_and_none_is_a_device(tmp_path: Path) -> None:
    kinds = {"set": tarfile.REGTYPE, "null": tarfile.CHRTYPE, "disk": tarfile.BLKTYPE, "pipe": tarfile.FIFOTYPE}
    members = []
    for name, kind in kinds.items():
        member = tarfile.TarInfo(name)
        member.type, member.mode, member.uid, member.devmajor, member.devminor = kind, 0o7777, 0, 1, 3
        members.append((member, b""))
    root = unpacked(tmp_path, entries(*members))
    assert [path.name for path in root.iterdir()] == ["set"]
    assert (root / "set").stat().st_mode & 0o7777 == 0o777
    assert (root / "set").stat().st_uid == os.getuid()


def test_the_longest_names_and_deep_directories(tmp_path: Path) -> None:
    long, deep = "n" * 255, "/".join(["d"] * 1500)
    root = unpacked(tmp_path, layer([("f", long, "long"), ("f", f"{deep}/x", "")]), layer([("f", ".wh.d", "")]))
    assert [path.name for path in root.iterdir()] == [long]
    (tmp_path / "inner" / "inner").mkdir()
    with pytest.raises(ValueError, match="nnn in it: File name too long"):
        unpacked(tmp_path / "inner", layer([("f", "n" * 256, "")]))


def test_holes_stay_holes(tmp_path: Path) -> None:
    """A file of a terabyte with one byte in it, as GNU tar writes it."""
    member = tarfile.TarInfo("sparse")
    member.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.name": "sparse",
        "GNU.sparse.size": str(1 << 40),
        "GNU.sparse.numblocks": "1",
        "GNU.sparse.map": f"{1 << 39},1",
    }
    root = unpacked(tmp_path, entries((member, b"x")), most=MB)
    status = (root / "sparse").stat()
    assert (status.st_size, status.st_blocks * 512 < MB) == (1 << 40, True)
    with (root / "sparse").open("rb") as file:
        file.seek(1 << 39)
        assert file.read(2) == b"x\0"


def test_what_grows_beyond_measure_is_stopped(tmp_path: Path) -> None:
    large = tarfile.TarInfo("large")
    with pytest.raises(ValueError, match="unpacks to more than 1 MB"):
        unpacked(tmp_path, entries((large, bytes(2 * MB))), most=MB)
    (tmp_path / "inner" / "inner").mkdir()
    many: list[Entry] = [("d", str(number), "") for number in range(3000)]
    with pytest.raises(ValueError, match="unpacks to more than 1 MB"):
        unpacked(tmp_path / "inner", layer(many), most=MB)


def test_a_hundred_thousand_files(tmp_path: Path) -> None:
    root = unpacked(tmp_path, layer([("f", f"{number % 100}/{number}", "") for number in range(100_000)]))
    assert sum(len(files) for _, _, files in os.walk(root)) == 100_000


def _described(path: Path, manifest: object, config: object = None) -> None:
    with tarfile.open(path, "w") as tar:
        for name, value in (("manifest.json", manifest), ("config", config)):
            text = value if isinstance(value, bytes) else json.dumps(value).encode()
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))


WRONG: dict[str, tuple[object, object]] = {
    "no list": ({}, {}),
    "an empty list": ([], {}),
    "a number": ([5], {}),
    "no layers": ([{"Config": "config"}], {}),
    "layers that are none": ([{"Config": "config", "Layers": 5}], {}),
    "a config that is a list": ([{"Config": "config", "Layers": []}], []),
    "nested without end": (b"[" * 100_000, {}),
    "no text": (b"\xff\xfe", {}),
    "itself as a layer": ([{"Config": "config", "Layers": ["manifest.json"]}], {}),
    "a layer that is not there": ([{"Config": "config", "Layers": ["none"]}], {}),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_description_that_makes_no_sense_is_an_error_once(tmp_path: Path, what: str) -> None:
    """The job is held: were the process to die of it, the job would start again and again."""
    _described(tmp_path / "image.tar", *WRONG[what])
    with pytest.raises(CannotUnpack, match=r"cannot unpack the image image\.tar: ") as refused:
        await unpack("image.tar", tmp_path, OWN, asyncio.Event())
    assert not refused.value.retry
    assert sorted(os.listdir(tmp_path)) == ["image.tar", "inner", "outside"]


async def test_a_config_of_wrong_kinds_says_nothing(tmp_path: Path) -> None:
    said = {"Env": "A=B", "Entrypoint": 5, "Cmd": [None, "one"], "WorkingDir": ["x"]}
    archive(tmp_path / "image.tar", "docker", layer([("f", "x", "")]), config=said)
    done = await unpack("image.tar", tmp_path, OWN, asyncio.Event())
    assert (done.config.environment, done.config.entrypoint, done.config.command) == ({}, (), ("one",))


async def test_a_header_that_wants_all_memory_is_an_error(tmp_path: Path) -> None:
    """A header of four gigabytes, which takes nothing on disk."""
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.XHDTYPE, 4 << 30
    path = tmp_path / "image.tar"
    with path.open("wb") as file:
        file.write(member.tobuf(tarfile.GNU_FORMAT))
        file.truncate(5 << 30)
    with pytest.raises(CannotUnpack) as refused:
        await unpack("image.tar", tmp_path, OWN, asyncio.Event())
    assert not refused.value.retry
    assert not (tmp_path / ROOT).exists()


def test_a_layout_that_was_changed_is_found_out(tmp_path: Path) -> None:
    image = archive(tmp_path / "layout", "layout", layer([("f", "x", "mine")]))
    for blob in (image / "blobs" / "sha256").iterdir():
        if blob.read_bytes()[:2] == b"\x1f\x8b":
            other = layer([("f", "x", "theirs")])
            blob.write_bytes(other)
            assert hashlib.sha256(other).hexdigest() != blob.name
    with pytest.raises(ValueError, match="is damaged"):
        layers.unpack(str(image), str(tmp_path / "root"), Room(None))


def test_a_layout_names_no_file_beside_it(tmp_path: Path) -> None:
    image = archive(tmp_path / "layout", "layout", layer([("f", "x", "")]))
    (image / "index.json").write_text(json.dumps({"manifests": [{"digest": "sha256:../../../outside"}]}))
    with pytest.raises(ValueError, match="no SHA-256 digest"):
        layers.unpack(str(image), str(tmp_path / "root"), Room(None))
    (image / "index.json").unlink()
    (image / "index.json").symlink_to("../outside")
    with pytest.raises(OSError, match="symbolic links"):
        layers.unpack(str(image), str(tmp_path / "again"), Room(None))
