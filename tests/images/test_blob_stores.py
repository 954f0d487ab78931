"""The places that images are kept in: the same store over a directory, file://, and an object store in memory."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pool.errors import PoolError
from pool.images import ImageError, ImageStore, NoRoom
from pool.images.blob_stores import BlobStore, Bounded, Folder, Objects
from pool.images.chunks import compress, digest_of
from pool.images.packs import Packs, place_at
from tests.conftest import REPOSITORY
from tests.images.s3 import served
from tests.images.test_store import contents, image

Made = Callable[[], BlobStore]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of an object store in a process of its own, as s3fs is to find it; the URL of it."""
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("s3fs", reason="needs s3fs, of the package's extra 'test'")
    with served(tmp_path_factory.mktemp("s3")) as settings, pytest.MonkeyPatch.context() as patch:
        patch.setitem(fsspec.config.conf, "s3", settings)
        yield "s3://bucket"


@pytest.fixture(params=["directory", "file://", "memory://", "s3://"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """Opens the same place each time."""
    if request.param == "s3://":
        inside = f"{request.getfixturevalue('bucket')}/{uuid.uuid4().hex}"
        return lambda: place_at(inside)
    where = {"directory": str(tmp_path / "place"), "file://": f"file://{tmp_path}/place"}
    text = where.get(request.param, f"memory://{uuid.uuid4().hex}/checkpoints")
    return lambda: place_at(text)


def test_what_was_written_is_there_and_what_was_removed_is_not(made: Made) -> None:
    place = made()
    assert list(place.names("chunks")) == []
    place.write("chunks/ab/cd", b"one")
    place.write("jobs/1.0/000000001.manifest", b"two", durable=True)
    place.write("chunks/ab/cd", b"other")
    place.sync(["chunks/ab/cd"])
    again = made()
    assert list(again.names("chunks")) == [("ab/cd", 5)]
    assert list(again.names("jobs")) == [("1.0/000000001.manifest", 3)]
    assert again.read("chunks/ab/cd") == b"other"
    again.remove("chunks/ab/cd")
    again.remove("chunks/ab/cd")
    again.remove("jobs/1.0/000000001.manifest", last=True)
    assert [*again.names("chunks"), *again.names("jobs")] == []
    with pytest.raises(FileNotFoundError):
        again.read("chunks/ab/cd")


def test_a_file_that_was_removed_is_written_again_under_another_name(tmp_path: Path) -> None:
    place, inodes = Folder(tmp_path), []
    for name, content in (("one", b"x" * 9000), ("two", b"longer" * 9000), ("three", b"short")):
        place.write(f"chunks/{name}", content)
        assert place.read(f"chunks/{name}") == content
        inodes.append((tmp_path / "chunks" / name).stat().st_ino)
        assert list(place.names("chunks")) == [(name, len(content))]
        place.remove(f"chunks/{name}")
        assert list(place.names("chunks")) == []
        place = Folder(tmp_path)  # which finds what lies ready
    assert len(set(inodes)) == 1
    assert [path.stat().st_size for path in (tmp_path / "spare").iterdir()] == [1]


def test_not_too_many_lie_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pool.images.blob_stores.SPARES", 2)
    place = Folder(tmp_path)
    for name in "abc":
        place.write(name, b"content")
    for name in "abc":
        place.remove(name)
    assert len(list((tmp_path / "spare").iterdir())) == 2


def test_what_is_read_is_what_was_written_under_that_name(tmp_path: Path) -> None:
    """Whatever is removed, and written under another name, at the same moment."""
    place, stop, found = Folder(tmp_path), threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            for name in "ab":
                try:
                    found.append((name, place.read(name)))
                except FileNotFoundError:
                    found.append((name, b""))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(300):
            for name in "ab":
                place.write(name, name.encode() * 5000)
                place.remove(name)
    finally:
        stop.set()
        reader.join()
    assert all(content in (b"", name.encode() * 5000) for name, content in found)


def test_a_store_goes_on_where_it_was(made: Made, tmp_path: Path) -> None:
    store = ImageStore(made())
    source = image(tmp_path / "image", 1)
    kept = store.store_image("1.0", source, 1.0)
    later = store.store_image("1.0", image(tmp_path / "later", 2), 2.0)
    again = ImageStore(made())
    assert again.generations("1.0") == [1, 2]
    assert again.used == store.used
    again.restore(again.manifest("1.0", 1), tmp_path / "back")
    assert contents(tmp_path / "back").keys() == contents(source).keys()
    assert again.manifest("1.0", 1) == kept
    again.drop("1.0", 1)
    assert ImageStore(made()).generations("1.0") == [2]
    assert later == again.manifest("1.0")
    again.drop("1.0")
    empty = made()
    assert [*empty.names("chunks"), *empty.names("jobs")] == []


def test_what_a_crash_left_is_found(made: Made, tmp_path: Path) -> None:
    """Chunks without a manifest are dropped: that was tentative. A manifest counts if all of it is there."""
    store = ImageStore(made())
    store.store_image("1.0", image(tmp_path / "image", 1), 1.0)
    draft = store.begin("2.0")
    draft.add_file(image(tmp_path / "other", 2))
    used = store.used
    again = ImageStore(made())
    assert again.jobs() == ["1.0"]
    assert again.used < used
    place = made()
    place.remove(f"chunks/{next(iter(place.names('chunks')))[0]}")
    third = ImageStore(made())
    assert third.jobs() == []
    assert len(third.damaged) == 1
    assert ImageStore(made()).damaged == []


KILLED = """
import sys, random, os, signal
from pathlib import Path
from pool.images import ImageStore
from pool.images import packs

class Place(packs.Packs):
    left = int(sys.argv[2])
    def write(self, name, data, **more):
        Place.left -= 1
        if Place.left == 0 and name.startswith("chunks"):
            pack, begin = self._begin(len(data))
            packs._write_at(pack.files[0], data[: len(data) // 2], begin)
            os.kill(os.getpid(), signal.SIGKILL)
        if Place.left == 0:
            aside = self._directory / name
            aside.parent.mkdir(parents=True, exist_ok=True)
            aside.with_name("." + aside.name).write_bytes(data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(name, data, **more)

store = ImageStore(Place(Path(sys.argv[1])))
store.store_image("1.0", Path(sys.argv[3]), 2.0)
"""


@pytest.mark.parametrize("writes", [1, 3, 5, 6])
def test_killed_between_tentative_and_committed(tmp_path: Path, writes: int) -> None:
    """kill -9 in the middle of a chunk, or of the manifest: the one before stands, and nothing else is left."""
    first, second = image(tmp_path / "first", 1), image(tmp_path / "second", 2)
    ImageStore(tmp_path / "store").store_image("1.0", first, 1.0)
    before = sorted(Packs(tmp_path / "store").names("chunks"))
    arguments = [str(tmp_path / "store"), str(writes), str(second)]
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], cwd=REPOSITORY, check=False)
    assert done.returncode == -signal.SIGKILL
    store = ImageStore(tmp_path / "store")
    assert store.generations("1.0") == [1]
    assert sorted(Packs(tmp_path / "store").names("chunks")) == before
    assert len(list((tmp_path / "store" / "packs").iterdir())) == 2
    assert not list((tmp_path / "store").rglob(".*"))
    store.restore(store.manifest("1.0"), tmp_path / "back")
    assert contents(tmp_path / "back") == contents(first)


