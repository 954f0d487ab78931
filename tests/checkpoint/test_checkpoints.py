"""Running jobs dumped, killed and restored: each ends as it would have, had nothing happened."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from pool.starter.checkpointing import CheckpointFailed, CheckpointReport
from pool.starter.keeper import KeeperSpec, NativeKeeper, NativeKeepers, StartFailed
from tests.checkpoint.conftest import Compile
from tests.conftest import passable
from tests.starter.support import alive, family, opened, shell, soon, spec, until

#: At its forty-first line it waits for `.enough`, however slowly it is looked at.
PYTHON = """
import os, random, time
chance, inside = random.Random(3), 0
for step in range(60):
    for _ in range(30000):
        x, y = chance.random(), chance.random()
        inside += x * x + y * y < 1
    print(step, inside, flush=True)
    while step == 40 and not os.path.exists(".enough"): time.sleep(0.01)
"""


def undisturbed(scratch: Path, *argv: str) -> str:
    """The program's output when nothing happens to it."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=scratch)
    return done.stdout


def lines(scratch: Path) -> int:
    out = scratch / "out"
    return len(out.read_text().splitlines()) if out.exists() else 0


async def saved(keepers: NativeKeepers, keeper: NativeKeeper, image: Path, *, stop: bool = False) -> CheckpointReport:
    """An image, after which the job is gone."""
    report = await soon(keeper.checkpoint(image, stop=stop))
    assert report.refused == ()
    assert {"meta", "pages"} <= set(os.listdir(image)) <= {"meta", "pages", "pages_2"}
    if not stop:
        await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
    return report


async def goes_on(keepers: NativeKeepers, wanted: KeeperSpec, image: Path, scratch: Path) -> None:
    """A job that writes lines is restored, writes more of them, and is ended."""
    keeper = await soon(keepers.start(wanted, image=image))
    at = lines(scratch)
    await until(lambda: lines(scratch) > at)
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()


async def through(
    keepers: NativeKeepers, place: Path, wanted: KeeperSpec, *, generations: int = 3, each: int = 4, most: int = 1000
) -> Any:
    """A job's end after that many lives, each some lines of its output long; after `most` it waits for `.enough`."""
    scratch = place / "scratch"
    keeper = await soon(keepers.start(wanted))
    for generation in range(generations):
        aim = min(lines(scratch) + each, most)
        await until(lambda aim=aim: lines(scratch) >= aim)  # type: ignore[misc]
        image = place / f"image{generation}"
        await saved(keepers, keeper, image, stop=generation % 2 == 1)
        keeper = await soon(keepers.start(wanted, image=image))
    (scratch / ".enough").touch()
    end = await soon(keeper.ended)
    await keeper.forget()
    return end


@pytest.mark.parametrize("flags", [("-static",), ("-pie",), ("-no-pie", "-msse4.2")])
async def test_a_program_in_c(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile, flags: tuple[str, ...]
) -> None:
    program = compiled("steps", *flags)
    end = await through(keepers, tmp_path, spec(scratch, program), most=20)
    assert (end.code, end.cause) == (3, "exit")
    assert (scratch / "out").read_text() == undisturbed(scratch, program)


@pytest.mark.parametrize("isolation", ["full", "shared"])
async def test_python(keepers: NativeKeepers, tmp_path: Path, scratch: Path, isolation: str) -> None:
    wanted = spec(scratch, "/usr/bin/env", "python3", "-c", PYTHON, isolation=isolation)
    end = await through(keepers, tmp_path, wanted, generations=5, most=41)
    assert end.code == 0, (scratch / "err").read_text()
    assert (scratch / "out").read_text() == undisturbed(scratch, sys.executable, "-c", PYTHON)


async def test_threads_timers_and_an_alternate_stack(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile
) -> None:
    program = compiled("threads")
    end = await through(keepers, tmp_path, spec(scratch, program), generations=6, most=41)
    assert end.code == 0
    assert (scratch / "out").read_text() == undisturbed(scratch, program)


async def test_a_job_of_another_user(keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile) -> None:
    if os.getuid():
        pytest.skip("needs root")
    program = compiled("steps", "-static")
    for path in (tmp_path, scratch):
        path.chmod(0o777)
    passable(tmp_path)
    wanted = spec(scratch, program, uid=65534, gid=65534, groups=())
    end = await through(keepers, tmp_path, wanted, generations=1)
    assert end.code == 3
    assert (scratch / "out").read_text() == undisturbed(scratch, program)
    assert (scratch / "out").stat().st_uid == 65534


