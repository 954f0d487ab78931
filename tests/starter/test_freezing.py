"""A scratch directory into an image and back: exactly what lay there, nowhere else, whoever made the image."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import msgpack
import pytest

from pool.images import Draft, ImageDamaged, ImageError, ImageStore, Manifest
from pool.safe_directory import SafeDirectory
from pool.starter import freezing
from pool.starter.freezing import ScratchSnapshot
from pool.starter.keeper import NativeKeepers
from tests.starter.support import PYTHON, soon, spec, until

#: Two files that always say the same, but for a moment; and a third that is written by way of a mapping.
TWINS = """
import mmap, os
mapped = mmap.mmap(os.open("mapped", os.O_RDWR), 4096)
n = 0
while True:
    n += 1
    for name in ("one", "two"):
        with open(name, "w") as file:
            file.write("%09d" % n)
    mapped[:9] = b"%09d" % n
    if n == 50:
        open("ready", "w").close()
"""


def put_back(store: ImageStore, image: Manifest, scratch: Path) -> dict[str, tuple[int, int]]:
    """Restore an image's files."""
    directory = scratch.with_name(f"{scratch.name}.image")
    store.restore(image, directory)
    return freezing.restore_files(directory, scratch, None)


def kept(store: ImageStore, scratch: Path, directory: Path, frozen: ScratchSnapshot | None = None) -> Manifest:
    """An image of a job that has ended with it."""
    directory.mkdir()
    with store.begin("1.0") as draft:
        parts = (frozen or ScratchSnapshot(scratch)).gather(draft, directory, {"input": (1, 2)})
        return draft.commit(parts, 1.0)


