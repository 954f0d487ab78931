"""The settings that a process and its threads make of themselves: printed before "ready" and after `go`, the same."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import resource
import signal
import socket
import sys
import threading
import time
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
SIZE = 1 << 20
MEMBARRIER, IOPRIO_GET, IOPRIO_SET, MLOCK2 = 324, 252, 251, 325
F_SETSIG, F_GETSIG, F_SETOWN_EX, F_GETOWN_EX = 10, 11, 15, 16
CLONE_FS = 0x200


def memory(*advice: int, flags: int = 0) -> int:
    at = libc.mmap(None, ctypes.c_size_t(SIZE), 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags, -1, 0)
    for one in advice:
        assert libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(SIZE), one) == 0
    return int(at)


def marks(at: int) -> list[str]:
    """Of the area that begins there; what the kernel has noted of its use is not the program's."""
    text = Path("/proc/self/smaps").read_text().split(f"{at:08x}-", 1)[1]
    words = text.split("VmFlags:", 1)[1].split("\n")[0].split()
    return sorted({"lo", "lf", "rr", "sr", "nr", "mg", "hg", "dd"} & set(words))


places = [
    memory(mmap.MADV_RANDOM),
    memory(mmap.MADV_SEQUENTIAL),
    memory(mmap.MADV_MERGEABLE),
    memory(flags=0x4000),  # MAP_NORESERVE
    memory(),
    memory(),
]
assert libc.syscall(MLOCK2, ctypes.c_void_p(places[4]), ctypes.c_size_t(65536), 1) == 0
assert libc.mlock(ctypes.c_void_p(places[5]), ctypes.c_size_t(65536)) == 0
threads: dict[str, tuple[object, ...]] = {}
turn = threading.Barrier(3)


def thread(name: str) -> None:
    """One with settings of its own, which looks at them when it is asked to."""
    os.setpriority(os.PRIO_PROCESS, 0, {"low": 15, "own": 12}[name])
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if name == "own":
        os.makedirs("own", exist_ok=True)
        assert libc.unshare(CLONE_FS) == 0
        os.chdir("own")
        os.umask(0o77)
        libc.syscall(IOPRIO_SET, 1, 0, 2 << 13 | 6)
    tid = threading.get_native_id()
    for _ in range(2):
        turn.wait()
        umask = os.umask(0)
        os.umask(umask)
        threads[name] = (
            os.getpriority(os.PRIO_PROCESS, 0),
            sorted(os.sched_getaffinity(0)) if name == "low" else None,
            os.path.basename(os.getcwd()),
            umask,
            libc.syscall(IOPRIO_GET, 1, 0),
            tid == threading.get_native_id(),
        )
        turn.wait()


for name in ("low", "own"):
    threading.Thread(target=thread, args=(name,), daemon=True).start()
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
resource.setrlimit(resource.RLIMIT_STACK, (1 << 22, 1 << 23))
resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 37))
sealed = os.memfd_create("sealed", os.MFD_ALLOW_SEALING)
os.write(sealed, b"sealed")
fcntl.fcntl(sealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
plain = os.memfd_create("plain", 0)
later = os.memfd_create("later", os.MFD_ALLOW_SEALING)
os.write(later, b"later" * 1000)
shared = mmap.mmap(later, 4096)
fcntl.fcntl(later, fcntl.F_ADD_SEALS, 0x10)  # F_SEAL_FUTURE_WRITE
told: list[int] = []
signal.signal(signal.SIGRTMIN + 3, lambda number, _: told.append(number))
here, there = socket.socketpair()
owner = (ctypes.c_int * 2)(1, os.getpid())  # F_OWNER_PID
fcntl.fcntl(here, F_SETOWN_EX, bytes(owner))
fcntl.fcntl(here, F_SETSIG, signal.SIGRTMIN + 3)
fcntl.fcntl(here, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 50000)
assert libc.syscall(MEMBARRIER, 1 << 4, 0, 0) == 0
libc.syscall(IOPRIO_SET, 1, 0, 2 << 13 | 3)
Path("/proc/self/oom_score_adj").write_text("700")
Path("/proc/self/coredump_filter").write_text("0x21")
os.makedirs("bound", exist_ok=True)
top = os.getcwd()
os.chdir("bound")
listener = socket.socket(socket.AF_UNIX)
if os.path.exists("relative"):
    os.unlink("relative")
listener.bind("relative")
listener.listen()
os.chdir(top)


def state() -> dict[str, object]:
    turn.wait()
    turn.wait()
    return {
        "areas": [marks(at) for at in places],
        "limits": [resource.getrlimit(which) for which in range(resource.RLIMIT_NICE)],
        "threads": dict(threads),
        "seals": [fcntl.fcntl(fd, fcntl.F_GET_SEALS) for fd in (sealed, plain, later)],
        "sealed": os.pread(sealed, 100, 0),
        "owner": (fcntl.fcntl(here, fcntl.F_GETOWN), fcntl.fcntl(here, F_GETSIG)),
        "async": fcntl.fcntl(here, fcntl.F_GETFL) & os.O_ASYNC,
        "buffer": here.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
        "membarrier": libc.syscall(MEMBARRIER, 1 << 3, 0, 0),
        "io": libc.syscall(IOPRIO_GET, 1, 0),
        "oom": Path("/proc/self/oom_score_adj").read_text(),
        "filter": Path("/proc/self/coredump_filter").read_text(),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
    }


before = state()
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
after = state()
wrong: dict[str, object] = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
shared[0:3] = b"new"
there.send(b"x")
deadline = time.monotonic() + 10
while not told and time.monotonic() < deadline:
    time.sleep(0.001)
if told != [signal.SIGRTMIN + 3]:
    wrong["told"] = told
with socket.socket(socket.AF_UNIX) as client:
    client.connect("bound/relative")
    listener.accept()
if wrong:
    sys.exit(str(wrong))
