"""TCP and UDP sockets in many states, each with its check: started with the name of one, or of all.

A state is a generator: what it does before its `yield` is there when the job is saved, what it does after it is the
check. Everything happens within this one process, which is both ends of each connection."""

import errno
import hashlib
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

LOCAL = "127.0.0.1"


def bytes_of(size: int, seed: int = 1) -> bytes:
    return b"".join(hashlib.sha256(b"%d %d" % (seed, n)).digest() for n in range(size // 32 + 1))[:size]


def pair(family: int = socket.AF_INET, address: str = LOCAL, backlog: int = 5) -> tuple[socket.socket, socket.socket]:
    server = socket.socket(family)
    server.bind((address, 0))
    server.listen(backlog)
    client = socket.socket(family)
    client.connect(server.getsockname())
    accepted, _ = server.accept()
    server.close()
    return client, accepted


def whole(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        assert part, f"it ended after {len(data)} of {size}"
        data += part
    return data


def exchange(one: socket.socket, other: socket.socket) -> None:
    """Both directions work, also for more than any buffer holds."""
    for sender, receiver in ((one, other), (other, one)):
        data = bytes_of(3_000_000, 7)
        thread = threading.Thread(target=sender.sendall, args=(data,))
        thread.start()
        assert whole(receiver, len(data)) == data
        thread.join()


def same(before: object, now: object) -> None:
    assert before == now, f"{before} before, {now} now"


def fill(sock: socket.socket, data: bytes) -> int:
    sock.setblocking(False)
    sent = 0
    try:
        while sent < len(data):
            sent += sock.send(data[sent : sent + 65536])
    except BlockingIOError:
        pass
    sock.setblocking(True)
    return sent


def idle() -> Iterator[None]:
    one, other = pair()
    names = one.getsockname(), one.getpeername(), other.getsockname(), other.getpeername()
    yield
    assert names == (one.getsockname(), one.getpeername(), other.getsockname(), other.getpeername())
    exchange(one, other)


def six() -> Iterator[None]:
    one, other = pair(socket.AF_INET6, "::1")
    one.sendall(b"unread")
    yield
    assert whole(other, 6) == b"unread"
    exchange(one, other)


def mapped() -> Iterator[None]:
    server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    one = socket.create_connection((LOCAL, server.getsockname()[1]))
    other, name = server.accept()
    one.sendall(b"unread")
    yield
    assert whole(other, 6) == b"unread"
    assert other.getpeername() == name
    assert name[0] == "::ffff:127.0.0.1"
    exchange(one, other)
    assert socket.create_connection((LOCAL, server.getsockname()[1]))


def unread() -> Iterator[None]:
    one, other = pair()
    one.sendall(b"to other")
    other.sendall(b"to one")
    yield
    assert (whole(one, 6), whole(other, 8)) == (b"to one", b"to other")
    exchange(one, other)


def full() -> Iterator[None]:
    """Both directions as full as they become."""
    one, other = pair()
    data = bytes_of(30_000_000)
    sent = fill(one, data), fill(other, data)
    yield
    got = [whole(other, sent[0]), whole(one, sent[1])]
    assert got == [data[: sent[0]], data[: sent[1]]]
    exchange(one, other)


def much() -> Iterator[None]:
    """6 MB that nobody has read."""
    one, other = pair()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_000_000)
    data = bytes_of(6_000_000)
    sender = threading.Thread(target=one.sendall, args=(data,))
    sender.start()
    sender.join(5)
    yield
    assert whole(other, len(data)) == data
    sender.join()
    exchange(one, other)


def halves() -> Iterator[None]:
    """One direction shut, with bytes before its end; each way round."""
    one, other = pair()
    one.sendall(b"last")
    one.shutdown(socket.SHUT_WR)
    third, fourth = pair()
    fourth.shutdown(socket.SHUT_WR)
    both, ends = pair()
    both.sendall(b"both")
    both.shutdown(socket.SHUT_WR)
    ends.sendall(b"ends")
    ends.shutdown(socket.SHUT_WR)
    time.sleep(0.05)
    yield
    assert (other.recv(100), other.recv(100)) == (b"last", b"")
    other.sendall(b"answer")
    other.close()
    assert (one.recv(100), one.recv(100)) == (b"answer", b"")
    assert third.recv(10) == b""
    third.sendall(b"x" * 100000)
    assert whole(fourth, 100000) == b"x" * 100000
    assert (ends.recv(100), ends.recv(100), both.recv(100), both.recv(100)) == (b"both", b"", b"ends", b"")
    try:
        one.send(b"more")
        raise AssertionError("sent after its end")
    except BrokenPipeError:
        pass


def shut_with_full_queue() -> Iterator[None]:
    one, other = pair()
    data = bytes_of(30_000_000)
    sent = fill(one, data)
    one.shutdown(socket.SHUT_WR)
    yield
    assert whole(other, sent) == data[:sent]
    assert other.recv(1) == b""
    other.sendall(b"back")
    assert whole(one, 4) == b"back"


def closed() -> Iterator[None]:
    """The other end is closed, with bytes before that and without."""
    one, other = pair()
    one.sendall(b"all")
    one.close()
    third, fourth = pair()
    third.close()
    time.sleep(0.05)
    yield
    assert (other.recv(100), other.recv(100)) == (b"all", b"")
    assert fourth.recv(1) == b""
    other.close()
    fourth.close()


def closed_with_full_queue() -> Iterator[None]:
    """The bytes of a closed socket are nobody's, and the reader has no room for them."""
    one, other = pair()
    data = bytes_of(20_000_000)
    sent = fill(one, data)
    one.close()
    yield
    assert whole(other, sent) == data[:sent]
    assert other.recv(1) == b""


def reset() -> Iterator[None]:
    one, other = pair()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()
    third, fourth = pair()
    fourth.sendall(b"x")
    third.close()
    fifth = socket.socket()
    fifth.setblocking(False)
    free = socket.socket()
    free.bind((LOCAL, 0))
    assert fifth.connect_ex(free.getsockname()) == errno.EINPROGRESS
    time.sleep(0.05)
    yield
    for sock, number in ((other, errno.ECONNRESET), (fourth, errno.ECONNRESET)):
        found = 0
        try:
            sock.recv(1)
        except OSError as error:
            found = error.errno or 0
        assert found == number, found
        assert sock.recv(1) == b""
    assert select.select([], [fifth], [], 5)[1]
    assert fifth.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED


def over() -> Iterator[None]:
    """Closed both ways, with bytes that were not read."""
    one, other = pair()
    one.sendall(b"late")
    one.shutdown(socket.SHUT_WR)
    other.shutdown(socket.SHUT_WR)
    time.sleep(0.05)
    assert one.recv(1) == b""
    yield
    assert (other.recv(100), other.recv(100), one.recv(100)) == (b"late", b"", b"")


def waiting() -> Iterator[None]:
    """Connections that nobody has accepted: with bytes, more of them than fit, ended, closed, reset, in their order."""
    server = socket.create_server((LOCAL, 0), backlog=20)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    clients = [socket.create_connection(server.getsockname()) for _ in range(6)]
    clients[1].sendall(b"with bytes")
    data = bytes_of(20_000_000)
    sent = fill(clients[2], data)
    clients[3].sendall(b"ended")
    clients[3].shutdown(socket.SHUT_WR)
    clients[4].sendall(b"closed")
    names = [client.getsockname() for client in clients]
    clients[4].close()
    clients[5].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    clients[5].close()
    time.sleep(0.05)
    yield
    accepted, peers = zip(*(server.accept() for _ in range(6)), strict=True)
    assert list(peers) == names, (peers, names)
    exchange(clients[0], accepted[0])
    assert whole(accepted[1], 10) == b"with bytes"
    exchange(clients[1], accepted[1])
    assert whole(accepted[2], sent) == data[:sent]
    exchange(clients[2], accepted[2])
    assert (whole(accepted[3], 5), accepted[3].recv(1)) == (b"ended", b"")
    accepted[3].sendall(b"answer")
    assert whole(clients[3], 6) == b"answer"
    assert (whole(accepted[4], 6), accepted[4].recv(1)) == (b"closed", b"")
    try:
        accepted[5].recv(1)
        raise AssertionError("no reset")
    except ConnectionResetError:
        pass
    server.setblocking(False)
    try:
        server.accept()
        raise AssertionError("one more")
    except BlockingIOError:
        pass
    client = socket.create_connection(server.getsockname())
    server.setblocking(True)
    exchange(client, server.accept()[0])


def crowded() -> Iterator[None]:
    """More clients than the listening socket has room for: they wait in connect, each with its bytes to send."""
    server = socket.create_server((LOCAL, 0), backlog=1)
    clients = [socket.socket() for _ in range(5)]

    def begin(client: socket.socket) -> None:
        client.connect(server.getsockname())
        client.sendall(b"first")

    threads = [threading.Thread(target=begin, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    yield
    for _ in clients:
        accepted, name = server.accept()
        assert whole(accepted, 5) == b"first"
        exchange(next(client for client in clients if client.getsockname() == name), accepted)
    for thread in threads:
        thread.join()


def options() -> Iterator[None]:
    one, other = pair()
    wanted = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 12345),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
        (socket.SOL_SOCKET, socket.SO_OOBINLINE, 1),
        (socket.SOL_SOCKET, socket.SO_RCVLOWAT, 17),
        (socket.IPPROTO_IP, socket.IP_TOS, 16),
        (socket.IPPROTO_IP, socket.IP_TTL, 33),
    ]
    for level, name, value in wanted:
        one.setsockopt(level, name, value)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200_000)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 5))
    one.setsockopt(socket.SOL_SOCKET, 25, b"lo")
    mss = [sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) for sock in (one, other)]
    buffers = [(s.getsockopt(1, socket.SO_SNDBUF), s.getsockopt(1, socket.SO_RCVBUF)) for s in (one, other)]
    fresh = socket.socket()
    fresh.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 5)
    named = socket.socket()
    named.bind((LOCAL, 0))
    name = named.getsockname()
    info = [sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[5:7] for sock in (one, other)]
    yield
    for level, option, value in wanted:
        assert one.getsockopt(level, option) == value, (level, option)
        assert other.getsockopt(level, option) != value or option == socket.IP_TTL, (level, option)
    assert one.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == struct.pack("ii", 1, 5)
    assert one.getsockopt(socket.SOL_SOCKET, 25, 16).rstrip(b"\0") == b"lo"
    same(mss, [sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) for sock in (one, other)])
    same(buffers, [(s.getsockopt(1, socket.SO_SNDBUF), s.getsockopt(1, socket.SO_RCVBUF)) for s in (one, other)])
    same(info, [sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[5:7] for sock in (one, other)])
    assert fresh.getsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT) > 0
    assert named.getsockname() == name
    named.listen()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    exchange(one, other)
    exchange(socket.create_connection(name), named.accept()[0])


