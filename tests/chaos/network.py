"""A network of namespaces whose every packet passes through this process, which loses, delays and cuts at will.

Each machine has a network namespace with one tun device in it; a thread reads what leaves one and writes it to
another. So nothing is needed of the kernel but namespaces and tun devices, and each direction between two machines
has troubles of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import selectors
import struct
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

TUN, DEVICE = "/dev/net/tun", "chaos0"
CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MTU = 9000
TCP = 6
RST = 0x04
SYN_OR_FIN = 0x03

#: One direction between two machines.
Direction = tuple[str, str]


@dataclass(frozen=True, eq=False, slots=True)
class Trouble:
    """The fate of packets in one direction. Of several at a time each does its part.

    Attributes:
        silent: nothing arrives.
        delay: each packet takes so long, seconds, at least and at most.
        loss: this part of all packets does not arrive.
    """

    silent: bool = False
    delay: tuple[float, float] = (0.0, 0.0)
    loss: float = 0.0


class Port:
    """A machine's place in the network: its namespace, its address, and the device that its packets come out of."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.address = f"10.88.0.{number}"
        self.namespace = self.device = -1
        failed: list[Exception] = []

        def make() -> None:
            try:
                self._make()
            except Exception as error:
                failed.append(error)

        # A namespace belongs to a thread: this one ends and leaves it behind.
        maker = threading.Thread(target=make)
        maker.start()
        maker.join()
        if failed:
            raise failed[0]

    def _make(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "cannot make a network namespace")
        self.namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.device = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(self.device, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
        script = f"ip link set lo up && ip addr add {self.address}/24 dev {DEVICE}"
        script += f" && ip link set dev {DEVICE} mtu {MTU} up"
        subprocess.run(["sh", "-c", script], check=True)

    @property
    def identity(self) -> tuple[int, int]:
        """The namespace, as /proc/PID/ns/net of the processes in it."""
        found = os.fstat(self.namespace)
        return found.st_dev, found.st_ino


class Network:
    """The packets between some ports, carried by a thread.

    Args:
        seed: of what is lost, and of delays.
    """

    def __init__(self, ports: Iterable[Port], seed: int) -> None:
        self._ports = {ip_bytes(port.address): port for port in ports}
        self._chance = random.Random(f"network {seed}")
        self._troubles: dict[Direction, list[Trouble]] = {}
        self._flows: dict[bytes, Flow] = {}
        self._lock = threading.Lock()
        self._late: list[tuple[float, int, int, bytes]] = []
        self._order = itertools.count()
        self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._closing = False
        self._thread = threading.Thread(target=self._carry, name="network", daemon=True)
        self._thread.start()

    def port(self, name: str) -> Port:
        """A machine's."""
        return next(port for port in self._ports.values() if port.name == name)

    def close(self) -> None:
        """Carry nothing any more."""
        self._closing = True
        os.write(self._wake[1], b"x")
        self._thread.join()

    @contextlib.contextmanager
    def trouble(self, directions: Iterable[Direction], trouble: Trouble) -> Iterator[None]:
        """For a while something happens to packets in these directions."""
        directions = list(directions)
        with self._lock:
            for direction in directions:
                self._troubles.setdefault(direction, []).append(trouble)
        try:
            yield
        finally:
            with self._lock:
                for direction in directions:
                    self._troubles[direction].remove(trouble)

    def cut(self, one: str, other: str) -> int:
        """Break all connections between two machines: each side hears from the other that there is none. How many."""
        with self._lock:
            flows = [flow for flow in self._flows.values() if {flow.source, flow.target} == {one, other}]
            for flow in flows:
                _write(self.port(flow.target).device, flow.reset())
                del self._flows[flow.key]
        return len(flows)

    # -- the thread --------------------------------------------------------------------------------------

    def _carry(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake[0], selectors.EVENT_READ, None)
            for port in self._ports.values():
                selector.register(port.device, selectors.EVENT_READ, port)
            while not self._closing:
                pause = max(self._late[0][0] - time.monotonic(), 0.0) if self._late else None
                for key, _ in selector.select(pause):
                    if key.data is not None:
                        self._take_from(key.data)
                while self._late and self._late[0][0] <= time.monotonic():
                    _, _, device, packet = heapq.heappop(self._late)
                    _write(device, packet)

    def _take_from(self, port: Port) -> None:
        for _ in range(64):
            try:
                packet = os.read(port.device, 65536)
            except BlockingIOError:
                return
            target = self._ports.get(packet[16:20])
            if packet[0] >> 4 != 4 or target is None:
                continue
            with self._lock:
                self._pass(port, target, packet)

    def _pass(self, port: Port, target: Port, packet: bytes) -> None:
        troubles = self._troubles.get((port.name, target.name), ())
        late = 0.0
        for trouble in troubles:
            if trouble.silent or (trouble.loss and self._chance.random() < trouble.loss):
                return
            late += self._chance.uniform(*trouble.delay)
        if packet[9] == TCP:
            flow = Flow.of(port.name, target.name, packet)
            self._flows[flow.key] = flow
        if late:
            heapq.heappush(self._late, (time.monotonic() + late, next(self._order), target.device, packet))
        else:
            _write(target.device, packet)


@dataclass(frozen=True, slots=True)
class Flow:
    """One direction of a TCP connection, as its last packet shows it."""

    source: str
    target: str
    key: bytes
    next: int

    @classmethod
    def of(cls, source: str, target: str, packet: bytes) -> Flow:
        """From a packet."""
        header = (packet[0] & 15) * 4
        sequence = int.from_bytes(packet[header + 4 : header + 8], "big")
        length = len(packet) - header - (packet[header + 12] >> 4) * 4
        ends = bin(packet[header + 13] & SYN_OR_FIN).count("1")
        key = packet[12:20] + packet[header : header + 4]
        return cls(source, target, key, (sequence + length + ends) & 0xFFFFFFFF)

    def reset(self) -> bytes:
        """The packet that tells the target that the connection is no more."""
        addresses, ports = self.key[:8], self.key[8:]
        ip = bytearray(struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, TCP, 0) + addresses)
        ip[10:12] = checksum(bytes(ip)).to_bytes(2, "big")
        tcp = bytearray(ports + struct.pack("!IIBBHHH", self.next, 0, 5 << 4, RST, 0, 0, 0))
        tcp[16:18] = checksum(addresses + struct.pack("!BBH", 0, TCP, len(tcp)) + tcp).to_bytes(2, "big")
        return bytes(ip + tcp)


def checksum(data: bytes) -> int:
    """The internet checksum of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ip_bytes(address: str) -> bytes:
    """An address as packets have it."""
    return bytes(int(part) for part in address.split("."))


def _write(device: int, packet: bytes) -> None:
    with contextlib.suppress(OSError):  # a device that takes no more loses it, as a real one does
        os.write(device, packet)
