"""Network namespaces of two machines that reach a third one, and not each other."""

from __future__ import annotations

import os

import pytest

from tests.network.namespaces import EMPTY, begin_namespace, wait_until_up
from tests.ordinary_user import as_root

#: Two namespaces, each with a wire to the schedd's, whose address is on neither wire. Nobody passes packets on.
_MACHINES = """
set -e
ip link set lo up
ip addr add 10.98.0.1/32 dev lo
for number in 1 2; do
    read pid
    ip link add "w$number" type veth peer name eth0 netns $pid
    ip addr add "10.98.$number.1/24" dev "w$number"
    ip link set "w$number" up
    on() { nsenter --net=/proc/$pid/ns/net ip "$@"; }
    on link set lo up
    on addr add "10.98.$number.2/24" dev eth0
    on link set eth0 up
    on route add 10.98.0.1/32 via "10.98.$number.1"
done
echo up
exec sleep 1000
"""


class Islands:
    """Network namespaces of the schedd's node and of two machines. Skips without root."""

    def __init__(self) -> None:
        with as_root():
            if os.geteuid() != 0:
                pytest.skip("needs root")
            self._all = [begin_namespace(EMPTY) for _ in range(2)]
            for machine in self._all:
                wait_until_up(machine)
            self._all.append(head := begin_namespace(_MACHINES))
            assert head.stdin is not None
            head.stdin.write("".join(f"{one.pid}\n" for one in self._all[:2]).encode())
            head.stdin.flush()
            wait_until_up(head)
        inside = [("nsenter", f"--net=/proc/{process.pid}/ns/net") for process in self._all]
        self.machines, self.middle = inside[:2], inside[2]

    def close(self) -> None:
        for process in self._all:
            with as_root():
                process.kill()
            process.communicate()
