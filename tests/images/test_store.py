"""The image store: whole or not at all, each byte once, the last good one never dropped, damage found."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest

from pool.images import ImageDamaged, ImageError, ImageGone, ImageStore, Manifest, NoRoom
from pool.images.chunks import compress, digest_of, expand
from pool.images.manifest import CHUNK, DIGEST, HOLE
from pool.images.packs import Packs
from tests.conftest import REPOSITORY


def image(directory: Path, seed: int, size: int = 3 * CHUNK + 17) -> Path:
    """A directory as a keeper leaves it: bytes that do not compress, a hole, a small file in a folder."""
    directory.mkdir(parents=True)
    (directory / "memory").write_bytes(random.Random(seed).randbytes(size) + bytes(2 * CHUNK) + b"end")
    (directory / "deep").mkdir()
    (directory / "deep" / "state").write_text(f"registers {seed}")
    (directory / "deep" / "state").chmod(0o640)
    (directory / "empty").touch()
    return directory


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mode & 0o777)
        for path in directory.rglob("*")
        if path.is_file()
    }


def chunks_in(directory: Path) -> int:
    return len(list(Packs(directory).names("chunks")))


def test_what_was_kept_comes_back(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")
    source = image(tmp_path / "image", 1)
    kept = store.store_image("1.0", source, 123.5, kernel="6.18")
    assert (kept.generation, kept.size, kept.facts) == (1, 5 * CHUNK + 20 + 11, (("kernel", "6.18"),))
    again = ImageStore(tmp_path / "store")
    assert again.manifest("1.0") == kept
    again.restore(kept, tmp_path / "back")
    assert contents(tmp_path / "back") == contents(source)
    memory = next(part for part in kept.parts if part.name == "memory")
    assert HOLE in memory.chunks


def test_what_did_not_change_is_kept_once(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")
    source = image(tmp_path / "image", 1, 8 * CHUNK)
    store.store_image("1.0", source, 1.0)
    before = store.used
    with (source / "memory").open("r+b") as handle:
        handle.seek(CHUNK * 3 + 5)
        handle.write(b"dirty")
    store.store_image("1.0", source, 2.0)
    assert CHUNK <= store.used - before < 1.1 * CHUNK
    store.store_image("1.1", image(tmp_path / "other", 1, 8 * CHUNK), 3.0)
    assert store.used - before < 1.2 * CHUNK


def test_superseded_ones_go_and_their_bytes_with_them(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store", keep=2)
    for seed in range(5):
        store.store_image("1.0", image(tmp_path / f"i{seed}", seed), float(seed))
    assert store.generations("1.0") == [4, 5]
    store.restore(store.manifest("1.0", 4), tmp_path / "back")
    assert contents(tmp_path / "back") == contents(tmp_path / "i3")
    needed = {digest for n in (4, 5) for digest in store.manifest("1.0", n).digests()}
    assert chunks_in(tmp_path / "store") == len(needed)
    store.drop("1.0")
    assert (store.used, store.jobs()) == (0, [])
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]


def test_the_parents_of_an_incremental_one_stay(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store", keep=1)
    store.store_image("1.0", image(tmp_path / "a", 1), 1.0)
    for number, needs in ((2, (1,)), (3, (1, 2))):
        with store.begin("1.0") as draft:
            draft.commit(draft.add_file(image(tmp_path / f"i{number}", number)), float(number), needs=needs)
    assert store.generations("1.0") == [1, 2, 3]
    store.store_image("1.0", image(tmp_path / "b", 9), 4.0)
    assert store.generations("1.0") == [4]


def test_the_quota_drops_what_is_superseded_and_never_the_last(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store", keep=5, quota=int(11.5 * CHUNK))
    store.store_image("1.0", image(tmp_path / "a", 1), 1.0)
    store.store_image("1.0", image(tmp_path / "b", 2), 2.0)
    store.store_image("2.0", image(tmp_path / "c", 3), 3.0)
    store.store_image("2.0", image(tmp_path / "d", 4), 4.0)
    assert (store.generations("1.0"), store.generations("2.0")) == ([2], [1, 2])
    with pytest.raises(NoRoom, match="no room for a checkpoint"):
        store.store_image("3.0", image(tmp_path / "e", 5, 9 * CHUNK), 5.0)
    assert (store.generations("1.0"), store.generations("2.0"), store.jobs()) == ([2], [2], ["1.0", "2.0"])
    store.restore(store.manifest("2.0"), tmp_path / "back")
    used = {digest for job in store.jobs() for digest in store.manifest(job).digests()}
    assert chunks_in(tmp_path / "store") == len(used)


def test_a_draft_given_up_leaves_nothing_and_another_under_way_is_whole(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")
    one, other = store.begin("1.0"), store.begin("1.1")
    parts = one.add_file(image(tmp_path / "a", 1))
    assert other.add_file(tmp_path / "a") == parts
    with one:
        pass
    with other:
        other.commit(parts, 1.0)
    assert store.jobs() == ["1.1"]
    with store.begin("1.2") as third:
        third.add_file(image(tmp_path / "b", 2))
    store.drop("1.1")
    assert store.used == 0


def test_a_number_is_never_used_twice_and_missing_chunks_are_no_checkpoint(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")
    kept = store.store_image("1.0", image(tmp_path / "a", 1), 1.0)
    with store.begin("1.0") as draft, pytest.raises(ImageError, match="has a checkpoint 1 already"):
        draft.commit(kept.parts, 2.0, generation=1)
    elsewhere = ImageStore(tmp_path / "elsewhere")
    with elsewhere.begin("1.0") as draft, pytest.raises(ImageError, match="chunks of the checkpoint of job"):
        draft.commit(kept.parts, 2.0)
    with pytest.raises(ImageGone, match=r"no checkpoint 7 of job 1\.0"):
        store.manifest("1.0", 7)
    with pytest.raises(ImageGone, match=r"no checkpoint of job 9\.9"):
        store.manifest("9.9")


@pytest.mark.parametrize("how", ["byte", "gone", "short"])
def test_damage_is_found_and_the_one_before_is_whole(tmp_path: Path, how: str) -> None:
    store = ImageStore(tmp_path / "store")
    store.store_image("1.0", image(tmp_path / "a", 1), 1.0)
    newest = store.store_image("1.0", image(tmp_path / "b", 2), 2.0)
    spots = Packs(tmp_path / "store")._spots
    chunks = set(newest.digests()) - set(store.manifest("1.0", 1).digests())
    packed = {digest: spots[f"chunks/{digest.hex()[:2]}/{digest.hex()[2:]}"] for digest in chunks}
    # Several threads pack the chunks, in any order. A pack that ends too early damages the last chunk in it alone.
    digest, spot = max(packed.items(), key=lambda one: one[1].begin)
    data = bytearray(spot.pack.path.read_bytes())
    data[spot.begin + spot.size // 2] ^= 1
    if how == "gone":
        data[spot.begin : spot.begin + spot.size] = bytes(spot.size)
    spot.pack.path.write_bytes(data if how != "short" else data[: spot.begin + spot.size - 9])
    with pytest.raises(ImageError, match=digest.hex()):
        store.restore(newest, tmp_path / "back")
    store.restore(store.manifest("1.0", 1), tmp_path / "before")
    assert contents(tmp_path / "before") == contents(tmp_path / "a")


def test_a_damaged_manifest_is_set_aside_and_named(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")
    for seed in (1, 2):
        store.store_image("1.0", image(tmp_path / f"i{seed}", seed), float(seed))
    path = tmp_path / "store" / "jobs" / "1.0" / "000000002.manifest"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    again = ImageStore(tmp_path / "store")
    assert again.generations("1.0") == [1]
    assert [str(path) in line for line in again.damaged] == [True]
    assert path.with_suffix(".damaged").exists()
    assert ImageStore(tmp_path / "store").damaged == []


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../b", "", ".", "a//b", "nul\0"])
def test_a_manifest_cannot_name_files_elsewhere(name: str) -> None:
    body = msgpack.packb([1, "1.0", 1, 0.0, [[name, 0, 0o644, b""]], [], []])
    with pytest.raises(ImageDamaged):
        Manifest.unpack(b"poolimg\n" + hashlib.blake2b(body, digest_size=16).digest() + body)


WRITER = """
import sys, os, random
from pathlib import Path
from pool.images import ImageStore
store = ImageStore(Path(sys.argv[1]))
for seed in range(int(sys.argv[3]), 10**6):
    directory = Path(sys.argv[2]) / str(seed)
    directory.mkdir()
    (directory / "memory").write_bytes(random.Random(seed).randbytes(700_000))
    kept = store.store_image("1.0", directory, float(seed))
    print(kept.generation, seed, flush=True)
