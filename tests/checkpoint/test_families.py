"""Process trees that cannot be forked from the top down: leaders of sessions and groups that have ended, orphans."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.starter.keeper import NativeKeepers
from tests.checkpoint.conftest import Compile
from tests.checkpoint.test_descriptors import lives
from tests.starter.support import PYTHON, spec


async def test_sessions_and_groups_whose_leaders_have_ended(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile
) -> None:
    await lives(keepers, tmp_path, spec(scratch, compiled("families")))
    assert (scratch / "out").read_text() == "ready\n0 of 12 wrong\n"


#: A child that a signal has stopped: its parent gets the signal's number.
STOPPED = """
import os, signal, sys, time
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    while True: signal.pause()
while os.getpgid(child) != child: time.sleep(0.001)
os.kill(child, int(sys.argv[1]))
os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOWAIT)
print("ready", flush=True)
while not os.path.exists("go"): time.sleep(0.01)
print(os.WSTOPSIG(os.waitpid(child, os.WUNTRACED)[1]), flush=True)
os.kill(child, signal.SIGCONT)
os.kill(child, signal.SIGTERM)
print(os.WTERMSIG(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("signal", [19, 20, 21, 22])
async def test_what_has_stopped_a_process(keepers: NativeKeepers, tmp_path: Path, scratch: Path, signal: int) -> None:
    await lives(keepers, tmp_path, spec(scratch, PYTHON, "-I", "-c", STOPPED, str(signal)), 2)
    assert (scratch / "out").read_text() == f"ready\n{signal}\n15\n"


#: A number means one file for two of its processes and another one for the other two; each has closed what others have.
NUMBERS = """
import fcntl, os, sys, time
def child(name, wanted, above=None):
    ask, told = os.pipe(), os.pipe()
    pid = os.fork()
    if pid:
        return ask[1], told[0]
    if above is not None:
        os.dup2(os.open(above, os.O_RDWR), 10, inheritable=False)
    below = child(f"{name}'s", wanted) if above is not None else None
    while (line := os.read(ask[0], 100)) != b"look":
        os.lseek(10, int(line), os.SEEK_SET)
        os.write(told[1], b"done")
    right = [os.lseek(10, 0, os.SEEK_CUR) == wanted, os.get_inheritable(10) == (name[0] != "b")]
    if below:
        os.write(below[0], b"look")
        right.append(os.read(below[1], 100) == b"right")
    os.write(told[1], b"right" if all(right) else f"{name} has {right}".encode())
    time.sleep(60)
    os._exit(0)
for name in "ab":
    open(name, "w")
os.dup2(os.open("a", os.O_RDWR), 10)
b = child("b", 222, "b")
a = child("a", 111)
many = [os.pipe() for _ in range(200)]
for pair in many[:10]:
    if not os.fork():
        for end in pair: os.close(end)
        time.sleep(60)
        os._exit(0)
print("ready", flush=True)
while not os.path.exists("go"): time.sleep(0.01)
os.lseek(10, 111, os.SEEK_SET)
os.write(b[0], b"222")
os.read(b[1], 100)
for one in (a, b):
    os.write(one[0], b"look")
    print(os.read(one[1], 100).decode())
"""


async def test_one_number_for_several_files(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    await lives(keepers, tmp_path, spec(scratch, PYTHON, "-I", "-c", NUMBERS), 2)
    assert (scratch / "out").read_text() == "ready\nright\nright\n"
