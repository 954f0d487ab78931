"""The way out of a job's own network on real nodes: only where the administrator allows it (issue 14)."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool.client import Pool
from tests.e2e import support
from tests.e2e.support import HEAD, Nodes, client, poolnode, program, slots, token
from tests.starter.support import PYTHON

SIZE = 3_000_001


class Echo:
    """A server on the machine's loopback: it sends back what comes, by TCP and UDP on the same port."""

    def __init__(self) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.port = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", self.port))
        for work in (self._accept, self._answer):
            threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        self.tcp.close()
        self.udp.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.tcp.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(ConnectionResetError):
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    def _answer(self) -> None:
        while True:
            try:
                data, source = self.udp.recvfrom(1 << 16)
            except OSError:
                return
            self.udp.sendto(data, source)


@pytest.fixture(scope="module")
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture(scope="module")
def pool2(whose_pool: object, echo: Echo) -> Iterator[Nodes]:
    async def start(nodes: Nodes) -> None:
        head = nodes.start("head", HEAD).ready()
        allowed = f"localhost:{echo.port}, *:1-65535"
        joined = [await token(head, "startd") for _ in range(2)]
        nodes.start("open", "startd", join=joined[0], JOB_NETWORK_DESTINATIONS=allowed, CHECKPOINT_WORTH="0").ready()
        nodes.start("closed", "startd", join=joined[1], CHECKPOINT_WORTH="0").ready()
        async with client(head) as pool:
            await slots(pool, 2)
            await support.asked(lambda: offers(pool), "the machine offers a way out")

    with support.running(start) as nodes:
        yield nodes


async def offers(pool: Pool) -> bool:
    return any(ad.value("HasNetworkOut", False) is True for ad in await pool.machines())


@pytest.fixture
def home(pool2: Nodes, request: pytest.FixtureRequest) -> Path:
    return pool2.directory(support.directory_name(request))


def job(home: Path, text: str, network: str = "private+out", more: str = "") -> str:
    script = program(home, f"exec {PYTHON} -c '{text}' \"$@\"")
    return f"""
    executable = {script}
    output = out
    error = err
    log = log
    job_network = {network}
    {more}
    queue
    """


async def test_a_job_reaches_what_is_allowed_and_nothing_else(pool2: Nodes, home: Path, echo: Echo) -> None:
    """Bulk both ways, datagrams, a port that refuses; the machine's own addresses, its node, and the job's loopback."""
    host, port = pool2.all[0].said("ready")["address"].removeprefix("tcp://").split(":")
    text = f"""
import errno, hashlib, socket, threading
name, port, size = "host.poolnode.internal", {echo.port}, {SIZE}
link = socket.create_connection((name, port), 20)
data = hashlib.shake_128(b"x").digest(size)
def send():
    link.sendall(data)
    link.shutdown(socket.SHUT_WR)
sender = threading.Thread(target=send)
sender.start()
got = b""
while piece := link.recv(1 << 20): got += piece
sender.join()
assert got == data, len(got)
talk = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
talk.settimeout(20)
talk.connect((name, port))
for size in (1, 1400, 60000):
    talk.send(data[:size])
    assert talk.recv(1 << 16) == data[:size]
for address in (("{host}", {port}), ("{socket.gethostbyname(socket.gethostname())}", port), ("192.0.2.253", port + 1),
                ("192.0.2.254", 53), ("10.77.3.3", port), ("169.254.169.254", 80), ("127.0.0.1", port)):
    try:
        socket.create_connection(address, 5)
    except OSError as error:
        assert error.errno in (errno.EHOSTUNREACH, errno.ECONNREFUSED), (address, error)
        continue
    raise SystemExit(f"reached {{address}}")
print("done")
"""
    async with client(pool2.all[0]) as pool:
        cluster = await pool.submit(job(home, text), iwd=str(home))
        (result,) = await cluster.wait(support.PATIENCE)
    assert (home / "err").read_text() == ""
    assert result.ok, result
    assert (home / "out").read_text() == "done\n"


async def test_why_says_which_machines_offer_no_way_out(pool2: Nodes, home: Path) -> None:
    async with client(pool2.all[0]) as pool:
        more = 'requirements = Machine == "closed" && TARGET.HasNetworkOut'
        cluster = await pool.submit(job(home, "", more=more), iwd=str(home))
        said = poolnode("why", f"{cluster.cluster}.0", "--address", pool2.all[0].address).stdout
        assert "it gets no way out of its network, as it asks, on 1 machine" in said, said
        assert "its administrator has set no JOB_NETWORK_DESTINATIONS" in said, said
        await cluster.remove()


async def test_a_connection_to_the_outside_is_reset_at_a_restore_if_the_job_allows_it(
    pool2: Nodes, home: Path, echo: Echo
) -> None:
    """The checkpoint is refused by name without `outside_connections = reset`; the resumed job connects again."""
    text = f"""
import os, socket, sys, time
def connect():
    link = socket.create_connection(("host.poolnode.internal", {echo.port}), 20)
    link.sendall(b"?")
    assert link.recv(1) == b"?"
    return link
link = connect()
open("{home}/begun", "w").close()
while True:
    try:
        link.sendall(b"!")
        if not link.recv(1): break
    except OSError as error:
        break
    time.sleep(0.02)
link = connect()
print("connected again")
"""
    async with client(pool2.all[0]) as pool:
        for wish in ("refuse", "reset"):
            (home / "begun").unlink(missing_ok=True)
            more = f'outside_connections = {wish}\nrequirements = Machine == "open"'
            cluster = await pool.submit(job(home, text, more=more), iwd=str(home))
            await support.until((home / "begun").exists, "the job is connected")
            shown = poolnode("inspect", f"{cluster.cluster}.0", "--address", pool2.all[0].address).stdout
            assert re.search(r"has sent .* to outside.* came from outside; connections: 1 are open", shown), shown
            done = poolnode("checkpoint", f"{cluster.cluster}.0", "--address", pool2.all[0].address)
            if wish == "refuse":
                assert "a TCP connection to 192.0.2.253" in done.stdout + done.stderr, done
                await cluster.remove()
                continue
            assert done.returncode == 0, done
            assert poolnode("vacate", f"{cluster.cluster}.0", "--address", pool2.all[0].address).returncode == 0
            (result,) = await cluster.wait(support.PATIENCE)
            assert result.ok, (result, (home / "err").read_text())
            assert (home / "out").read_text() == "connected again\n"
