"""Private memory that an image may miss: each kind is as it was where the job goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.starter.keeper import NativeKeepers
from tests.checkpoint.conftest import Compile
from tests.checkpoint.test_checkpoints import lines, saved
from tests.starter.support import soon, spec, until


@pytest.mark.parametrize("stop", [True, False], ids=["last", "beside"])
async def test_private_memory_of_removed_files_and_what_children_do_not_get(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile, stop: bool
) -> None:
    """By the job's own memory, for the last image, and by frozen copies, which are children."""
    wanted = spec(scratch, compiled("removed"))
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) == 1)
    for generation in range(2):
        await saved(keepers, keeper, tmp_path / f"image{generation}", stop=stop)
        keeper = await soon(keepers.start(wanted, image=tmp_path / f"image{generation}"))
    (scratch / "go").touch()
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    assert (scratch / "out").read_text().splitlines() == ["ready", *["right"] * 5]


async def test_memory_in_huge_pages_is_restored_into_huge_pages(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile
) -> None:
    """As many as the kernel gave at first: none where it gives none, and then none are wanted."""
    wanted = spec(scratch, compiled("huge"))
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) == 1)
    await saved(keepers, keeper, tmp_path / "image")
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image"))
    (scratch / "go").touch()
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    first, then, contents = (scratch / "out").read_text().splitlines()
    assert (contents, int(then) >= int(first) // 2) == ("right", True)
