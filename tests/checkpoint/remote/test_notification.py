"""Cases of notification alone: stand-ins that are not whole, programs, and which bytes are written by whom."""

from __future__ import annotations

import os
import random
import shutil
import zlib

import pytest

from tests.checkpoint.remote.conftest import Site, wait_for_output
from tests.starter.support import PYTHON, soon

BIG = 3_000_001

pytestmark = pytest.mark.parametrize("way", ["notification"])

WAYS_ROUND = {
    "duplicated": "f = open('big', 'rb', 0); n = os.dup(f.fileno()); say(os.read(n, 1 << 22))",
    "inherited as stdin": "subprocess.run('wc -c', shell=True, stdin=open('big', 'rb', 0))",
    "mapped": "f = open('big', 'rb', 0); say(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:])",
    "handed over": """
a, b = socket.socketpair()
f = open('big', 'rb', 0)
socket.send_fds(a, [b'x'], [f.fileno()])
_, (n,), _, _ = socket.recv_fds(b, 1, 1)
say(os.read(n, 1 << 22))
""",
    "handed over among several": """
import ctypes
class Message(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in ('name', 'length', 'parts', 'count', 'control', 'size', 'flags', 'sent')]
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
f = open('big', 'rb', 0)
text = ctypes.create_string_buffer(b'x', 1)
part = (ctypes.c_size_t * 2)(ctypes.addressof(text), 1)
rights = struct.pack('QiiiI', 20, socket.SOL_SOCKET, socket.SCM_RIGHTS, f.fileno(), 0)
control = ctypes.create_string_buffer(rights, 24)
several = (Message * 2)()
for one in several:
    one.parts, one.count = ctypes.addressof(part), 1
several[1].control, several[1].size = ctypes.addressof(control), 24
assert ctypes.CDLL(None).sendmmsg(a.fileno(), several, 2, 0) == 2
b.recv(1)
_, (n,), _, _ = socket.recv_fds(b, 1, 1)
say(os.read(n, 1 << 22))
""",
    "opened again": "f = open('big', 'rb', 0); say(open(f'/proc/self/fd/{f.fileno()}', 'rb', 0).read(1 << 22))",
    "sent": """
f = open('big', 'rb', 0)
with open('/job/copy', 'wb', 0) as to:
    while os.sendfile(to.fileno(), f.fileno(), None, 1 << 22): pass
say(open('/job/copy', 'rb').read())
""",
    "sought for holes": "f = open('big', 'rb', 0); print(os.lseek(f.fileno(), 0, os.SEEK_HOLE))",
}


@pytest.mark.parametrize("how", list(WAYS_ROUND))
async def test_a_large_file_is_whole_wherever_its_descriptor_goes(site: Site, how: str) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    data = random.Random(5).randbytes(BIG)
    (site.tree / "big").write_bytes(data)
    head = "import mmap, os, socket, struct, subprocess, zlib\ndef say(data): print(zlib.crc32(data))\n"
    found = await site.run(PYTHON, "-c", head + WAYS_ROUND[how])
    assert found == (f"{BIG}\n" if how in ("sought for holes", "inherited as stdin") else f"{zlib.crc32(data)}\n")


async def test_programs_and_scripts_of_home_run(site: Site) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    (site.tree / "bin").mkdir()
    shutil.copy("/bin/echo", site.tree / "bin/say")
    (site.tree / "bin/script").write_text("#!./bin/say from\n")
    (site.tree / "bin/script").chmod(0o755)
    (site.tree / "bin/not").write_text("#!/bin/sh\n")
    (site.tree / "bin/not").chmod(0o644)
    (site.tree / "link").symlink_to("bin")
    script = "bin/say one; cd link; ./say two; cd ..; bin/script; bin/not 2>/dev/null; echo $?; PATH=bin; say three"
    found = await site.shell(script)
    assert found == "one\ntwo\nfrom bin/script\n126\nthree\n"


async def test_what_a_killed_process_wrote_is_at_home(site: Site) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    (site.tree / "log").write_text("before\n")
    script = "sh -c 'exec >>log; echo written; kill -KILL $$'; cat log; echo over; until [ -e go ]; do sleep 0.05; done"
    keeper = await site.start("/bin/sh", "-c", script)
    await wait_for_output(site, "over")
    assert site.output() == "before\nwritten\nover\n"
    (site.tree / "go").touch()
    assert (await soon(keeper.ended, 20)).code == 0
    assert (site.tree / "log").read_text() == "before\nwritten\n"


async def test_two_change_different_blocks_of_one_file(site: Site) -> None:
    """A writer does not write bytes that it has not changed, so that the other's bytes stay."""
    if not site.able:
        pytest.skip("needs remote files in this way")
    (site.tree / "data").write_bytes(b"-" * 40960)
    script = "exec 5<>data; echo ready; until [ -e go ]; do sleep 0.05; done; printf job >&5"
    keeper = await site.start("/bin/sh", "-c", script)
    await wait_for_output(site, "ready")
    with (site.tree / "data").open("r+b") as file:
        os.pwrite(file.fileno(), b"home", 20000)
    (site.tree / "go").touch()
    assert (await soon(keeper.ended, 20)).code == 0
    data = (site.tree / "data").read_bytes()
    assert (data[:4], data[20000:20005], len(data)) == (b"job-", b"home-", 40960)
