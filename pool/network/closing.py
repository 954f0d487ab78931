"""Connections of a job that its processes have closed, while the other part has not acknowledged all of it.

No process has such a socket any more, so no checkpoint has it: what it still sends (bytes, or only that it is closed)
would be lost. The other part's kernel answers within a round trip, unless it had just been started. So a checkpoint of
all parts waits for that before packets are held; the job runs meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from io import FileIO
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from pool.jobs.network import RANGE4, RANGE6

#: Seconds for which is waited, and between two looks. What a part sent before the other one was restored is sent again
#: after 0.2 s, and then after twice the pause each time.
PATIENCE, PAUSE = 8.0, 0.01
#: The kernel's numbers of FIN_WAIT1, LAST_ACK and CLOSING (include/net/tcp_states.h).
CLOSING = frozenset({"04", "09", "0B"})
TABLES = ("tcp", "tcp6")


def closing_connections(text: str) -> int:
    """How many connections to other parts wait for the acknowledgement of bytes or of their end, without a process.

    Args:
        text: a table as /proc/net/tcp and tcp6 have it (proc_pid_net(5)).
    """
    return sum(_is_closing(line.split()) for line in text.splitlines()[1:])


def _is_closing(words: list[str]) -> bool:
    if len(words) < 10 or words[3] not in CLOSING or words[9] != "0" or words[4].startswith("00000000:"):
        return False
    here, there = (_address(word) for word in words[1:3])
    return here != there and (there in RANGE4 if isinstance(there, IPv4Address) else there in RANGE6)


def _address(word: str) -> IPv4Address | IPv6Address:
    """Words of four bytes, each as a number of the processor: x86-64 has the least byte first."""
    number = word.partition(":")[0]
    found = ip_address(b"".join(bytes.fromhex(number[at : at + 8])[::-1] for at in range(0, len(number), 8)))
    return (found.ipv4_mapped if isinstance(found, IPv6Address) else None) or found


def tables_of(pid: int) -> str:
    """The tables of that process's network; those that cannot be read are left out."""
    texts = []
    for name in TABLES:
        with contextlib.suppress(OSError):
            texts.append(Path(f"/proc/{pid}/net/{name}").read_text())
    return "\n".join(texts)


class HeldTables:
    """The tables of a process's network, which can be read, too, when the process has ended: open, they keep it."""

    def __init__(self, pid: int) -> None:
        self._files: list[FileIO] = []
        for name in TABLES:
            with contextlib.suppress(OSError):
                self._files.append(FileIO(f"/proc/{pid}/net/{name}"))

    def read(self) -> str:
        """The tables as they are."""
        for file in self._files:
            file.seek(0)
        return "\n".join(file.readall().decode() for file in self._files)

    def close(self) -> None:
        """Let the network go."""
        while self._files:
            self._files.pop().close()


async def wait_until_closed(
    read: Callable[[], str], patience: float = PATIENCE, in_vain: Callable[[], bool] = lambda: False
) -> bool:
    """Wait until no connection to another part is being closed; whether that came in time.

    Args:
        read: the tables as they are.
        in_vain: whether it will not come.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    while closing_connections(read()):
        if loop.time() >= until or in_vain():
            return False
        await asyncio.sleep(PAUSE)
    return True
