"""Which job a claim serves next, and the start that its startd is sent.

A start is worked out once for jobs that follow each other on a claim and differ in nothing that it goes by. The step
that marks a job as running has to be durable before the start is sent (docs/architecture.md, "The start contract").
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from pool.classad import symmetric_match
from pool.jobs import costs
from pool.jobs.activation import Activation, CannotStart, FileMode, activation, mode_with_checkpoint
from pool.jobs.machine_attributes import of_machine
from pool.jobs.reasons import Hold
from pool.jobs.start_key import start_key, touches_start
from pool.jobs.states import Happening
from pool.jobs.substitution import CannotFill, fill, needs_filling
from pool.policy.job_groups import JobGroup
from pool.policy.managed import SCHEDULER, submitter_of
from pool.policy.queue import IDLE, QueuedJob
from pool.roles.schedd.checkpoints.images import StoredCheckpoints
from pool.roles.schedd.core.claim_settings import ClaimSettings
from pool.roles.schedd.core.claims import HandedOn, HeldClaim
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.job_ends import hold_step, not_begun
from pool.roles.schedd.core.ledger import JobChange
from pool.roles.schedd.files.remote_io import copied
from pool.roles.schedd.parallel.gathering import is_gang

#: A job that was handed on comes back unless it has begun within so many seconds, and so many times what the job before
#: took.
SHORTEST_TURN, LONGER = 0.5, 2.0


class ExecutableDigests(Protocol):
    """The store of clusters' executables (A12)."""

    def digest_of(self, job: QueuedJob) -> str | None:
        """The digest of a job's stored executable; None where none is stored."""