"""


def test_killed_at_any_moment_what_was_committed_is_there_and_nothing_else(tmp_path: Path) -> None:
    chance = random.Random(4)
    last = (0, -1)
    for turn in range(4):
        command = [sys.executable, "-c", WRITER, str(tmp_path / "store"), str(tmp_path), str(turn * 1000)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randint(1, 4)):
                line = writer.stdout.readline().split()
                last = (int(line[0]), int(line[1]))
            writer.kill()
            for text in writer.stdout:
                if len(text.split()) == 2 and text.endswith("\n"):
                    last = (int(text.split()[0]), int(text.split()[1]))
        store = ImageStore(tmp_path / "store")
        newest = store.manifest("1.0")
        assert newest.generation in (last[0], last[0] + 1)
        back = tmp_path / f"back{turn}"
        store.restore(newest, back)
        expected = random.Random(int(newest.created)).randbytes(700_000)
        assert (back / "memory").read_bytes() == expected
        assert not store.damaged
        needed = {digest for n in store.generations("1.0") for digest in store.manifest("1.0", n).digests()}
        assert chunks_in(tmp_path / "store") == len(needed)
        os.sync()


def test_chunks_of_stores_before_are_known_by_their_old_names() -> None:
    data = bytes(range(256)) * 100
    assert expand(hashlib.blake2b(data, digest_size=DIGEST).digest(), compress(data)) == data
    assert expand(digest_of(data), compress(data)) == data
    with pytest.raises(ImageDamaged):
        expand(digest_of(b"other"), compress(data))


def test_a_large_file_is_packed_in_order(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")
    source = tmp_path / "image"
    source.mkdir()
    pieces = [bytes([number]) * CHUNK for number in range(20)]
    (source / "memory").write_bytes(b"".join(pieces) + b"end")
    told: list[tuple[str, int, bytes]] = []
    with store.begin("1.0") as draft:
        draft.on_piece = lambda *piece: told.append(piece)
        kept = draft.commit(draft.add_file(source), 1.0)
    (part,) = kept.parts
    assert part.chunks == (b"", *map(digest_of, [*pieces[1:], b"end"]))
    assert told == [("memory", index, digest) for index, digest in enumerate(part.chunks) if digest]
