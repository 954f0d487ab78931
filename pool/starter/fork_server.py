"""The fork server as a process of this node: started, heard of, and started again when it dies.

Knows nothing of jobs. Its holder is notified when it has exited and when another has taken its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from pool.starter.spec import KeeperError

#: Seconds: for a fork server to say hello, for a dying process to be gone.
HELLO_TIME, GONE_TIME = 10.0, 10.0


class ForkServer:
    """One after another, of which one is there at a time.

    Args:
        native: the keeper program.
        arguments: after its name.
        end: the descriptor it answers on, its side of the pair.
        gone: called when one has died, before the next begins.
        back: called when the next has begun.
    """

    def __init__(
        self,
        native: Path,
        arguments: Sequence[str],
        end: int,
        *,
        gone: Callable[[], None],
        back: Callable[[], None],
    ) -> None:
        self.pid = 0
        self.generation = 0
        self._native = native
        self._arguments = [str(native), *arguments]
        self._end = end
        self._gone = gone
        self._back = back
        self._loop = asyncio.get_running_loop()
        self._hello: asyncio.Future[None] = self._loop.create_future()
        self._fd = -1
        self._restarts = 0
        self._closing = False

    def start(self) -> None:
        """Start the next one.

        Raises:
            KeeperError: the program cannot be run.
        """
        self._hello = self._loop.create_future()
        self.generation += 1
        environment = {name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")}
        try:
            self.pid = os.posix_spawn(
                self._native,
                self._arguments,
                environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, self._end, 3)],
            )
        except OSError as error:
            raise KeeperError(
                f"cannot start keepers: {self._native}: {os.strerror(error.errno or 0).lower()}",
                hint="in a checkout build it with: python -m pool.checkpoint.build",
            ) from error
        _use_batch_scheduling(self.pid)
        self._fd = os.pidfd_open(self.pid)
        self._loop.add_reader(self._fd, self._exited)

    async def ready(self) -> None:
        """Until it has said hello.

        Raises:
            KeeperError: it ends instead, or does not answer.
        """
        try:
            await asyncio.wait_for(asyncio.shield(self._hello), HELLO_TIME)
        except TimeoutError:
            raise KeeperError(
                f"cannot start keepers: {self._native} does not answer",
                hint="another node's fork server may still run (look for 'keeper fork-server' among the processes), or "
                "the program is of another version (in a checkout build it with: python -m pool.checkpoint.build)",
                retry=True,
            ) from None

    def hello_received(self) -> None:
        """Its first message has come."""
        self._restarts = 0
        if not self._hello.done():
            self._hello.set_result(None)

    async def close(self) -> None:
        """It ends by itself when nobody has the pair's other end any more; if not, it is killed."""
        self._closing = True
        if self._fd < 0:
            return
        self._loop.remove_reader(self._fd)
        if not await exits(self._fd):
            os.kill(self.pid, signal.SIGKILL)
        self._reap()

    def _reap(self) -> int:
        """The exit code of one that has ended."""
        os.close(self._fd)
        self._fd = -1
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def _exited(self) -> None:
        self._loop.remove_reader(self._fd)
        code = self._reap()
        self._gone()
        if not self._hello.done() and self.generation == 1:
            self._hello.set_exception(
                KeeperError(f"cannot start keepers: {self._native} ended at once with status {code}")
            )
            return
        self._restarts += 1
        self._loop.call_later(0.0 if self._restarts == 1 else self._pause(), self._start_again)

    def _pause(self) -> float:
        return float(min(0.05 * 2**self._restarts, 5.0))

    def _start_again(self) -> None:
        if self._closing:
            return
        try:
            self.start()
        except KeeperError:
            self._restarts += 1
            self._loop.call_later(self._pause(), self._start_again)
            return
        self._back()


async def exits(pidfd: int) -> bool:
    """Whether a process ends in time."""
    loop = asyncio.get_running_loop()
    gone: asyncio.Future[None] = loop.create_future()
    loop.add_reader(pidfd, resolve, gone)
    try:
        await asyncio.wait_for(gone, GONE_TIME)
        return True
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(pidfd)


def resolve(future: asyncio.Future[None]) -> None:
    """Set a future that may be set already."""
    if not future.done():
        future.set_result(None)


def _use_batch_scheduling(pid: int) -> None:
    """Have a fork server, its keepers and their jobs not take a processor from whoever is at work when they wake up.

    They keep the processor from the node, which starts the next jobs meanwhile, and many short jobs are done in less
    time. The owner of the machine loses nothing. (Linux: SCHED_BATCH; their share of the processors stays the same.)
    """
    with contextlib.suppress(OSError):  # a sandbox may forbid it
        if os.sched_getscheduler(pid) == os.SCHED_OTHER:
            os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))
