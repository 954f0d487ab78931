"""A job's operations on the submit side's files have the same results as on its own disk."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from pool.starter.show_paths import ShownDirectory
from tests.checkpoint.remote.conftest import PROGRAMS, WAYS, Site, wait_for_output
from tests.remoteio.support import HomeProcess, picture
from tests.starter.support import PYTHON, opened, soon

COUNT = 400


def trees(path: Path) -> dict[str, object]:
    return {name: what for name, what in picture(path).items() if ".poolnode-undo" not in name}


@pytest.mark.parametrize("seed", range(6))
async def test_random_operations_as_on_a_plain_directory(site: Site, top: Path, seed: int) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    plain = top / "plain"
    plain.mkdir()
    there = await site.python("operations.py", str(site.tree), str(seed), str(COUNT))
    command = [PYTHON, str(PROGRAMS / "operations.py"), str(plain), str(seed), str(COUNT)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    here = done.stdout
    assert there.splitlines() == here.splitlines()
    assert len(here.splitlines()) == COUNT
    assert trees(site.tree) == trees(plain)


async def test_a_job_reads_and_writes_under_its_files_own_names(site: Site) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    (site.tree / "in").write_text("from home\n")
    (site.tree / "directory").mkdir()
    await site.shell(f"cat in > directory/copy; cd directory; echo more >> ../in; mv copy {site.tree}/moved; pwd")
    assert site.output() == f"{site.tree}/directory\n"
    assert (site.tree / "moved").read_text() == "from home\n"
    assert (site.tree / "in").read_text() == "from home\nmore\n"


async def test_what_is_changed_at_home_is_seen(site: Site) -> None:
    """The kernel's cache believes itself, so another file has to take the place of the changed one."""
    if not site.able:
        pytest.skip("needs remote files in this way")
    (site.tree / "in").write_text("before")
    script = "cat in; echo; until [ -e go ]; do sleep 0.05; done; sleep 1.1; cat in; echo; stat -c %s in"
    keeper = await site.start("/bin/sh", "-c", script)
    await wait_for_output(site, "before")
    (site.tree / "in").write_text("after it was changed")
    (site.tree / "go").touch()
    await keeper.ended
    assert site.output().split("\n") == ["before", "after it was changed", "20", ""]


async def test_a_link_that_became_a_file_is_opened_as_that(site: Site) -> None:
    """For a second nobody tells the job's kernel, which follows the link that it knows."""
    if not site.able:
        pytest.skip("needs remote files in this way")
    (site.tree / "target").write_text("before")
    (site.tree / "name").symlink_to("target")
    script = 'cat name; until [ "$(cat name)" = after ]; do :; done'
    keeper = await site.start("/bin/sh", "-c", script, end=site.connect(watches=0))
    await wait_for_output(site, "before")
    (site.tree / "new").write_text("after")
    (site.tree / "new").rename(site.tree / "name")
    assert (await soon(keeper.ended)).code == 0
    assert site.error() == ""


async def test_appends_of_job_and_home_both_stay(site: Site) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    (site.tree / "log").write_text("home 1\n")
    script = "exec 5>>log; echo job 1 >&5; echo ready; until [ -e go ]; do sleep 0.05; done; echo job 2 >&5"
    keeper = await site.start("/bin/sh", "-c", script)
    await wait_for_output(site, "ready")
    with (site.tree / "log").open("a") as file:
        file.write("home 2\n")
    (site.tree / "go").touch()
    await keeper.ended
    assert (site.tree / "log").read_text() == "home 1\njob 1\nhome 2\njob 2\n"


async def test_errors_are_the_owners(site: Site) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    (site.tree / "file").write_text("x")
    script = """if True:
        import os, sys
        for call in sys.argv[1:]:
            try:
                eval(call)
            except OSError as error:
                print(error.strerror)
    """
    calls = {
        "open('none')": "No such file or directory",
        "open('file/x')": "Not a directory",
        "os.mkdir('file')": "File exists",
        "os.rmdir('file')": "Not a directory",
        "os.mknod('device', 0o20600, os.makedev(1, 3))": "Operation not permitted",
        "os.getxattr('file', 'user.none')": "No data available",
        "os.setxattr('file', 'user.x', b'x', os.XATTR_REPLACE)": "No data available",
        "os.setxattr('file', 'security.x', b'x')": "Operation not permitted",
        "os.setxattr('file', 'other.x', b'x')": "Operation not supported",
        "os.readlink('file')": "Invalid argument",
    }
    found = await site.run(PYTHON, "-c", script, *calls)
    assert found.splitlines() == list(calls.values())


