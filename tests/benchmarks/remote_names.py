"""Programs that work on many small remote files, beside the same on a local disk in the same run: `rm -r`, `tar x`,
`git status`, `grep -r`; and how often they wait for a submit side that is further off.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from pool.starter.keeper import NativeKeepers
from tests.benchmarks.remoteio import delayed
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.remoteio.support import HomeProcess
from tests.starter.support import PYTHON, spec

PROGRAM = """
import json, os, subprocess, sys, time
os.chdir(sys.argv[1])
took = {}

def timed(name, *command):
    begun = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=name != "grep")
    took[name] = time.perf_counter() - begun

status = ["git", "-C", "repository", "-c", "safe.directory=*", "status", "--short"]
timed("first status", *status)
timed("next status", *status)
time.sleep(2)  # until names that are believed for a second are asked for again
timed("later status", *status)
timed("rm", "rm", "-r", "removed")
timed("tar", "tar", "xf", "files.tar", "-C", "unpacked")
subprocess.run(["grep", "-r", "no such word", "repository/files"])
time.sleep(2)
timed("grep", "grep", "-r", "no such word", "repository/files")
print(json.dumps(took))
"""


def _small_files(directory: Path, files: int) -> None:
    """Files that lie there for an hour: git need not compare their contents."""
    directory.mkdir(parents=True)
    for number in range(files):
        path = directory / str(number)
        path.write_text("some words\n" * 20)
        os.utime(path, (1e9, 1e9))


def _fill(top: Path, files: int) -> None:
    _small_files(top / "removed", files)
    subprocess.run(["tar", "cf", top / "files.tar", "-C", top, "removed"], check=True)
    (top / "unpacked").mkdir()
    repository = top / "repository"
    _small_files(repository / "files", files)
    who = ("-c", "user.name=name", "-c", "user.email=name@example.org")
    for command in (("init", "--quiet"), ("add", "."), (*who, "commit", "--quiet", "--message", "files")):
        subprocess.run(["git", "-C", repository, *command], check=True)


async def _remote(keepers: NativeKeepers, top: Path, files: int, delay: float = 0.0) -> dict[str, float]:
    place = top / f"job{delay}"
    tree, scratch, journal = place / "tree", place / "scratch", place / "journal"
    for directory in (scratch, journal):
        directory.mkdir(parents=True)
    await asyncio.to_thread(_fill, tree, files)
    home = HomeProcess()
    end = home.open(tree, journal)
    wanted = spec(
        scratch, PYTHON, "-c", PROGRAM, str(tree), cwd="/job", fixed=True, stdout="/job/out", stderr="/job/err",
        isolation="full", remote=tuple(path for path, _ in home.answer["trees"]),
    )  # fmt: skip
    async with delayed(end.end, delay) as stream:
        keeper = await keepers.start(wanted, remote=stream.fileno())
        await keeper.ended
        await keeper.forget()
    end.close()
    home.close()
    took: dict[str, float] = json.loads((scratch / "out").read_text())
    return took


@benchmark("remote_names")
async def remote_names(effort: Effort) -> list[Row]:
    """The cost of names: many small files on another machine."""
    files = effort.of(10000, 100)
    top = Path(tempfile.mkdtemp(prefix="names"))
    os.chmod(top, 0o755)
    keepers = NativeKeepers(top / "keepers")
    await keepers.open()
    try:
        if not keepers.abilities.fuse or not shutil.which("git"):
            return []
        await asyncio.to_thread(_fill, top / "local", files)
        command = [PYTHON, "-c", PROGRAM, str(top / "local")]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        local = json.loads(done.stdout)
        await asyncio.to_thread(shutil.rmtree, top / "local")
        remote = await _remote(keepers, top, files)
        some, delay = effort.of(200, 20), 0.01
        far = await _remote(keepers, top, some, delay)

        def row(what: str, name: str, most: float) -> Row:
            return Row(
                f"{what} over {files:,} remote files", remote[name], "s", Goal("at most", most, "ratio"),
                "local files", local[name],
            )  # fmt: skip

        return [
            row("rm -r", "rm", 5),
            row("tar x", "tar", 5),
            row("git status, the job's first,", "first status", 5),
            row("git status at once again", "next status", 5),
            row("git status two seconds later", "later status", 5),
            row("grep -r two seconds later", "grep", 3),
            Row("rm -r, 10 ms away, a file", far["rm"] / delay / some, "delays", Goal("at most", 0.2)),
            Row("tar x, 10 ms away, a file", far["tar"] / delay / some, "delays", Goal("at most", 3)),
        ]
    finally:
        await keepers.close(kill=True)
        shutil.rmtree(top)
