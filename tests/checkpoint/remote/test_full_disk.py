"""A full disk on the submit side: the writer gets the error, at the latest when the file is closed (B1)."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.checkpoint.remote.conftest import Site
from tests.starter.support import PYTHON

#: Writes more than there is room for, or a little where there is none; prints each error and the call that gave it.
WRITES = """
import errno, os, sys
how = sys.argv[1]
if how != "much":
    try:
        with open("filler", "wb", buffering=0) as filler:
            for _ in range(100000):
                filler.write(b"x" * 4096)
    except OSError:
        pass
told = []

def call(function, *arguments):
    try:
        return function(*arguments)
    except OSError as error:
        told.append((function.__name__, errno.errorcode[error.errno]))

fd = os.open("file", os.O_WRONLY | os.O_CREAT | (os.O_APPEND if how == "append" else 0), 0o666)
call(os.write, fd, b"y" * (8 << 20 if how == "much" else 5000))
if how == "fsync":
    call(os.fsync, fd)
if how == "twice":
    other = os.dup(fd)
    call(os.close, other)
call(os.close, fd)
print(" ".join(sorted({number for _, number in told})), told[-1:] and "told" or "silent")
"""


@pytest.fixture
def small(site: Site) -> Iterator[None]:
    if os.getuid() != 0:
        pytest.skip("needs root: it mounts a small file system")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "none", site.tree], check=True)
    yield
    subprocess.run(["umount", "-l", site.tree], check=True)


@pytest.mark.parametrize("how", ["little", "much", "append", "fsync", "twice"])
async def test_who_writes_is_told(site: Site, small: None, how: str) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    assert await site.run(PYTHON, "-c", WRITES, how) == "ENOSPC told\n"


@pytest.mark.parametrize("redirects", [">", ">>", "1<>"])
@pytest.mark.parametrize("who", ["the job", "a user of the submit side"])
async def test_a_shell_is_told(site: Site, small: None, way: str, who: str, redirects: str) -> None:
    """It looks at nothing but what its first write says, which by notification is what this machine's disk says."""
    if not site.able or way == "notification":
        pytest.skip("needs remote files in this way and /dev/fuse")
    fill = "dd if=/dev/zero of=filler bs=4k count=100000 2>/dev/null"
    script = f"echo some text {redirects} file; echo $?"
    (site.tree / "file").touch()
    if who == "the job":
        script = f"{fill}; {script}"
    else:
        await asyncio.to_thread(subprocess.run, ["sh", "-c", fill], cwd=site.tree)
    keeper = await site.start("/bin/sh", "-c", script)
    end = await keeper.ended
    await keeper.forget()
    assert end.code == 0
    assert site.output() == "1\n", site.error()
    site.home.ask("leave", job="1.0", run=1)
    assert any("/file could not be kept: no space left" in event["why"] for event in site.home.events)