class Full(Folder):
    """A disk of so many bytes."""

    room = 10**9
    one = threading.Lock()

    def write(self, name: str, data: bytes, *, durable: bool = False) -> None:
        with self.one:
            taken = sum(size for folder in ("chunks", "jobs") for _, size in self.names(folder))
            if taken + len(data) > self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().write(name, data, durable=durable)


def test_on_a_full_disk_what_is_superseded_goes_and_the_last_good_one_never(tmp_path: Path) -> None:
    place = Full(tmp_path / "place")
    store = ImageStore(place)
    for number in range(2):
        store.store_image("1.0", image(tmp_path / f"image{number}", number), float(number))
    assert store.generations("1.0") == [1, 2]
    place.room = store.used + 100_000
    kept = store.store_image("2.0", image(tmp_path / "other", 7), 3.0)
    assert (store.generations("1.0"), store.generations("2.0")) == ([2], [1])
    place.room = store.used + 100_000
    with pytest.raises(NoRoom):
        store.store_image("2.0", image(tmp_path / "more", 8), 4.0)
    assert (store.generations("1.0"), store.generations("2.0")) == ([2], [1])
    store.restore(kept, tmp_path / "back")


def test_a_store_that_fails_says_so_in_one_line(tmp_path: Path) -> None:
    class Broken(Objects):
        def write(self, name: str, data: bytes, *, durable: bool = False) -> None:
            raise OSError(errno.EIO, "AccessDenied: no")

    store = ImageStore(Broken(f"memory://{uuid.uuid4().hex}"))
    with pytest.raises(ImageError, match=r"^cannot keep a checkpoint in memory://.*: accessdenied: no$"):
        store.store_image("1.0", image(tmp_path / "image", 1), 1.0)