def connecting() -> Iterator[None]:
    """Processes that were stopped in connect(), which has come about meanwhile; one of them is accepted."""
    servers, children, taken = [], [], []
    for _ in range(2):
        server = socket.socket()
        server.bind((LOCAL, 0))
        server.listen(0)
        first = socket.create_connection(server.getsockname())  # now there is no room for another
        child = os.fork()
        if child == 0:
            try:
                client = socket.create_connection(server.getsockname())
                os._exit(0 if client.recv(1) == b"x" else 1)
            except OSError as error:
                os._exit(error.errno or 255)
        time.sleep(0.1)
        os.kill(child, signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
        server.accept()[0].close()
        first.close()
        servers.append(server)
        children.append(child)
    for server in servers:
        assert select.select([server], [], [], 20)[0], "it did not try again"
    taken.append(servers[0].accept()[0])
    yield
    taken.append(servers[1].accept()[0])
    for child, accepted in zip(children, taken, strict=True):
        os.kill(child, signal.SIGCONT)
        accepted.sendall(b"x")
        same(0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def several_servers() -> Iterator[None]:
    """A group of sockets on one port, and one that more processes accept from."""
    first = socket.socket()
    first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    first.bind((LOCAL, 0))
    first.listen(60)
    second = socket.socket()
    second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    second.bind(first.getsockname())
    second.listen(50)
    shared = socket.create_server((LOCAL, 0))
    down, up = os.pipe(), os.pipe()
    if not os.fork():
        os.close(down[1])
        os.close(up[0])
        os.read(down[0], 1)
        accepted, _ = shared.accept()
        accepted.sendall(b"by the child")
        os._exit(0)
    os.close(down[0])
    os.close(up[1])
    yield
    clients = [socket.create_connection(first.getsockname()) for _ in range(40)]
    taken = 0
    while taken < 40:
        for server in select.select([first, second], [], [], 10)[0]:
            server.accept()
            taken += 1
    client = socket.create_connection(shared.getsockname())
    os.write(down[1], b"x")
    assert whole(client, 12) == b"by the child"
    os.wait()
    assert len(clients) == 40


def polled() -> Iterator[None]:
    """An epoll that holds them; one is ready, one is not, one is edge-triggered."""
    server = socket.create_server((LOCAL, 0))
    one, other = pair()
    third, fourth = pair()
    poll = select.epoll()
    for sock, mask in ((server, select.EPOLLIN), (other, select.EPOLLIN), (fourth, select.EPOLLIN | select.EPOLLET)):
        poll.register(sock, mask)
    one.sendall(b"x")
    for sock in (one, other, third, fourth, server):
        sock.setblocking(False)
    yield
    assert [sock.getblocking() for sock in (one, other, third, fourth, server)] == [False] * 5
    assert dict(poll.poll(5)).get(other.fileno()) == select.EPOLLIN
    assert other.recv(10) == b"x"
    third.sendall(b"y")
    assert dict(poll.poll(5)) == {fourth.fileno(): select.EPOLLIN}
    client = socket.create_connection(server.getsockname())
    assert server.fileno() in dict(poll.poll(5))
    assert client


def datagrams() -> Iterator[None]:
    one, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    one.bind((LOCAL, 0))
    other.bind(("0.0.0.0", 0))
    other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_000_000)
    port = other.getsockname()[1]
    sent = [bytes_of(n * 977 % 20000 + 1, n) for n in range(50)]
    for data in sent:
        one.sendto(data, (LOCAL, port))
    joined, six = (socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) for _ in range(2))
    six.bind(("::1", 0))
    joined.connect(six.getsockname())
    joined.send(b"from one that is connected")
    six.connect(joined.getsockname())
    yield
    for data in sent:
        assert other.recvfrom(65536) == (data, one.getsockname())
    assert six.recvfrom(100)[0] == b"from one that is connected"
    six.send(b"back")
    assert joined.recv(100) == b"back"
    one.sendto(b"on", (LOCAL, port))
    assert other.recvfrom(100) == (b"on", one.getsockname())
    other.setblocking(False)
    try:
        other.recv(1)
        raise AssertionError("one more")
    except BlockingIOError:
        pass


