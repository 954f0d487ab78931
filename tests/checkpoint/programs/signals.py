"""Two processes: after `go` appears each signals the other, and they talk over an abstract socket of each."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from typing import NoReturn

GOT: list[str] = []


def listen(who: str) -> socket.socket:
    ear = socket.socket(socket.AF_UNIX)
    ear.bind(f"\0{sys.argv[1]}.{who}")
    ear.listen()
    return ear


def call(who: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(f"\0{sys.argv[1]}.{who}")
        return caller.recv(100)


def answer(ear: socket.socket, text: bytes) -> None:
    connection, _ = ear.accept()
    with connection:
        connection.sendall(text)


def child(parent: int, ear: socket.socket) -> NoReturn:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    answer(ear, b"child")
    assert call("parent") == b"parent"
    os.kill(parent, signal.SIGUSR1)
    while True:
        signal.pause()


signal.signal(signal.SIGUSR1, lambda *_: GOT.append("signal"))
ears = [listen("parent"), listen("child")]
parent = os.getpid()
pid = os.fork()
if pid == 0:
    child(parent, ears[1])
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
print(call("child").decode(), flush=True)
answer(ears[0], b"parent")
while not GOT:
    time.sleep(0.01)
os.kill(pid, signal.SIGTERM)
print(GOT[0], os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
