"""A pool that does not exist, of the roles that do: real collector, negotiator, schedds and startds in one process.

    async with SimPool(seed=1) as pool:
        await pool.add("head", "collector,negotiator,schedd")
        await pool.add("m1", "startd")
        cluster = await pool.submit("head", count=10)
        await pool.run_until(lambda: pool.queued("head") == 0)

Run it on a `VirtualLoop`: a day passes in a second, and every run with the same seed is the same run. `kill` ends a
node as kill -9 would; `crash` takes the machine with it; `restart` brings the node back to what it finds.
"""

from __future__ import annotations

import asyncio
import logging
import random
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pool import __version__
from pool.config import Settings
from pool.errors import PoolError
from pool.node import make_role
from pool.outside import OutsideWorld
from pool.policy.packed import unpack_over
from pool.roles.base import Role, RoleContext
from pool.roles.links import Links
from pool.shadow.files import LocalFiles
from pool.starter.spec import KeeperSpec
from pool.store import Store
from pool.store.accounts import AccountStore
from pool.testing.disks import Disk, memory_directory, nothing_fits
from pool.testing.faults import Trap, TrappedDispatcher, TrapPhase, Traps
from pool.testing.keepers import Behaviour, FakeKeepers, FakeMachine, Witness
from pool.testing.network import MemoryHost, MemoryNetwork
from pool.testing.sensors import FakeSensors
from pool.wire import Call, Dispatcher, Right, Service, method
from pool.wire.identity import node_identity, user_identity
from pool.wire.parameter_checks import TEXTS, optional

if TYPE_CHECKING:
    from pool.client import Pool

# The roles' logger: a program that tests with this and does not set up logging gets none of it.
logging.getLogger("pool").addHandler(logging.NullHandler())

#: Attributes of jobs that are expressions: a text in their place would match nothing, without a word.
EXPRESSIONS = (
    *("Requirements", "Rank", "LeaveJobInQueue", "OnExitHold", "OnExitRemove"),
    *("PeriodicHold", "PeriodicRelease", "PeriodicRemove"),
)
NO_ROLES: Mapping[str, type[Role]] = {}
#: Wall time at which every simulation begins: 2026-01-01 00:00 UTC.
BEGINNING = 1767225600.0


@dataclass(slots=True)
class SimNode:
    """One node of a simulated pool, alive or not."""

    name: str
    roles: tuple[str, ...]
    settings: dict[str, str]
    machine: FakeMachine
    #: The part of the same machine that jobs of the local universe run on.
    beside: FakeMachine
    sensors: FakeSensors
    store: Path | None
    disk: Disk
    running: dict[str, Role] = field(default_factory=dict)
    dispatcher: Dispatcher | None = None
    links: Links | None = None
    server: Any = None
    watchers: list[asyncio.Task[None]] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)


