"""One process of the pool: reads its settings, listens, starts roles and restarts those that fail (A1).

    run_node   in the foreground until SIGTERM or SIGINT; SIGHUP reads the configuration again
    personal   everything embedded, for `poolnode run` and for tests with real processes

A node listens on one unix socket in its state directory, for the people of this machine, and on one TCP port when it
is part of a pool of several nodes. SIGTERM hands over: roles end cleanly and jobs run on in their keepers until the
node is there again or their leases end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pool import __version__
from pool.config import Change, Settings, secrets
from pool.config.places import PRIVATE, state_directory
from pool.enrolment import Enrolment
from pool.errors import PoolError
from pool.identity import file_tree_seen
from pool.invitations import Invitations
from pool.log import LEVELS, set_up_logging
from pool.mail import send_mail
from pool.metering import Meter
from pool.outside import OutsideWorld
from pool.policy.restarts import Restarts
from pool.policy.user_map import read_user_map
from pool.queries import Maintenance, Queries
from pool.revocation import Revocation
from pool.roles.base import Role, RoleContext, quota_of
from pool.roles.cooperative import WorkTurns
from pool.roles.garbage import GarbageCollection
from pool.roles.images.server import ImageServer
from pool.roles.links import Links
from pool.roles.loop_watch import LoopWatch
from pool.wire import Call, CannotListen, Dispatcher, Listening, Right, Service, method
from pool.wire.identity import user_name
from pool.wire.parameter_checks import TEXTS, optional

ROLES = ("collector", "negotiator", "schedd", "startd", "world")
SOCKET, PORT = "node.sock", "port"


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The command line's settings for a node.

    Attributes:
        roles: which roles to run; none given means those the configuration names.
        sets: settings that override every file.
        join: a token of the pool to join.
    """

    roles: tuple[str, ...] = ()
    config: Path | None = None
    state_dir: Path | None = None
    join: str | None = None
    sets: dict[str, str] = field(default_factory=dict)
    log_json: bool = False


class CannotRun(PoolError):
    """The node cannot be started."""


