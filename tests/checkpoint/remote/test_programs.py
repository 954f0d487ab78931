"""Programs and libraries that lie on a remote tree: run, read once, replaced while they run."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.checkpoint.remote.conftest import Site, wait_for_output

BASH = shutil.which("bash") or "/bin/bash"


def read_at_home(site: Site) -> int:
    """Bytes that the submit side has read since it began."""
    return int(psutil.Process(site.home.process.pid).io_counters().read_chars)


def libraries(program: str) -> list[Path]:
    """The libraries that the loader finds for a program, without the loader itself."""
    told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [Path(path) for path in re.findall(r"=> (/\S+)", told)]


async def test_a_program_and_its_libraries_are_read_once(site: Site, way: str) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    shutil.copy(BASH, site.tree / "program")
    (site.tree / "lib").mkdir()
    for library in libraries(BASH):
        shutil.copy(library, site.tree / "lib")
    # By notification what is mapped is a stand-in, and has its name.
    mapped = f"{site.tree}/lib/libc.so" if way == "fuse" else "libc"
    (site.tree / "script").write_text(f"#!{site.tree}/program\ngrep -c {mapped} /proc/$$/maps; echo ran\n")
    (site.tree / "script").chmod(0o755)
    script = f"run() {{ LD_LIBRARY_PATH={site.tree}/lib $1; }}; run ./script; echo once; "
    script += "until [ -e go ]; do sleep 0.02; done; run ./script; run $PWD/script; cd lib; run ../script"
    keeper = await site.start("/bin/sh", "-c", script)
    await wait_for_output(site, "once")
    first = read_at_home(site)
    assert first > 1_000_000
    (site.tree / "go").touch()
    await keeper.ended
    found = site.output().split()
    assert site.error() == ""
    assert [word for word in found if not word.isdigit()] == ["ran", "once", "ran", "ran", "ran"]
    assert way != "fuse" or all(int(word) for word in found if word.isdigit())
    assert read_at_home(site) - first < first / 10


@pytest.mark.parametrize("how", ["moved", "written"])
async def test_a_program_that_is_replaced_while_it_runs_goes_on(site: Site, way: str, how: str) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    shutil.copy(BASH, site.tree / "program")
    (site.tree / "other").write_text("#!/bin/sh\necho another\n")
    (site.tree / "other").chmod(0o755)
    change = "mv other program" if how == "moved" else "cat other > program"
    script = f"""
./program -c 'echo on; until [ -e replaced ]; do sleep 0.02; done; echo still' &
until [ -s /job/out ]; do sleep 0.02; done
({change}) 2>/dev/null || echo busy
touch replaced
wait
./program -c 'echo as before'
"""
    found = await site.shell(script)
    if how == "moved":
        assert found == "on\nstill\nanother\n"
    elif way == "fuse":  # as on a disk: Text file busy
        assert found == "on\nbusy\nstill\nas before\n"
    else:  # what runs is a copy
        assert found == "on\nstill\nanother\n"