def test_a_kind_that_nobody_knows_is_refused() -> None:
    with pytest.raises(PoolError, match="cannot keep checkpoints in nosuch://bucket"):
        place_at("nosuch://bucket/path")


def test_errors_of_a_plug_in_are_told_as_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Objects(f"memory://{uuid.uuid4().hex}")

    class Denied(Exception):
        pass

    def deny(*_: object) -> bytes:
        raise Denied("by policy")

    monkeypatch.setattr(place._files, "cat_file", deny)
    with pytest.raises(OSError, match="Denied: by policy"):
        place.read("chunks/ab/cd")


def test_random_use_of_two_kinds_is_the_same(tmp_path: Path) -> None:
    chance = random.Random(5)
    folder, objects = ImageStore(tmp_path / "store"), ImageStore(Objects(f"memory://{uuid.uuid4().hex}"))
    for turn in range(30):
        job = f"{chance.randrange(3)}.0"
        if chance.random() < 0.7:
            source = image(tmp_path / f"image{turn}", chance.randrange(4), 40_000)
            assert folder.store_image(job, source, turn) == objects.store_image(job, source, turn)
        else:
            folder.drop(job)
            objects.drop(job)
        assert (folder.jobs(), folder.used) == (objects.jobs(), objects.used)


class Together(Folder):
    """A place where nothing is written or read before as many are there as it says it takes."""

    at_once = 4

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.all_there = threading.Barrier(self.at_once, timeout=20)

    def write(self, name: str, data: bytes, *, durable: bool = False) -> None:
        if name.startswith("chunks"):
            self.all_there.wait()
        super().write(name, data, durable=durable)

    def read(self, name: str) -> bytes:
        if name.startswith("chunks"):
            self.all_there.wait()
        return super().read(name)


def test_a_place_far_away_is_given_and_asked_several_chunks_at_a_time(tmp_path: Path) -> None:
    store = ImageStore(Together(tmp_path / "far"))
    pieces = [(digest_of(data), compress(data)) for data in (bytes([number]) * 100 for number in range(8))]
    with store.begin("1.0") as draft:
        draft.add_chunks(pieces)
        assert store.packed_all([digest for digest, _ in pieces]) == [packed for _, packed in pieces]


def test_of_several_that_do_not_fit_the_first_says_so(tmp_path: Path) -> None:
    place = Full(tmp_path / "far")
    place.at_once, place.room = 4, 0
    store = ImageStore(place)
    pieces = [(digest_of(data), compress(data)) for data in (bytes([number]) * 100 for number in range(8))]
    with store.begin("1.0") as draft, pytest.raises(NoRoom):
        draft.add_chunks(pieces)
    assert store.used == 0


def test_what_goes_to_a_place_may_be_bounded(tmp_path: Path) -> None:
    asked: list[int] = []
    place = Bounded(Folder(tmp_path / "near"), asked.append)
    store = ImageStore(place)
    kept = store.store_image("1.0", image(tmp_path / "image", 1), 1.0)
    assert sum(asked) == store.used + len(kept.pack())
    store.restore(kept, tmp_path / "back")
    assert contents(tmp_path / "back") == contents(tmp_path / "image")