class Node:
    """A running node.

    Args:
        roles: the names of its roles.
        settings: as read.
        state: the directory for everything that must survive.
        outside: time, chance and secrets.
        reread: reads the settings again, for SIGHUP and `node.reload`.
    """

    def __init__(
        self,
        roles: Iterable[str],
        settings: Settings,
        state: Path,
        outside: OutsideWorld,
        reread: Callable[[], Settings],
        *,
        personal: bool,
    ) -> None:
        self.roles = tuple(roles)
        self.settings = settings
        self.state = state
        self.outside = outside
        self.log = logging.getLogger("pool")
        self.running: dict[str, Role] = {}
        self.given_up: dict[str, str] = {}
        self.stopping = asyncio.Event()
        self.failed = asyncio.Event()
        self.address = ""
        self._reread = reread
        self._personal = personal
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = contextlib.AsyncExitStack()
        self._ready: dict[str, asyncio.Event] = {}

    # -- life --------------------------------------------------------------------------------------------

    async def start(self, join: str | None = None) -> None:
        """Listen and start every role; returns when all have started once.

        Raises:
            CannotRun: the state directory cannot be used, the address is taken, a role cannot start at all.
        """
        from pool.wire import RealNetwork
        from pool.wire.certificates import check_name

        for name in self.roles:
            role_named(name)  # the imports take long, and nobody waits for an answer yet
        self.name = self.settings.text("NODE_NAME") or socket.gethostname()
        if not self._personal or "@" in self.name:
            check_name(self.name, ())
        _private_directory(self.state, 0o711 if os.geteuid() == 0 else 0o700)
        for name in PRIVATE:
            _private_directory(self.state / name)
        self.enrolment = await Enrolment.open(self.state, self.name, self.roles, self.settings, self.outside, join)
        self.dispatcher = Dispatcher()
        self._network = RealNetwork(
            self.dispatcher, self.enrolment.identity, self.enrolment.credentials, self.enrolment.user_of
        )
        self.links = Links(self._network, self.dispatcher)
        self._closing.push_async_callback(self.links.close)
        self.dispatcher.add("node", NodeService(self))
        self.dispatcher.add("node", Queries(self.links))
        self.dispatcher.add("node", Maintenance(self.links, lambda: self.enrolment.is_authority))
        if kept := self.settings.text("CHECKPOINT_DIR"):
            self.dispatcher.add("images", ImageServer(Path(kept), lambda: quota_of(self.settings)))
        self._unix = f"unix://{self.state / SOCKET}"
        server = await self._network.listen(self._unix, self.dispatcher)
        self._closing.callback((self.state / SOCKET).unlink, missing_ok=True)
        self._closing.push_async_callback(server.close)
        self.address = self._unix
        if self.enrolment.listens:
            await self._listen()
        self.links.set_own(frozenset({self._unix, self.address}))
        self.given = self._role_context()
        watch = LoopWatch(self.given.turns, self.log, self.outside.ticks)
        self._closing.callback(watch.close)
        self._closing.callback(GarbageCollection(self.outside.thread_cpu).close)
        if self.enrolment.listens:
            self._belong()
        for name in self.roles:
            self._ready[name] = asyncio.Event()
            self._tasks.append(asyncio.create_task(self._run_role(name, self.given), name=f"role {name}"))
        for name in self.roles:
            await self._ready[name].wait()
            if name in self.given_up:
                raise CannotRun(f"the {name} cannot start: {self.given_up[name]}")
        self.log.info("ready", extra={"node": self.name, "roles": ",".join(self.roles), "address": self.address})

    def _belong(self) -> None:
        """Learn who is removed from the pool, and keep this node's certificate good."""
        revocation = Revocation(self.enrolment, self._network, self._log_trust_change, self._exclude)
        self._revocation = revocation
        self.dispatcher.add("node", revocation)
        self._tasks.append(asyncio.create_task(revocation.renew_forever(self.links), name="certificate"))
        if self.enrolment.collector:
            self._tasks.append(asyncio.create_task(revocation.follow(self.links), name="revocations"))

    async def _revoke(self, name: str) -> None:
        """Put a name out of the pool at once."""
        await self._revocation.revoke_name(name)

    def _exclude(self, names: set[str]) -> None:
        for role in self.running.values():
            role.exclude(names)

    def _log_trust_change(self, what: str, which: str) -> None:
        self.log.info(what, extra={"which": which})

    async def _listen(self) -> None:
        """Be reached by other nodes: on LISTEN, or on any port where that is not asked for and taken.

        A port that was drawn is kept: the others know this node by it, and so do claims when it is started again.
        """
        listen = self.settings.text("LISTEN")
        host, _, port = listen.rpartition(":")
        wishes = [listen]
        if not self.settings.is_set("LISTEN"):
            wishes.append(f"{host}:0")
        kept = self.state / PORT
        if (port == "0" or len(wishes) > 1) and kept.exists():
            wishes.insert(0, f"{host}:{kept.read_text().strip()}")
        server = await self._listen_on(wishes)
        drawn = server.address.rpartition(":")[2]
        if drawn != port:
            kept.write_text(drawn)
        self._closing.push_async_callback(server.close)
        self.address = self.enrolment.public_address(server.address)
        gate = self.enrolment.join_service()
        if gate is not None:
            self.dispatcher.add("node", gate)

    async def _listen_on(self, wishes: list[str]) -> Listening:
        for wish in wishes[:-1]:
            with contextlib.suppress(CannotListen):
                return await self._network.listen(f"tcp://{wish}", self.dispatcher)
        return await self._network.listen(f"tcp://{wishes[-1]}", self.dispatcher)

    async def open_pool(self) -> None:
        """Let others join: make the pool's authority and listen on the network, if that has not been done."""
        if self.enrolment.listens:
            return
        if "collector" not in self.roles:
            raise CannotRun("tokens are made on the node that has the collector")
        await self.enrolment.found_pool()
        self._network.prove_with(self.enrolment.credentials)
        await self._listen()
        self._belong()
        self.links.set_own(frozenset({self._unix, self.address}))
        self.given.address = self.address
        for role in self.running.values():
            role.reload(self.settings)
        self.log.info("others can join", extra={"address": self.address})

    async def stop(self, *, handover: bool) -> None:
        """End every role; with `handover` jobs run on in their keepers."""
        self.stopping.set()
        for name in ("world", "negotiator", "schedd", "startd", "collector"):
            role = self.running.get(name)
            if role is not None:
                self._serve_no_more(role)
                with contextlib.suppress(Exception):
                    await role.stop(handover=handover)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._closing.aclose()

    async def _run_role(self, name: str, given: RoleContext) -> None:
        """Run one role for as long as the node lives, starting it again when it fails (EV 2.4)."""
        loop = asyncio.get_running_loop()
        restarts = Restarts(int(self.settings.number("RESTARTS_PER_HOUR")))
        first = True
        while not self.stopping.is_set():
            started = loop.time()
            role = make_role(name, given)
            try:
                await role.start()
                self.running[name] = role
                for service in role.services:
                    self.dispatcher.add(name, service, role.meter_of)
                for served_as, service in role.served.items():
                    self.dispatcher.add(served_as, service, role.meter_of)
                self._ready[name].set()
                await role.run()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if name in self.running:
                    self._serve_no_more(role)
                self.running.pop(name, None)
                with contextlib.suppress(Exception):
                    await role.die()
                if first and not self._ready[name].is_set():
                    self.given_up[name] = str(error)
                    self.log.debug("a role cannot start", exc_info=error, extra={"role": name})
                    self._ready[name].set()
                    return
                trace = None if isinstance(error, PoolError) else error
                self.log.error("a role failed", exc_info=trace, extra={"role": name, "error": str(error)})
                delay = restarts.failed(loop.time(), started)
                if delay is None:
                    self.given_up[name] = str(error)
                    self._mail_admin(f"the {name} on {self.name} failed too often and is given up: {error}")
                    if (again := self.settings.number("GIVEN_UP_RETRY")) == 0.0:
                        self.failed.set()
                        return
                    await asyncio.sleep(again)
                    self.log.info("a role that was given up is tried again", extra={"role": name})
                    del self.given_up[name]
                    continue
                self._mail_admin(f"the {name} on {self.name} failed and is started again: {error}")
                await asyncio.sleep(delay)
            first = False

    def _serve_no_more(self, role: Role) -> None:
        self.dispatcher.remove(role.name)
        for served_as in role.served:
            self.dispatcher.remove(served_as)

    def reload(self) -> list[Change]:
        """Read the configuration again; returns the settings that changed.

        Raises:
            PoolError: something in it is wrong; everything stays as it was.
        """
        settings = self._reread()
        changed = sorted(settings.changes_since(self.settings), key=lambda change: change.name)
        level = settings.text("LOG_LEVEL")
        if level.lower() not in LEVELS:
            raise PoolError(f"LOG_LEVEL = {level}: no such level", hint=f"one of {', '.join(LEVELS)}")
        read_user_map(settings.text("MAP_USERS"))
        try:
            for role in self.running.values():
                role.reload(settings)
        except PoolError:
            for role in self.running.values():
                role.reload(self.settings)
            raise
        for role in self.running.values():
            changed += role.file_changes
        self.log.setLevel(LEVELS[level.lower()])
        self.settings = self.given.settings = self.enrolment.settings = settings
        self.log.info("configuration read again", extra={"changed": ",".join(one.name for one in changed) or "nothing"})
        return changed

    def collector(self, own: str) -> str:
        """The address of the pool's collector; `own`, an address of this node, where it is this one."""
        return self.settings.text("COLLECTOR") or self.enrolment.collector or own

    # -- what roles are given ----------------------------------------------------------------------------

    def _role_context(self) -> RoleContext:
        from pool.machine import LinuxSensors
        from pool.shadow.files import OwnedFiles
        from pool.starter.abilities import WITHOUT
        from pool.starter.keeper import NativeKeepers
        from pool.starter.show_paths import shown
        from pool.store import Store
        from pool.store.accounts import AccountStore

        user = user_name(os.geteuid()) if self._personal or os.geteuid() != 0 else None
        return RoleContext(
            node=self.name,
            instance=self.enrolment.instance,
            address=self.address,
            collector=self.collector(self._unix),
            outside=self.outside,
            settings=self.settings,
            links=self.links,
            state=self.state,
            user=user,
            files=OwnedFiles(user=user),
            store=lambda: Store.open(str(self.state / "spool" / "queue.db")),
            accounts=lambda: AccountStore.open(str(self.state / "spool" / "accounts.db")),
            sensors=lambda: LinuxSensors(self.state),
            keepers=lambda: NativeKeepers(
                self.state / "keepers",
                show=shown(self.settings.text("SHOW_PATHS")),
                without=WITHOUT[self.settings.text("REMOTE_IO_WAY")],
            ),
            local_keepers=lambda: NativeKeepers(
                self.state / "local" / "keepers", show=shown(self.settings.text("SHOW_PATHS"))
            ),
            tell_admin=self._mail_admin,
            mail=self._mail,
            invitations=Invitations(lambda: self.enrolment, self.open_pool, lambda: self.address, self._revoke),
            log=self.log,
            turns=WorkTurns(self.outside.thread_cpu),
            aside=Meter(self.outside.thread_cpu),
        )

    def _mail_admin(self, text: str) -> None:
        self.log.critical("for the administrator", extra={"text": text})
        admin = self.settings.text("ADMIN")
        if admin:
            task = asyncio.get_running_loop().create_task(self._mail(admin, "poolnode: a role failed", text + "\n"))
            task.add_done_callback(lambda done: done.exception() if not done.cancelled() else None)

    async def _mail(self, to: str, subject: str, text: str) -> bool:
        return await send_mail(self.settings.text("MAIL"), to, subject, text)