async def test_extended_attributes_are_those_of_a_disk(site: Site, top: Path) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    alone = top / "alone"
    alone.mkdir()
    command = [PYTHON, str(PROGRAMS / "extra.py")]
    done = await asyncio.to_thread(subprocess.run, command, cwd=alone, capture_output=True, text=True, check=True)
    assert await site.python("extra.py") == done.stdout
    assert trees(site.tree) == trees(alone)


NAMELESS = """if True:
    import fcntl, os
    for number in range(40):
        first = os.open("file", os.O_RDWR | os.O_CREAT, 0o644)
        second = os.open("file", os.O_RDWR)
        os.unlink("file")
        os.close(second)
        fcntl.lockf(first, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.close(os.open("/proc/self/fd/%d" % first, os.O_RDWR))
        os.close(first)
"""


async def test_a_file_without_a_name_is_locked_beside_one_that_is_being_closed(site: Site) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    await site.run(PYTHON, "-c", NAMELESS)


PIPES = """if True:
    import os, socket
    os.mkfifo("pipe", 0o600)
    if not os.fork():
        with open("pipe", "w") as pipe:
            pipe.write("through the pipe")
        os._exit(0)
    print(open("pipe").read())
    server = socket.socket(socket.AF_UNIX)
    server.bind("socket")
    server.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect("socket")
    client.sendall(b"through the socket")
    client.close()
    print(server.accept()[0].recv(100).decode())
    os.unlink("socket")
"""


@pytest.mark.parametrize("way", ["fuse"])
async def test_named_pipes_and_sockets_join_a_jobs_own_processes(site: Site) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    assert await site.run(PYTHON, "-c", PIPES) == "through the pipe\nthrough the socket\n"
    assert [path.name for path in site.tree.iterdir() if path.is_fifo()] == ["pipe"]
    assert not (site.tree / "socket").exists()


ALLOCATING = """if True:
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    def allocate(mode, start, length):
        done = libc.fallocate(file, mode, ctypes.c_long(start), ctypes.c_long(length))
        print(done, os.strerror(ctypes.get_errno()) if done else "", os.fstat(file).st_size, end=" ")
        print([len(part) for part in os.pread(file, 100000, 0).split(bytes(1)) if part])
    file = os.open("file", os.O_RDWR | os.O_CREAT, 0o644)
    os.write(file, b"x" * 20000)
    allocate(0, 0, 30000)
    allocate(1, 0, 90000)
    allocate(3, 4096, 4096)
    os.pwrite(file, b"x" * 10, 5000)
    allocate(16, 0, 100)
    allocate(0, 40000, 10)
    os.write(file, b"y")
    os.posix_fallocate(file, 0, 60000)
    print(os.fstat(file).st_size)
"""


@pytest.mark.parametrize("way", ["fuse"])
async def test_bytes_are_reserved_freed_and_zeroed_as_on_a_disk(site: Site, top: Path) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    plain = top / "plain"
    plain.mkdir()
    there = await site.run(PYTHON, "-c", ALLOCATING)
    command = [PYTHON, "-c", ALLOCATING]
    done = await asyncio.to_thread(subprocess.run, command, cwd=plain, capture_output=True, text=True, check=True)
    assert there.splitlines() == done.stdout.splitlines()
    assert (site.tree / "file").read_bytes() == (plain / "file").read_bytes()


async def test_a_hidden_directory_may_lie_below_the_tree(top: Path, keeper_program: Path, way: str) -> None:
    """A node with SHOW_PATHS hides its directories, and the tree that is mounted over one of them is not served yet."""
    (top / "shown").mkdir()
    async with opened(
        top, keeper_program, without=int(WAYS[way]), show=[ShownDirectory(str(top / "shown"))]
    ) as keepers:
        site = Site(keepers, top, HomeProcess())
        try:
            if not site.able:
                pytest.skip("needs remote files in this way")
            (site.tree / "state").mkdir()
            (site.tree / "in").write_text("here")
            assert await site.shell("cat in; echo more > out", hidden=(str(site.tree / "state"),)) == "here"
            assert (site.tree / "out").read_text() == "more\n"
        finally:
            site.home.close()
