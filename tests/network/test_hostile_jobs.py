"""Jobs that try to reach through their way out what they should not: each address has a server that would answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from socket import AF_INET, SOCK_DGRAM, SOCK_STREAM
from typing import Any

import psutil
import pytest

from pool.checkpoint import program as keeper_program
from pool.network import program as relay_program
from pool.network import rooms, way_out_program
from tests.network.outside import HOST, Machine, Rules
from tests.network.world import MACHINE4, MACHINE6, World
from tests.starter.support import PYTHON, opened, soon, until

#: The port that the rules open, that of the machine's node, and that of the pool's collector at one address.
OPEN, NODE, COLLECTOR = 80, 9618, 9700
COLLECTOR4, COLLECTOR6 = "203.0.113.9", "2001:db8:9::9"
#: By TCP and by UDP, with the answer or the error.
TRY = """
import errno, json, socket, sys
said = {}
for address, port in json.loads(sys.argv[1]):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(family, kind) as s:
            s.settimeout(0.1 if kind == socket.SOCK_DGRAM else 5)
            try:
                if kind == socket.SOCK_DGRAM: s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                s.connect((address, port))
                if kind == socket.SOCK_DGRAM: s.send(address.encode())
                said[f"{address} {port} {kind}"] = s.recv(100).decode()
            except OSError as error:
                said[f"{address} {port} {kind}"] = errno.errorcode.get(error.errno, "ETIMEDOUT")
print(json.dumps(said))
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    for port in (OPEN, NODE, COLLECTOR):
        made.listen(port)
    yield made
    made.close()


@contextlib.asynccontextmanager
async def machine_in(world: World, place: Path, setting: str, **more: Any) -> AsyncIterator[Machine]:
    """A machine in the world, whose way out has these rules; the node's port and the collector are closed."""
    denied = [("", NODE), (COLLECTOR4, COLLECTOR), (COLLECTOR6, COLLECTOR)]
    (place / "job").mkdir()
    async with opened(place, keeper_program()) as keepers:
        rules = Rules(world.program(way_out_program()), setting, denied=denied, **more)
        yield (machine := Machine(keepers, relay_program(), rules))
        await machine.close()


async def tried(
    world: World, place: Path, setting: str, wanted: Sequence[tuple[str, int]], **more: Any
) -> dict[str, str]:
    """The answer or error for each address, by TCP (1) and UDP (2)."""
    async with machine_in(world, place, setting, **more) as machine:
        job = await machine.start(place / "job", TRY, json.dumps(wanted))
        found: dict[str, str] = json.loads(await job.end())
    return found


CLOSED = [
    ("0.0.0.1", OPEN),
    (MACHINE4, OPEN),
    (MACHINE6, OPEN),
    ("198.51.100.255", OPEN),
    ("255.255.255.255", OPEN),
    ("169.254.169.254", OPEN),
    ("fd00:ec2::254", OPEN),
    ("168.63.129.16", OPEN),
    ("::7f00:1", OPEN),
    (f"::{MACHINE4}", OPEN),
    (f"::ffff:0:{MACHINE4}", OPEN),
    (f"64:ff9b::{MACHINE4}", OPEN),
    ("64:ff9b::169.254.169.254", OPEN),
    ("64:ff9b::127.0.0.1", OPEN),
    ("2002:7f00:1::1", OPEN),
    ("2002:c633:6401::1", OPEN),
    ("fe80::1%eth0", OPEN),
    ("192.0.2.253", OPEN),
    ("192.0.2.254", OPEN),
    ("224.0.0.1", OPEN),
    ("10.77.0.7", OPEN),
    ("10.77.255.253", OPEN),
    ("fd70:6f6f:6c00::fffd", OPEN),
    ("203.0.113.1", NODE),
    ("2001:db8:2::1", NODE),
    (COLLECTOR4, COLLECTOR),
    (COLLECTOR6, COLLECTOR),
    (f"64:ff9b::{COLLECTOR4}", COLLECTOR),
]
#: They lead into the job's own network: nothing leaves it.
ITS_OWN = ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "10.77.0.1"]


async def test_no_rule_for_many_addresses_opens_these(world: World, tmp_path: Path) -> None:
    """All is allowed on three ports, and a server listens at each address of the machine and of the world."""
    others = ["203.0.113.1", "2001:db8:2::1", "64:ff9b::cb00:7101"]
    wanted = [*CLOSED, *((address, OPEN) for address in (*ITS_OWN, *others))]
    found = await tried(world, tmp_path, f"*:{OPEN} *:{NODE} *:{COLLECTOR}", wanted)
    for address in others:
        assert found.pop(f"{address} {OPEN} 1"), found
        assert found.pop(f"{address} {OPEN} 2") == address
    for address in ITS_OWN:
        assert found.pop(f"{address} {OPEN} 1") == "ECONNREFUSED", address
        assert found.pop(f"{address} {OPEN} 2") == "ECONNREFUSED", address
    assert all(answer.startswith("E") for answer in found.values()), found


