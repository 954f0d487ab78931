"""Pickled calls, frames between an executor and its workers, and tables for notebooks."""

from __future__ import annotations

import array
import asyncio
import json
import os
import pickle
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from pool.client.notebook import results_table, table
from pool.client.results import Result
from pool.client.workers.links import FIRST_MOST, WorkerLink, WorkerServer
from pool.client.workers.packing import FUNCTIONS, CallPacker, FunctionTable, RemoteTraceback, chunks, read_error
from pool.client.workers.worker import (
    HEAD,
    LARGE,
    ExecutorLink,
    Message,
    blob_size,
    connect_unix,
    mapped,
    memory_file,
    pack,
    packed_error,
    unpack,
)

SECRET = "a secret"


class Odd(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("only one argument is kept")


def test_large_buffers_go_beside_the_pickle() -> None:
    value = [pickle.PickleBuffer(bytearray(b"x" * LARGE)), pickle.PickleBuffer(bytearray(b"small")), 3]
    data, buffers = pack(value)
    assert len(data) < 1000
    assert [buffer.nbytes for buffer in buffers] == [LARGE]
    blob = mapped(memory_file(buffers), blob_size(buffers))
    large, small, number = unpack(data, [LARGE], blob)
    assert (bytes(large), bytes(small), number) == (b"x" * LARGE, b"small", 3)


def test_a_memory_file_is_private_and_as_long_as_announced() -> None:
    buffers = [memoryview(b"abc")]
    file = memory_file(buffers)
    first, second = mapped(os.dup(file), 64), mapped(os.dup(file), 64)
    first[0] = 0
    assert bytes(second[:3]) == b"abc"
    with pytest.raises(ValueError, match="too short"):
        mapped(file, 65)


def test_functions_of_modules_go_by_their_names() -> None:
    packer = CallPacker()
    assert pickle.loads(packer.function(json.dumps)) is json.dumps
    assert packer.function(json.dumps) is packer.function(json.dumps)
    data, buffers = packer.values(max, ((1, 2), {}))
    assert (pickle.loads(data), buffers) == (((1, 2), {}), [])
    large, (buffer,) = packer.values(len, ((pickle.PickleBuffer(array.array("d", bytes(LARGE))),), {}))
    assert buffer.nbytes == LARGE > len(large)


def test_a_function_is_sent_once_and_forgotten_in_turn() -> None:
    functions = FunctionTable()
    assert functions.number(b"0") == functions.number(b"0") == (1, None)
    dropped = [functions.number(b"f%d" % number)[1] for number in range(FUNCTIONS)]
    assert dropped == [None] * (FUNCTIONS - 1) + [1]
    assert functions.number(b"0")[0] == FUNCTIONS + 2, "no number is used again"


def test_an_exception_keeps_its_traceback() -> None:
    try:
        raise LookupError("not here")
    except LookupError as error:
        found = read_error(*packed_error(error))
    assert isinstance(found, LookupError)
    assert isinstance(found.__cause__, RemoteTraceback)
    assert "test_packing.py" in str(found.__cause__)


def test_an_exception_that_cannot_come_back_is_told_in_words() -> None:
    assert str(read_error(*packed_error(Odd(1, 2)))) == "Odd: only one argument is kept"
    assert str(read_error(b"no pickle", "Trace\nLast: line")) == "Last: line"


def test_chunks() -> None:
    assert chunks([range(3), "abc"], 2) == [[(0, "a"), (1, "b")], [(2, "c")]]


def test_tables_escape_and_are_bounded() -> None:
    made = table("<t>", ("a",), [("<b>",)] * 30)
    assert "<b>" not in made
    assert "and 10 more" in made
    result = Result(1, 0, "completed", 0, None, 1.0, 1.0, "slot1@m", None, "<why>")
    assert "1 completed" in results_table("Cluster 1", [result])
    assert "&lt;why&gt;" in results_table("Cluster 1", [result])


class Heard:
    """Records what workers send, and answers as asked."""

    def __init__(self) -> None:
        self.facts: list[dict[str, Any]] = []
        self.frames: list[tuple[list[Message], bytes | None]] = []
        self.lost = 0
        self.changed = asyncio.Event()

    def worker_connected(self, link: WorkerLink, facts: dict[str, Any]) -> None:
        self.facts.append(facts)
        link.send([("held", [])])
        self.changed.set()

    def worker_sent(self, link: WorkerLink, messages: list[Message], blob: memoryview | None) -> None:
        self.frames.append((messages, bytes(blob) if blob is not None else None))
        link.send([("call", 7)], [memoryview(b"y" * LARGE)])
        self.changed.set()

    def worker_lost(self, link: WorkerLink) -> None:
        self.lost += 1
        self.changed.set()


@pytest.mark.parametrize("host", [None, "127.0.0.1"])
async def test_frames_go_both_ways(tmp_path: Path, host: str | None) -> None:
    """By a unix socket with memory files, whose path is too long for an address, and by TLS."""
    place = tmp_path / ("d" * 100)
    place.mkdir()
    heard = Heard()
    server = WorkerServer(place, SECRET, heard, host)
    await server.start()
    received: list[tuple[list[Message], bytes | None]] = []

    def work() -> None:
        link = ExecutorLink(_dial(server), os.pipe()[0])
        link.introduce({"secret": SECRET, "job": "1.0"})
        for turn in range(2):
            messages, blob = link.receive(lambda: None)
            received.append((messages, bytes(blob) if blob is not None else None))
            if not turn:
                link.send([("value", 1, b"", [LARGE])], [memoryview(b"z" * LARGE)])
        link.close()

    thread = asyncio.create_task(asyncio.to_thread(work))
    async with asyncio.timeout(10):
        await thread
        while not heard.lost:
            heard.changed.clear()
            await heard.changed.wait()
    server.close()
    assert received == [([("held", [])], None), ([("call", 7)], b"y" * LARGE)]
    assert heard.frames == [([("value", 1, b"", [LARGE])], b"z" * LARGE)]
    assert not server.path.exists()


def _dial(server: WorkerServer) -> socket.socket:
    if server.address is None:
        return connect_unix(str(server.path))
    import ssl

    context = ssl.create_default_context(cadata=server.certificate)
    context.check_hostname = False
    return context.wrap_socket(socket.create_connection(server.address, timeout=10))


WENT_OFF = threading.Event()


def go_off() -> None:
    WENT_OFF.set()


class Bomb:
    """Unpickling it shows that it was unpickled."""

    def __reduce__(self) -> Any:
        return go_off, ()


def _frame(body: bytes, blob: int = 0) -> bytes:
    return HEAD.pack(len(body), blob, 0) + body


@pytest.mark.parametrize(
    "sent",
    [
        _frame(json.dumps({"secret": "wrong"}).encode()),
        _frame(json.dumps({"secret": 7}).encode()),
        _frame(json.dumps([SECRET]).encode()),
        _frame(pickle.dumps(Bomb())),
        _frame(b"[" * 60000),
        _frame(b"", 1 << 40),
        HEAD.pack(FIRST_MOST + 1, 0, 0),
        HEAD.pack(1 << 60, 0, 1),
        b"GET / HTTP/1.1\r\n\r\n" * 20,
    ],
    ids=["wrong", "number", "list", "pickle", "deep", "blob", "long", "longer", "http"],
)
async def test_a_stranger_is_put_off_before_anything_is_unpickled(tmp_path: Path, sent: bytes) -> None:
    heard = Heard()
    server = WorkerServer(tmp_path, SECRET, heard, None)
    await server.start()

    def knock() -> bytes:
        with connect_unix(str(server.path)) as connection:
            connection.settimeout(5)
            connection.sendall(sent)
            return connection.recv(1)

    assert await asyncio.to_thread(knock) == b""
    server.close()
    assert not heard.facts
    assert not WENT_OFF.is_set()
