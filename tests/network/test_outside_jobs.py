"""Jobs with a way out, by real keepers, relays and ways out: what they send arrives, and what breaks is seen."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from pool.checkpoint import program as keeper_program
from pool.network import program as relay_program
from pool.network import way_out_program
from tests.network.outside import HOST, Machine, Rules
from tests.network.world import World
from tests.starter.support import opened, until


class Server:
    """Serves each connection in a thread, on loopback.

    Attributes:
        said: what `serve` returned for each connection, or its error's name.
    """

    def __init__(self, serve: Callable[[socket.socket], str]) -> None:
        self._serve = serve
        self._tcp = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self.port: int = self._tcp.getsockname()[1]
        self.said: list[str] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._one, args=(self._tcp.accept()[0],), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection:
            try:
                self.said.append(self._serve(connection))
            except OSError as error:
                self.said.append(type(error).__name__)

    def close(self) -> None:
        """Listen no more."""
        self._tcp.shutdown(socket.SHUT_RDWR)
        self._tcp.close()


@contextlib.contextmanager
def serving(serve: Callable[[socket.socket], str]) -> Iterator[Server]:
    server = Server(serve)
    try:
        yield server
    finally:
        server.close()


@contextlib.asynccontextmanager
async def machine_for(place: Path, setting: str, program: Path | None = None) -> AsyncIterator[Machine]:
    (place / "job").mkdir()
    async with opened(place, keeper_program()) as keepers:
        if why := keepers.abilities.private_network_why:
            pytest.skip(f"needs the ability network ({why})")
        yield (machine := Machine(keepers, relay_program(), Rules(program or way_out_program(), setting)))
        await machine.close()


def echo(connection: socket.socket) -> str:
    while data := connection.recv(1 << 16):
        connection.sendall(data)
    return "end"


def summed(connection: socket.socket) -> str:
    found, size = hashlib.md5(), 0
    while data := connection.recv(1 << 20):
        found.update(data)
        size += len(data)
    return f"{size} {found.hexdigest()}"


def slow(connection: socket.socket) -> str:
    """Reads 64 KB at a time and far more slowly than the job sends."""
    size = 0
    while data := connection.recv(1 << 16):
        size += len(data)
        time.sleep(0.005)
    return str(size)


LAST = """
import socket, sys
link = socket.create_connection((sys.argv[1], int(sys.argv[2])))
link.sendall(bytes(int(sys.argv[3])))
"""


@pytest.mark.parametrize("size", [1000, 3_000_000])
async def test_the_last_bytes_of_a_job_arrive_though_it_has_ended(tmp_path: Path, size: int) -> None:
    with serving(slow) as server:
        async with machine_for(tmp_path, f"localhost:{server.port}") as machine:
            for _ in range(3):
                await (await machine.start(tmp_path / "job", LAST, HOST, server.port, size)).end()
        await until(lambda: len(server.said) == 3)
    assert server.said == [str(size)] * 3


WAITS = """
import socket, sys
link = socket.create_connection((sys.argv[1], int(sys.argv[2])))
link.sendall(b"!")
assert link.recv(1) == b"!"
print("connected", flush=True)
try: print(link.recv(1), flush=True)
except OSError as error: print(type(error).__name__, flush=True)
again = socket.create_connection((sys.argv[1], int(sys.argv[2])))
again.sendall(b"!")
assert again.recv(1) == b"!"
print("connected again", flush=True)
"""


async def test_if_the_way_out_is_killed_both_sides_see_a_reset_and_new_connections_work(tmp_path: Path) -> None:
    """Neither the job, which waits for bytes, nor the server takes what it has got for all that was to come."""
    with serving(echo) as server:
        async with machine_for(tmp_path, f"localhost:{server.port}") as machine:
            job = await machine.start(tmp_path / "job", WAITS, HOST, server.port)
            await job.says("connected")
            os.kill(job.way_out, signal.SIGKILL)
            assert await job.end() == "connected\nConnectionResetError\nconnected again\n"
        await until(lambda: len(server.said) == 2)
    assert sorted(server.said) == ["ConnectionResetError", "end"]


@pytest.mark.parametrize("six", [False, True])
async def test_if_relay_and_way_out_are_killed_at_once_a_job_that_only_reads_sees_a_reset(
    tmp_path: Path, six: bool
) -> None:
    """Nobody is left who knows the connection, and the job sends nothing that could be answered."""
    host = "::ffff:192.0.2.253" if six else HOST
    with serving(echo) as server:
        async with machine_for(tmp_path, f"localhost:{server.port}") as machine:
            job = await machine.start(tmp_path / "job", WAITS, host, server.port)
            await job.says("connected")
            for pid in (job.relay, job.way_out):
                os.kill(pid, signal.SIGKILL)
            assert await job.end() == "connected\nConnectionResetError\nconnected again\n"


async def test_if_the_node_dies_the_job_sees_a_reset(tmp_path: Path) -> None:
    """The node's ends of both programs are closed, as the kernel does it then; the next node begins new ones."""
    with serving(echo) as server:
        async with machine_for(tmp_path, f"localhost:{server.port}") as machine:
            job = await machine.start(tmp_path / "job", WAITS, HOST, server.port)
            await job.says("connected")
            way, relay = job.room._way_out, job.room._relay
            assert way is not None
            for end in (way._orders, way.decider, way.wire, relay._orders):
                assert end is not None
                socket.close(end.detach())
            assert await job.end() == "connected\nConnectionResetError\nconnected again\n"
        await until(lambda: len(server.said) == 2)
    assert sorted(server.said) == ["ConnectionResetError", "end"]


