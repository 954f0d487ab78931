"""Process and mount namespaces of its own for a program: nothing that it starts or mounts outlives it.

run_inside   from outside: unshare, and the program below it
python -m tests.chaos.inside MODULE ARGUMENT...   process 1 of the new namespace: buries what nobody waits for
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence

from tests.conftest import REPOSITORY

PR_SET_PDEATHSIG = 1
NEEDED = ("unshare", "nsenter", "ip", "mount", "cc")


def lacking() -> str:
    """The abilities that this machine lacks for it; empty where it lacks none."""
    if os.geteuid() != 0:
        return "root, for network namespaces and file systems of its own"
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        return f"the programs {', '.join(missing)}"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun"
    script = "mount -t tmpfs tmpfs /mnt && unshare --net true"
    command = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", script]
    tried = subprocess.run(command, capture_output=True, check=False)
    return "" if tried.returncode == 0 else f"namespaces: {tried.stderr.decode(errors='replace').strip()}"


def run_inside(module: str, arguments: Sequence[str]) -> int:
    """Run a module there; its status. An interrupt ends all of it."""
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
    command += [sys.executable, "-m", "tests.chaos.inside", module, *arguments]
    process = subprocess.Popen(command, cwd=REPOSITORY, start_new_session=True, preexec_fn=_end_with_parent)
    # A shell without job control starts what it leaves in the background with SIGINT ignored.
    before = {one: signal.signal(one, signal.default_int_handler) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        return process.wait()
    except KeyboardInterrupt:
        print("interrupted: everything is ended", file=sys.stderr)
        return 130
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        process.kill()
        process.wait()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    """Process 1: run the module, bury orphans, and end with its status, and everything else with it."""
    assert os.getpid() == 1, "this is process 1 of a new namespace: run `python -m tests.chaos`"
    worker = subprocess.Popen([sys.executable, "-m", *sys.argv[1:]])
    while True:
        pid, status = os.wait()
        if pid == worker.pid:
            return os.waitstatus_to_exitcode(status) & 0xFF


if __name__ == "__main__":
    sys.exit(main())