async def test_a_job_put_back_has_no_power(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    script = "while [ ! -e go ]; do sleep 0.01; echo; done; grep -E 'Cap(Prm|Eff)|NoNewPrivs|SigBlk' /proc/self/status"
    wanted = shell(scratch, script)
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) > 2)
    await saved(keepers, keeper, tmp_path / "image")
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image"))
    (scratch / "go").touch()
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    values = [int(line.split()[1], 16) for line in (scratch / "out").read_text().splitlines() if line]
    assert values == [0, 0, 0, 1]


async def test_a_job_that_goes_on(keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile) -> None:
    """A checkpoint changes nothing in the job it is made of."""
    program = compiled("threads")
    (scratch / ".enough").touch()
    keeper = await soon(keepers.start(spec(scratch, program)))
    top, made = family(keeper.pid), 0
    with contextlib.suppress(CheckpointFailed):  # one that the job's end comes before
        for generation in range(20):
            await until(lambda at=generation: lines(scratch) > 4 * at)  # type: ignore[misc]
            report = await soon(keeper.checkpoint(tmp_path / f"image{generation}"))
            assert 0 < report.standstill <= report.seconds
            assert report.bytes > 0
            made += 1
    assert made
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    assert (scratch / "out").read_text() == undisturbed(scratch, program)
    await until(lambda: not alive(top[1:]))


async def test_where_its_threads_may_run_is_as_it_was(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile
) -> None:
    """They are on one processor with who holds them, each until it is let go."""
    keeper = await soon(keepers.start(spec(scratch, compiled("many"), "0", "3")))
    await until(lambda: lines(scratch) == 1)
    (job,) = psutil.Process(keeper.pid).children()
    threads = [thread.id for thread in job.threads()]
    os.sched_setaffinity(threads[0], {max(os.sched_getaffinity(0))})
    before = [os.sched_getaffinity(thread) for thread in threads]
    for number in range(3):
        report = await soon(keeper.checkpoint(tmp_path / f"image{number}"))
        assert report.refused == ()
        assert [os.sched_getaffinity(thread) for thread in threads] == before
    (scratch / "go").touch()
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()


