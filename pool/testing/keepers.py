"""Keepers of jobs that do not exist, on a machine that does not exist.

They behave as the real ones do: they outlive the node, enforce the lease by themselves, keep an end until it is
forgotten, and can be killed. A `Witness` sees every start and end in the whole test and refuses to see two copies
of a job running at the same time, which is the start contract's second rule.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pool.starter.checkpointing import CheckpointFailed, CheckpointReport, LetGo
from pool.starter.spec import NO_ENDS, Abilities, EndReport, JobUsage, KeeperError, KeeperSpec, StartFailed

#: The files of an image.
META, PAGES = "meta", "pages"
#: Seconds for which an answer of one that hangs is waited for, and after which it is killed itself.
SILENCE = 5.0


@dataclass(slots=True)
class Witness:
    """The programs that really ran: for tests to look at.

    Attributes:
        running: jobs that run right now, with the machine.
        starts, ends: each start and each end by itself or by force, in order, as (job, machine, time).
        doubles: jobs that ever ran twice at a time; a test expects this to stay empty.
    """

    running: dict[str, str] = field(default_factory=dict)
    starts: list[tuple[str, str, float]] = field(default_factory=list)
    ends: list[tuple[str, str, float]] = field(default_factory=list)
    doubles: list[tuple[str, str, str]] = field(default_factory=list)

    def started(self, job: str, machine: str, now: float) -> None:
        other = self.running.get(job)
        if other is not None:
            self.doubles.append((job, other, machine))
        self.running[job] = machine
        self.starts.append((job, machine, now))

    def ended(self, job: str, machine: str, now: float) -> None:
        if self.running.get(job) == machine:
            del self.running[job]
        self.ends.append((job, machine, now))


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The behaviour of a program: runs so many seconds, then exits with a code or dies of a signal.

    `stubborn` ones ignore the soft signal, and killed ones take `dying` seconds until nothing of them is left.

    Attributes:
        rss: KiB that it has in memory; where that is more than the job may have, it ends of it.
        saving: seconds that a checkpoint of it takes; None where it cannot be had.
        refused: what of it cannot be saved, a line each.
        failing: how many checkpoints come to nothing, for what passes by itself.
        broken: it cannot be restored.
        restoring: seconds that it takes to put it back.
    """

    seconds: float = 10.0
    code: int = 0
    signal: int = 0
    stubborn: bool = False
    rss: int = 1024
    dying: float = 0.0
    saving: float | None = None
    refused: tuple[str, ...] = ()
    failing: int = 0
    broken: bool = False
    restoring: float = 0.0


def home_of(owner: str, submitter: str) -> str:
    """The pool that the job on a claim comes from, by the claim; empty for the machine's own."""
    _, of_user, rest = submitter.partition("@~")
    if of_user:  # of a user who has it in the queue of another pool
        return rest.rpartition("@")[0]
    return owner.partition("@")[2]


