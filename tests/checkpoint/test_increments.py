"""Images that take over unchanged state from the one before: each restores the same job as a full one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pool.starter.keeper import NativeKeepers, StartFailed
from tests.checkpoint.conftest import Compile
from tests.checkpoint.test_checkpoints import lines, saved, undisturbed
from tests.starter.support import soon, spec, until


def own(image: Path) -> int:
    """Bytes of contents that are in no image before."""
    return sum(path.stat().st_size for name in ("pages", "pages_2") if (path := image / name).exists())


@pytest.mark.parametrize(("stop", "huge"), [(False, ()), (True, ("huge pages",))])
async def test_a_chain_of_images(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile, stop: bool, huge: tuple[str, ...]
) -> None:
    """Memory written, dropped, moved and mapped anew between images; each image before is gone when it is restored."""
    program = compiled("dirty", "-O2")
    wanted = spec(scratch, program, "100000", "stop", *huge)
    keeper = await soon(keepers.start(wanted))
    number, previous, sizes = 0, None, []
    for life in range(2):
        for _ in range(4):
            aim = lines(scratch) + 2
            (scratch / "allowed").write_bytes(bytes(aim + 1))  # whatever it might do until it is looked at again
            await until(lambda aim=aim: lines(scratch) >= aim)  # type: ignore[misc]
            image = tmp_path / f"image{number}"
            report = await soon(keeper.checkpoint(image, parent=previous))
            assert report.refused == ()
            sizes.append(own(image))
            if previous is not None:
                shutil.rmtree(previous)
            previous, number = image, number + 1
        image = tmp_path / f"last{life}"
        assert previous is not None
        if stop:
            report = await soon(keeper.checkpoint(image, parent=previous, stop=True))
            sizes.append(own(image))
            assert report.bytes > 20 << 20
            shutil.rmtree(previous)
            previous = image
        else:
            await keeper.kill()
        await soon(keeper.ended)
        await keeper.forget()
        assert sorted(os.listdir(previous))[0] == "meta"
        assert "parent" not in os.listdir(previous)
        keeper = await soon(keepers.start(wanted, image=previous))
    (scratch / "stop").touch()
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    assert (scratch / "out").read_text() == undisturbed(scratch, program, str(lines(scratch)))
    if keepers.abilities.checkpoint and sizes[1] < sizes[0] / 2:  # a kernel that can tell: from 6.7 on
        assert all(size > 20 << 20 for size in (sizes[0], sizes[len(sizes) // 2]))
        assert sum(size < 16 << 20 for size in sizes) >= len(sizes) - 2


async def test_a_wrong_or_damaged_parent(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile
) -> None:
    """An image that is not this job's previous one counts for nothing; state that is taken over is checked as all
    else.
    """
    wanted = spec(scratch, compiled("dirty", "-O2"), "100000", "stop")
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) > 1)
    for number in range(3):
        await soon(keeper.checkpoint(tmp_path / f"image{number}"))
    for parent in (tmp_path / "image1", tmp_path / "no such", tmp_path):  # not the last, and none
        image = tmp_path / f"whole{parent.name}"
        await soon(keeper.checkpoint(image, parent=parent))
        assert sorted(os.listdir(image)) == ["meta", "pages", "pages_2"]
        assert own(image) > 20 << 20
    await soon(keeper.checkpoint(tmp_path / "first", parent=image))
    await saved(keepers, keeper, tmp_path / "full", stop=True)
    chained = tmp_path / "first"
    if not (chained / "pages.1").exists():
        pytest.skip("this kernel cannot tell which pages were written")
    whole = (chained / "pages.1").read_bytes()
    middle = len(whole) // 2
    for damaged in (whole[:-4096], whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]):
        (chained / "pages.1").unlink()
        (chained / "pages.1").write_bytes(damaged)
        with pytest.raises(StartFailed, match=r"damaged|a piece of memory"):
            await soon(keepers.start(wanted, image=chained))
        (chained / "pages.1").write_bytes(whole)
    keeper = await soon(keepers.start(wanted, image=chained))
    before = lines(scratch)
    await until(lambda: lines(scratch) > before)
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()


async def test_writes_that_the_kernel_does_not_note(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile
) -> None:
    """Pages of an area whose watch the kernel has ended bear the marks of before, whatever is written to them."""
    os.mkfifo(scratch / "go")
    wanted = spec(scratch, compiled("stale", "-static"), "go")
    keeper = await soon(keepers.start(wanted))
    with (scratch / "go").open("wb", buffering=0) as go:
        await until(lambda: lines(scratch) == 1)
        previous = None
        for number, word in enumerate(b"\0\0abab"):
            image = tmp_path / f"image{number}"
            if word:
                go.write(bytes([word]))
                await until(lambda aim=2 * number - 1: lines(scratch) == aim)  # type: ignore[misc]
            await soon(keeper.checkpoint(image, parent=previous))
            previous = image
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    said = (scratch / "out").read_text().splitlines()
    for number in (2, 3, 4, 5):
        keeper = await soon(keepers.start(wanted, image=tmp_path / f"image{number}"))
        assert (await soon(keeper.ended)).code == 0
        await keeper.forget()
        left = (scratch / "out").read_text().splitlines()
        assert left[-2:] == said[2 * number - 3 : 2 * number - 1]


async def test_a_job_that_writes_all_the_time(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile
) -> None:
    """Bytes that it writes while the kernel is asked what was written are saved, and nothing is saved twice."""
    wanted = spec(scratch, compiled("rounds", "-O2"))
    keeper = await soon(keepers.start(wanted))
    previous = None
    for number in range(8):
        await until(lambda aim=number: lines(scratch) > aim)  # type: ignore[misc]
        image = tmp_path / f"image{number}"
        report = await soon(keeper.checkpoint(image, parent=previous), 20)
        assert report.bytes < 6120 * 4096 + (1 << 20)
        if previous is not None:
            shutil.rmtree(previous)
        previous = image
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
    (scratch / "stop").touch()
    keeper = await soon(keepers.start(wanted, image=previous))
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()


async def test_a_job_may_grow_its_memory_meanwhile(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile
) -> None:
    """To watch an area takes nothing from what the job may do with it."""
    keeper = await soon(keepers.start(spec(scratch, compiled("grows", "-O2"))))
    previous = None
    for number in range(16):
        await until(lambda aim=lines(scratch): lines(scratch) > aim)  # type: ignore[misc]
        image = tmp_path / f"image{number}"
        await soon(keeper.checkpoint(image, parent=previous), 20)
        if previous is not None:
            shutil.rmtree(previous)
        previous = image
    (scratch / "stop").touch()
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