def listed(top: Path) -> dict[bytes, tuple[Any, ...]]:
    """All that a directory is, without what a copy of it cannot share."""
    found: dict[bytes, tuple[Any, ...]] = {}
    with SafeDirectory(top) as safe:
        found_there = list(freezing.entries(safe))
    for entry in found_there:
        path = os.path.join(os.fsencode(top), entry.name)
        status = os.lstat(path)
        more: Any = entry.target
        if stat.S_ISREG(entry.mode):
            Path(os.fsdecode(path)).chmod(0o600)
            more = (Path(os.fsdecode(path)).read_bytes(), status.st_nlink, status.st_blocks < status.st_size // 1024)
        found[entry.name] = (entry.mode, entry.mark[2], more)
    return found


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store")


def test_everything_comes_back(store: ImageStore, tmp_path: Path, scratch: Path) -> None:
    (scratch / "deep" / "er").mkdir(parents=True)
    (scratch / "deep" / "er" / ".hidden").write_text("text")
    (scratch / "deep" / "er" / ".hidden").chmod(0)
    (scratch / "program").write_bytes(os.urandom(700_000))
    (scratch / "program").chmod(0o755)
    (scratch / "again").hardlink_to(scratch / "program")
    (scratch / "empty").touch()
    with (scratch / "sparse").open("wb") as file:
        file.truncate(50_000_000)
        file.seek(30_000_000)
        file.write(b"middle")
    (scratch / "link").symlink_to("/etc/passwd")
    (scratch / "loop").symlink_to("deep")
    os.mkfifo(scratch / "pipe", 0o640)
    Path(os.fsdecode(os.path.join(os.fsencode(scratch), b"n\xe4me\n"))).write_text("no text")
    os.utime(scratch / "program", ns=(1, 1_234_567_890_123_456_789))
    (scratch / "deep" / "er").chmod(0o500)
    (scratch / "deep").chmod(0)
    image = kept(store, scratch, tmp_path / "image")
    back = tmp_path / "back"
    back.mkdir()
    assert freezing.has_files(image)
    assert put_back(store, image, back) == {"input": (1, 2)}
    for name, mode in (("deep", 0), ("deep/er", 0o500), ("deep/er/.hidden", 0)):
        assert stat.S_IMODE((back / name).stat().st_mode) == mode
        for top in (scratch, back):  # whoever looks has to open it
            (top / name).chmod(0o700)
    assert listed(back) == listed(scratch)


def test_what_did_not_change_is_not_read_again(
    store: ImageStore, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("input", "output"):
        (scratch / name).write_bytes(os.urandom(300_000))
    frozen, added = ScratchSnapshot(scratch), []
    first = kept(store, scratch, tmp_path / "first", frozen)
    (scratch / "output").write_bytes(b"more")
    plain = Draft.add

    def noted(self: Draft, name: str, file: BinaryIO) -> Any:
        added.append(file.name)
        return plain(self, name, file)

    monkeypatch.setattr(Draft, "add", noted)
    second = kept(store, scratch, tmp_path / "second", frozen)
    assert [part.chunks for part in second.parts].count(first.parts[0].chunks) == 1
    assert len(added) == 2  # what changed, and the tree


async def test_a_job_that_runs_on_is_kept_as_of_one_moment(
    store: ImageStore, tmp_path: Path, scratch: Path, best: NativeKeepers
) -> None:
    if not best.abilities.checkpoint or not best.abilities.full:
        pytest.skip("needs the ability checkpoint and the ability full")
    (scratch / "twins.py").write_text(TWINS)
    (scratch / "mapped").write_bytes(bytes(4096))
    wanted = replace(
        spec(scratch, PYTHON, "/job/twins.py"), cwd="/job", stdout="/job/out", stderr="/job/err", fixed=True
    )
    keeper = await soon(best.start(wanted))
    frozen = ScratchSnapshot(scratch)
    await until(lambda: (scratch / "ready").exists())
    settled = (scratch / "ready").lstat().st_ctime_ns + freezing.SETTLED
    await until(lambda: time.time_ns() > settled)
    seen = {0}

    def number(place: Path) -> int:
        return int((place / "mapped").read_bytes()[:9])

    for turn in range(4):
        await until(lambda: number(scratch) not in seen)  # on a busy machine it may stand as it is for a while
        directory, back = tmp_path / f"image{turn}", tmp_path / f"back{turn}"
        back.mkdir()
        with store.begin("1.0") as draft:
            taken = frozen.add_unchanged(draft, keeper.pid, time.time())
            report = await soon(keeper.checkpoint(directory, taken=taken))
            assert report.refused == ()
            copies = [name for name in os.listdir(directory) if name.startswith("kept.")]
            assert 1 <= len(copies) <= 3  # what is mapped, and the others if they were written just now
            image = draft.commit(frozen.gather(draft, directory, {}), 1.0)
        put_back(store, image, back)
        one, two = (int((back / name).read_text() or 0) for name in ("one", "two"))
        mapped = number(back)
        if one and two:  # not just emptied
            assert one - two in (0, 1)
            assert two - mapped in (0, 1)
        seen.add(mapped)
    assert len(seen) == 5
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()


LINK, FILE, FOLDER = stat.S_IFLNK | 0o777, stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755


@pytest.mark.parametrize(
    "rows",
    [
        [[b"../out", FOLDER, 0, None]],
        [[b"/etc/out", FOLDER, 0, None]],
        [[b"a", LINK, 0, b"/tmp"], [b"a/b", FOLDER, 0, None]],
        [[b"a/b", FOLDER, 0, None]],
        [[b"a", FOLDER, 0, None], [b"a/..", FOLDER, 0, None]],
        [[b"", FOLDER, 0, None]],
        [[b"a\0b", FOLDER, 0, None]],
        [[b"a", stat.S_IFBLK | 0o666, 0, 0]],
        [[b"a", FILE, 0, 7]],
        [[b"a", FILE, 0, None]],
        [[b"a", LINK, 0, None]],
        [["a", 0]],
        7,
    ],
)
def test_a_tree_that_leads_elsewhere_is_refused(store: ImageStore, tmp_path: Path, scratch: Path, rows: Any) -> None:
    (tmp_path / freezing.TREE).write_bytes(msgpack.packb({"entries": rows, "before": {}}))
    with store.begin("1.0") as draft, (tmp_path / freezing.TREE).open("rb") as handle:
        image = draft.commit((draft.add(freezing.TREE, handle),), 1.0)
    with pytest.raises(ImageDamaged, match="make no sense"):
        put_back(store, image, scratch)
    assert os.listdir(scratch) == []


def test_a_name_that_comes_twice_is_an_error_in_words(store: ImageStore, tmp_path: Path, scratch: Path) -> None:
    rows = [[b"a", FOLDER, 0, None], [b"a", FOLDER, 0, None]]
    (tmp_path / freezing.TREE).write_bytes(msgpack.packb({"entries": rows, "before": {}}))
    with store.begin("1.0") as draft, (tmp_path / freezing.TREE).open("rb") as handle:
        image = draft.commit((draft.add(freezing.TREE, handle),), 1.0)
    with pytest.raises(ImageError, match="cannot put the job's files back: file exists"):
        put_back(store, image, scratch)


def test_a_link_first_and_a_file_through_it_is_refused_or_stays_inside(
    store: ImageStore, tmp_path: Path, scratch: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    rows = [[b"a", LINK, 0, str(outside).encode()], [b"a", FOLDER, 0, None], [b"a/b", FOLDER, 0, None]]
    (tmp_path / freezing.TREE).write_bytes(msgpack.packb({"entries": rows, "before": {}}))
    with store.begin("1.0") as draft, (tmp_path / freezing.TREE).open("rb") as handle:
        image = draft.commit((draft.add(freezing.TREE, handle),), 1.0)
    with pytest.raises(ImageError):
        put_back(store, image, scratch)
    assert os.listdir(outside) == []


def test_a_list_that_is_cut_off_is_said(tmp_path: Path) -> None:
    (tmp_path / "scratch").write_bytes(bytes(20))
    with pytest.raises(ImageError, match="cut off"):
        list(freezing.rows_of(tmp_path / "scratch"))


async def test_a_lease_is_not_broken_by_looking(tmp_path: Path, keepers: NativeKeepers) -> None:
    """A file that a job has a lease for writing on is not opened while it runs: the kernel would tell it, by a
    signal.
    """
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    program = (
        "import fcntl, signal; held = open('leased', 'w'); fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK); "
        "open('ready', 'w').close(); signal.pause()"
    )
    keeper = await soon(keepers.start(spec(scratch, PYTHON, "-c", program)))
    await until(lambda: (scratch / "ready").exists())
    store = ImageStore(tmp_path / "images")
    with store.begin("1.0") as draft:
        assert ScratchSnapshot(scratch).add_unchanged(draft, keeper.pid, time.time() + 1000)
    assert not keeper.ended.done()
    assert freezing.leased_files() >= {(scratch / "leased").stat().st_ino}
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
