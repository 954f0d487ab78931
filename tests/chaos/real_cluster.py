"""The pool of real processes: six machines with their nodes, the network between them, and what jobs report.

All of it lives in a mount and a process namespace of its own (`inside`), which end with this process and take
everything along.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from pool.client import Pool
from tests.chaos.faults import HEAD, NODES, SCHEDDS, STARTDS
from tests.chaos.network import Network
from tests.chaos.place import PLACE, compiled_reporter, mounted
from tests.chaos.real_faults import LEASE
from tests.chaos.real_machines import Disk, Machine
from tests.e2e import support

SETTINGS = {
    "POLICY": "dedicated",
    "MAIL": "none",
    "RUN_AS": "node",
    "SLOTS": "4",
    "FILESYSTEM_DOMAIN": "$(NODE_NAME)",
    "SHOW_PATHS": str(PLACE / "reports"),
    "CLAIM_LEASE": f"{LEASE:g}",
    "UPDATE_INTERVAL": "2",
    "AD_LIFETIME": "20",
    "NEGOTIATION_INTERVAL": "1",
    "PERIODIC_INTERVAL": "5",
    "EVALUATE_INTERVAL": "1",
    "CLAIM_PATIENCE": "20",
    "CHECKPOINT_FIRST": "2",
    "CHECKPOINT_EXAMINE": "1",
    "CHECKPOINT_WORTH": "0.5",
    "RESTARTS_PER_HOUR": "1000000",
}


class Cluster:
    """The pool: six machines, the network between them, and the reports of jobs.

    Args:
        seed: of the network's chance.
        directory: where logs are kept, on a disk that stays.
    """

    def __init__(self, seed: int, directory: Path) -> None:
        self.directory = directory
        self.reports = mounted()
        self.file_servers = {name: Disk(PLACE / f"home-{name}", 48) for name in SCHEDDS}
        self.machines = {
            name: Machine(name, number, PLACE, directory, SETTINGS) for number, name in enumerate(NODES, start=1)
        }
        self.network = Network([machine.port for machine in self.machines.values()], seed)
        self.program = compiled_reporter(PLACE)

    async def start(self) -> None:
        """All nodes, until each knows the others."""
        head = self.machines[HEAD]
        head.start()
        await head.ready()
        async with await Pool.connect(head.address) as pool:
            for name, machine in self.machines.items():
                if name != HEAD:
                    asked = {"roles": list(machine.roles), "lifetime": 3600, "uses": 1}
                    machine.start((await pool.call("node.token", asked))["token"])
            for machine in self.machines.values():
                await machine.ready()
            await support.slots(pool, len(STARTDS))
        for machine in self.machines.values():
            machine.supervise()

    @contextlib.asynccontextmanager
    async def user(self, name: str) -> AsyncIterator[Pool]:
        """A user at a schedd; whatever hangs is an error after a while."""
        async with asyncio.timeout(15.0), await Pool.connect(self.machines[name].address, timeout=5.0) as pool:
            yield pool