async def test_a_name_opens_none_of_these_whatever_a_name_server_answers(world: World, tmp_path: Path) -> None:
    """DNS rebinding: the name leads to the machine, to its link, to the pool, to the job; and to one of the outside."""
    closed = ["127.0.0.1", "::1", MACHINE4, MACHINE6, "169.254.169.254", "0.0.0.0", "10.77.0.9", HOST]
    names = {"evil.example": [*closed, "203.0.113.1", COLLECTOR4]}
    wanted = [(address, OPEN) for address in (*closed, "203.0.113.1", "203.0.113.2")]
    setting = f"evil.example:{OPEN} evil.example:{COLLECTOR}"
    found = await tried(world, tmp_path, setting, [*wanted, (COLLECTOR4, COLLECTOR)], found=names)
    assert found.pop(f"203.0.113.1 {OPEN} 1") == found.pop(f"203.0.113.1 {OPEN} 2") == "203.0.113.1"
    assert all(answer.startswith("E") for answer in found.values()), found
    assert {(at, port) for _, _, at, port in world.heard} == {("203.0.113.1", OPEN)}


ASK = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(1)
s.bind(("", 5353))
for _ in range(20):
    s.sendto(b"question", (sys.argv[1], int(sys.argv[2])))
    try: print(s.recvfrom(100)); break
    except TimeoutError: pass
"""


async def test_nobody_else_answers_a_question(world: World, tmp_path: Path) -> None:
    """Forged answers come before the real one: from another address, another port, and the machine itself."""
    async with machine_in(world, tmp_path, "*:53") as machine:
        server, strangers = world.made(AF_INET, SOCK_DGRAM, of_machine=False), []
        server.bind(("203.0.113.53", 53))
        for at in (("203.0.113.54", 53), ("203.0.113.53", 54)):
            strangers.append(world.made(AF_INET, SOCK_DGRAM, of_machine=False))
            strangers[-1].bind(at)
        strangers.append(world.made(AF_INET, SOCK_DGRAM))
        server.settimeout(20)
        job = await machine.start(tmp_path / "job", ASK, "203.0.113.53", 53)
        _, source = await asyncio.to_thread(server.recvfrom, 100)
        assert source[0] == MACHINE4
        assert source[1] != 5353
        for stranger in strangers:
            stranger.sendto(b"forged", source)
        for _ in range(3):
            server.sendto(b"real", source)
        assert await job.end() == "(b'real', ('203.0.113.53', 53))\n"


FLOOD = """
import os, socket, sys, time
udp = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(4)]
links = []
while True:
    for port in range(1024, 65536):
        udp[port % 4].sendto(b"?" * 100, (sys.argv[1], port))
        if port % 64 == 0:
            link = socket.socket()
            link.setblocking(False)
            link.connect_ex((sys.argv[1], port))
            links.append(link)
            if len(links) > 900: break
    for link in links: link.close()
    links.clear()
"""


async def test_a_flood_takes_a_bounded_part_of_the_machine(world: World, tmp_path: Path) -> None:
    """New flows each second, sockets and memory are bounded; afterwards the way out serves the next job's needs."""
    async with machine_in(world, tmp_path, "*:1024-65535") as machine:
        began = time.monotonic()
        job = await machine.start(tmp_path / "job", FLOOD, "203.0.113.1")
        await until(lambda: bool(job.way_out))
        process, most, files = psutil.Process(job.way_out), 0, 0
        seen = await job.report()
        async with asyncio.timeout(60):
            while seen.full <= 1000:
                assert not job.keeper.ended.done(), job.said()
                most, files = max(most, process.memory_info().rss), max(files, process.num_fds())
                with contextlib.suppress(TimeoutError, OSError):
                    seen = await job.report()
        took = time.monotonic() - began
        await job.keeper.kill()
        await soon(job.keeper.ended)
        await job.keeper.forget()
        assert seen.open <= 512 + 2048
        assert most < 24 << 20, most
        assert 100 < files < 512 + 3 * 2048 + 32, files
        new = seen.opened + seen.failed + seen.open
        assert new < 2000 + 500 * (took + 1) + 2048, seen


SLOW = """
import socket, sys
links = []
for _ in range(300):
    link = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
    link.setblocking(False)
    links.append(link)
sent = 0
for turn in range(4):
    for link in links:
        try: sent += link.send(bytes(1 << 20))
        except BlockingIOError: pass
print(sent, flush=True)
"""


