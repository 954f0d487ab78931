"""The image before of a running job stays beside the next while there is room for both, and not a moment longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.images import ImageStore, Manifest
from pool.images.manifest import CHUNK
from pool.starter.checkpointing import CARRIED, META, PAGES
from pool.starter.increments import PreviousImage
from tests.images.test_store import image

PAGE_CHUNKS = 4


def written(store: ImageStore, number: int) -> Path:
    """An image as a keeper leaves it."""
    directory = store.new_directory()
    image(directory.with_name(f"{directory.name}.made"), number, PAGE_CHUNKS * CHUNK).rename(directory)
    (directory / "memory").rename(directory / PAGES)
    (directory / "deep" / "state").rename(directory / META)
    (directory / "deep").rmdir()
    (directory / "empty").rename(directory / CARRIED)
    return directory


def kept(earlier: PreviousImage, store: ImageStore, number: int) -> tuple[Path, Manifest]:
    """An image that was taken in, and goes to the submit side: what becomes of its directory is `earlier`'s to say."""
    directory = written(store, number)
    with store.begin("1.0") as draft:
        manifest = draft.commit(draft.add_file(directory, known=earlier.find_part), float(number))
        earlier.set_image(store, directory, manifest)
        earlier.finish(directory, False)
    store.drop("1.0")
    return directory, manifest


def test_with_room_it_stays_and_its_chunks_with_it(tmp_path: Path) -> None:
    store, earlier = ImageStore(tmp_path / "store", durable=False), PreviousImage()
    directory, manifest = kept(earlier, store, 1)
    assert earlier.parent(store) == directory
    assert store.used > PAGE_CHUNKS * CHUNK
    (pages,) = (part for part in manifest.parts if part.name == PAGES)
    assert earlier.find_part((directory / PAGES).stat()) == pages
    earlier.forget()
    assert (earlier.parent(store), directory.exists(), store.used) == (None, False, 0)


@pytest.mark.parametrize("quota", [2 * PAGE_CHUNKS * CHUNK, 3 * PAGE_CHUNKS * CHUNK])
def test_where_it_exceeds_the_quota_it_is_not_kept_and_the_next_is_whole(tmp_path: Path, quota: int) -> None:
    store, earlier = ImageStore(tmp_path / "store", quota=quota, durable=False), PreviousImage()
    for number in (1, 2):
        directory, manifest = kept(earlier, store, number)
        assert (earlier.parent(store), directory.exists(), store.used) == (None, False, 0)
        assert manifest.generation == 1
    assert list((tmp_path / "store" / "incoming").iterdir()) == []


def test_it_goes_when_others_need_the_room_before_the_next_is_made(tmp_path: Path) -> None:
    store, earlier = ImageStore(tmp_path / "store", quota=30 * PAGE_CHUNKS * CHUNK, durable=False), PreviousImage()
    directory, _ = kept(earlier, store, 1)
    assert earlier.parent(store) == directory
    store.store_image("2.0", image(tmp_path / "other", 2, 14 * PAGE_CHUNKS * CHUNK), 2.0)
    used = store.used
    assert (earlier.parent(store), directory.exists()) == (None, False)
    assert used - store.used >= PAGE_CHUNKS * CHUNK
    assert earlier.find_part((tmp_path / "other" / "memory").stat()) is None
