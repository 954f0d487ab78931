"""Waits that were given a while: what is left of it goes on where the job does, and nothing cuts it short."""

from __future__ import annotations

from pathlib import Path

from pool.starter.keeper import NativeKeepers
from tests.checkpoint.conftest import Compile
from tests.checkpoint.test_checkpoints import lines, saved
from tests.starter.support import soon, spec, until

KINDS = ("nanosleep", "clock_nanosleep", "poll", "epoll_wait", "epoll_pwait2", "futex")
ALL_OVER = [f"{kind} 1" for kind in KINDS]


async def test_what_is_left_of_a_while_goes_on(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile
) -> None:
    """Moved after two thirds of it: whoever began anew would not be through after half as much again."""
    wanted = spec(scratch, compiled("timed"), "3000")
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) == 1)
    await saved(keepers, keeper, tmp_path / "image", stop=True)
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image"))
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    assert (scratch / "out").read_text().splitlines() == ["now", *ALL_OVER, *ALL_OVER]


async def test_a_wait_that_was_held_before_is_not_cut_short(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile
) -> None:
    """After a checkpoint beside it the kernel goes on with it under another number."""
    wanted = spec(scratch, compiled("timed"), "600")
    keeper = await soon(keepers.start(wanted))
    assert (await soon(keeper.checkpoint(tmp_path / "beside"))).refused == ()
    await saved(keepers, keeper, tmp_path / "image", stop=True)
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image"))
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    assert (scratch / "out").read_text().splitlines()[-6:] == ALL_OVER
