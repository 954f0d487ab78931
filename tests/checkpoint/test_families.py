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


#: A child that a signal has stopped: its parent is told by which.
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
