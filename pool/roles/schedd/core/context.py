"""The means that every room of the schedd works with: data, and the ways out of the process.

None of them decides anything. A part that needs a decision of another part is given that part, or a call of it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pool.outside import OutsideWorld
from pool.policy.queue import JobQueue
from pool.roles.base import Spawn
from pool.roles.cooperative import WorkTurns
from pool.roles.links import Links
from pool.roles.schedd.core.claims import ClaimTable, HeldClaim
from pool.roles.schedd.core.ledger import Ledger
from pool.roles.schedd.core.startd_calls import StartdCalls


@dataclass(frozen=True, slots=True)
class ScheddContext:
    """The means of one schedd.

    Attributes:
        name: of the schedd's node.
        turns: give the processor to one piece of long work after the other; many jobs may start at once.
    """

    name: str
    ledger: Ledger
    claims: ClaimTable
    calls: StartdCalls
    links: Links
    outside: OutsideWorld
    log: logging.Logger
    turns: WorkTurns
    spawn: Spawn

    @property
    def queue(self) -> JobQueue:
        """The queue that the ledger keeps."""
        return self.ledger.queue

    def return_claim(self, claim: HeldClaim, lent_for: float | None = None) -> None:
        """Drop a claim, and tell its startd in the background.

        Args:
            lent_for: seconds for which the dedicated scheduler will not need the slot; None where it may at any time.
        """
        self.claims.drop(claim)
        self.spawn(self.calls.release(claim, lent_for), "release", alone=True)
