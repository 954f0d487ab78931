"""A network namespace that stands for a machine's network and all that is around it, and servers in it.

A way out runs in it instead of the tests' own network, so that addresses of every kind have servers that answer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.namespaces import EMPTY, begin_namespace, wait_until_up
from tests.ordinary_user import as_root

CLONE_NEWNET, IP_PKTINFO, IPV6_TRANSPARENT = 0x40000000, 8, 75
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def _inside(namespace: str) -> Iterator[None]:
    """This thread is in a network namespace meanwhile."""
    with open("/proc/thread-self/ns/net") as before, open(namespace) as wanted:
        if _libc.setns(wanted.fileno(), CLONE_NEWNET) < 0:
            raise OSError(ctypes.get_errno(), "setns")
        try:
            yield
        finally:
            _libc.setns(before.fileno(), CLONE_NEWNET)


#: A machine's addresses towards the outside.
MACHINE4, MACHINE6 = "198.51.100.1", "2001:db8:1::1"
#: Both ends of a link have the same hardware address and ask for none, so that one end can have every IP address.
_LINK = "address 02:00:00:00:00:02 arp off up"
_SETTING = f"""
set -e
ip link set lo up
read outside
ip link add w0 type veth peer name o0 netns $outside
ip link set w0 {_LINK}
nsenter --net=/proc/$outside/ns/net ip link set o0 {_LINK}
ip addr add {MACHINE4}/24 dev w0
ip -6 addr add {MACHINE6}/64 dev w0 nodad
ip route add default dev w0
ip -6 route add default dev w0
on_outside() {{ nsenter --net=/proc/$outside/ns/net ip "$@"; }}
on_outside link set lo up
on_outside route add {MACHINE4} dev o0
on_outside -6 route add {MACHINE6} dev o0
on_outside route add local 0.0.0.0/0 dev lo
on_outside -6 route add local ::/0 dev lo table main
echo up
exec sleep 1000
"""


class World:
    """The namespace of the machine, and another one that has every other address. Skips without root.

    Attributes:
        heard: who reached which server, as (of the machine, kind, address, port).
    """

    def __init__(self, place: Path) -> None:
        with as_root():
            self._begin()
        self._place = place
        self.heard: list[tuple[bool, str, str, int]] = []
        self._sockets: dict[socket.socket, bool] = {}
        self._ready = selectors.DefaultSelector()
        self._stop, self._stopper = os.pipe()
        self._ready.register(self._stop, selectors.EVENT_READ)
        self._thread: threading.Thread | None = None

    def _begin(self) -> None:
        if os.geteuid() != 0:
            pytest.skip("needs root")
        self._outside = begin_namespace(EMPTY)
        self._machine = begin_namespace(_SETTING)
        assert self._machine.stdin is not None
        wait_until_up(self._outside)
        self._machine.stdin.write(f"{self._outside.pid}\n".encode())
        self._machine.stdin.flush()
        wait_until_up(self._machine)
        self.namespace = f"/proc/{self._machine.pid}/ns/net"

    def program(self, way_out: Path) -> Path:
        """A way out that runs in this namespace."""
        script = self._place / "way_out_elsewhere"
        script.write_text(f'#!/bin/sh\nexec nsenter --net={self.namespace} {way_out} "$@"\n')
        script.chmod(0o755)
        return script

    def made(self, family: int, kind: int, *, of_machine: bool = True) -> socket.socket:
        """A socket of the machine, or of the outside."""
        with as_root(), _inside(self.namespace if of_machine else f"/proc/{self._outside.pid}/ns/net"):
            made = socket.socket(family, kind)
        self._sockets[made] = of_machine
        return made

    def listen(self, port: int) -> None:
        """Servers at every address of the machine and of the outside, of both families, by TCP and UDP.

        They send the address at which they were reached, by UDP if something comes.
        """
        for of_machine in (True, False):
            for family, at in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    made = self.made(family, kind, of_machine=of_machine)
                    if family == socket.AF_INET6:
                        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
                        made.setsockopt(socket.IPPROTO_IPV6, IPV6_TRANSPARENT, 1)
                    else:
                        made.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
                    made.bind((at, port))
                    if kind == socket.SOCK_STREAM:
                        made.listen(2000)
                    made.setblocking(False)
                    self._ready.register(made, selectors.EVENT_READ)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve)
            self._thread.start()

    def _serve(self) -> None:
        while True:
            for key, _ in self._ready.select():
                made = key.fileobj
                if not isinstance(made, socket.socket):
                    return
                with contextlib.suppress(OSError):
                    self._answer(made)

    def _answer(self, made: socket.socket) -> None:
        of_machine, port = self._sockets[made], made.getsockname()[1]
        if made.type == socket.SOCK_STREAM:
            connection, _ = made.accept()
            with connection:
                at = connection.getsockname()[0]
                self.heard.append((of_machine, "tcp", at, port))
                connection.sendall(at.encode())
        else:
            _, (control,), _, source = made.recvmsg(1 << 16, 100)
            at = socket.inet_ntop(made.family, control[2][:16] if made.family == socket.AF_INET6 else control[2][8:12])
            self.heard.append((of_machine, "udp", at, port))
            level, kind, _ = control
            answer = control[2][:16] + bytes(4) if made.family == socket.AF_INET6 else bytes(4) + control[2][8:12] * 2
            made.sendmsg([at.encode()], [(level, kind, answer)], 0, source)

    def close(self) -> None:
        """End it."""
        os.close(self._stopper)
        if self._thread is not None:
            self._thread.join()
        os.close(self._stop)
        self._ready.close()
        for made in self._sockets:
            made.close()
        for process in (self._machine, self._outside):
            with as_root():
                process.kill()
            process.communicate()
