"""Unpacked images that a machine keeps: by what they are, for one user, within a bound, oldest first out."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from pool.starter import image_cache
from pool.starter.image_cache import ImageCache
from pool.starter.place import UnixAccount
from pool.starter.unpacking import CannotUnpack
from tests.starter.test_unpacking import Entry, archive, layer

LOG = logging.getLogger("tests.images")
OWN = UnixAccount(os.getuid(), os.getgid(), None, "me", "/", switch=False)
MB = 1 << 20


def image(scratch: Path, name: str, size: int = MB, form: str = "docker") -> str:
    """An archive with one file of this size, whose content is its name."""
    entries: list[Entry] = [("f", "name", name), ("f", "data", "x" * size)]
    archive(scratch / name, form, layer(entries))
    return name


async def take(cache: ImageCache, scratch: Path, name: str, owner: str = "ann") -> Path:
    root, _ = await cache.acquire(name, scratch, OWN, owner, "", asyncio.Event())
    assert root is not None
    assert (root / "name").read_text() == name
    return root


@pytest.mark.parametrize("form", ["docker", "layout"])
async def test_the_image_used_longest_ago_goes_first_and_one_in_use_stays(tmp_path: Path, form: str) -> None:
    cache = ImageCache(tmp_path / "kept", 4 * MB, LOG)
    roots = [await take(cache, tmp_path, image(tmp_path, f"{number}.tar", form=form)) for number in range(3)]
    for root in (roots[0], roots[2]):
        cache.release(root)
    assert await take(cache, tmp_path, "0.tar") == roots[0]  # of the two that nobody uses now the one used last
    cache.release(roots[0])
    newer = await take(cache, tmp_path, image(tmp_path, "3.tar", 2 * MB - 8192, form))
    await cache.removals_done()
    assert [root.exists() for root in (*roots, newer)] == [True, True, False, True]
    cache.release(newer)
    last = await take(cache, tmp_path, image(tmp_path, "4.tar", 3 * MB - 8192, form))
    await cache.removals_done()
    assert [root.exists() for root in (*roots, newer, last)] == [False, True, False, False, True]
    cache.release(roots[1])
    await take(cache, tmp_path, image(tmp_path, "5.tar", form=form))
    await cache.removals_done()
    assert not roots[1].exists()
    assert sorted(path.name for path in last.parent.iterdir() if path.name.startswith(".")) == []


async def test_a_job_that_was_found_again_keeps_its_image(tmp_path: Path) -> None:
    before = ImageCache(tmp_path / "kept", 4 * MB, LOG)
    root = await take(before, tmp_path, image(tmp_path, "0.tar", 3 * MB))
    cache = ImageCache(tmp_path / "kept", 4 * MB, LOG)
    assert cache.holds(str(root)) == root
    assert cache.holds(str(tmp_path)) is None
    cache.begin()
    await take(cache, tmp_path, image(tmp_path, "1.tar", 2 * MB))
    await cache.removals_done()
    assert root.exists()
    cache.release(root)
    await cache.removals_done()
    assert not root.exists()


async def test_what_an_earlier_run_left_half_is_removed(tmp_path: Path) -> None:
    before = ImageCache(tmp_path / "kept", 4 * MB, LOG)
    root = await take(before, tmp_path, image(tmp_path, "0.tar"))
    for name in (".new-1", ".gone-1", "f" * 64):
        (root.parent / name / "inner").mkdir(parents=True)
    cache = ImageCache(tmp_path / "kept", 4 * MB, LOG)
    cache.begin()
    await cache.removals_done()
    assert [path.name for path in root.parent.iterdir()] == [root.name]


async def test_nothing_that_was_kept_before_the_machine_was_started_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power was lost: the names of its files may be on disk, and their contents not."""
    root = await take(ImageCache(tmp_path / "kept", 4 * MB, LOG), tmp_path, image(tmp_path, "0.tar"))
    (root / "name").write_text("")
    boot = tmp_path / "boot_id"
    boot.write_text("another")
    monkeypatch.setattr(image_cache, "_BOOT", boot)
    assert await take(ImageCache(tmp_path / "kept", 4 * MB, LOG), tmp_path, "0.tar") == root


async def test_an_image_that_is_too_large_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    cache = ImageCache(tmp_path / "kept", 4 * MB, LOG)
    kept = await take(cache, tmp_path, image(tmp_path, "0.tar"))
    cache.release(kept)
    with pytest.raises(CannotUnpack, match="unpacks to more than 4 MB, which is all that IMAGE_CACHE") as refused:
        await take(cache, tmp_path, image(tmp_path, "1.tar", 5 * MB))
    assert not refused.value.retry
    await cache.removals_done()
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


async def test_without_a_cache_it_lies_in_the_scratch_directory(tmp_path: Path) -> None:
    cache = ImageCache(tmp_path / "kept", 0, LOG)
    image(tmp_path, "0.tar")
    root, _ = await cache.acquire("0.tar", tmp_path, OWN, "ann", "", asyncio.Event())
    assert root is None
    assert (tmp_path / ".image" / "name").read_text() == "0.tar"
    assert not (tmp_path / "kept").exists()