def empty_datagrams() -> Iterator[None]:
    """Datagrams without bytes, before, between and after others."""
    one, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    for sock in (one, other):
        sock.bind((LOCAL, 0))
    sent = [b"", b"a", b"", b"", b"bc", b"d", b""]
    for data in sent:
        one.sendto(data, other.getsockname())
    yield
    other.settimeout(5)
    for data in sent:
        same((data, one.getsockname()), other.recvfrom(10))
    other.setblocking(False)
    try:
        other.recv(1)
        raise AssertionError("one more")
    except BlockingIOError:
        pass


def groups() -> Iterator[None]:
    """Multicast groups: plain, of one source, without one source, and of IPv6; a socket that has joined none."""
    lo = struct.pack("=I4x", socket.if_nametoindex("lo"))

    def name(text: str) -> bytes:
        if ":" in text:
            return struct.pack("=HHI16s4x", socket.AF_INET6, 0, 0, socket.inet_pton(socket.AF_INET6, text)).ljust(
                128, b"\0"
            )
        return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(text)).ljust(128, b"\0")

    def filter_of(sock: socket.socket, group: str) -> tuple[int, list[str]] | int:
        import ctypes

        level = socket.IPPROTO_IPV6 if ":" in group else socket.IPPROTO_IP
        value = ctypes.create_string_buffer(lo + name(group) + struct.pack("=II", 0, 4) + bytes(4 * 128))
        size = ctypes.c_uint(len(value) - 1)
        if ctypes.CDLL(None).getsockopt(sock.fileno(), level, 48, value, ctypes.byref(size)) < 0:
            return -1
        mode, count = struct.unpack_from("=II", value, 136)
        return mode, [socket.inet_ntoa(value.raw[148 + 128 * n : 152 + 128 * n]) for n in range(count)]

    four, none = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    four.bind(("0.0.0.0", 0))
    none.bind(("0.0.0.0", 0))
    four.setsockopt(socket.IPPROTO_IP, 42, lo + name("239.1.2.3"))
    four.setsockopt(socket.IPPROTO_IP, 46, lo + name("239.1.2.4") + name("10.1.1.1"))
    four.setsockopt(socket.IPPROTO_IP, 42, lo + name("239.1.2.5"))
    four.setsockopt(socket.IPPROTO_IP, 43, lo + name("239.1.2.5") + name("10.1.1.2"))
    six.setsockopt(socket.IPPROTO_IPV6, 42, lo + name("ff05::1234"))
    asked = [(four, "239.1.2.3"), (four, "239.1.2.4"), (four, "239.1.2.5"), (six, "ff05::1234"), (none, "239.1.2.3")]
    before = [filter_of(*one) for one in asked]
    same([(0, []), (1, ["10.1.1.1"]), (0, ["10.1.1.2"]), (0, []), -1], before)
    yield
    same(before, [filter_of(*one) for one in asked])
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOCAL))
    sender.sendto(b"to all", ("239.1.2.3", four.getsockname()[1]))
    four.settimeout(5)
    same(b"to all", four.recv(10))