async def test_bytes_that_nobody_takes_do_not_fill_the_machine(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 connections to a server that reads nothing: what the way out holds has a bound, and so have its sockets."""
    server = world.made(AF_INET, SOCK_STREAM, of_machine=False)
    server.bind(("203.0.113.1", 7000))
    server.listen(1000)
    monkeypatch.setattr(rooms, "LAST", 0.5)
    async with machine_in(world, tmp_path, "*:7000") as machine:
        job = await machine.start(tmp_path / "job", SLOW + "import signal; signal.pause()", "203.0.113.1", 7000)
        await job.says("\n")
        assert (await job.report()).opened == 300
        held = psutil.Process(job.way_out).memory_info().rss
        assert held < 44 << 20, held
        await job.kill()
        await until(lambda: not job.way_out, 20)


SEEN = """
import os
print(sorted(map(int, os.listdir("/proc/self/fd")))[:-1])
for pid in filter(str.isdigit, os.listdir("/proc")):
    print(open(f"/proc/{pid}/comm").read().strip())
"""


async def test_a_job_has_no_descriptor_of_it_and_sees_no_process_of_it(world: World, tmp_path: Path) -> None:
    async with machine_in(world, tmp_path, "*:80") as machine:
        job = await machine.start(tmp_path / "job", SEEN, isolation="full")
        files, *names = (await job.end()).splitlines()
        assert files == "[0, 1, 2]"
        assert {"way_out", "relay"}.isdisjoint(names)
        assert len(names) <= 3, names


async def test_nobody_looks_into_its_processes(world: World, tmp_path: Path) -> None:
    """Not even with its own ids: no memory, no files, no namespace, no debugger; so a job of nobody's cannot."""
    async with machine_in(world, tmp_path, "*:80") as machine:
        job = await machine.start(tmp_path / "job", "import signal; signal.pause()")
        await until(lambda: bool(job.way_out))
        process = psutil.Process(job.way_out)
        tries = """
import ctypes, os, sys
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
for pid in sys.argv[1:]:
    assert os.stat(f"/proc/{pid}").st_uid in (0, 65534)
    for what in (lambda: open(f"/proc/{pid}/mem", "rb"), lambda: os.listdir(f"/proc/{pid}/fd"),
                 lambda: os.open(f"/proc/{pid}/ns/net", os.O_RDONLY), lambda: open(f"/proc/{pid}/environ").read(),
                 lambda: os.pidfd_open(int(pid))):
        try: what()
        except PermissionError: continue
        print("may", pid)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, int(pid), 0, 0) == 0: print("may trace", pid)
    pidfd = os.pidfd_open(int(pid))
    if libc.syscall(438, pidfd, 3, 0) >= 0: print("may take a file of", pid)
    if libc.setns(pidfd, 0x40000000) == 0: print("may enter", pid)
"""
        pids = [str(one.pid) for one in (process, *process.children())]
        assert len(pids) == 2
        run = partial(subprocess.run, capture_output=True, text=True, check=False)
        done = await asyncio.to_thread(run, [PYTHON, "-c", tries, *pids])
        assert (done.stderr, done.stdout) == ("", "".join(f"may {pid}\n" for pid in pids))  # a pidfd is only a name
        await job.kill()


STAYS = """
import signal, socket, sys
link = socket.create_connection((sys.argv[1], 80), 20)
print(link.recv(100), flush=True)
signal.pause()
"""
LISTS = """
import os, sys
os.setgroups([]); os.setresgid(65533, 65533, 65533); os.setresuid(65533, 65533, 65533)
for name in os.listdir(f"/proc/{sys.argv[1]}/net"):
    path = f"/proc/{sys.argv[1]}/net/{name}"
    try: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read()
    except OSError: continue
    print("reads", path)
"""


async def test_nobody_lists_the_connections_that_it_ends(world: World, tmp_path: Path) -> None:
    """The network of its inner process has a socket for each connection of the job to the outside."""
    async with machine_in(world, tmp_path, "*:80") as machine:
        job = await machine.start(tmp_path / "job", STAYS, "203.0.113.1")
        await job.says("\n")
        (inside,) = psutil.Process(job.way_out).children()
        assert "017100CB" in await asyncio.to_thread(Path(f"/proc/{inside.pid}/net/tcp").read_text)
        run = partial(subprocess.run, capture_output=True, text=True, check=False)
        done = await asyncio.to_thread(run, [PYTHON, "-c", LISTS, str(inside.pid)])
        assert (done.stderr, done.stdout) == ("", "")
        await job.kill()


BIG = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.5)
for size in (65507, 65400, 64973):
    s.sendto(bytes(size), (sys.argv[1], 80))
for tries in range(1, 60):  # on a busy machine a small one may be lost, too
    s.sendto(b"small", (sys.argv[1], 80))
    try: print(s.recv(100), tries)
    except TimeoutError: continue
    break
"""


async def test_datagrams_beyond_the_mtu_are_lost_and_do_no_harm(world: World, tmp_path: Path) -> None:
    """They leave the job in fragments, which nobody puts together."""
    async with machine_in(world, tmp_path, "*:80") as machine:
        job = await machine.start(tmp_path / "job", BIG, "203.0.113.1")
        answer, tries = (await job.end()).split()
        assert answer == "b'203.0.113.1'"
        assert 1 <= len(world.heard) <= int(tries)
