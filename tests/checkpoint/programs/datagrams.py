"""Datagram sockets of a job: with names and without, connected and not, with what waits in them; all tried at `go`."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable


def endpoint(name: str | None = None, to: str | bytes | None = None) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    if name:
        made.bind(name)
    if to:
        made.connect(to)
    return made


def fails(call: Callable[..., object], *arguments: object) -> int | None:
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return None


server, hidden = endpoint("server"), endpoint(f"\0hidden{os.getpid()}")
with endpoint(to="server") as gone:  # which makes the kernel call the server connected
    gone.send(b"one")
    gone.send(b"two")
os.mkdir("in")
deep = endpoint("in/deep")
client, talker, other = endpoint(to="server"), endpoint("talker", "server"), endpoint(to=hidden.getsockname())
alone, to_deep = endpoint(), endpoint(to="in/deep")
os.chdir("in")
quiet = endpoint("quiet")
quiet.shutdown(socket.SHUT_RD)
here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
here.send(b"pair")
print("ready", flush=True)
while not os.path.exists("../go"):
    time.sleep(0.01)
os.chdir("..")
assert [server.recv(10), server.recv(10)] == [b"one", b"two"]
client.send(b"of the client")
assert server.recv(20) == b"of the client"
talker.send(b"question")
question, name = server.recvfrom(10)
assert (question, name) == (b"question", "talker")
server.sendto(b"answer", name)
assert talker.recv(10) == b"answer"
other.send(b"abstract")
assert hidden.recv(10) == b"abstract"
to_deep.send(b"deep")
assert deep.recv(10) == b"deep"
alone.sendto(b"to a name", "server")
assert server.recv(10) == b"to a name"
assert fails(alone.send, b"to nobody") == errno.ENOTCONN
assert fails(alone.sendto, b"x", "in/quiet") == errno.EPIPE
assert there.recv(10) == b"pair"
there.send(b"back")
assert here.recv(10) == b"back"
with endpoint(to="server") as late:
    late.send(b"late")
assert server.recv(10) == b"late"