class Starts:
    """The starts of one schedd's jobs on claims of one slot.

    Args:
        images: the checkpoints that starts continue from.
        heard: the loop's time at which a negotiator asked last.
        delay: seconds until the program of a job that is started now may begin.
        started: called with each job that is marked as running.
    """

    def __init__(
        self,
        context: ScheddContext,
        settings: ClaimSettings,
        executables: ExecutableDigests,
        images: StoredCheckpoints,
        *,
        heard: Callable[[], float],
        delay: Callable[[QueuedJob], float],
        started: Callable[[QueuedJob], None],
    ) -> None:
        self._context = context
        self._settings = settings
        self._executables = executables
        self._images = images
        self._heard = heard
        self._delay = delay
        self._started = started

    def choose(self, claim: HeldClaim, steps: list[JobChange], first: QueuedJob | None = None) -> Activation | None:
        """The start of the next job for a claim, which is marked as running there; None where there is no job for it.

        Args:
            steps: the steps to commit are added to it, those that hold jobs which can never start among them.
            first: the job that comes before all others.
        """
        queue = self._context.queue
        if claim.lost or self.is_spent(claim):
            return None
        if first is not None and (first.status != IDLE or first is claim.left_by or queue.is_withheld(first)):
            first = None
        if first is not None and (start := self.mark(claim, first, steps)) is not None:
            return start
        for group in queue.groups(claim.owner):
            if not self._fits(claim, group):
                continue
            while (job := queue.first(group)) is not None and job is not claim.left_by:
                if (start := self.mark(claim, job, steps)) is not None:
                    return start
        return None

    def hand_on(self, claim: HeldClaim, steps: list[JobChange]) -> Activation | None:
        """The start of the job that follows a claim's present one, which is marked as running; None without one.

        Only a job of the same cluster that needs nothing of the submit side to begin is handed on: its startd begins it
        before the end of the present one is acknowledged.

        Args:
            steps: the steps to commit are added to it.
        """
        queue, present = self._context.queue, claim.job
        if present is None or not self._hands_on(claim):
            return None
        for group in queue.groups(claim.owner):
            if not self._fits(claim, group):
                continue
            job = queue.first(group)
            if job is None or job.cluster is not present.cluster or job is claim.left_by:
                return None
            try:
                start = self._start_of(claim, job, int(job.get("NumJobStarts", 0)) + 1)
            except (CannotStart, CannotFill):
                return None  # it is held when its turn comes
            if not _begins_alone(start):
                return None
            claim.handed_on = HandedOn(job, start.run, start)
            steps.append(self._start_step(claim, job, start))
            self._context.ledger.apply_early(steps[-1])
            return start
        return None

    def _hands_on(self, claim: HeldClaim) -> bool:
        """Whether a job is handed on: jobs are short there, and there are more than claims that could begin them."""
        if claim.took >= self._settings.hand_on_below or claim.handed_on is not None or claim.keep:
            return False
        if claim.lost or claim.dedicated or claim.gang is not None or self.is_spent(claim):
            return False
        return self._context.queue.count(claim.owner, IDLE) > len(self._context.claims)

    def is_spent(self, claim: HeldClaim) -> bool:
        """Whether no other job follows on a claim. Without a negotiator nobody could grant another for it."""
        now = asyncio.get_running_loop().time()
        granted_anew = now - self._heard() < self._settings.unheard
        return claim.spent or (now - claim.born > self._settings.life and granted_anew)

    def order(self, claim: HeldClaim, *, whole: bool = False) -> dict[str, Any]:
        """The message that starts the claim's present job: all of it, or the differences from the order before."""
        assert claim.job is not None
        return self._order(claim, claim.job, claim.start, whole)

    def handed_order(self, claim: HeldClaim, *, whole: bool = False) -> dict[str, Any] | None:
        """The order for the job that was handed on, None without one: comes after that for the present one."""
        handed = claim.handed_on
        if handed is None or handed.start is None:
            return None
        within = SHORTEST_TURN + LONGER * (claim.took if math.isfinite(claim.took) else 0.0)
        return {**self._order(claim, handed.job, handed.start, whole), "within": within}

    def _order(self, claim: HeldClaim, job: QueuedJob, start: Activation | None, whole: bool) -> dict[str, Any]:
        assert start is not None
        before = None if whole else claim.sent
        same_cluster = before is not None and before.job[0] == job.cluster.id
        claim.sent = start
        own = job.own_wire() if claim.gang is None else claim.gang.part_attributes(claim.part)
        if claim.runs_own(job):
            own = {**own, SCHEDULER: submitter_of(self._context.name)}
        return {
            "claim": claim.id,
            "base": list(before.mark) if before is not None else None,
            "start": start.to_wire(before),
            "shared": None if same_cluster else job.cluster.wire,
            "own": own,
        }

    def restore_start(self, claim: HeldClaim, job: QueuedJob, run: int) -> Activation:
        """The start that a job was sent before the schedd was restarted.

        Raises:
            PoolError: it cannot be worked out any more.
        """
        mode = (job.stored_note("_run") or {}).get("mode")
        made_in = FileMode(mode) if mode in set(FileMode) else None
        return activation(job.ad(), claim.ad, run, self._executables.digest_of(job), made_in=made_in)

    def mark(self, claim: HeldClaim, job: QueuedJob, steps: list[JobChange]) -> Activation | None:
        """Mark an idle job as running on a claim; hold it, if it can never start. Adds to `steps`."""
        start: Activation | None = None
        try:
            start = self._start_of(claim, job, int(job.get("NumJobStarts", 0)) + 1)
            claim.job, claim.run, claim.start, claim.going = job, start.run, start, False
            claim.idle_until = None
            step = self._start_step(claim, job, start)
        except (CannotStart, CannotFill) as error:
            step = hold_step(job, f"cannot start: {error}", Hold.START_FAILED)
        except Exception as error:  # the others' starts go on
            self._context.log.exception("a start could not be worked out", extra={"job": job.id})
            step = hold_step(job, f"cannot start: {type(error).__name__}: {error}", Hold.START_FAILED)
        notice = copied(job, claim, start) if start is not None else None
        for each in (step, notice):
            if each is not None:
                self._context.ledger.apply_early(each)
                steps.append(each)
        return start

    def _start_of(self, claim: HeldClaim, job: QueuedJob, run: int) -> Activation:
        digest = self._executables.digest_of(job)
        made_in = self._images.made_in(job)
        checkpoint = self._images.newest(job, lambda: mode_with_checkpoint(job.ad(), claim.ad, made_in))
        is_plain = not (touches_start(job.delta) or touches_start(job.state))
        known, key = claim.template, None
        if checkpoint is None:
            if is_plain and known is not None and claim.template_of == job.cluster.id:
                key = claim.template_key
            else:
                key = start_key(job.cluster.wire if is_plain else job.wire())
        alike = known is not None and key is not None and key == claim.template_key
        if alike and is_plain:
            claim.template_of = job.cluster.id
        if known is not None and alike and (known.digest == digest or not known.carries_executable):
            return known.for_job(job.id, run)
        ad = job.ad()
        if needs_filling(ad):
            ad = fill(ad, claim.ad, self._context.outside.wall())
        start = activation(ad, claim.ad, run, digest, checkpoint, made_in if checkpoint is not None else None)
        if checkpoint is not None:
            start = replace(start, checkpoint_from=self._images.peer_of(job, checkpoint))
        if delay := self._delay(job):
            start = replace(start, not_before=delay)
        shared = key is not None and not start.not_before and not start.manifest
        claim.template, claim.template_key = (start, key) if shared else (None, None)
        claim.template_of = job.cluster.id if shared and is_plain else None
        return start

    def _fits(self, claim: HeldClaim, group: JobGroup) -> bool:
        known = claim.fits.get(group.id)
        if known is None:
            lease = self._settings.lease_of(group.ad.value("JobLeaseDuration"))
            granted = group.charge == claim.charge and lease == claim.lease
            now = self._context.outside.wall()
            known = granted and not is_gang(group.ad) and symmetric_match(group.ad, claim.ad, now)
            claim.fits[group.id] = known
        return known

    def _start_step(self, claim: HeldClaim, job: QueuedJob, start: Activation) -> JobChange:
        claim.turn += 1
        job.run = claim
        self._started(job)
        now = int(self._context.outside.wall())
        changes: dict[str, Any] = {
            "NumJobStarts": start.run,
            "JobCurrentStartDate": now,
            "RemoteHost": claim.slot,
            "_run": {
                "claim": claim.id,
                "slot": claim.slot,
                "startd": claim.startd,
                "owner": claim.owner,
                "lease": claim.lease,
                "run": start.run,
                "turn": claim.turn,
                "mode": start.mode.value,
            },
        }
        if job.get("JobStartDate") is None:
            changes["JobStartDate"] = now
        if job.get("JobMachineAttrs") is not None:
            changes |= of_machine(job.get, claim.ad.value)
        changes |= costs.goes_on(job.get, job.stored_note(costs.HELD), start.checkpoint)
        changes |= costs.restarts(job.get, start.checkpoint)
        return JobChange(job, Happening.START, changes | not_begun(job))


def _begins_alone(start: Activation) -> bool:
    """Whether its startd needs nothing more of the submit side to begin it, and has nothing to send after its end."""
    if start.mode is not FileMode.SHARED or start.checkpoint is not None or start.checkpoint_code is not None:
        return False
    several = start.gang or start.processes or start.mpi
    return not (several or start.image or start.not_before or start.job_network or start.manifest)
