"""Rematch running jobs to better machines (RL 4.1): asked for beside the idle ones, and then one step after the other.

    match -> claim of the other slot -> the job is asked to leave -> its end is reported -> it starts on the other slot

The other slot is claimed before the job leaves, so that nobody leaves for nothing, and the job starts there only when
its end here is durable: two copies never run (start contract, rule 2). Where a step fails the job runs on where it is,
or is idle like any that was evicted. `pool.policy.moving` decides which jobs may move. Off unless REMATCH is set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pool.classad import rank
from pool.jobs.privacy import public
from pool.policy import moving
from pool.policy.checkpoints import CheckpointWish, wish_of
from pool.policy.queue import RUNNING, QueuedJob
from pool.policy.slot_names import machine_of_slot
from pool.roles.schedd.core.claim_settings import ClaimSettings
from pool.roles.schedd.core.claims import HeldClaim
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.parallel.gathering import Obtain

#: Running jobs of one owner that look for better machines in one cycle.
MOST_AT_ONCE = 200


@dataclass(slots=True, eq=False)
class JobMove:
    """A job that leaves one slot for another."""

    old: HeldClaim
    new: HeldClaim
    left: asyncio.Event = field(default_factory=asyncio.Event)


class UseClaim(Protocol):
    """Starts a job on a claim, `first` before all others."""

    async def __call__(self, claim: HeldClaim, first: QueuedJob | None = None) -> None: ...


class Rematch:
    """The moves of one schedd's jobs. Without terms in the settings there are none.

    Args:
        obtain: claims the slot of a match.
        stop: has a running job stopped, with a wish for it then.
    """

    def __init__(
        self,
        context: ScheddContext,
        settings: ClaimSettings,
        *,
        obtain: Obtain,
        use: UseClaim,
        stop: Callable[[QueuedJob, dict[str, Any], bool], Awaitable[None]],
    ) -> None:
        self._context = context
        self._settings = settings
        self._obtain = obtain
        self._use = use
        self._stop = stop
        self._movers: dict[str, dict[QueuedJob, None]] = {}
        self._asked: dict[int, QueuedJob] = {}
        self._last = 0
        self._moves: dict[QueuedJob, JobMove] = {}

    def started(self, job: QueuedJob) -> None:
        """A job has a machine."""
        if self._settings.rematch is not None and moving.prefers({"Rank": job.get("Rank")}):
            self._movers.setdefault(job.cluster.owner, {})[job] = None

    def machine_lost(self, job: QueuedJob) -> None:
        """A job has its machine no more."""
        self._movers.get(job.cluster.owner, {}).pop(job, None)
        move = self._moves.get(job)
        if move is not None:
            move.old.spent = True
            move.left.set()

    def count(self, owner: str) -> int:
        """How many of an owner's running jobs look for a better machine, or will when they have run long enough."""
        if (terms := self._settings.rematch) is None:
            return 0
        most = terms.most
        return sum(int(job.get("NumMoves", 0)) < most for job in self._movers.get(owner, ()))

    def requests(self, owner: str) -> list[dict[str, Any]]:
        """The requests of an owner's running jobs, those that have waited longest for a better machine first."""
        terms = self._settings.rematch
        if terms is None:
            return []
        self._asked = {number: job for number, job in self._asked.items() if job.cluster.owner != owner}
        now = self._context.outside.wall()
        found: list[dict[str, Any]] = []
        for job in self._movers.get(owner, ()):
            claim: HeldClaim | None = job.run
            if claim is None or claim.job is not job or claim.lost or not self._free_to_move(job):
                continue
            wire = public(job.wire())
            if not moving.may_move(terms, wire, now):
                continue
            self._last -= 1
            self._asked[self._last] = job
            present = rank(job.ad(), claim.ad, now)
            found.append(
                {
                    "number": self._last,
                    "ad": moving.request(terms, wire, present),
                    "count": 1,
                    "oldest": float(wire.get("QDate") or 0),
                    "moving": True,
                    "runs": [[job.prio, 1]],
                }
            )
            if len(found) >= MOST_AT_ONCE:
                break
        return found

    def matched(self, match: dict[str, Any], owner: str) -> bool:
        """Take up a match of a running job; False where it is none."""
        number = int(match["request"])
        if number >= 0:
            return False
        job = self._asked.pop(number, None)
        if job is not None and self._free_to_move(job):
            self._context.spawn(self._move_job(match, owner, job), "move", alone=True)
        return True

    def _free_to_move(self, job: QueuedJob) -> bool:
        runs = job.status == RUNNING and job.run is not None
        return runs and job not in self._moves and not job.stored_note("_wish") and self._can_be_saved(job)

    @staticmethod
    def _can_be_saved(job: QueuedJob) -> bool:
        """A job that cannot be saved would lose more by a move than it wins."""
        wish = wish_of(job.ad())
        if wish is CheckpointWish.SELF:
            return True
        able = job.run is not None and job.run.ad.value("HasCheckpoint", False) is True
        return able and wish is not CheckpointWish.OFF and job.get("CheckpointTrouble") is None

    async def _move_job(self, match: dict[str, Any], owner: str, job: QueuedJob) -> None:
        for new in await self._obtain(match, owner, job, 1):
            wish = self._leave_wish(job, new)
            if wish is None:
                await self._use(new)
                continue
            move = self._moves[job] = JobMove(job.run, new)
            try:
                await self._stop(job, wish, True)
                async with asyncio.timeout(self._settings.patience):
                    await move.left.wait()
            except TimeoutError:
                pass
            finally:
                del self._moves[job]
            await self._use(new, job)

    def _leave_wish(self, job: QueuedJob, new: HeldClaim) -> dict[str, Any] | None:
        """The wish for the job at its end here; None when it stays."""
        terms, old = self._settings.rematch, job.run
        if terms is None or not self._free_to_move(job) or old.lost:
            return None
        now = self._context.outside.wall()
        here, there = rank(job.ad(), old.ad, now), rank(job.ad(), new.ad, now)
        if there <= here + terms.gain:
            return None
        why = f"moved to a better machine: {new.slot} ({there:g} over {here:g})"
        changes = moving.after_move(job.wire(), machine_of_slot(old.slot), now)
        return {"what": "move", "why": why, "graceful": True, "changes": changes}