GOES_ON = """
import socket, sys
link = socket.create_connection((sys.argv[1], int(sys.argv[2])))
for turn in range(10**9):
    link.sendall(b"!")
    assert link.recv(1) == b"!"
    if turn == 10: print("connected", flush=True)
"""


async def test_connections_outlive_a_relay(tmp_path: Path) -> None:
    with serving(echo) as server:
        async with machine_for(tmp_path, f"localhost:{server.port}") as machine:
            job = await machine.start(tmp_path / "job", GOES_ON, HOST, server.port)
            await job.says("connected")
            before = job.relay
            os.kill(before, signal.SIGKILL)
            await until(lambda: job.relay not in (0, before))
            while not (await job.room.traffic()).pairs:  # of the new one
                assert not job.keeper.ended.done()
            assert (await job.report()).opened == 1
            await job.kill()


HALVES = """
import hashlib, socket, sys
def ask(port): return socket.create_connection((sys.argv[1], int(port)), 20)
first = ask(sys.argv[2])                       # we end first: the other side reads all, then answers
first.sendall(b"all of it")
first.shutdown(socket.SHUT_WR)
print(first.recv(100), first.recv(100))
second = ask(sys.argv[3])                      # the other side ends first: we go on sending
print(second.recv(100), second.recv(100))
second.sendall(b"still here" * 100_000)
second.shutdown(socket.SHUT_WR)
try: print(second.recv(100))
except ConnectionResetError: print("reset")
try: ask(sys.argv[4])
except ConnectionRefusedError: print("refused")
data = hashlib.shake_128(b"x").digest(1 << 20)
third = ask(sys.argv[5])
for _ in range(20): third.sendall(data)
third.close()
fourth, found, size = ask(sys.argv[6]), hashlib.md5(), 0
while piece := fourth.recv(1 << 20):
    found.update(piece)
    size += len(piece)
print(size, found.hexdigest())
for _ in range(1000):
    with ask(sys.argv[7]) as short:
        short.sendall(b"x")
        assert short.recv(1) == b"x"
"""


async def test_connections_end_as_they_do_without_a_way_out(tmp_path: Path) -> None:
    """One half before the other, both ways; a port that refuses; bulk with checksums, both ways; 1,000 short ones."""

    def answers(connection: socket.socket) -> str:
        data = b""
        while piece := connection.recv(100):
            data += piece
        connection.sendall(b"read " + data)
        return "answered"

    def ends(connection: socket.socket) -> str:
        connection.sendall(b"that is all")
        connection.shutdown(socket.SHUT_WR)
        return summed(connection)

    data = hashlib.shake_128(b"x").digest(1 << 20) * 20

    def sends(connection: socket.socket) -> str:
        connection.sendall(data)
        return "sent"

    with socket.create_server(("127.0.0.1", 0)) as closed:
        refuses = closed.getsockname()[1]
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(serving(each)) for each in (answers, ends, summed, sends, echo)]
        first, second, *others = (server.port for server in servers)
        ports = [first, second, refuses, *others]
        async with machine_for(tmp_path, " ".join(f"localhost:{port}" for port in ports)) as machine:
            job = await machine.start(tmp_path / "job", HALVES, HOST, *ports)
            total = f"{len(data)} {hashlib.md5(data).hexdigest()}"
            assert await job.end() == f"b'read all of it' b''\nb'that is all' b''\nb''\nrefused\n{total}\n"
        still = b"still here" * 100_000
        assert servers[1].said == [f"{len(still)} {hashlib.md5(still).hexdigest()}"]
        assert servers[2].said == [total]
        await until(lambda: servers[4].said == ["end"] * 1000)


SIX = """
import socket, sys
print(socket.create_connection(("2001:db8:2::1", 80), 20).recv(100))
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.settimeout(20)
s.sendto(b"?", ("2001:db8:2::1", 80))
print(*s.recvfrom(100)[:1])
try: socket.create_connection(("2001:db8:2::1", 7000), 0.5)
except TimeoutError: print("no answer")
try: socket.create_connection(("2001:db8:3::1", 80), 20)
except OSError as error: print(error.strerror)
s.connect(("2001:db8:3::1", 80))
s.send(b"?")
try: s.recv(1)
except OSError as error: print(error.strerror)
"""


async def test_ipv6_by_both_protocols_and_a_server_that_never_answers(tmp_path: Path) -> None:
    world = World(tmp_path)
    try:
        world.listen(80)
        full = world.made(socket.AF_INET6, socket.SOCK_STREAM, of_machine=False)
        full.bind(("::", 7000))
        full.listen(0)  # one connection waits; it answers no other
        waits = world.made(socket.AF_INET6, socket.SOCK_STREAM)
        waits.connect(("2001:db8:2::1", 7000))
        program = world.program(way_out_program())
        async with machine_for(tmp_path, "[2001:db8:2::]/48", program) as machine:
            job = await machine.start(tmp_path / "job", SIX)
            said = (await job.end()).splitlines()
    finally:
        world.close()
    assert said == [*["b'2001:db8:2::1'"] * 2, "no answer", "No route to host", "Permission denied"]
