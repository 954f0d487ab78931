"""The environment of every role, and the calls that a node makes to it.

A role is a service (its RPC methods) with a life: `start` makes it ready, `run` lasts as long as it works and
raises when it fails, `stop` ends it. The node restarts a role that failed; a role therefore keeps everything that
must survive outside itself (store, keepers' directories, other roles).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

from pool import __version__
from pool.config import Change, Settings
from pool.errors import PoolError
from pool.machine import Sensors
from pool.metering import Meter
from pool.outside import OutsideWorld
from pool.roles.cooperative import WorkTurns
from pool.roles.links import Links
from pool.shadow.files import FilesOf
from pool.starter.keeper import Keepers
from pool.store import Store
from pool.store.accounts import AccountStore
from pool.wire import Network, RealNetwork, Service

#: The version of the language that jobs' expressions compare with.
LANGUAGE = f"$CondorVersion: 25.14.1 2026-01-01 poolnode-{__version__} $"


async def _users_network(token: str) -> tuple[str, Network]:
    from pool.wire.join import user_credentials

    address, credentials = await user_credentials(token)
    return address, RealNetwork(credentials=credentials)


def _strangers_network() -> Network:
    from pool.wire.join import strangers_network

    return strangers_network()


class PoolInvitations(Protocol):
    """The part of a node that has the pool's authority, as its world asks it (`pool.invitations`)."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def pools(self) -> list[str]: ...

    async def invite(self, pool: str, lifetime: float) -> dict[str, Any]: ...

    async def renew(self, pool: str, request: str) -> str: ...

    async def withdraw(self, pool: str) -> bool: ...


@dataclass(slots=True)
class RoleContext:
    """Everything a role takes from its node.

    Attributes:
        node: this node's name, unique in the pool.
        instance: drawn at the node's first start and kept, so that two nodes of one name are told apart.
        address: where other nodes reach it.
        collector: the address of the pool's collector.
        state: directory for what must survive; None keeps nothing (simulation).
        user: whom this node runs as; None when it may act for several users.
        files: submit-side file access by user name.
        store: opens the schedd's queue.
        accounts: opens what the negotiator remembers of users.
        sensors, keepers: made for a startd at its start.
        local_keepers: made for a schedd that starts jobs beside itself.
        tell_admin: leaves a message for the administrator (log, and mail where configured).
        turns: who does long work next, for all roles of the process.
        leases: of a startd that failed, when the lease of each claim was last asked for, for the one that follows it.
        pool_network: connects to another pool, with the credentials that it gave.
        user_network: the address in a user's token, and what connects with it.
        strangers_network: connects to nodes of other pools for one job (`pool.network.direct_link`).
        invitations: of other pools; None where this node has no authority (simulation).
        mail: sends a notice to a user; returns False where there is no mail here.
        aside: counts what this process does for no job of its schedd: jobs that run here, users' questions.
    """

    node: str
    instance: str
    address: str
    collector: str
    outside: OutsideWorld
    settings: Settings
    links: Links
    state: Path | None
    user: str | None
    files: FilesOf
    store: Callable[[], Store]
    accounts: Callable[[], AccountStore]
    sensors: Callable[[], Sensors]
    keepers: Callable[[], Keepers]
    local_keepers: Callable[[], Keepers]
    tell_admin: Callable[[str], None]
    mail: Callable[[str, str, str], Coroutine[Any, Any, bool]]
    pool_network: Callable[[Any], Network] = lambda credentials: RealNetwork(credentials=credentials)
    user_network: Callable[[str], Awaitable[tuple[str, Network]]] = _users_network
    strangers_network: Callable[[], Network] = _strangers_network
    invitations: PoolInvitations | None = None
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("pool"))
    turns: WorkTurns = field(default_factory=WorkTurns)
    leases: dict[str, float] = field(default_factory=dict)
    aside: Meter = field(default_factory=lambda: Meter(lambda: 0.0))


def quota_of(settings: Settings) -> int:
    """Bytes that checkpoints may take on this node's disk; 0 for no bound."""
    return int(settings.number("CHECKPOINT_QUOTA")) * 2**20


def bandwidth_of(settings: Settings) -> float:
    """Bytes a second that checkpoints may send from this node; 0 for no bound."""
    return settings.number("CHECKPOINT_BANDWIDTH") * 1e6


class Spawn(Protocol):
    """`Role.spawn`, as the parts of a role get it."""

    def __call__(self, work: Coroutine[Any, Any, Any], name: str, *, alone: bool = False) -> asyncio.Task[Any]: ...


class Role(Service):
    """A role of a node."""

    name: ClassVar[str]
    #: Its work is for no job of this process's schedd.
    is_aside: ClassVar[bool] = False
    #: Methods by which users ask; neither are they.
    questions: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, given: RoleContext) -> None:
        super().__init__()
        self.given = given
        self.settings = given.settings
        self.outside = given.outside
        self.log = given.log.getChild(self.name)
        #: Differences that the last `reload` has found in files that settings name.
        self.file_changes: tuple[Change, ...] = ()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed: asyncio.Future[None] | None = None
        #: It was stopped or is dead: connections and timers may still call it, and nothing may come of that.
        self._over = False

    @property
    def services(self) -> tuple[Service, ...]:
        """The methods served under the role's name: its own, and those of its parts."""
        return (self,)

    @property
    def served(self) -> Mapping[str, Service]:
        """Further services of the role, under names of their own."""
        return {}

    def meter_of(self, verb: str) -> Meter | None:
        """Counts a method that is called for no job of this process's schedd."""
        return self.given.aside if self.is_aside or verb in self.questions else None

    async def start(self) -> None:
        """Make ready; afterwards calls are served."""

    async def run(self) -> None:
        """Last until the role is stopped; raise what a background task of the role raised."""
        self._failed = asyncio.get_running_loop().create_future()
        await self._failed

    async def stop(self, *, handover: bool) -> None:
        """End the role. With `handover` running jobs go on in their keepers, to be found again."""
        self._over = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def die(self) -> None:
        """Stop without a word to anybody, as if the process had been killed: for the node's failures and tests."""
        await Role.stop(self, handover=True)

    def reload(self, settings: Settings) -> None:
        """Take in settings that were read again; running jobs are not touched."""
        self.settings = settings

    def exclude(self, nodes: set[str]) -> None:
        """Nodes that do not belong to the pool any more: forget their reports."""

    def spawn(self, work: Coroutine[Any, Any, Any], name: str, *, alone: bool = False) -> asyncio.Task[Any]:
        """Run something in the background of the role; if it raises, the role fails (and is restarted).

        Nothing begins in a role that is over: another may have taken its place.

        Args:
            alone: it concerns one job, and the others shall not feel it: what it raises is logged.
        """
        loop = asyncio.get_running_loop()
        if self._over:
            work.close()  # a task would need a turn to be cancelled, and the loop may end before it
            nothing: asyncio.Future[Any] = loop.create_future()
            nothing.cancel()
            return cast("asyncio.Task[Any]", nothing)
        work = self.given.aside.task(work) if self.is_aside else work
        task = loop.create_task(work, name=f"{self.name}.{name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended_alone if alone else self._ended)
        return task

    def _ended_alone(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.log_failure("work for one job failed", error, task=task.get_name())

    def log_failure(self, what: str, error: BaseException, **fields: Any) -> None:
        """Log a failure that ends no role: with its trace where it is a defect of the program."""
        trace = None if isinstance(error, (PoolError, OSError)) else error
        self.log.error(what, exc_info=trace, extra={**fields, "error": str(error)})

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)
        else:
            self.log.error("background work failed", exc_info=error, extra={"task": task.get_name()})
