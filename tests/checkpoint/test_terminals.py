"""Pseudo-terminals whose both ends are the job's, and programs that live by them: each goes on as if never moved."""

from __future__ import annotations

import asyncio
import os
import pty
import socket
from pathlib import Path

import pytest

from pool.starter.keeper import KeeperSpec, NativeKeepers
from tests.checkpoint.conftest import SOURCES
from tests.checkpoint.machines import needs
from tests.checkpoint.test_checkpoints import saved
from tests.checkpoint.test_descriptors import lives
from tests.starter.support import PYTHON, shell, soon, spec, to_end, until

#: A typescript of a shell at a terminal: its name and settings before and after, and what is typed.
SCRIPT = """
mkfifo typed; exec 3<>typed
script -qec 'tty; stty rows 31 cols 77; echo ready; until [ -e go ]; do sleep 0.02; done
read x; echo got $x; tty; stty -a; exit 3' log <&3 &
until [ -e go ]; do sleep 0.02; done
echo hello >&3
wait $!
echo script says $?
"""
#: A dialogue with an interactive shell, with job control.
EXPECT = """
exec expect -c '
log_user 0
spawn bash --norc --noprofile --noediting -i
send "PS1=; stty -echo; echo in-\\$((1+1))\\n"
expect "in-2"
puts ready
flush stdout
set n 0
while {![file exists go]} { send "echo tick-\\$(($n+1))\\n"; incr n; expect "tick-$n\\r"; after 10 }
send "sleep 100 & kill %1; wait; echo over-\\$((2+2))\\n"
expect "over-4"
puts "ticks were counted"
send "exit 5\\n"
expect eof
puts [lindex [wait] 3]
'
"""
#: A server with a window in which a program waits for what is typed.
TMUX = """
export TMUX_TMPDIR=$(mktemp -d /tmp/mux.XXXXXX) SHELL=/bin/sh  # a short name: its socket's has to fit
tmux -f /dev/null new-session -d -x 90 -y 30 "stty size > before; echo hello; until [ -e go ]; do sleep 0.02; done
stty size > after; read line; echo line=\\$line > typed; sleep 1000"
until [ -s before ]; do sleep 0.02; done
echo ready
until [ -s after ]; do sleep 0.02; done
tmux send-keys 'typed text' Enter
until [ -s typed ]; do sleep 0.02; done
tmux capture-pane -p | head -2
cat before after typed
tmux list-windows -F '#{window_width}x#{window_height} #{pane_tty}'
tmux kill-server
rm -rf "$TMUX_TMPDIR"
"""
PROGRAMS = {"script": (SCRIPT, "bsdutils"), "expect": (EXPECT, "expect"), "tmux": (TMUX, "tmux")}


def terminals(scratch: Path, isolation: str) -> KeeperSpec:
    return spec(scratch, PYTHON, "-c", (SOURCES / "terminals.py").read_text(), isolation=isolation)


@pytest.mark.parametrize("isolation", ["full", "shared"])
async def test_terminals_in_every_state(keepers: NativeKeepers, tmp_path: Path, scratch: Path, isolation: str) -> None:
    """Settings, windows, bytes either way, packets, locks, hang-ups, sessions and their foreground."""
    await lives(keepers, tmp_path, terminals(scratch, isolation))


async def test_a_terminal_of_a_job_that_stays(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    """Bytes that wait in it are read for the image, and are there again for the job."""
    keeper = await soon(keepers.start(terminals(scratch, "full")))
    await until(lambda: (scratch / "out").exists() and bool((scratch / "out").read_text()))
    for number in range(3):
        assert (await soon(keeper.checkpoint(tmp_path / f"image{number}"))).refused == ()
    (scratch / "go").touch()
    assert (await soon(keeper.ended)).code == 0, (scratch / "err").read_text()
    await keeper.forget()


@pytest.mark.parametrize("name", PROGRAMS)
async def test_programs_that_live_by_terminals(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, name: str
) -> None:
    """Moved five times, each says what it says unmoved."""
    needs(name, PROGRAMS[name][1])
    alone = tmp_path / "alone"
    alone.mkdir()
    ended = asyncio.ensure_future(to_end(keepers, shell(alone, PROGRAMS[name][0], env=ENVIRONMENT)))
    await until(lambda: "ready" in text(alone / "out"))
    (alone / "go").touch()
    assert (await soon(ended)).code == 0, text(alone / "err")
    wanted = shell(scratch, PROGRAMS[name][0], env=ENVIRONMENT)
    keeper = await soon(keepers.start(wanted))
    await until(lambda: "ready" in text(scratch / "out"))
    for number in range(5):
        await saved(keepers, keeper, tmp_path / f"image{number}", stop=number % 2 == 0)
        keeper = await soon(keepers.start(wanted, image=tmp_path / f"image{number}"))
    (scratch / "go").touch()
    assert (await soon(keeper.ended)).code == 0, text(scratch / "err")
    await keeper.forget()
    assert text(scratch / "out") == text(alone / "out")
    assert len(text(alone / "out")) > len("ready\n")


ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "TERM": "xterm"}

#: Takes a terminal from who is outside; without `keep` as its controlling terminal only.
TAKES = """
import fcntl, os, socket, sys, termios, time
with socket.socket(socket.AF_UNIX) as giver:
    giver.connect("giver")
    _, (fd,), _, _ = socket.recv_fds(giver, 1, 1)
print("ready", flush=True)
time.sleep(60)
"""


async def test_a_terminal_of_somebody_else(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    """It is refused by name, at once and when an image is to be made, and the job runs on."""
    master, slave = pty.openpty()
    name = os.ttyname(slave)
    with socket.socket(socket.AF_UNIX) as giver:
        giver.bind(str(scratch / "giver"))
        giver.listen()
        keeper = await soon(keepers.start(spec(scratch, PYTHON, "-c", TAKES)))
        one = await asyncio.to_thread(giver.accept)
        with one[0]:
            socket.send_fds(one[0], [b"x"], [slave])
            await until(lambda: "ready" in text(scratch / "out"))
    said = f"of process 2 is the terminal {name}, whose other end is outside the job"
    assert any(said in line for line in await soon(keeper.examine()))
    report = await soon(keeper.checkpoint(tmp_path / "image", stop=True))
    assert any(said in line for line in report.refused)
    assert not keeper.ended.done()
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
    os.close(slave)
    os.close(master)


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
