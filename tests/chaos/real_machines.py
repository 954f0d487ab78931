"""The machines of a pool of real processes: a network namespace and a disk each, and the node that runs there.

All of them are children of this process and live in its process and mount namespaces (`real`), so that nothing is left
when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from pool.client import Pool
from pool.errors import PoolError
from tests.chaos.faults import ROLES
from tests.chaos.network import Port
from tests.chaos.real_node import SIGNALS
from tests.conftest import REPOSITORY

#: Seconds in which a node has to answer when nothing is wrong; the machine may be very busy.
PATIENCE = 120.0
#: A node that ended by itself is started again after so many seconds, as systemd would.
RESTART_DELAY = 0.3


class Disk:
    """A file system of its own that can be filled."""

    def __init__(self, path: Path, megabytes: int) -> None:
        self.path = path
        self._filler = path / "filler"
        self._full = 0
        path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "chaos", str(path)], check=True)

    async def fill(self, seconds: float) -> None:
        """For so long it has no room; what others free meanwhile is taken, too."""
        end, self._full = time.monotonic() + seconds, self._full + 1
        try:
            while time.monotonic() < end:
                self._take()
                await asyncio.sleep(0.1)
        finally:
            self._full -= 1
            if not self._full:
                self._filler.unlink(missing_ok=True)

    def _take(self) -> None:
        with self._filler.open("ab") as filler:
            room = os.statvfs(self.path)
            with contextlib.suppress(OSError):
                if room.f_bavail:
                    os.posix_fallocate(filler.fileno(), filler.tell(), room.f_bavail * room.f_frsize)


class Machine:
    """One machine, and its node.

    Args:
        roles: of its node; None for those of the name's first letter (`faults.ROLES`).
        megabytes: of its disk.

    Attributes:
        away: how many faults want the node not to run now.
        frozen: how many want it to stand still.
    """

    def __init__(
        self,
        name: str,
        number: int,
        place: Path,
        logs: Path,
        sets: dict[str, str],
        *,
        roles: tuple[str, ...] | None = None,
        megabytes: int = 96,
    ) -> None:
        self.name = name
        self.port = Port(name, number)
        self.disk = Disk(place / name, megabytes)
        self.state = self.disk.path / "state"
        self.log = logs / f"{name}.log"
        self.roles = ROLES[name[0]] if roles is None else roles
        self.away = self.frozen = self.starts = 0
        self.hanging: set[int] = set()
        self.process: subprocess.Popen[bytes] | None = None
        self._sets = {"NODE_NAME": name, "LISTEN": f"{self.port.address}:9618", **sets}
        self._watcher: asyncio.Task[None] | None = None

    # -- the node ----------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return f"unix://{self.state}/node.sock"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def is_well(self) -> bool:
        """Whether the node runs, and no fault concerns it."""
        return self.running and not self.away and not self.frozen

    def start(self, join: str = "") -> None:
        """Start the node, if it does not run."""
        if self.running:
            return
        command = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{self.port.namespace}", sys.executable]
        command += ["-m", "tests.chaos.real_node", "--log-json", "--state", str(self.state)]
        command += ["--roles", ",".join(self.roles)]
        for setting, value in self._sets.items():
            command += ["--set", f"{setting}={value}"]
        environ = {**os.environ, **({"POOLNODE_JOIN": join} if join else {})}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=REPOSITORY, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.starts += 1

    async def ready(self) -> None:
        """Wait until the node answers.

        Raises:
            TimeoutError: it does not.
        """
        deadline = time.monotonic() + PATIENCE
        while not await self.answers():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} does not answer; its log is {self.log}")
            await asyncio.sleep(0.05)

    async def answers(self) -> bool:
        """Whether the node does."""
        with contextlib.suppress(PoolError, OSError, TimeoutError):
            async with asyncio.timeout(2.0), await Pool.connect(self.address, timeout=2.0) as pool:
                info = await pool.info()
                return set(self.roles) <= set(info["roles"])
        return False

    def supervise(self) -> None:
        """From now on a node that ends is started again, as long as no fault wants it away."""
        self._watcher = asyncio.create_task(self._watch(), name=f"watch {self.name}")

    async def _watch(self) -> None:
        while True:
            if not self.away and not self.running:
                await asyncio.sleep(RESTART_DELAY)
                if not self.away:
                    self.start()
            await asyncio.sleep(0.05)

    # -- faults ------------------------------------------------------------------------------------------

    async def kill(self, seconds: float) -> None:
        """kill -9 of the node, which is started again after a while."""
        self.wake_keepers()
        self.away += 1
        try:
            self._signal_node(signal.SIGKILL)
            await asyncio.sleep(seconds)
        finally:
            self.away -= 1

    async def reboot(self, seconds: float) -> None:
        """All that runs on the machine ends."""
        self.away += 1
        try:
            while left := self.processes():
                send(left, signal.SIGKILL)
                await asyncio.sleep(0.01)
            self.hanging.clear()
            await asyncio.sleep(seconds)
        finally:
            self.away -= 1

    async def freeze(self, seconds: float) -> None:
        """The node stands still."""
        self.wake_keepers()
        self.frozen += 1
        try:
            self._signal_node(signal.SIGSTOP)
            await asyncio.sleep(seconds)
        finally:
            self.frozen -= 1
            if not self.frozen:
                self._signal_node(signal.SIGCONT)

    def fail_role(self, number: int) -> bool:
        """A role of the node fails."""
        self.wake_keepers()
        return self._signal_node(SIGNALS[number % len(self.roles)])

    def go_on(self) -> None:
        """Nothing stands still any more: a job that was saved while it did was restored so, under another number."""
        send(self.processes(), signal.SIGCONT)

    def show_tasks(self) -> None:
        """Have the node write into its log where each of its tasks stands."""
        self._signal_node(signal.SIGQUIT)

    async def hang(self, pid: int, seconds: float, *, keeper: bool = False) -> bool:
        """A process stands still for a while."""
        if keeper:
            self.hanging.add(pid)
        try:
            if not send([pid], signal.SIGSTOP):
                return False
            await asyncio.sleep(seconds)
            return True
        finally:
            send([pid], signal.SIGCONT)
            self.hanging.discard(pid)

    def wake_keepers(self) -> None:
        """Nobody on the machine would end a keeper that stands still while its node does, or is dead: they go on."""
        send(self.hanging, signal.SIGCONT)
        self.hanging.clear()

    def _signal_node(self, number: int) -> bool:
        if self.process is None or self.process.poll() is not None:
            return False
        self.process.send_signal(number)
        return True

    # -- processes ---------------------------------------------------------------------------------------

    def processes(self) -> list[int]:
        """All that run on the machine."""
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and self.has(int(name))]

    def has(self, pid: int) -> bool:
        """Whether a process runs on the machine."""
        try:
            found = os.stat(f"/proc/{pid}/ns/net")
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.port.identity

    def fork_server(self) -> int | None:
        """The process that the node starts keepers with."""
        if self.process is None:
            return None
        for pid in self.processes():
            if parent(pid) == self.process.pid and b"fork-server" in command_line(pid):
                return pid
        return None

    def keeper_of(self, job: int) -> int | None:
        """The keeper of a job's process: its furthest ancestor below the fork server, or the process that adopts."""
        above = {self.fork_server() or 1, self.process.pid if self.process is not None else 1, 1}
        pid = job
        while (up := parent(pid)) not in above:
            if up is None:
                return None
            pid = up
        return pid if pid != job else None


def send(pids: Iterable[int], number: int) -> int:
    """A signal to processes; how many there were."""
    sent = 0
    for pid in list(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            sent += 1
    return sent


def parent(pid: int) -> int | None:
    """The parent of a process; None where it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    state, up = stat.rpartition(")")[2].split()[:2]
    return None if state == "Z" else int(up)


def command_line(pid: int) -> bytes:
    """The words of a process's command."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESRCH):
            raise
        return b""
