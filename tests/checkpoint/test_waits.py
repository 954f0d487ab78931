"""Waits that were given a while: what is left of it goes on where the job does, and nothing cuts it short."""

from __future__ import annotations

import sys
from pathlib import Path

from pool.starter.keeper import NativeKeepers
from tests.checkpoint.conftest import Compile
from tests.checkpoint.test_checkpoints import lines, saved
from tests.starter.support import soon, spec, until

KINDS = ("nanosleep", "clock_nanosleep", "poll", "epoll_wait", "epoll_pwait2", "futex")
ALL_OVER = [f"{kind} 1" for kind in KINDS]


async def test_what_is_left_of_a_while_goes_on(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile
) -> None:
    """Moved after two thirds of it: whoever began anew would not be through after half as much again."""
    wanted = spec(scratch, compiled("timed"), "3000")
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) == 1)
    await saved(keepers, keeper, tmp_path / "image", stop=True)
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image"))
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    assert (scratch / "out").read_text().splitlines() == ["now", *ALL_OVER, *ALL_OVER]


async def test_a_wait_that_was_held_before_is_not_cut_short(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile
) -> None:
    """After a checkpoint beside it the kernel goes on with it under another number."""
    wanted = spec(scratch, compiled("timed"), "600")
    keeper = await soon(keepers.start(wanted))
    assert (await soon(keeper.checkpoint(tmp_path / "beside"))).refused == ()
    await saved(keepers, keeper, tmp_path / "image", stop=True)
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image"))
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    assert (scratch / "out").read_text().splitlines()[-6:] == ALL_OVER


#: Sockets with time-outs of their own, each waited for by a thread in the C library: Python would not tell of EINTR.
PATIENT = """
import ctypes, os, socket, struct, threading, time
libc = ctypes.CDLL(None, use_errno=True)
pairs = [socket.socketpair() for _ in range(3)]
listener = socket.socket(socket.AF_UNIX)
listener.bind("name")
listener.listen()
for one in (listener, *(here for here, _ in pairs)):
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 600, 0))
came = {}
def wait(name, call, *arguments):
    came[name] = call(*arguments), ctypes.get_errno()
room = [ctypes.create_string_buffer(8) for _ in pairs]
calls = {
    "read": (libc.read, pairs[0][0].fileno(), room[0], 8),
    "recv": (libc.recv, pairs[1][0].fileno(), room[1], 8, 0),
    "recvfrom": (libc.recvfrom, pairs[2][0].fileno(), room[2], 8, 0, None, None),
    "accept": (libc.accept, listener.fileno(), None, None),
}
threads = [threading.Thread(target=wait, args=(name, *call)) for name, call in calls.items()]
for thread in threads: thread.start()
time.sleep(0.05)
print("ready", flush=True)
while not os.path.exists("go"): time.sleep(0.01)
for _, there in pairs: there.send(b"four")
caller = socket.socket(socket.AF_UNIX)
caller.connect("name")
for thread in threads: thread.join()
for name, (done, error) in sorted(came.items()): print(name, done if name != "accept" else done > 0, error)
"""


async def test_a_socket_with_a_time_out_tells_nothing_of_a_stop(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path
) -> None:
    """The kernel answers EINTR to such a wait where any other is begun again."""
    wanted = spec(scratch, sys.executable, "-I", "-c", PATIENT, isolation="shared")
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) == 1)
    for number in range(2):
        assert (await soon(keeper.checkpoint(tmp_path / f"beside{number}"))).refused == ()
    await saved(keepers, keeper, tmp_path / "image", stop=True)
    keeper = await soon(keepers.start(wanted, image=tmp_path / "image"))
    (scratch / "go").touch()
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    assert (scratch / "out").read_text().splitlines()[1:] == ["accept True 0", "read 4 0", "recv 4 0", "recvfrom 4 0"]
