"""The owner comes first while a checkpoint is made, too: a job is suspended and continued as soon as it has been let
go, not when its image is written.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from pool.checkpoint.messages_table import Ability as Able
from pool.starter.keeper import NativeKeeper, NativeKeepers
from tests.starter.support import PATIENCE, PYTHON, family, opened, soon, spec, until

#: So much memory that its image is a good while on its way.
COUNT = """
import random
room = random.Random(1).randbytes(120_000_000)
n = 0
while True:
    n += 1
    if n % 20000 == 0:
        print(n, flush=True)
"""


def writers(keeper: NativeKeeper) -> list[psutil.Process]:
    """The processes that write the image: the keeper's own, and theirs."""
    found = []
    for process in family(keeper.pid)[1:]:
        with contextlib.suppress(psutil.Error):
            if process.exe() == psutil.Process(keeper.pid).exe():
                found.append(process)
    return found


@pytest.mark.parametrize("without", [0, Able.GROUP], ids=["cgroup", "signals"])
async def test_a_job_is_suspended_and_continued_while_its_image_is_written(
    tmp_path: Path, keeper_program: Path, scratch: Path, without: int
) -> None:
    async with opened(tmp_path, keeper_program, without=without) as keepers:
        await suspended_and_continued(keepers, tmp_path, scratch)


async def suspended_and_continued(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    wanted = spec(scratch, PYTHON, "-c", COUNT)

    def size() -> int:
        return (scratch / "out").stat().st_size

    keeper = await soon(keepers.start(wanted))
    await until(lambda: size() > 0)
    making = asyncio.ensure_future(keeper.checkpoint(tmp_path / "image"))
    pages = tmp_path / "image.aside" / "pages"
    await until(lambda: pages.exists() and pages.stat().st_size > 0)  # from the copies: the job has been let go
    held = writers(keeper)
    for process in held:
        process.suspend()
    assert held
    try:
        await keeper.suspend()
        await stands(size)
        before = size()
        await keeper.resume()
        await until(lambda: size() > before)
        await keeper.suspend()
        await keeper.resume()
        assert not making.done()
    finally:
        for process in held:
            process.resume()
    assert (await soon(making)).refused == ()
    before = size()
    await until(lambda: size() > before)  # what was asked for meanwhile and taken back does not come later
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image"))
    before = size()
    await until(lambda: size() > before)
    await keeper.suspend()
    await stands(size)
    assert (await soon(keeper.checkpoint(tmp_path / "another"))).refused == ()
    await stands(size)  # it was let go for it, and stands still again
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()


async def stands(size: Callable[[], int]) -> None:
    """Until a job that writes a hundred times a second has not for a tenth of one."""
    async with asyncio.timeout(PATIENCE):
        while True:
            before = size()
            await asyncio.sleep(0.1)
            if size() == before:
                return
