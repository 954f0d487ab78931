"""Kernels that lack something: what can be done without it is done, and what cannot is said."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pool.checkpoint.build import compiler
from pool.starter.checkpointing import CheckpointFailed
from tests.checkpoint.conftest import SOURCES, Compile
from tests.checkpoint.test_checkpoints import goes_on, lines, saved, undisturbed
from tests.checkpoint.test_increments import own
from tests.starter.support import opened, shell, soon, spec, to_end, until

#: System calls of x86-64.
USERFAULTFD, UNSHARE, CLONE3, KCMP, CLOSE_RANGE, PIDFD_GETFD = 323, 272, 435, 312, 436, 438
#: The system call of each of them: PAGEMAP_SCAN (ioctl), a time namespace (unshare).
SCAN, TIME = f"16:1:{0xC0606610 - (1 << 32)}", f"{UNSHARE}:0:128"


def lacking(directory: Path, keeper: Path, *numbers: int | str) -> Path:
    """A keeper that runs where these system calls are not."""
    hide, program = directory / "hide", directory / "lacking"
    subprocess.run([*compiler().split(), "-O1", "-o", hide, SOURCES / "hide.c"], check=True)
    program.write_text(f'#!/bin/sh\nexec {hide} {" ".join(map(str, numbers))} -- {keeper} "$@"\n')
    program.chmod(0o755)
    return program


async def test_without_the_notes_of_what_was_written_each_image_is_whole(
    tmp_path: Path, keeper_program: Path, scratch: Path, compiled: Compile
) -> None:
    """No userfaultfd (a kernel without it, or a container that forbids it)."""
    program = compiled("dirty", "-O2")
    wanted = spec(scratch, program, "100000", "stop")
    async with opened(tmp_path, lacking(tmp_path, keeper_program, USERFAULTFD)) as keepers:
        if not keepers.abilities.checkpoint:
            pytest.skip("needs the ability checkpoint")
        keeper = await soon(keepers.start(wanted))
        previous = None
        for number in range(3):
            aim = lines(scratch) + 2
            await until(lambda aim=aim: lines(scratch) >= aim)  # type: ignore[misc]
            report = await soon(keeper.checkpoint(tmp_path / f"image{number}", parent=previous))
            assert report.refused == ()
            previous = tmp_path / f"image{number}"
            assert own(previous) > 20 << 20
        await keeper.kill()
        await soon(keeper.ended)
        await keeper.forget()
        keeper = await soon(keepers.start(wanted, image=previous))
        (scratch / "stop").touch()
        assert (await soon(keeper.ended)).code == 0
        await keeper.forget()
    assert (scratch / "out").read_text() == undisturbed(scratch, program, str(lines(scratch)))


@pytest.mark.parametrize(
    ("number", "said"),
    [(UNSHARE, "namespace"), (CLONE3, "checkpoint"), (KCMP, "checkpoint"), (CLOSE_RANGE, "checkpoint")],
)
async def test_without_namespaces_or_process_numbers_jobs_run_and_are_not_saved(
    tmp_path: Path, keeper_program: Path, scratch: Path, number: int, said: str
) -> None:
    async with opened(tmp_path, lacking(tmp_path, keeper_program, number)) as keepers:
        assert not keepers.abilities.checkpoint
        assert any(said in line for line in keepers.abilities.reduced), keepers.abilities.reduced
        assert any(said in line for line in keepers.abilities.saving)
        assert (await to_end(keepers, shell(scratch, "exit 3"))).code == 3
        keeper = await soon(keepers.start(shell(scratch, "sleep 60")))
        with pytest.raises(CheckpointFailed, match="cannot"):
            await soon(keeper.checkpoint(tmp_path / "image"))
        await keeper.kill()
        await soon(keeper.ended)
        await keeper.forget()


@pytest.mark.parametrize(
    ("number", "said"),
    [(USERFAULTFD, "is not noted"), (SCAN, "is not noted"), (PIDFD_GETFD, "is not noted"), (TIME, "clocks")],
)
async def test_what_checkpoints_do_without_is_said(
    tmp_path: Path, keeper_program: Path, scratch: Path, compiled: Compile, number: int | str, said: str
) -> None:
    async with opened(tmp_path, keeper_program) as keepers:
        whole = keepers.abilities
    async with opened(tmp_path, lacking(tmp_path, keeper_program, number)) as keepers:
        if not whole.checkpoint:
            pytest.skip("needs the ability checkpoint")
        assert keepers.abilities.checkpoint
        lacks = [line for line in keepers.abilities.saving if said in line]
        assert len(lacks) == 1
        assert lacks[0] in keepers.abilities.reduced
        wanted = spec(scratch, compiled("steps", "-static"), "1000000")
        keeper = await soon(keepers.start(wanted))
        await until(lambda: lines(scratch) > 1)
        await saved(keepers, keeper, tmp_path / "image", stop=True)
        await goes_on(keepers, wanted, tmp_path / "image", scratch)
