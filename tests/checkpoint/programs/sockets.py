"""Unix sockets of all kinds, filled before the checkpoint and looked at after it."""

import asyncio
import os
import socket
import sys
import time
from socket import AF_UNIX, SHUT_WR, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM

stream, other = socket.socketpair(AF_UNIX, SOCK_STREAM)
stream.sendall(b"from here")
other.sendall(b"large " * 20000)
other.settimeout(30)
letters, box = socket.socketpair(AF_UNIX, SOCK_DGRAM)
for letter in (b"one", b"2", b"three" * 1000):
    letters.send(letter)
packets, post = socket.socketpair(AF_UNIX, SOCK_SEQPACKET)
packets.send(b"packet")
packets.shutdown(SHUT_WR)
gone, left = socket.socketpair()
gone.sendall(b"last words")
gone.close()
shut, half = socket.socketpair()
shut.sendall(b"no more")
shut.shutdown(SHUT_WR)

path = sys.argv[1].replace("@", "\0")
server = socket.socket(AF_UNIX)
server.bind(path)
server.listen(7)
client = socket.socket(AF_UNIX)
client.connect(path)
served, _ = server.accept()
client.sendall(b"asked")
spare = socket.socket(AF_UNIX)

inner, outer = socket.socketpair()
if os.fork() == 0:
    inner.close()
    while line := outer.recv(100):
        outer.sendall(line.upper())
    os._exit(0)
outer.close()
inner.sendall(b"hello")


async def main() -> None:
    """An event loop wakes itself through a socket pair."""
    print("ready", flush=True)
    while not await asyncio.to_thread(os.path.exists, "go"):
        await asyncio.to_thread(time.sleep, 0.01)


asyncio.run(main())
print(inner.recv(100))
inner.sendall(b"again")
print(inner.recv(100))
print(other.recv(100), stream.recv(100)[:12], other.gettimeout())
rest = 0
stream.setblocking(False)
try:
    while piece := stream.recv(1 << 16):
        rest += len(piece)
except BlockingIOError:
    print("and nothing more")
print([box.recv(1 << 16)[:5] for _ in range(3)])
print(post.recv(100), post.recv(100))
post.sendall(b"answer")
print(packets.recv(100))
print(left.recv(100), left.recv(100))
print(half.recv(100), half.recv(100))
half.sendall(b"still open")
print(shut.recv(100))
print(served.recv(100))
served.sendall(b"answered")
print(client.recv(100))
new = socket.socket(AF_UNIX)
new.connect(path)
accepted, _ = server.accept()
new.sendall(b"new")
print(accepted.recv(100))
spare.connect(path)
print(server.accept()[0].getsockname() in (path, path.encode()))