async def test_damage_is_found(keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile) -> None:
    program = compiled("steps", "-static")
    wanted = spec(scratch, program)
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) > 1)
    image = tmp_path / "image"
    await saved(keepers, keeper, image)
    for name in ("meta", "pages"):
        whole = (image / name).read_bytes()
        for at in (0, 9, len(whole) // 2, len(whole) - 1):
            broken = bytearray(whole)
            broken[at] ^= 0x10
            (image / name).write_bytes(broken)
            if at == len(whole) - 1 and name == "meta":
                continue  # it may be the padding of the last row
            with pytest.raises(StartFailed, match=r"cannot start .*: .*(damaged|version|not a checkpoint|another)"):
                await soon(keepers.start(wanted, image=image))
        (image / name).write_bytes(whole[:-4096] if name == "pages" else whole[: len(whole) // 2])
        with pytest.raises(StartFailed, match=r"cannot start"):
            await soon(keepers.start(wanted, image=image))
        (image / name).write_bytes(whole)
    (scratch / ".enough").touch()
    keeper = await soon(keepers.start(wanted, image=image))
    assert (await soon(keeper.ended)).code == 3
    await keeper.forget()


async def test_files_that_changed(keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile) -> None:
    program = compiled("steps", "-static")
    wanted = spec(scratch, program)
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) > 2)
    await saved(keepers, keeper, tmp_path / "image")
    kept = (scratch / "out").read_text()
    (scratch / "out").write_text("")
    with pytest.raises(StartFailed, match=r"out: it is shorter than at the checkpoint"):
        await soon(keepers.start(wanted, image=tmp_path / "image"))
    (scratch / "out").unlink()
    with pytest.raises(StartFailed, match=r"reopen .*out: no such file"):
        await soon(keepers.start(wanted, image=tmp_path / "image"))
    (scratch / "out").write_text(kept + "what came after the checkpoint\n")
    (scratch / ".enough").touch()
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image"))
    assert (await soon(keeper.ended)).code == 3
    await keeper.forget()
    assert (scratch / "out").read_text() == undisturbed(scratch, program)


async def test_what_cannot_be_asked(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile, keeper_program: Path
) -> None:
    wanted = spec(scratch, compiled("steps", "-static"), "1")
    with pytest.raises(StartFailed, match="no such file"):
        await keepers.start(wanted, image=tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StartFailed, match="cannot start"):
        await soon(keepers.start(wanted, image=tmp_path / "empty"))
    keeper = await soon(keepers.start(spec(scratch, "/bin/sleep", "60")))
    with pytest.raises(CheckpointFailed, match="exists"):
        await keeper.checkpoint(tmp_path / "empty")
    both: list[CheckpointReport | BaseException] = await asyncio.gather(
        *(keeper.checkpoint(tmp_path / name) for name in ("one", "two")), return_exceptions=True
    )
    first, second = both
    assert isinstance(first, CheckpointReport)
    assert isinstance(second, CheckpointReport | CheckpointFailed)
    await keeper.kill()
    await soon(keeper.ended)
    with pytest.raises(CheckpointFailed):
        await soon(keeper.checkpoint(tmp_path / "three"))
    await keeper.forget()
    other = tmp_path / "other"
    other.mkdir()
    async with opened(other, keeper_program, without=1) as reduced:
        assert not reduced.abilities.checkpoint
        with pytest.raises(StartFailed, match="does not allow it"):
            await reduced.start(wanted, image=tmp_path / "one")
        keeper = await soon(reduced.start(spec(scratch, "/bin/sleep", "60")))
        with pytest.raises(CheckpointFailed, match="does not allow it"):
            await keeper.checkpoint(tmp_path / "four")


async def test_all_that_a_process_can_hold(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile
) -> None:
    """Pipes, counters, timers, signals, kinds of memory, children: programs/kinds.c looks at each afterwards."""
    program = compiled("kinds")
    wanted = spec(scratch, program)
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) == 1)
    for generation in range(3):
        report = await saved(keepers, keeper, tmp_path / f"image{generation}", stop=generation == 1)
        assert report.processes == 3
        keeper = await soon(keepers.start(wanted, image=tmp_path / f"image{generation}"))
    (scratch / "go").touch()
    end = await soon(keeper.ended)
    await keeper.forget()
    assert (end.code, (scratch / "err").read_text()) == (0, "")
    here = tmp_path / "undisturbed"
    here.mkdir()
    (here / "go").touch()
    assert (scratch / "out").read_text() == undisturbed(here, program)
    for name in ("log", "data"):
        assert (scratch / name).read_text() == (here / name).read_text()


PIPELINE = """
echo ready
seq 1 60000 | sort -rn | awk '{ s += $1; print s }' | tail -1
while [ ! -e go ]; do sleep 0.01; done
seq 1 60000 | sort -rn | gzip -c | gzip -dc | sort -n | tail -1
echo kept > /tmp/kept; cat /tmp/kept
"""


async def test_a_pipeline_and_a_tmp_of_its_own(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    """Shells start programs by vfork, sort keeps files in /tmp, and all of it waits for pipes."""
    wanted = shell(scratch, PIPELINE)
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) >= 1)
    for generation in range(6):
        await saved(keepers, keeper, tmp_path / f"image{generation}", stop=generation % 2 == 1)
        keeper = await soon(keepers.start(wanted, image=tmp_path / f"image{generation}"))
        await asyncio.sleep(0.03 * generation)  # another moment of it each time
    (scratch / "go").touch()
    end = await soon(keeper.ended)
    await keeper.forget()
    assert (end.code, (scratch / "err").read_text()) == (0, "")
    assert (scratch / "out").read_text() == "ready\n1800030000\n60000\nkept\n"


async def test_shared_memory_that_each_has_another_part_of(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile
) -> None:
    wanted = spec(scratch, compiled("parts"))
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) == 1)
    await saved(keepers, keeper, tmp_path / "image", stop=True)
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image"))
    (scratch / "go").touch()
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    pages = [f"page {number}" for number in range(16)]
    assert (scratch / "out").read_text().splitlines() == ["ready", *pages, "page 0"]