class FakeKeeper:
    """One running program that does not exist."""

    def __init__(self, machine: FakeMachine, spec: KeeperSpec, behaviour: Behaviour, image: Path | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.id = self.key = spec.id
        self.spec = spec
        self.pid = 1000 + len(machine.keepers)
        self.starting: asyncio.Future[None] = loop.create_future()
        self.starting.set_result(None)
        self.ended: asyncio.Future[EndReport] = loop.create_future()
        self._machine = machine
        self._behaviour = behaviour
        self._began = loop.time()
        self._began_with = behaviour.seconds if image is None else float((image / META).read_text())
        self._left = self._began_with
        self._since: float | None = loop.time()
        self._timer = loop.call_later(self._left, self._end_by_itself)
        if spec.memory is not None and behaviour.rss << 10 > spec.memory:
            self._timer.cancel()
            self._timer = loop.call_later(min(1.0, self._left), self._end, "memory", None, int(signal.SIGKILL))
        self._lease_end = loop.time() + spec.lease_seconds
        self._lease = loop.call_at(self._lease_end, self._kill, "lease")
        self.suspended = False
        #: It is stopped (SIGSTOP): it answers nothing, obeys nobody, and lets its lease pass.
        self.hangs = False
        self.refused = behaviour.refused
        self.failing = behaviour.failing

    async def suspend(self) -> None:
        if self._since is None or self.ended.done() or self.hangs:
            return
        loop = asyncio.get_running_loop()
        self._left -= loop.time() - self._since
        self._since, self.suspended = None, True
        self._timer.cancel()

    async def resume(self) -> None:
        if self._since is not None or self.ended.done() or self.hangs:
            return
        loop = asyncio.get_running_loop()
        self._since, self.suspended = loop.time(), False
        self._timer = loop.call_later(self._left, self._end_by_itself)

    async def signal(self, number: int) -> None:
        self._end("signal", None, number)

    async def vacate(self, number: int = 0) -> None:
        if self.hangs:
            return
        if self._behaviour.stubborn:
            asyncio.get_running_loop().call_later(self.spec.grace, self._kill, "killed")
        else:
            self._end("vacated", None, number or int(signal.SIGTERM))

    async def kill(self) -> None:
        if self.hangs:
            asyncio.get_running_loop().call_later(SILENCE, self.end_by_force)
        else:
            self._kill("killed")

    def renew(self, seconds: float) -> None:
        if self.ended.done():
            return
        loop = asyncio.get_running_loop()
        self._lease_end = loop.time() + seconds
        if not self.hangs:
            self._lease.cancel()
            self._lease = loop.call_at(self._lease_end, self._kill, "lease")

    def stop_answering(self) -> None:
        """Stand still from now on, while the program runs on."""
        self.hangs = True
        self._lease.cancel()

    def go_on(self) -> None:
        """Read the messages that came meanwhile, and look at the clock."""
        if self.hangs and not self.ended.done():
            self.hangs = False
            loop = asyncio.get_running_loop()
            self._lease = loop.call_at(max(self._lease_end, loop.time()), self._kill, "lease")

    def end_by_force(self) -> None:
        self.hangs = False
        self._kill("killed")

    def lose(self) -> None:
        """It is killed (SIGKILL), and its program with it."""
        self._end("killed", None, int(signal.SIGKILL), lost=True)

    def exit(self, code: int) -> None:
        """Its program ends by itself."""
        self._end("exit", code, None)

    async def usage(self) -> JobUsage:
        if self.hangs:
            await asyncio.sleep(SILENCE)
            raise KeeperError(f"cannot read the usage of {self.id}: its keeper does not answer", retry=True)
        return JobUsage(user_cpu=self._used(), system_cpu=0.0, max_rss=self._behaviour.rss)

    async def examine(self) -> tuple[str, ...]:
        """The parts of it that could not be saved."""
        return self.refused

    async def checkpoint(
        self,
        directory: Path,
        *,
        stop: bool = False,
        taken: bytes | None = None,
        loose: bool = False,
        parent: Path | None = None,
        mark: int = 0,
        carry: bool = False,
        let_go: LetGo | None = None,
    ) -> CheckpointReport:
        """A program that does not exist: how much it has left to do."""
        behaviour, loop = self._behaviour, asyncio.get_running_loop()
        if self.refused:
            return CheckpointReport(0, 0.0, 0.0, self.refused)
        if behaviour.saving is None:
            raise CheckpointFailed(f"cannot checkpoint {self.id}: this machine does not allow it")
        if self.failing:
            self.failing -= 1
            raise CheckpointFailed(f"cannot checkpoint {self.id}: a process of the job that does not stop", retry=True)
        began = loop.time()
        left = self._left - (began - self._since if self._since is not None else 0.0)
        if stop:
            await self.suspend()
        await asyncio.wait([self.ended], timeout=behaviour.saving)
        if self.ended.done():
            raise CheckpointFailed(f"cannot checkpoint {self.id}: the job has ended")
        _write_image(directory, left, behaviour.rss)
        if stop:
            self._end("killed", None, int(signal.SIGKILL))
        return CheckpointReport(behaviour.rss, loop.time() - began, 0.01, (), 1)

    def remote(self, fd: int) -> None:
        """A program that does not exist reads no files."""

    def wire(self, fd: int) -> None:
        """A program that does not exist sends no packets."""

    def connect(self, port: int, fd: int) -> None:
        """A program that does not exist listens on no port."""

    def shell(self, fd: int) -> None:
        """A program that does not exist has no shell in it."""

    async def forget(self) -> None:
        self._machine.keepers.pop(self.key, None)

    def _used(self) -> float:
        loop = asyncio.get_running_loop()
        running = loop.time() - self._since if self._since is not None else 0.0
        return self._began_with - self._left + running

    def _kill(self, cause: str) -> None:
        if self._behaviour.dying:
            loop = asyncio.get_running_loop()
            loop.call_later(self._behaviour.dying, self._end, cause, None, int(signal.SIGKILL))
        else:
            self._end(cause, None, int(signal.SIGKILL))

    def _end_by_itself(self) -> None:
        by = self._behaviour.signal
        self._end("signal" if by else "exit", None if by else self._behaviour.code, by or None)

    def _end(self, cause: str, code: int | None, by: int | None, *, lost: bool = False) -> None:
        if self.ended.done():
            return
        used = self._used()
        self._timer.cancel()
        self._lease.cancel()
        now = asyncio.get_running_loop().time()
        self._machine.witness.ended(self._machine.job_of(self.spec), self._machine.name, now)
        self.ended.set_result(
            EndReport(
                code=code,
                signal=by,
                core=False,
                user_cpu=used,
                system_cpu=0.0,
                wall=now - self._began,
                max_rss=self._behaviour.rss,
                cause=cause,
                error="its keeper was killed" if lost else "",
                started=self._began,
                ended=now,
                lost=lost,
            )
        )


def _write_image(directory: Path, left: float, size: int) -> None:
    directory.mkdir()
    (directory / META).write_text(repr(left))
    (directory / PAGES).write_bytes(bytes(size))


class FakeMachine:
    """A machine that outlives its node: what runs on it goes on when the node is gone.

    Args:
        behave: what the program of a spec does; the default runs ten seconds and exits with 0.
        pool: its pool's name, where jobs of several pools are told apart.
    """

    def __init__(
        self,
        name: str,
        witness: Witness,
        behave: Callable[[KeeperSpec], Behaviour] = lambda spec: Behaviour(),
        pool: str = "",
    ) -> None:
        self.pool = pool
        self.name = name
        self.witness = witness
        self.behave = behave
        self.keepers: dict[str, FakeKeeper] = {}

    def job_of(self, spec: KeeperSpec) -> str:
        """cluster.proc of a keeper's id, and the part where it is one of a gang's; not the number of the run.

        Where there are several pools, with POOL: in front, the pool that the job comes from.
        """
        cluster, proc, _, *part = spec.id.split(".")
        name = ".".join((cluster, proc, *part))
        if not self.pool:
            return name
        guest_of = home_of(str(spec.claim.get("owner")), str(spec.claim.get("submitter")))
        return f"{guest_of or self.pool}:{name}"

    def crash(self) -> None:
        """The power goes: every program on it is gone without a report."""
        for keeper in self.keepers.values():
            keeper._end("killed", None, int(signal.SIGKILL))
        self.keepers.clear()


class _Starting:
    """A keeper whose program does not run yet."""

    def __init__(self, spec: KeeperSpec) -> None:
        self.spec = spec
        self.renew(spec.lease_seconds)

    def renew(self, seconds: float) -> None:
        self._end = asyncio.get_running_loop().time() + seconds

    async def wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (now := loop.time()) < until:
            if now >= self._end:
                raise StartFailed("its lease ran out while it was put back", call="restore", retry=True)
            await asyncio.sleep(min(until, self._end, now + 1.0) - now)


class FakeKeepers:
    """The keepers of one node on a fake machine."""

    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine
        self.abilities = Abilities()

    async def open(self) -> list[FakeKeeper]:
        return list(self.machine.keepers.values())

    async def start(
        self,
        spec: KeeperSpec,
        *,
        image: Path | None = None,
        remote: int | None = None,
        ends: Mapping[int, int] = NO_ENDS,
        asked: Callable[[Any], None] | None = None,
    ) -> FakeKeeper:
        behaviour = self.machine.behave(spec)
        slow = _Starting(spec)
        if asked is not None:
            asked(slow)
        await slow.wait(behaviour.restoring if image is not None else 0.0)
        if image is not None and behaviour.broken:
            raise StartFailed(f"cannot start {spec.id}: restore checkpoint: broken", call="restore", path="checkpoint")
        keeper = FakeKeeper(self.machine, spec, behaviour, image)
        if spec.id in self.machine.keepers:  # of another schedd, which counts its jobs from 1, too
            keeper.key = f"{spec.id} of {spec.claim.get('claim')}"
        self.machine.keepers[keeper.key] = keeper
        self.machine.witness.started(self.machine.job_of(spec), self.machine.name, asyncio.get_running_loop().time())
        return keeper

    async def close(self, *, kill: bool) -> None:
        if kill:
            for keeper in list(self.machine.keepers.values()):
                await keeper.kill()