class NodeService(Service):
    """The methods that every node answers, whatever its roles."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self._node = node

    @method(Right.READ)
    async def ping(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Whether the node is there: {} -> {node}"""
        return {"node": self._node.name}

    @method(Right.READ)
    async def info(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The description of this node: {} -> {node, version, roles, given_up, address, collector...}"""
        node = self._node
        return {
            "node": node.name,
            "version": __version__,
            "roles": sorted(node.running),
            "given_up": node.given_up,
            "address": node.address,
            "collector": node.collector(node.address),
            "state": str(node.state),
            "pid": os.getpid(),
            "identity": call.identity.name,
            "file_tree": file_tree_seen(),
            "filesystem_domain": node.settings.text("FILESYSTEM_DOMAIN"),
            "uid_domain": node.settings.text("UID_DOMAIN"),
        }

    @method(Right.READ, takes={"names": optional(TEXTS)})
    async def settings(self, call: Call, params: dict[str, Any]) -> list[dict[str, Any]]:
        """Every setting with its value and where that was set: {names?} -> [{name, value, source, unit, doc}]"""
        settings = self._node.settings
        return secrets.shown(settings, settings.describe(params.get("names")))

    @method(
        Right.ADMINISTER,
        takes={
            "roles": optional(TEXTS),
            "lifetime": int | float | None,
            "uses": int | None,
            "node": str | None,
            "user": str | None,
            "administer": bool | None,
        },
    )
    async def token(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """A join token, or a user's: {roles, lifetime, uses, user?, administer?} -> {token, expires, address}"""
        await self._node.open_pool()
        made = self._node.enrolment.token(self._node.address, params, call.identity.name)
        return {**made, "address": self._node.address}

    @method(Right.ADMINISTER)
    async def reload(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Read the configuration again: {} -> {changed: [{name, before, after, source, live}]}

        `live` settings are in force now; the others when the node is started again.
        """
        before = self._node.settings
        changed = self._node.reload()
        now = self._node.settings
        return {
            "changed": [
                {
                    "name": one.name,
                    "before": secrets.hidden(before, one.name, one.before),
                    "after": secrets.hidden(now, one.name, one.after),
                    "source": one.source,
                    "live": one.live,
                }
                for one in changed
            ]
        }

    @method(Right.ADMINISTER)
    async def stop(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """End the node, handing over: {} -> {}"""
        self._node.stopping.set()
        return {}


async def run_node(options: NodeOptions) -> int:
    """Run a node in the foreground; returns the exit status.

    Raises:
        PoolError: the configuration is wrong, or the node cannot start.
    """
    outside = OutsideWorld()
    state = (options.state_dir or _default_state()).absolute()
    sets = dict(options.sets)

    def read() -> Settings:
        return Settings.load(options.config, sets=sets, environ=os.environ)

    settings = read()
    set_up_logging(sys.stderr, as_json=options.log_json, level=settings.text("LOG_LEVEL"))
    for warning in settings.warnings:
        logging.getLogger("pool").warning("configuration", extra={"what": str(warning)})
    roles = options.roles or tuple(part.strip() for part in settings.text("ROLES").split(",") if part.strip())
    if not roles:
        raise CannotRun("no roles to run", hint=f"give --roles, any of {','.join(ROLES)}")
    node = Node(roles, settings, state, outside, read, personal=False)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, _reload, node)
    try:
        await node.start(options.join)
        if state != _default_state().absolute():
            node.log.info("reach this node with", extra={"command": f"poolnode q --address {state / SOCKET}"})
        waits = [asyncio.ensure_future(one.wait()) for one in (stop, node.stopping, node.failed)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        node.log.info("handing over", extra={"node": node.name})
    finally:
        await node.stop(handover=True)
    return 1 if node.failed.is_set() else 0


@contextlib.asynccontextmanager
async def personal(state_dir: Path, slots: int | None = None, sets: dict[str, str] | None = None) -> AsyncIterator[str]:
    """A whole pool in this process, for this user alone; yields the address of its node. Nothing of it stays.

    Args:
        state_dir: where it keeps its queue; stays if it is not temporary.
        slots: number of equal slots; None makes one partitionable slot of the machine.
        sets: settings that override the defaults of a personal pool.
    """
    node = _personal_node(state_dir, slots, sets)
    try:
        await node.start()
        yield node.address
    finally:
        await node.stop(handover=False)


def _personal_node(state_dir: Path, slots: int | None, sets: dict[str, str] | None) -> Node:
    own = {"POLICY": "dedicated", "LISTEN": "", "RUN_AS": "node", **(sets or {})}
    if slots is not None:
        own["SLOTS"] = str(slots)

    def read() -> Settings:
        return Settings.load(None, sets=own, environ={}, files=False)

    return Node(ROLES, read(), Path(state_dir).absolute(), OutsideWorld(), read, personal=True)


def role_named(name: str) -> type[Role]:
    """The class of a role, imported when it is first asked for: a node loads only the roles that it has.

    Raises:
        CannotRun: there is no such role.
    """
    if name == "collector":
        from pool.roles.collector import Collector

        return Collector
    if name == "negotiator":
        from pool.roles.negotiator import Negotiator

        return Negotiator
    if name == "schedd":
        from pool.roles.schedd import Schedd

        return Schedd
    if name == "startd":
        from pool.roles.startd import Startd

        return Startd
    if name == "world":
        from pool.roles.world import World

        return World
    raise CannotRun(f"there is no role {name}", hint=f"the roles are {', '.join(ROLES)}")


def make_role(name: str, given: RoleContext) -> Role:
    """A role by its name, not started yet."""
    return role_named(name)(given)


def _reload(node: Node) -> None:
    try:
        node.reload()
    except PoolError as error:
        node.log.error("the configuration was not taken", extra={"error": str(error)})


def _private_directory(path: Path, mode: int = 0o700) -> None:
    """Make a directory of the node's own, or see that it is one. With 0711 others reach the socket and no more.

    Raises:
        CannotRun: it is somebody else's, or cannot be written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True, mode=mode)
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode) or status.st_uid != os.geteuid():
            raise CannotRun(
                f"cannot use the state directory {path}: it is a link or another user's",
                hint="give another with --state",
            )
        path.chmod(mode)
        probe = path / ".probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise CannotRun(
            f"cannot use the state directory {path}: {error.strerror or error}", hint="give another with --state"
        ) from error


def _default_state() -> Path:
    return state_directory(os.environ, os.getuid())
