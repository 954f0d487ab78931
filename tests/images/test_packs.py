"""Chunks one behind the other in few files: what is removed gives its room back, and what a crash leaves is found."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path

import pytest

from pool.images import ImageStore, NoRoom, packs
from pool.images.blob_stores import Folder
from pool.images.packs import BLOCK, Packs
from tests.images.test_store import contents, image


def named(number: int) -> str:
    return f"chunks/{number:02x}/{number:038x}"


def data_of(number: int) -> bytes:
    return random.Random(number).randbytes(10_000 + number * 1000)


def filled(directory: Path, count: int) -> Packs:
    place = Packs(directory)
    for number in range(count):
        place.write(named(number), data_of(number))
    return place


def files_in(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "packs").iterdir())


def test_what_is_removed_gives_its_room_back(tmp_path: Path) -> None:
    place = filled(tmp_path, 8)
    (pack,) = (path for path in (tmp_path / "packs").iterdir() if path.suffix == "")
    before = pack.stat().st_blocks * 512
    for number in (0, 3, 7):
        place.remove(named(number))
    assert before - pack.stat().st_blocks * 512 >= sum(len(data_of(number)) for number in (0, 3, 7))
    for opened in (place, Packs(tmp_path)):
        left = [(named(number).removeprefix("chunks/"), len(data_of(number))) for number in (1, 2, 4, 5, 6)]
        assert list(opened.names("chunks")) == left
        assert all(opened.read(named(number)) == data_of(number) for number in (1, 2, 4, 5, 6))
        with pytest.raises(FileNotFoundError):
            opened.read(named(3))


def test_a_pack_goes_with_the_last_of_its_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "PACK", 40_000)
    place = filled(tmp_path, 8)
    assert len(files_in(tmp_path)) > 4
    for number in range(8):
        place.remove(named(number))
    assert files_in(tmp_path) == []
    place.write(named(1), data_of(1))
    place = Packs(tmp_path)
    place.remove(named(1))
    assert files_in(tmp_path) == []


def test_what_was_removed_and_came_again_is_there(tmp_path: Path) -> None:
    place = filled(tmp_path, 3)
    place.remove(named(1))
    place.write(named(1), b"another")
    assert [Packs(tmp_path).read(named(number)) for number in (0, 1)] == [data_of(0), b"another"]
    place.write(named(0), b"over it")
    place.sync([named(0), named(1)])
    again = Packs(tmp_path)
    assert sorted(size for _, size in again.names("chunks")) == [7, 7, len(data_of(2))]
    assert again.read(named(0)) == b"over it"


@pytest.mark.parametrize("cut", ["row", "rows", "bytes", "file"])
def test_what_a_crash_cut_off_is_not_there(tmp_path: Path, cut: str) -> None:
    filled(tmp_path, 4)
    pack, index = tmp_path / "packs" / "00000001", tmp_path / "packs" / "00000001.index"
    if cut == "file":
        pack.unlink()
    else:
        path, left = {"row": (index, -7), "rows": (index, -32), "bytes": (pack, -9)}[cut]
        os.truncate(path, path.stat().st_size + left)
    place = Packs(tmp_path)
    expected = [] if cut == "file" else [named(number).removeprefix("chunks/") for number in range(3)]
    assert [name for name, _ in place.names("chunks")] == expected
    place.write(named(9), data_of(9))
    assert Packs(tmp_path).read(named(9)) == data_of(9)


def test_chunks_that_are_files_stay_readable_and_can_go(tmp_path: Path) -> None:
    store = ImageStore(Folder(tmp_path / "store"))
    kept = store.store_image("1.0", image(tmp_path / "image", 1), 1.0)
    (tmp_path / "store" / "spare" / "7").write_bytes(b"x")
    again = ImageStore(tmp_path / "store")
    later = again.store_image("1.0", image(tmp_path / "later", 2), 2.0)
    for one, source in ((kept, "image"), (later, "later")):
        again.restore(one, tmp_path / f"back{one.generation}")
        assert contents(tmp_path / f"back{one.generation}") == contents(tmp_path / source)
    again.drop("1.0")
    assert again.used == 0
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file() and path.parent.name != "spare"]


def test_where_no_holes_can_be_made_chunks_are_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(packs, "_make_hole", refuse)
    place = filled(tmp_path, 2)
    assert files_in(tmp_path) == []
    assert place.read(named(1)) == data_of(1)
    assert (tmp_path / named(1)).is_file()


def test_a_full_disk_keeps_nothing_of_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ImageStore(tmp_path / "store")
    store.store_image("1.0", image(tmp_path / "image", 1), 1.0)
    before = sorted(Packs(tmp_path / "store").names("chunks"))

    def write(fd: int, data: bytes, begin: int) -> None:
        os.pwrite(fd, data[:BLOCK], begin)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(packs, "_write_at", write)
    with pytest.raises(NoRoom):
        store.store_image("2.0", image(tmp_path / "other", 2), 2.0)
    assert sorted(Packs(tmp_path / "store").names("chunks")) == before
    store.restore(store.manifest("1.0"), tmp_path / "back")


def test_two_that_synchronise_at_a_time_both_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = filled(tmp_path, 2)
    begun, go_on, done = threading.Event(), threading.Event(), []

    def slowly(path: Path) -> None:
        first = not begun.is_set()
        begun.set()
        if first:
            go_on.wait(20)
        done.append(path.name)

    monkeypatch.setattr(packs, "synchronise", slowly)
    first = threading.Thread(target=place.sync, args=([named(0)],))
    first.start()
    assert begun.wait(20)
    place.sync([named(1)])
    assert done[:2] == ["00000001", "00000001.index"]
    go_on.set()
    first.join()
    done.clear()
    place.sync([named(0), named(1)])
    assert done == []


def test_many_at_a_time_get_what_belongs_to_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "PACK", 100_000)
    place = Packs(tmp_path)
    wrong: list[object] = []

    def use(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(200):
            number = chance.randrange(6)
            try:
                deed = chance.randrange(3)
                if deed == 0:
                    place.write(named(number), data_of(number))
                elif deed == 1:
                    place.remove(named(number))
                elif place.read(named(number)) != data_of(number):
                    wrong.append(number)
            except FileNotFoundError:
                pass
            except Exception as error:
                wrong.append(error)

    users = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert wrong == []
    left = [name for name, _ in place.names("chunks")]
    assert [name for name, _ in Packs(tmp_path).names("chunks")] == left
    for number in range(6):
        place.remove(named(number))
    assert files_in(tmp_path) == []