def shut_datagrams() -> Iterator[None]:
    """One socket that may not send, one that may not receive."""
    one, other = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
    for end in (one, other):
        end.bind((LOCAL, 0))
    one.connect(other.getsockname())
    other.connect(one.getsockname())
    one.shutdown(socket.SHUT_WR)
    other.shutdown(socket.SHUT_RD)
    other.send(b"before")
    yield
    other.send(b"after")
    one.settimeout(5)
    assert [one.recv(10), one.recv(10)] == [b"before", b"after"]
    assert other.recv(10) == b""
    try:
        one.send(b"never")
        raise AssertionError("a socket that is shut for sending sent")
    except BrokenPipeError:
        pass


def blocked() -> Iterator[None]:
    """Threads that wait in accept, recv, send and connect."""
    server = socket.create_server((LOCAL, 0))
    one, other = pair()
    third, fourth = pair()
    got: dict[str, Any] = {}
    data = bytes_of(30_000_000)

    def run(name: str, call: Callable[[], Any]) -> None:
        got[name] = call()

    threads = [
        threading.Thread(target=run, args=("accept", server.accept)),
        threading.Thread(target=run, args=("recv", lambda: other.recv(100))),
        threading.Thread(target=run, args=("send", lambda: third.sendall(data))),
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    yield
    client = socket.create_connection(server.getsockname())
    one.sendall(b"x")
    assert whole(fourth, len(data)) == data
    for thread in threads:
        thread.join(20)
    assert got["recv"] == b"x"
    assert got["accept"][1] == client.getsockname()
    assert "send" in got


STATES = [
    idle,
    six,
    mapped,
    unread,
    full,
    much,
    halves,
    shut_with_full_queue,
    closed,
    closed_with_full_queue,
    reset,
    over,
    waiting,
    crowded,
    options,
    connecting,
    several_servers,
    polled,
    datagrams,
    empty_datagrams,
    groups,
    shut_datagrams,
    blocked,
]


def main() -> None:
    wanted = [state for state in STATES if state.__name__ in sys.argv[1:]]
    begun = [state() for state in wanted]
    for state in begun:
        next(state)
    print("ready", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.01)
    for state, function in zip(begun, wanted, strict=True):
        try:
            next(state, None)
        except BaseException as error:
            print(function.__name__, repr(error), file=sys.stderr, flush=True)
            import traceback

            traceback.print_exc()
            os._exit(1)
    os._exit(0)


main()
