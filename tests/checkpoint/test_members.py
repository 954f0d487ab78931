"""Jobs of several processes saved as one frozen image and restored: nothing in a pipe is lost or doubled (G7)."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Any

import psutil

from pool.starter.keeper import KeeperSpec, NativeKeepers
from pool.starter.spec import Member, Pipe
from tests.checkpoint.test_checkpoints import lines, saved
from tests.starter.support import alive, family, soon, spec, until

PATH = {"PATH": "/usr/bin:/bin"}
#: Writes numbers, a little each time, and as much as there is room for in between; the last when it has been moved.
SOURCE = """
import os, time
for i in range(60):
    while i == 59 and not os.path.exists(".enough"):
        time.sleep(0.01)
    print(*range(i * 997, i * 997 + 997), sep="\\n", flush=True)
    time.sleep(0.03)
"""
#: The lines that come before that.
MOST = sum("13" not in str(number) for number in range(59 * 997))


def pipeline(scratch: Path, **more: Any) -> KeeperSpec:
    """Three unmodified programs; what they have in their buffers and what is in the pipes is most of the data."""
    first = Member("source", ("/usr/bin/python3", "-c", SOURCE), PATH, str(scratch))
    middle = Member("filter", ("/bin/grep", "--line-buffered", "-v", "13"), PATH, str(scratch))
    last = Member(
        "number",
        ("/usr/bin/awk", "{ s += $1; print NR, $1, s; fflush() }"),
        PATH,
        str(scratch),
        stdout=str(scratch / "out"),
    )
    pipes = (Pipe(0, 1, capacity=4096), Pipe(1, 2, capacity=4096))
    return spec(scratch, "x", members=(first, middle, last), pipes=pipes, **more)


def undisturbed() -> str:
    source = SOURCE.replace("0.03", "0").replace(".enough", "/")
    script = """python3 -c "$1" | grep -v 13 | awk '{ s += $1; print NR, $1, s }'"""
    return subprocess.run(["sh", "-c", script, "sh", source], capture_output=True, text=True, check=True).stdout


async def test_a_pipeline_moved_many_times_gives_what_it_would_have(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path
) -> None:
    wanted = pipeline(scratch)
    keeper = await soon(keepers.start(wanted))
    moves = 8
    for number in range(moves):
        aim = min(lines(scratch) + 4500, MOST)
        await until(lambda aim=aim: lines(scratch) >= aim)  # type: ignore[misc]
        image = tmp_path / f"image{number}"
        await saved(keepers, keeper, image, stop=True)
        keeper = await soon(keepers.start(wanted, image=image))
    (scratch / ".enough").touch()
    end = await soon(keeper.ended)
    await keeper.forget()
    assert (end.code, [one.code for one in end.members]) == (0, [0, 0, 0])
    assert (scratch / "out").read_text() == undisturbed()
    assert end.members[0].wall > 1.0  # of all its lives


async def test_a_rolled_back_pipeline_gives_it_too(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    """The job runs on after the image, is killed, and goes on from the image: its output is cut back by nobody, since a
    program that appends to a file finds its own position again."""
    wanted = pipeline(scratch)
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) > 8000)
    report = await soon(keeper.checkpoint(tmp_path / "image"))
    assert report.refused == ()
    await until(lambda: lines(scratch) > 20000)
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image"))
    (scratch / ".enough").touch()
    end = await soon(keeper.ended)
    await keeper.forget()
    assert end.code == 0
    assert (scratch / "out").read_text() == undisturbed()


async def test_who_has_ended_before_the_image_stays_ended(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path
) -> None:
    early = Member("early", ("/bin/sh", "-c", "head -c 3000 /dev/zero | tr '\\0' x; exit 5"), PATH, str(scratch))
    late = Member(
        "late",
        ("/bin/sh", "-c", "until [ -e go ]; do sleep 0.01; done; wc -c; exit 6"),
        PATH,
        str(scratch),
        stdout=str(scratch / "out"),
    )
    wanted = spec(scratch, "x", members=(early, late), pipes=(Pipe(0, 1),))
    keeper = await soon(keepers.start(wanted))
    await until(lambda: not has_one(keeper.pid, "exit 5"))
    await saved(keepers, keeper, tmp_path / "image", stop=True)
    (scratch / "go").touch()
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image"))
    end = await soon(keeper.ended)
    await keeper.forget()
    assert (scratch / "out").read_text().strip() == "3000"
    assert [(one.name, one.code) for one in end.members] == [("early", 5), ("late", 6)]
    assert end.code == 6


def has_one(keeper: int, words: str) -> bool:
    """Whether a process of the job has these words in its command line."""
    for process in alive(family(keeper)):
        with contextlib.suppress(psutil.Error):
            if words in " ".join(process.cmdline()):
                return True
    return False
