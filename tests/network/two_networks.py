"""Network namespaces of two pools: a head and a machine each, which a router joins. The way between the machines can
be cut, so that their packets vanish; that between the heads stays.
"""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.network.namespaces import EMPTY, begin_namespace, wait_until_up
from tests.ordinary_user import as_root

#: Namespaces in the order in which they get their numbers: 10.97.NUMBER.2 is each one's address.
HEADS, MACHINES = (1, 2), (3, 4)
_ROUTER = """
set -e
ip link set lo up
echo 1 > /proc/sys/net/ipv4/ip_forward
for number in 1 2 3 4; do
    read pid
    ip link add "w$number" type veth peer name eth0 netns $pid
    ip addr add "10.97.$number.1/24" dev "w$number"
    ip link set "w$number" up
    on() { nsenter --net=/proc/$pid/ns/net ip "$@"; }
    on link set lo up
    on addr add "10.97.$number.2/24" dev eth0
    on link set eth0 up
    on route add default via "10.97.$number.1"
done
echo up
exec sleep 1000
"""


class TwoNetworks:
    """The namespaces. Skips without root."""

    def __init__(self) -> None:
        with as_root():
            if os.geteuid() != 0:
                pytest.skip("needs root")
            self._all = [begin_namespace(EMPTY) for _ in range(4)]
            for one in self._all:
                wait_until_up(one)
            self._all.append(router := begin_namespace(_ROUTER))
            assert router.stdin is not None
            router.stdin.write("".join(f"{one.pid}\n" for one in self._all[:4]).encode())
            router.stdin.flush()
            wait_until_up(router)
        self._inside = [("nsenter", f"--net=/proc/{process.pid}/ns/net") for process in self._all]

    def inside(self, number: int) -> tuple[str, ...]:
        """The words before the command of a process in a namespace."""
        return self._inside[number - 1]

    @staticmethod
    def address(number: int) -> str:
        """The address of a namespace."""
        return f"10.97.{number}.2"

    def cut(self) -> None:
        """From now on nothing arrives from either machine at the other one, and nobody is told."""
        self._rules("add")

    def heal(self) -> None:
        """Undo `cut`."""
        self._rules("del")

    def _rules(self, verb: str) -> None:
        one, two = (f"10.97.{number}.0/24" for number in MACHINES)
        with as_root():
            for source, to in ((one, two), (two, one)):
                rule = ["ip", "rule", verb, "from", source, "to", to, "blackhole"]
                subprocess.run([*self._inside[-1], *rule], check=True)

    def close(self) -> None:
        for process in self._all:
            with as_root():
                process.kill()
            process.communicate()
