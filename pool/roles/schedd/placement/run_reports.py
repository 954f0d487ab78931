"""Reports of startds about running jobs: started, suspended, saved, about to leave its machine, not to be saved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from pool.jobs import costs
from pool.jobs.events import EventKind
from pool.jobs.reasons import Hold
from pool.jobs.states import Happening
from pool.policy.checkpoints import CheckpointWish, wish_of
from pool.policy.gangs import costs_of
from pool.policy.queue import RUNNING, SUSPENDED, QueuedJob
from pool.roles.schedd.checkpoints.images import StoredCheckpoints
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.job_ends import BEGAN, network_changes, started, usage_changes
from pool.roles.schedd.core.ledger import JobChange
from pool.roles.schedd.parallel.gangs import Gangs
from pool.roles.schedd.placement.successor import Successors

#: Reasons why a job cannot be saved that are kept with it.
MOST_LINES = 20


class OwnersFiles(Protocol):
    """The files that a job works on from another machine."""

    async def keep_changes(self, job: QueuedJob, run: int) -> None:
        """The job has saved itself in them: they stay as they are now."""


class RunReports:
    """Takes the reports about one schedd's running jobs.

    Args:
        remote: the files of jobs that work on them from another machine.
        stop: has a running job stopped, with a wish for it then.
        refused: called with a job that cannot be checkpointed and the reason, or with "" where it can again.
    """

    def __init__(
        self,
        context: ScheddContext,
        images: StoredCheckpoints,
        gangs: Gangs,
        successors: Successors,
        remote: OwnersFiles,
        *,
        stop: Callable[[QueuedJob, dict[str, Any], bool], Awaitable[None]],
        refused: Callable[[QueuedJob, str], None],
    ) -> None:
        self._context = context
        self._images = images
        self._gangs = gangs
        self._successors = successors
        self._remote = remote
        self._stop = stop
        self._refused = refused

    async def record(self, claim_id: str, run: int, kind: str, data: dict[str, Any]) -> None:
        """Write down a report about the present run on a claim; one about another run is passed over."""
        claim = self._context.claims.get(claim_id)
        if claim is None or claim.job is None or claim.run != run:
            return
        job = claim.job
        claim.going = True
        use = claim.take_network(data)
        changes = usage_changes(data)
        if kind == "started" and claim.gang is not None and claim.gang.parallel:
            await self._gangs.node_started(claim)
            return
        if kind == "started":
            if job.get(BEGAN) is not None:
                return  # reported again by a startd that was restarted
            changes[BEGAN] = int(data.get("started") or self._context.outside.wall())
            step = JobChange(job, None, changes, EventKind.EXECUTE, {"slot": claim.slot, **started(data)})
        elif claim.gang is not None and not self._gangs.concerns_job(claim, kind, data, changes):
            return
        elif kind == "suspended" and job.status == RUNNING:
            changes["TotalSuspensions"] = int(job.get("TotalSuspensions", 0)) + 1
            changes["LastSuspensionTime"] = int(self._context.outside.wall())
            changes["SuspendReason"] = why = str(data.get("why") or "")
            step = JobChange(job, Happening.SUSPEND, changes, EventKind.SUSPENDED, {"slot": claim.slot, "why": why})
        elif kind == "continued" and job.status == SUSPENDED:
            step = JobChange(job, Happening.CONTINUE, changes, EventKind.UNSUSPENDED, {"slot": claim.slot})
        elif kind == "checkpointed":
            await self._remote.keep_changes(job, run)
            await self._images.record_checkpoint(job, {})
            return
        elif kind == "saved" and claim.gang is not None:
            claim.gang.costs[claim.part] = data
            gang = claim.gang
            await self._gangs.events.saved(
                gang, lambda: JobChange(job, None, self._saved(job, run, costs_of(gang.costs.values())))
            )
            return
        elif kind == "saved":
            step = JobChange(job, None, changes | self._saved(job, run, data))
        elif kind == "leaving":
            self._successors.find_next(claim, data.get("nearer"))
            self._gangs.sets.part_leaves(claim, data.get("last"))
            return
        elif kind == "unresumable":
            lines = self._gangs.merge_troubles(claim, [str(line) for line in data.get("why", ())])
            await self._unresumable(job, lines[:MOST_LINES])
            return
        elif kind == "usage" and changes:
            changes |= network_changes(job, use)
            if all(job.get(name) == value for name, value in changes.items()):
                return
            step = JobChange(job, None, changes, EventKind.IMAGE_SIZE, data)
        else:
            return
        await self._context.ledger.commit(step)

    def _saved(self, job: QueuedJob, run: int, data: dict[str, Any]) -> dict[str, Any]:
        """The changes of a job that has been saved: the cost of its checkpoint, and the work that it keeps."""
        changes = costs.cost_changes(job.get, run, job.stored_note(costs.COSTS), data)
        work = float(job.get("CommittedTime") or 0.0) + costs.committed(run, changes[costs.COSTS])
        return changes | costs.reached(job.stored_note(costs.HELD), self._images.latest(job), work)

    async def _unresumable(self, job: QueuedJob, why: list[str]) -> None:
        """The job cannot be saved: its user is told by name, before work is lost; a job that requires it is held (C7).

        Args:
            why: a line each; none where it can be saved again.
        """
        text, ledger = "; ".join(why), self._context.ledger
        self._refused(job, text)
        if not why:
            if job.get("CheckpointTrouble") is not None:
                notice = {"text": "This job can be checkpointed now"}
                await ledger.commit(JobChange(job, None, {"CheckpointTrouble": None}, EventKind.NOTICE, notice))
            return
        if job.get("CheckpointTrouble") == text:
            return
        if wish_of(job.ad()) is CheckpointWish.REQUIRED:
            reason = f"it cannot be checkpointed: {text}"
            await self._stop(job, {"what": "hold", "why": reason, "code": int(Hold.CHECKPOINT_FAILED)}, False)
        else:
            notice = {"text": f"This job cannot be checkpointed: {text}"}
            await ledger.commit(JobChange(job, None, {"CheckpointTrouble": text}, EventKind.NOTICE, notice))
