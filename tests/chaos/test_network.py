"""The network that faults are made with: what it does to packets, seen by sockets on both sides."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.chaos.inside import lacking
from tests.chaos.network import CLONE_NEWNET, Network, Port, Trouble

#: Seconds for what comes; and for what is not to come.
PATIENCE, SILENCE = 20.0, 0.3


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    if missing := lacking():
        pytest.skip(f"needs {missing}")
    made = Network([Port("a", 1), Port("b", 2)], 1)
    yield made
    made.close()


def socket_at(network: Network, name: str, kind: int) -> socket.socket:
    """A socket of a machine: it stays in the namespace in which it was made."""
    made: list[socket.socket] = []

    def make() -> None:
        ctypes.CDLL(None, use_errno=True).setns(network.port(name).namespace, CLONE_NEWNET)
        made.append(socket.socket(socket.AF_INET, kind))

    maker = threading.Thread(target=make)
    maker.start()
    maker.join()
    made[0].settimeout(PATIENCE)
    return made[0]


@pytest.fixture
def datagrams(network: Network) -> Iterator[tuple[socket.socket, socket.socket]]:
    """From a to b."""
    source, target = (socket_at(network, name, socket.SOCK_DGRAM) for name in "ab")
    with source, target:
        target.bind((network.port("b").address, 7000))
        source.bind((network.port("a").address, 7000))
        source.connect(target.getsockname())
        target.connect(source.getsockname())
        yield source, target


def test_packets_arrive(datagrams: tuple[socket.socket, socket.socket]) -> None:
    source, target = datagrams
    source.send(b"there")
    assert target.recv(10) == b"there"
    target.send(b"back")
    assert source.recv(10) == b"back"


def test_nothing_arrives_in_one_direction(network: Network, datagrams: tuple[socket.socket, socket.socket]) -> None:
    source, target = datagrams
    with network.trouble([("a", "b")], Trouble(silent=True)):
        source.send(b"lost")
        target.send(b"back")
        assert source.recv(10) == b"back"
        target.settimeout(SILENCE)
        with pytest.raises(TimeoutError):
            target.recv(10)
    target.settimeout(PATIENCE)
    source.send(b"again")
    assert target.recv(10) == b"again"


def test_a_trouble_that_ends_leaves_others(network: Network, datagrams: tuple[socket.socket, socket.socket]) -> None:
    source, target = datagrams
    with network.trouble([("a", "b")], Trouble(silent=True)):
        with network.trouble([("a", "b"), ("b", "a")], Trouble(silent=True)):
            pass
        source.send(b"lost")
        target.settimeout(SILENCE)
        with pytest.raises(TimeoutError):
            target.recv(10)


def test_packets_take_their_time(network: Network, datagrams: tuple[socket.socket, socket.socket]) -> None:
    source, target = datagrams
    with network.trouble([("a", "b")], Trouble(delay=(0.2, 0.2))):
        began = time.monotonic()
        source.send(b"late")
        assert target.recv(10) == b"late"
        assert time.monotonic() - began >= 0.2


def test_some_packets_are_lost(network: Network, datagrams: tuple[socket.socket, socket.socket]) -> None:
    source, target = datagrams
    with network.trouble([("a", "b")], Trouble(loss=0.5)):
        for number in range(60):
            source.send(bytes([number]))
        got = set()
        target.settimeout(SILENCE)
        with contextlib.suppress(TimeoutError):
            while True:
                got.add(target.recv(10))
    assert 5 < len(got) < 55


def test_connections_break_and_new_ones_are_made(network: Network) -> None:
    with socket_at(network, "b", socket.SOCK_STREAM) as door:
        door.bind((network.port("b").address, 7001))
        door.listen()
        for _ in range(2):
            with socket_at(network, "a", socket.SOCK_STREAM) as one:
                one.connect(door.getsockname())
                other, _ = door.accept()
                with other:
                    one.sendall(b"hello")
                    assert other.recv(10) == b"hello"
                    other.sendall(b"hello")
                    assert one.recv(10) == b"hello"
                    assert network.cut("a", "b")
                    for side in (one, other):
                        side.settimeout(PATIENCE)
                        with pytest.raises(ConnectionResetError):
                            side.recv(10)


def test_a_machine_has_a_namespace_of_its_own(network: Network) -> None:
    here = os.stat("/proc/self/ns/net")
    identities = {network.port("a").identity, network.port("b").identity, (here.st_dev, here.st_ino)}
    assert len(identities) == 3