class SimPool:
    """A pool of real roles on machines and a network that do not exist.

    Args:
        seed: everything that happens follows from it.
        collector: the name of the node that will have the collector.
        settings: for every node; see `pool.config`.
        config: the text of a configuration file for every node, over which `settings` go; without one a node is
            dedicated and has one slot.
        directory: where schedds keep their queues, so that they can be restarted; None keeps them in memory, and the
            nodes' files, too, unless the pool is stateful.
        stateful: nodes have state directories, and schedds keep checkpoints, which may be more than fits in memory.
        network, witness: shared with other pools (`pool.testing.flock`); by default the pool's own.
        pool: its name in front of each of its jobs at the witness.
        roles: classes of roles in the place of those that nodes have.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        collector: str = "head",
        settings: dict[str, str] | None = None,
        config: str | None = None,
        directory: Path | None = None,
        stateful: bool = False,
        network: MemoryNetwork | None = None,
        witness: Witness | None = None,
        pool: str = "",
        roles: Mapping[str, type[Role]] = NO_ROLES,
    ) -> None:
        self._roles = roles
        self.chance = random.Random(seed)
        self.network = network or MemoryNetwork(random.Random(seed + 1))
        self.witness = witness or Witness()
        self._pool = pool
        self.nodes: dict[str, SimNode] = {}
        self.traps = Traps()
        self._wall_shift = 0.0
        self._collector = collector
        self._config = config
        self._settings = {
            **({"POLICY": "dedicated", "SLOTS": "1"} if config is None else {}),
            "FILESYSTEM_DOMAIN": "simulation",
            "RUN_AS": "node",
            "GANG_NETWORK": "host",  # a simulated machine has no relay
            **(settings or {}),
        }
        self._directory = directory
        self._disks: list[Disk] = []
        self._stateful = stateful

    async def __aenter__(self) -> Self:
        where = self._directory or (None if self._stateful else memory_directory())
        self._scratch = tempfile.TemporaryDirectory(prefix="poolnode-simulation-", dir=where)
        self._fullness = nothing_fits(self._disks)
        self._fullness.__enter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in list(self.nodes):
            await self.kill(name)
        self._fullness.__exit__(None, None, None)
        self._scratch.cleanup()

    def wall(self) -> float:
        """The pool's wall clock; `wall_shift` makes it jump."""
        return BEGINNING + asyncio.get_running_loop().time() + self._wall_shift

    @property
    def wall_shift(self) -> float:
        """Seconds by which the wall clock was set."""
        return self._wall_shift

    @wall_shift.setter
    def wall_shift(self, seconds: float) -> None:
        self._wall_shift = seconds
        for node in self.nodes.values():
            node.sensors.changed()

    async def add(
        self,
        name: str,
        roles: str,
        *,
        behave: Callable[[KeeperSpec], Behaviour] = lambda spec: Behaviour(),
        settings: dict[str, str] | None = None,
        cpus: int = 1,
    ) -> SimNode:
        """A new node with so many processors, started."""
        store = self._directory / f"{name}.db" if self._directory is not None else None
        node = SimNode(
            name,
            tuple(roles.split(",")),
            {**self._settings, **(settings or {})},
            FakeMachine(name, self.witness, behave, self._pool),
            FakeMachine(name, self.witness, behave, self._pool),
            FakeSensors(name, cpus=cpus),
            store,
            Disk(Path(self._scratch.name) / name),
        )
        self._disks.append(node.disk)
        self.nodes[name] = node
        await self._start(node)
        return node

    async def kill(self, name: str) -> None:
        """End a node as kill -9 does: no goodbyes, connections broken; what its machine runs goes on."""
        node = self.nodes[name]
        if not node.running:
            return
        if isinstance(node.dispatcher, TrappedDispatcher):
            node.dispatcher.dead = True
        self.network.crash(name)
        for watcher in node.watchers:
            watcher.cancel()
        await asyncio.gather(*node.watchers, return_exceptions=True)
        node.watchers.clear()
        for role in node.running.values():
            await role.die()
        node.running.clear()
        if node.links is not None:
            await node.links.close()
        if node.server is not None:
            await node.server.close()

    async def restart_role(self, name: str, role: str) -> None:
        """End one role of a node as a failure does, and start it again as the node would; connections stay."""
        node = self.nodes[name]
        before = node.running.pop(role)
        assert node.dispatcher is not None
        for served_as in (role, *before.served):
            node.dispatcher.remove(served_as)
        for watcher in [one for one in node.watchers if one.get_name() == f"watch {role}"]:
            node.watchers.remove(watcher)
            watcher.cancel()
        await before.die()
        await self._start_role(node, role, before.given)

    async def _start_role(self, node: SimNode, name: str, given: RoleContext) -> None:
        role = self._roles[name](given) if name in self._roles else make_role(name, given)
        await role.start()
        node.running[name] = role
        assert node.dispatcher is not None
        for service in role.services:
            node.dispatcher.add(name, service)
        for served_as, service in role.served.items():
            node.dispatcher.add(served_as, service)
        node.watchers.append(asyncio.create_task(self._watch(node, role), name=f"watch {name}"))

    def trap(self, method: str, phase: TrapPhase, victim: str, *, count: int = 1, machine_too: bool = False) -> Trap:
        """Have a node killed at a certain call; see `pool.testing.faults`."""

        async def trigger() -> None:
            await (self.crash(victim) if machine_too else self.kill(victim))

        return self.run_at(method, phase, trigger, count=count)

    def run_at(
        self, method: str, phase: TrapPhase, what: Callable[[], Coroutine[Any, Any, None]], *, count: int = 1
    ) -> Trap:
        """Have something happen right before or after a certain call is served."""
        trap = Trap(method, phase, what, count)
        self.traps.waiting.append(trap)
        return trap

    def fill_disk(self, name: str) -> None:
        """A node's disk takes nothing more: no change of its queue, no job's directory, no input; see `disks`."""
        self.nodes[name].disk.full = True

    def free_disk(self, name: str) -> None:
        """There is space again."""
        self.nodes[name].disk.full = False

    async def crash(self, name: str) -> None:
        """The machine fails: the node and every job on it are gone."""
        await self.kill(name)
        self.nodes[name].machine.crash()
        self.nodes[name].beside.crash()

    async def restart(self, name: str) -> SimNode:
        """Start a killed node again."""
        node = self.nodes[name]
        await self._start(node)
        return node

    async def _start(self, node: SimNode) -> None:
        address = f"mem://{node.name}"
        sets = {"NODE_NAME": node.name, "EXECUTE_DIR": f"{self._scratch.name}/{node.name}/execute", **node.settings}
        settings = self._loaded(sets)
        node.dispatcher = TrappedDispatcher(self.traps)
        self.network.restart(node.name)
        network = self.network.host(node.name, roles=node.roles, dispatcher=node.dispatcher)
        node.links = Links(network, node.dispatcher, frozenset({address}))
        node.server = await network.listen(address, node.dispatcher)
        seed = self.chance.getrandbits(64)
        chance = random.Random(seed)
        given = RoleContext(
            node=node.name,
            instance=node.name,
            address=address,
            collector=f"mem://{self._collector}",
            outside=OutsideWorld(
                wall=self.wall,
                chance=chance,
                secret=lambda size: chance.randbytes(size).hex(),
                cpu=lambda: 0.0,
                thread_cpu=lambda: 0.0,
                find_program=lambda name: None,
            ),
            settings=settings,
            links=node.links,
            state=self.state(node.name) if self._stateful else None,
            user=None,
            files=lambda owner: LocalFiles(inline=True),
            store=lambda: Store.open(str(node.store or ":memory:"), inline=True, factory=node.disk.connect),
            accounts=lambda: AccountStore.open(f"{node.store}.accounts" if node.store else ":memory:"),
            sensors=lambda: node.sensors,
            keepers=lambda: FakeKeepers(node.machine),
            local_keepers=lambda: FakeKeepers(node.beside),
            tell_admin=lambda text: None,
            mail=_no_mail,
            pool_network=lambda credentials: self.network.host(
                node.name, identity=node_identity(credentials.name, credentials.roles)
            ),
            user_network=lambda token: self._user_network(node.name, token),
        )
        for name in node.roles:
            await self._start_role(node, name, given)
        node.dispatcher.add("node", SimNodeService(node, given))

    async def _user_network(self, node: str, token: str) -> tuple[str, MemoryHost]:
        """A user's token for another pool is USER@NODE here, and always good."""
        user, _, at = token.rpartition("@")
        identity = user_identity(user)
        return f"mem://{at}", self.network.host(node, identity=identity)

    def state(self, name: str) -> Path:
        """The state directory of a node of a stateful pool."""
        return Path(f"{self._scratch.name}/state/{name}")

    def _loaded(self, sets: dict[str, str]) -> Settings:
        text = self._config
        if text is None:
            return Settings.load(None, sets=sets, environ={}, files=False)
        return Settings.load(Path(self._scratch.name) / "pool.conf", sets=sets, environ={}, opener=lambda path: text)

    async def _watch(self, node: SimNode, role: Role) -> None:
        try:
            await role.run()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            node.failures.append(error)

    async def connect(self, user: str = "alice", at: str = "head", *, administer: bool = False) -> Pool:
        """The library as a user's program has it, connected to the node on the program's own host.

        Raises:
            NoPool: no node runs there.
        """
        from pool.client import Pool

        identity = user_identity(user, administer=administer)
        host = MemoryHost(self.network, at, identity, identity, None)
        return await Pool.connect(f"mem://{at}", network=host, outside=OutsideWorld(wall=self.wall, chance=self.chance))

    # -- what tests ask ----------------------------------------------------------------------------------

    async def submit(self, name: str, *, count: int = 1, owner: str = "alice", ad: dict[str, Any] | None = None) -> int:
        """Queue jobs at a node's schedd; returns the cluster's number.

        Args:
            ad: attributes in wire form: an expression is a list with its text, `{"Requirements": ["Memory > 5"]}`.

        Raises:
            PoolError: a text stands where only an expression makes sense.
        """
        for attribute in EXPRESSIONS:
            if isinstance((ad or {}).get(attribute), str):
                raise PoolError(f"{attribute} is a text, which is never true", hint='write ["the expression"]')
        wire: dict[str, Any] = {
            "MyType": "Job",
            "Cmd": "/bin/true",
            "Iwd": "/",
            "Requirements": ["true"],
            "Rank": 0.0,
            "RequestCpus": 1,
            "RequestMemory": 1,
            "RequestDisk": 1,
            "ShouldTransferFiles": "IF_NEEDED",
            "FileSystemDomain": "simulation",
            **(ad or {}),
        }
        link = await self.network.user(owner, name)
        try:
            answer = await link.call("schedd.submit", {"ad": wire, "count": count, "deltas": None})
        finally:
            await link.close()
        return int(answer["cluster"])

    async def act(self, name: str, owner: str, **params: Any) -> dict[str, Any]:
        """`schedd.act` as a user."""
        link = await self.network.user(owner, name)
        try:
            answer: dict[str, Any] = await link.call("schedd.act", params)
            return answer
        finally:
            await link.close()

    def role(self, name: str, role: str) -> Any:
        """A running role of a node."""
        return self.nodes[name].running[role]

    async def ended(self, name: str) -> list[dict[str, Any]]:
        """The ads of a schedd's jobs that have left the queue."""
        found: list[dict[str, Any]] = []
        async for rows in self.role(name, "schedd").store.history():
            found += [unpack_over(row.ad, row.shared) for row in rows]
        return found

    def queued(self, name: str) -> int:
        """How many jobs a schedd has in its queue."""
        return len(self.role(name, "schedd").queue)

    async def run_until(self, condition: Callable[[], bool], within: float = 86400.0, step: float = 0.05) -> None:
        """Let virtual time pass until the condition holds.

        Raises:
            TimeoutError: it does not within so many (virtual) seconds.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        while not condition():
            if loop.time() > end:
                raise TimeoutError("the condition did not come about")
            await asyncio.sleep(step)
            step = min(step * 1.2, 5.0)

    def assert_sound(self, names: Iterable[str] | None = None) -> None:
        """Assert that no role failed and no job ever ran twice at a time."""
        for name in names or self.nodes:
            assert not self.nodes[name].failures, self.nodes[name].failures
        assert not self.witness.doubles, self.witness.doubles


class SimNodeService(Service):
    """The answers of every node, as far as there is something to answer here."""

    def __init__(self, node: SimNode, given: RoleContext) -> None:
        super().__init__()
        self._node, self._given = node, given

    @method(Right.READ)
    async def ping(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Whether the node is there: {} -> {node}"""
        return {"node": self._node.name}

    @method(Right.READ)
    async def info(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """The description of this node, as `NodeService.info`."""
        settings = self._given.settings
        return {
            "node": self._node.name,
            "version": __version__,
            "roles": sorted(self._node.running),
            "given_up": {},
            "address": self._given.address,
            "collector": self._given.collector,
            "state": str(self._given.state or ""),
            "pid": 0,
            "identity": call.identity.name,
            "filesystem_domain": settings.text("FILESYSTEM_DOMAIN"),
            "uid_domain": settings.text("UID_DOMAIN"),
        }

    @method(Right.READ, takes={"names": optional(TEXTS)})
    async def settings(self, call: Call, params: dict[str, Any]) -> list[dict[str, Any]]:
        """Every setting with its value and where that was set: {names?} -> [{name, value, source, unit, doc}]"""
        return self._given.settings.describe(params.get("names"))


async def _no_mail(to: str, subject: str, text: str) -> bool:
    return False
